"""What the compile table compiles of attention: forward and backward."""

import functools

import jax
import jax.numpy as jnp

from tandem.kernels.attention import api
from tandem.kernels.attention import shapes
from tandem.kernels.compile_table import case

# N, S, Q, K, H: lengths that need padding.
SMALL = {'h128': (2, 300, 4, 2, 128), 'h64': (1, 200, 3, 1, 64)}


def compile_cases() -> list[case.Case]:
  """The platform's own, named; forward, and two kernels of backward on TPU."""
  out = []
  sizes = [(f'small/{name}', size, False) for name, size in SMALL.items()]
  for name, shape in shapes.SHAPES.items():
    sizes.append((name, (shapes.ROWS, shapes.LENGTH, *shape), True))
  for name, size, full in sizes:
    # cuDNN's is a call to a library, no kernel that the compiler makes.
    for kernel, platform, calls in (('splash', 'tpu', 3), ('cudnn', 'gpu', 0)):
      out.append(
        case.Case(
          f'attention/{kernel}/{name}',
          platform,
          functools.partial(_program, kernel, size),
          full=full,
          calls=calls,
        )
      )
  return out


def _program(implementation, size, mesh):
  n, s, q, k, h = size
  f = functools.partial(api.attention, implementation=implementation, mesh=mesh)
  loss = lambda *x: f(*x).astype(jnp.float32).sum()
  array = lambda heads: jax.ShapeDtypeStruct((n, s, heads, h), jnp.bfloat16)
  return jax.value_and_grad(loss, (0, 1, 2)), (array(q), array(k), array(k))

"""What the compile table compiles of decode_attention."""

import functools

import jax
import jax.numpy as jnp

from tandem.kernels.compile_table import case
from tandem.kernels.decode_attention import api
from tandem.kernels.decode_attention import shapes

# B, G, C, Q, K, H, P, S: whole heads, one device's share of them, float32.
SMALL = {
  'whole': ((2, 2, 1, 32, 8, 128, 300, 600), jnp.bfloat16),
  'share': ((2, 2, 8, 8, 2, 128, 300, 600), jnp.bfloat16),
  'float32': ((2, 2, 3, 4, 1, 128, 300, 600), jnp.float32),
}
# The compiler would copy this cache at every step, so we refuse it.
NARROW = (2, 2, 1, 9, 3, 64, 300, 600)


def compile_cases() -> list[case.Case]:
  """Prompts and rows, in every model's shape; two kernel calls each."""
  out = []
  add = lambda name, platform, size, dtype, **kwargs: out.append(
    case.Case(
      f'decode_attention/pallas_{platform}/{name}',
      platform,
      functools.partial(_program, f'pallas_{platform}', size, dtype),
      calls=2,
      **kwargs,
    )
  )
  for platform in api.PLATFORMS:
    for name, (size, dtype) in SMALL.items():
      add(f'small/{name}', platform, size, dtype)
  add('small/narrow', 'gpu', NARROW, jnp.bfloat16)
  add('narrow', 'tpu', NARROW, jnp.bfloat16, refused='do not fill tiles')
  for name, shape in shapes.SHAPES.items():
    for c in shapes.QUERIES:
      size = (shapes.PROMPTS, shapes.GROUP, c, *shape)
      size += (shapes.PROMPT, shapes.SLOTS)
      for platform in api.PLATFORMS:
        if platform == 'gpu' or shape.head_dim % 128 == 0:
          add(f'{name}/c{c}', platform, size, jnp.bfloat16, full=True)
  return out


def _program(implementation, size, dtype, mesh):
  b, g, c, q, k, h, p, s = size
  layout = 'slots' if implementation == 'pallas_tpu' else 'heads'
  f = functools.partial(
    api.decode_attention,
    layout=layout,
    implementation=implementation,
    mesh=mesh,
  )
  struct = jax.ShapeDtypeStruct
  keys = lambda n, t: struct(
    (n, t, k, h) if layout == 'slots' else (n, k, t, h), dtype
  )
  n = b * g
  return f, (
    struct((n, c, q, h), dtype),
    keys(b, p),
    keys(b, p),
    keys(n, s),
    keys(n, s),
    struct((b,), jnp.int32),
    struct((n, c), jnp.int32),
  )

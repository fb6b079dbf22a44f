"""What the compile table compiles of handoff_sample."""

import functools

import jax
import jax.numpy as jnp

from tandem.kernels.compile_table import case
from tandem.kernels.handoff_sample import api
from tandem.kernels.handoff_sample import shapes

# temperature, filters, dtype of the logits
LAWS = {
  'full_law': (1.0, False, jnp.float32),
  'filtered': (0.6, True, jnp.float32),
  'greedy': (0.0, False, jnp.float32),
  'bfloat16': (1.0, False, jnp.bfloat16),
}
SMALL = 5, 5000  # rows that need padding, and a tail


def compile_cases() -> list[case.Case]:
  """Every law at a small size; the full law at the real ones."""
  out = []
  for platform in api.PLATFORMS:
    sizes = [(f'small/{name}', SMALL, law) for name, law in LAWS.items()]
    for name, vocab in shapes.VOCABULARIES.items():
      sizes.append((name, (shapes.ROWS, vocab), LAWS['full_law']))
    for name, size, law in sizes:
      kernel = f'pallas_{platform}'
      out.append(
        case.Case(
          f'handoff_sample/{kernel}/{name}',
          platform,
          functools.partial(_program, kernel, size, law),
          full=not name.startswith('small'),
        )
      )
  return out


def _program(implementation, size, law, mesh):
  (n, vocab), (temperature, filtered, dtype) = size, law
  struct = jax.ShapeDtypeStruct

  def f(senior, junior, keys, boundary, author, least):
    return api.handoff_sample(
      senior,
      junior,
      keys,
      boundary,
      author,
      least=(least, least) if filtered else (None, None),
      temperature=temperature,
      implementation=implementation,
      mesh=mesh,
    )

  return f, (
    struct((n, vocab), dtype),
    struct((n, vocab), dtype),
    struct((n, 2), jnp.uint32),
    struct((vocab,), jnp.bool_),
    struct((n,), jnp.bool_),
    struct((n,), jnp.float32),
  )

"""What the compile table compiles of token_logprob: forward and backward."""

import functools

import jax
import jax.numpy as jnp

from tandem.kernels.compile_table import case
from tandem.kernels.token_logprob import api
from tandem.kernels.token_logprob import shapes

PLATFORMS = ('tpu', 'gpu')
CALLS = {'pallas_tpu': 2, 'pallas_gpu': 2, 'xla': 0}
TAIL = 163  # entries of the last vocabulary block
SMALL = {
  # Real widths, a vocabulary of a few blocks; rows that need padding.
  'smollm2_135m': (1000, 576, 2048 + TAIL, True, jnp.bfloat16),
  'float32': (1024, 1024, 2048 + TAIL, False, jnp.float32),
}


def compile_cases() -> list[case.Case]:
  """Value and gradient, small and at every shape of `shapes`."""
  out = []
  for platform in PLATFORMS:
    kernel = f'pallas_{platform}'
    for name, size in SMALL.items():
      build = functools.partial(_program, kernel, *size)
      out.append(
        case.Case(
          f'{kernel}/small/{name}', platform, build, calls=CALLS[kernel]
        )
      )
    for name, shape in shapes.SHAPES.items():
      size = (shapes.ROWS, *shape, jnp.bfloat16)
      for label, implementation in (
        (kernel, kernel),
        (f'xla/{platform}', 'xla'),
      ):
        out.append(
          case.Case(
            f'{label}/{name}',
            platform,
            functools.partial(_program, implementation, *size),
            full=True,
            calls=CALLS[implementation],
          )
        )
    # The paper's pair: KL to a frozen model of the same size, and the overlap.
    shape = shapes.SHAPES['qwen3_4b']
    out.append(
      case.Case(
        f'pair/{platform}/qwen3_4b',
        platform,
        functools.partial(_pair, shapes.ROWS, *shape, jnp.bfloat16),
        full=True,
        calls=0,
      )
    )
  return [x._replace(name=f'token_logprob/{x.name}') for x in out]


def _program(implementation, rows, dim, vocab, tied, dtype, mesh):
  def loss(hidden, head, targets):
    stats = api.token_logprob(
      hidden,
      head,
      targets,
      temperature=0.6,
      entropy=True,
      vocab_first=tied,
      implementation=implementation,
      mesh=mesh,
    )
    return stats.logp.sum() + stats.entropy.sum()

  arguments = _arguments(rows, dim, vocab, tied, dtype)
  return jax.value_and_grad(loss, (0, 1)), arguments


def _pair(rows, dim, vocab, tied, dtype, mesh):
  def loss(hidden, head, hidden2, head2, targets):
    stats = api.pair_stats(
      hidden,
      head,
      hidden2,
      head2,
      targets,
      temperature=0.6,
      entropy=True,
      vocab_first=tied,
      vocab_first2=tied,
      mesh=mesh,
    )
    total = stats.logp.sum() + stats.entropy.sum() + stats.kl.sum()
    return total, stats.overlap

  *both, targets = _arguments(rows, dim, vocab, tied, dtype)
  return jax.value_and_grad(loss, (0, 1), has_aux=True), (*both, *both, targets)


def _arguments(rows, dim, vocab, tied, dtype):
  struct = jax.ShapeDtypeStruct
  return (
    struct((rows, dim), dtype),
    struct((vocab, dim) if tied else (dim, vocab), dtype),
    struct((rows,), jnp.int32),
  )

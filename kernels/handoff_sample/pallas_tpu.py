"""The TPU kernel: a tile of both models' logits at a time, noise in registers.

Grid (rows, vocabulary): the statistics of a row gather in its output block,
which stays in VMEM until the row has seen the last tile. Noise is made from
the key's bits where it is used; [N, V] of it never exists.
"""

import jax
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu
import jax.numpy as jnp

from tandem.kernels.handoff_sample import noise as noise_lib
from tandem.kernels.handoff_sample import stats as stats_lib

Array = jax.Array

ROWS, ENTRIES = 8, 2048  # of a tile; 16 registers an array


def supported(platform: str) -> str | None:
  """Why the kernel cannot run on `platform`, or None."""
  if platform == 'tpu':
    return None
  return f'it is compiled for TPU, and the arrays are on {platform}'


def _kernel(rule, first, senior, junior, keys, least, *out):
  j = pl.program_id(1)
  logits = [x[...].astype(jnp.float32) for x in (senior, junior)]
  local = jax.lax.broadcasted_iota(jnp.int32, logits[0].shape, 1)
  local += j * logits[0].shape[1]
  column = first[0] + local
  inside = local < rule.vocab if rule.vocab % senior.shape[1] else None
  noise = None
  if rule.temperature:
    entry = column.astype(jnp.uint32)
    noise = noise_lib.bits(keys[:, :1], keys[:, 1:], entry)
    noise = noise_lib.gumbel(noise)
  # What hangs over the end may be NaN, which a choice by zero does not hide.
  other = [x if inside is None else jnp.where(inside, x, 0.0) for x in logits]
  for model in (0, 1):
    refs = out[model * stats_lib.FIELDS : (model + 1) * stats_lib.FIELDS]

    @pl.when(j == 0)
    def _(refs=refs):
      for ref, x in zip(refs, stats_lib.start(refs[0].shape)):
        ref[...] = x

    tile = stats_lib.of_tile(
      rule,
      logits[model],
      other[1 - model],
      least[model],
      noise,
      column,
      inside,
    )
    so_far = stats_lib.Stats(*(ref[...] for ref in refs))
    for ref, x in zip(refs, stats_lib.join(rule, so_far, tile)):
      ref[...] = x


def statistics(
  rule: stats_lib.Rule,
  senior: Array,
  junior: Array,
  keys: Array,
  least: Array,
  first: Array,
  *,
  interpret: bool = False,
) -> tuple[stats_lib.Stats, stats_lib.Stats]:
  """As xla.statistics."""
  n, vocab = senior.shape
  # bfloat16 tiles are 16 rows high.
  tile = max(ROWS, 32 // senior.dtype.itemsize)
  rows = -(-n // tile) * tile
  pad = lambda x: jnp.pad(x, ((0, rows - n), (0, 0)))
  entries = min(ENTRIES, vocab)
  logits = pl.BlockSpec((tile, entries), lambda i, j, *_: (i, j))
  column = pl.BlockSpec((tile, 1), lambda i, j, *_: (i, 0))

  def kernel(*refs):
    _kernel(rule, *refs)

  float32 = jax.ShapeDtypeStruct((rows, 1), jnp.float32)
  one = [float32] * stats_lib.FIELDS
  one[1] = jax.ShapeDtypeStruct((rows, 1), jnp.int32)
  out = pl.pallas_call(
    kernel,
    grid_spec=pltpu.PrefetchScalarGridSpec(
      num_scalar_prefetch=1,
      grid=(rows // tile, pl.cdiv(vocab, entries)),
      in_specs=[
        logits,
        logits,
        pl.BlockSpec((tile, 2), lambda i, j, *_: (i, 0)),
        pl.BlockSpec((2, tile, 1), lambda i, j, *_: (0, i, 0)),
      ],
      out_specs=[column] * (2 * stats_lib.FIELDS),
    ),
    out_shape=one * 2,
    interpret=interpret,
    compiler_params=pltpu.CompilerParams(
      dimension_semantics=('arbitrary', 'arbitrary')
    ),
  )(
    first[None],
    pad(senior),
    pad(junior),
    pad(keys),
    jnp.pad(least, ((0, 0), (0, rows - n)))[..., None],
  )
  out = [x[:n, 0] for x in out]
  half = stats_lib.FIELDS
  return stats_lib.Stats(*out[:half]), stats_lib.Stats(*out[half:])

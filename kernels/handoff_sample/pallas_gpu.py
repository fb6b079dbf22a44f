"""The GPU kernel, through Triton: a row's share of the vocabulary a program.

Grid (rows, parts of the vocabulary); a few operations on [parts, N] put the
parts together. Nothing is masked in memory: the last tile is moved back to end
where the vocabulary does, and what an earlier tile has counted is left out.
"""

import jax
from jax.experimental import pallas as pl
from jax.experimental.pallas import triton
import jax.numpy as jnp

from tandem.kernels.handoff_sample import noise as noise_lib
from tandem.kernels.handoff_sample import stats as stats_lib

Array = jax.Array

ENTRIES = 1024  # of a tile
PROGRAMS = 1024  # several for each core of today's cards
MAX_PARTS = 32
MAX_ELEMENTS = 2**31  # Triton's offsets are 32 bits wide


def supported(size: int, platform: str) -> str | None:
  """Why the kernel cannot read `size` logits on `platform`, or None."""
  if platform != 'gpu':
    return f'it is compiled for NVIDIA GPUs, and the arrays are on {platform}'
  if size >= MAX_ELEMENTS:
    return f'{size} logits are beyond its 32-bit offsets'
  return None


def _kernel(rule, tiles, each, first, senior, junior, keys, least, *out):
  row, part = pl.program_id(0), pl.program_id(1)
  entries = min(ENTRIES, 2 ** (rule.vocab.bit_length() - 1))
  here = pl.ds(row, 1)
  key = keys[here, pl.ds(0, 1)], keys[here, pl.ds(1, 1)]
  floor = [least[pl.ds(i, 1), here] for i in (0, 1)]

  def step(j, carry):
    start = jnp.minimum(j * entries, rule.vocab - entries)
    local = start + jax.lax.broadcasted_iota(jnp.int32, (1, entries), 1)
    logits = [
      x[here, pl.ds(start, entries)].astype(jnp.float32)
      for x in (senior, junior)
    ]
    column = first[0] + local
    noise = None
    if rule.temperature:
      noise = noise_lib.gumbel(noise_lib.bits(*key, column.astype(jnp.uint32)))
    return tuple(
      stats_lib.join(
        rule,
        carry[i],
        stats_lib.of_tile(
          rule,
          logits[i],
          logits[1 - i],
          floor[i],
          noise,
          column,
          local >= j * entries,
        ),
      )
      for i in (0, 1)
    )

  carry = (stats_lib.start((1, 1)),) * 2
  end = jnp.minimum((part + 1) * each, tiles)
  carry = jax.lax.fori_loop(part * each, end, step, carry)
  for ref, x in zip(out, (*carry[0], *carry[1])):
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
  tiles = pl.cdiv(vocab, min(ENTRIES, 2 ** (vocab.bit_length() - 1)))
  parts = min(tiles, MAX_PARTS, pl.cdiv(PROGRAMS, n))
  each = pl.cdiv(tiles, parts)
  shape = lambda dtype: jax.ShapeDtypeStruct((parts, n), dtype)
  one = [shape(jnp.float32)] * stats_lib.FIELDS
  one[1] = shape(jnp.int32)

  def kernel(*refs):
    _kernel(rule, tiles, each, *refs)

  out = pl.pallas_call(
    kernel,
    grid=(n, parts),
    out_specs=[pl.BlockSpec((1, 1), lambda i, s: (s, i))] * len(one) * 2,
    out_shape=one * 2,
    interpret=interpret,
    compiler_params=triton.CompilerParams(num_warps=4, num_stages=2),
    name='handoff_sample',
  )(first[None], senior, junior, keys, least)
  half = stats_lib.FIELDS
  return tuple(
    stats_lib.fold(rule, stats_lib.Stats(*x)) for x in (out[:half], out[half:])
  )

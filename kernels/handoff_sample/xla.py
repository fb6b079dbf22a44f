"""The statistics by XLA, of whole rows."""

import jax
import jax.numpy as jnp

from tandem.kernels.handoff_sample import noise as noise_lib
from tandem.kernels.handoff_sample import stats as stats_lib

Array = jax.Array


def statistics(
  rule: stats_lib.Rule,
  senior: Array,
  junior: Array,
  keys: Array,
  least: Array,
  first: Array,
) -> tuple[stats_lib.Stats, stats_lib.Stats]:
  """Both models' Stats, [N] each.

  Args:
    rule: what is static.
    senior, junior: [N, V] logits.
    keys: [N, 2] uint32.
    least: [2, N] float32; read only where filtered.
    first: [] int32, the vocabulary entry of column 0.
  """
  senior, junior = senior.astype(jnp.float32), junior.astype(jnp.float32)
  column = first + jax.lax.broadcasted_iota(jnp.int32, senior.shape, 1)
  noise = None
  if rule.temperature:
    entry = column.astype(jnp.uint32)
    noise = noise_lib.bits(keys[:, :1], keys[:, 1:], entry)
    noise = noise_lib.gumbel(noise)
  out = []
  for i, (mine, other) in enumerate(((senior, junior), (junior, senior))):
    tile = stats_lib.of_tile(
      rule, mine, other, least[i][:, None], noise, column, None
    )
    out.append(jax.tree.map(lambda x: x[:, 0], tile))
  return tuple(out)

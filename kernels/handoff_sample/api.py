"""The token a pair of models emits, and what both say of it."""

import functools
from typing import NamedTuple

import chex
import jax
import jax.numpy as jnp

from tandem.kernels.handoff_sample import pallas_gpu
from tandem.kernels.handoff_sample import pallas_tpu
from tandem.kernels.handoff_sample import reference
from tandem.kernels.handoff_sample import stats as stats_lib
from tandem.kernels.handoff_sample import xla
from tandem.kernels.placement import cuts as cuts_lib

Array = jax.Array

PLATFORMS = ('tpu', 'gpu')
IMPLEMENTATIONS = (
  'xla',
  'pallas_tpu',
  'pallas_tpu_interpret',
  'pallas_gpu',
  'pallas_gpu_interpret',
  'reference',
)


class Handoff(NamedTuple):
  """What is emitted at one position of each row."""

  token: Array  # [N] int32
  author: Array  # [N] bool; True where it is the senior's proposal
  boundary: Array  # [N] bool; the token is a boundary: the next author's input
  logp_senior: Array  # [N] float32; log-prob of the token, tempered, filtered
  logp_junior: Array  # [N] float32
  raw_senior: Array  # [N] float32; of the logits as they are
  raw_junior: Array  # [N] float32


def handoff_sample(
  senior: Array,
  junior: Array,
  keys: Array,
  boundary: Array,
  author: Array,
  *,
  coin: Array | None = None,
  may_change: Array | None = None,
  least: tuple[Array | None, Array | None] = (None, None),
  temperature: float = 1.0,
  implementation: str | None = None,
  mesh: jax.sharding.Mesh | None = None,
  vocab_axis: str = 'tensor',
) -> Handoff:
  """Both proposals under shared noise, the author's choice, and its record.

  One pass over the vocabulary. A proposal is the argmax of the model's score
  and the position's noise, first of equals, as `rollout.sampling` has it.

  Under a mesh (active, or `mesh`) a Pallas kernel runs on each device's rows
  and, where V is cut over `vocab_axis`, on its entries; what crosses devices is
  eight numbers a row and model.

  Args:
    senior: [N, V] float; logits.
    junior: [N, V] float; logits over the same vocabulary.
    keys: [N, 2] uint32; key data of the row's token stream at this position,
      folded in already. Threefry.
    boundary: [>= V] bool; boundary ids.
    author: [N] bool; the holder of the turn, True for the senior.
    coin: [N] bool; under `strict_word` who writes the next word. None on all
      other schedules, where the holder emits.
    may_change: [N] bool, with coin: True but at a row's first position. The
      coin is asked where both proposals are boundaries.
    least: the least logit, before the temperature, that each law keeps, [N]
      float32; None where a law keeps all. A top-k or top-p filter is the
      threshold it comes to. Logits are compared as they are, since one program
      may divide by the temperature where another multiplies.
    temperature: divides the logits; 0 is greedy, without noise and filters.
    implementation: one of IMPLEMENTATIONS, or None: XLA's. The Pallas kernels
      are checked by interpreter and compiler only, so they run where they are
      asked for by name.
    mesh: the mesh, where none is active.
    vocab_axis: the mesh axis over which V is cut.

  Returns:
    Handoff of N rows.

  Raises:
    ValueError: shapes disagree, a negative temperature, one threshold of two,
      or an unknown implementation.
    NotImplementedError: the implementation named cannot run here.
  """
  _check(senior, junior, keys, boundary, author, temperature, least)
  if (coin is None) != (may_change is None):
    raise ValueError(
      'coin and may_change go together; got one of them. Give both for '
      'strict_word, none for other schedules.'
    )
  if implementation not in (None, *IMPLEMENTATIONS):
    raise ValueError(
      f'implementation={implementation!r} is unknown; it may be None, '
      f'{", ".join(map(repr, IMPLEMENTATIONS))}.'
    )
  if implementation == 'reference':
    out = reference.handoff_sample(
      senior,
      junior,
      keys,
      boundary,
      author,
      coin,
      may_change,
      least,
      temperature,
    )
    return Handoff(*out)
  filtered = least[0] is not None and temperature != 0
  rule = stats_lib.Rule(temperature, filtered, senior.shape[1])
  floors = jnp.stack(least) if filtered else jnp.zeros((2, len(senior)))
  arrays = senior, junior, keys, floors
  if implementation in (None, 'xla'):
    both = xla.statistics(rule, *arrays, jnp.int32(0))
  else:
    both = _on_shards(rule, arrays, implementation, mesh, vocab_axis)
  return _finish(rule, *both, floors, boundary, author, coin, may_change)


def _check(senior, junior, keys, boundary, author, temperature, least):
  chex.assert_rank([senior, junior], 2)
  chex.assert_equal_shape([senior, junior])
  n, vocab = senior.shape
  chex.assert_shape(author, (n,))
  if keys.shape != (n, 2) or keys.dtype != jnp.uint32:
    raise ValueError(
      f'keys {keys.dtype}{keys.shape} must be uint32 ({n}, 2): jax.random.'
      'key_data of threefry keys, one a row.'
    )
  if boundary.shape[0] < vocab:
    raise ValueError(
      f'the boundary table has {boundary.shape[0]} entries for a vocabulary of '
      f'{vocab}; build it with vocab={vocab}.'
    )
  if not temperature >= 0:
    raise ValueError(
      f'temperature={temperature} must be at least 0, which is greedy.'
    )
  if (least[0] is None) != (least[1] is None):
    raise ValueError(
      'least has one threshold of two; both models follow one rule: give both, '
      'or (None, None).'
    )


def _finish(
  rule, senior, junior, least, boundary, author, coin, may_change
) -> Handoff:
  """From both models' Stats to the choice; arrays [N]."""
  if coin is not None:
    open_word = boundary[senior.token] & boundary[junior.token] & may_change
    author = jnp.where(open_word, coin, author)
  token = jnp.where(author, senior.token, junior.token)
  logits = (
    jnp.where(author, senior.own, junior.other),
    jnp.where(author, senior.other, junior.own),
  )
  logp, raw = [], []
  for x, stats, floor in zip(logits, (senior, junior), least):
    raw.append(x - (stats.top + jnp.log(stats.total)))
    if rule.temperature == 0:
      logp.append(jnp.where(token == stats.token, 0.0, -jnp.inf))
    else:
      kept = stats_lib.score(rule, x, floor)
      logp.append(kept - (stats.law_top + jnp.log(stats.law_total)))
  return Handoff(token, author, boundary[token], *logp, *raw)


def _on_shards(rule, arrays, implementation, mesh, vocab_axis):
  """Stats by a Pallas call, which the partitioner cannot cut."""
  cuts = cuts_lib.of_mesh(mesh, vocab_axis)
  cut = cuts.inner
  n, vocab = arrays[0].shape

  def refuse(reason):
    raise NotImplementedError(
      f'implementation={implementation!r} cannot run: {reason}; take None or '
      "'xla'."
    )

  if vocab % cut:
    refuse(f'V={vocab} does not divide over {vocab_axis}={cut}')
  if n % cuts.rows:
    refuse(f'N={n} does not divide over {cuts.row_axes}')
  reason, kernel = None, pallas_tpu
  if implementation == 'pallas_tpu':
    reason = pallas_tpu.supported(cuts.platform)
  elif implementation.startswith('pallas_gpu'):
    kernel = pallas_gpu
    if implementation == 'pallas_gpu':
      size = arrays[0].size // cuts.rows // cut
      reason = pallas_gpu.supported(size, cuts.platform)
  if reason:
    refuse(reason)
  rule = rule._replace(vocab=vocab // cut)
  statistics = functools.partial(
    kernel.statistics,
    rule,
    interpret=implementation.endswith('interpret'),
  )
  if cuts.whole:
    return statistics(*arrays, jnp.int32(0))

  def local(*arrays):
    if cut == 1:
      return statistics(*arrays, jnp.int32(0))
    first = jax.lax.axis_index(vocab_axis) * rule.vocab
    both = statistics(*arrays, first)
    parts = jax.lax.all_gather(both, vocab_axis)
    return tuple(stats_lib.fold(rule, x) for x in parts)

  rows = cuts.row_axes or None
  logits = jax.P(rows, vocab_axis if cut > 1 else None)
  specs = (logits, logits, jax.P(rows), jax.P(None, rows))
  return cuts.shard_map(local, specs, jax.P(rows))(*arrays)

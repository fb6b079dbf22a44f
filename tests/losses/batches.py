"""Step batches and statistics for loss tests: ragged, every score present."""

import jax
import jax.numpy as jnp
import numpy as np

from tandem import types

SCORES = (
  'rollout',
  'rollout_junior',
  'old',
  'reference',
  'junior',
  'teacher',
  'privileged',
)
LENGTHS = (6, 3, 1, 5, 4, 6, 2, 6)


def logp(rng, shape):
  return jnp.asarray(-rng.gamma(2.0, 0.5, shape))


def step_batch(lengths=LENGTHS, *, group=4, width=6, seed=0, authors=True):
  """Rows of the given lengths; what lies past them is garbage on purpose."""
  rng = np.random.default_rng(seed)
  n = len(lengths)
  shape = (n, width)
  valid = np.arange(width)[None, :] < np.asarray(lengths)[:, None]
  old = logp(rng, shape)
  near = {
    name: old + 0.15 * jnp.asarray(rng.normal(size=shape)) for name in SCORES
  }
  scores = near | {'old': old}
  scores = {k: jnp.where(valid, v, 99.0) for k, v in scores.items()}
  context = types.Context(
    ids=jnp.zeros((n, 2), jnp.int32), lengths=jnp.full(n, 2, jnp.int32)
  )
  return types.StepBatch(
    tokens=jnp.asarray(rng.integers(0, 9, shape), jnp.int32),
    valid=jnp.asarray(valid),
    author=jnp.asarray(rng.random(shape) < 0.5) if authors else None,
    rewards=jnp.asarray(rng.integers(0, 2, n), old.dtype),
    group_id=jnp.asarray(np.arange(n) // group, jnp.int32),
    episode_id=jnp.arange(n, dtype=jnp.int32),
    turn=jnp.zeros(n, jnp.int32),
    truncated=jnp.asarray(np.asarray(lengths) == width),
    contexts=dict.fromkeys(('policy', 'teacher', 'privileged'), context),
    scores=scores,
    group=group,
  )


def statistics(batch, names, seed=1):
  """Current-policy statistics near `old`, away from every clip's kink."""
  rng = np.random.default_rng(seed)
  shape = batch.valid.shape
  old = jnp.where(batch.valid, batch.scores['old'], -1.0)
  out = {'logp': old + jnp.asarray(rng.uniform(-0.15, 0.15, shape))}
  for name in names:
    if name != 'logp':
      out[name] = jnp.asarray(rng.gamma(2.0, 0.5, shape))
  return {name: out[name] for name in names}


def rows(tree, index):
  """The same rows of every leaf: a micro-batch."""
  return jax.tree.map(lambda x: x[index], tree)


def credit_rows(credit, index):
  return credit.replace(rows=rows(credit.rows, index))


def batch_rows(batch, index):
  """A step batch of the rows `index`, in that order."""
  return jax.tree.map(lambda x: x[index], batch)


def run(variant, cfg, batch, stats=None, index=None):
  """credit, then objective, as the trainer calls them: (terms, credit)."""
  credit, _, _ = variant.credit(batch, variant.init_state(cfg), cfg)
  if stats is None:
    stats = statistics(batch, variant.stats(cfg))
  if index is not None:
    credit, stats = credit_rows(credit, index), rows(stats, index)
  return variant.objective(stats, credit, cfg), credit


def loss(terms, counts=None):
  """Sum over terms of sum / count, the counts of the whole step if given."""
  total = 0.0
  for name, (value, count) in terms.items():
    count = count if counts is None else counts[name]
    total = total + value / jnp.where(count > 0, count, 1)
  return total

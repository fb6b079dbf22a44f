"""Keys by `fold_in` only: root seed -> purpose -> step -> draw -> sample.

A row's key says nothing of where the row sits in a batch, of its neighbours or
of the device it is on. The position in the response is folded in at the place
where a token is sampled (tandem.rollout.sampling).
"""

import jax
import numpy as np

# Numbers are part of every run's history: add, never renumber.
PURPOSES = {
  'train': 0,
  'eval': 1,
  'warm_start': 2,
  'init': 3,
  'data': 4,
  'generate': 5,
  'benchmark': 6,
  'eval_pair': 7,
  'eval_senior': 8,
  'eval_junior': 9,
}


def purpose_id(purpose: str) -> int:
  """The fixed number of a purpose; ValueError lists the known ones."""
  if purpose not in PURPOSES:
    raise ValueError(
      f'no key purpose named {purpose!r}; known: {sorted(PURPOSES)}. A new one '
      'gets a new number in tandem/training/keys.py.'
    )
  return PURPOSES[purpose]


def root_key(seed: int, purpose: str) -> jax.Array:
  """One typed key for a seed and a purpose.

  The generator is named, so that a run does not hang on a flag's default.

  Raises:
    ValueError: seed outside [0, 2**32), or an unknown purpose.
  """
  if not 0 <= int(seed) < 2**32:
    raise ValueError(f'seed={seed} must be in [0, 2**32).')
  key = jax.random.key(np.uint32(seed), impl='threefry2x32')
  return jax.random.fold_in(key, purpose_id(purpose))


@jax.jit
def _rows(root, step, draw, sample):
  at = jax.random.fold_in(root, step)
  one = lambda d, s: jax.random.fold_in(jax.random.fold_in(at, d), s)
  return jax.vmap(one)(draw, sample)


def row_keys(
  seed: int, purpose: str, step: int, draw: jax.Array, sample: jax.Array
) -> jax.Array:
  """One typed key per row.

  Args:
    seed: the run's seed.
    purpose: one of PURPOSES.
    step: training step, or the step at which an evaluation runs.
    draw: [N] int32. The prompt's draw number in that step, refills included,
      so that a prompt drawn twice has two noises.
    sample: [N] int32. Sibling number within the group.

  Returns:
    [N] typed keys, sharded as `draw` is.
  """
  return _rows(root_key(seed, purpose), np.uint32(step), draw, sample)

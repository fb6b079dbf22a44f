import numpy as np
import pytest

from tandem import losses
from tests.losses import batches
from tests.losses import runs


def test_term_by_hand():
  """The slope has both parts: of k3, and of the weight that multiplies it."""
  batch = batches.step_batch()
  stats = batches.statistics(batch, ('logp',))
  total, count, grad = runs.terms('skill_sd', batch, stats)['skill']
  fill = lambda x: np.where(batch.valid, x, 0)
  x = fill(stats['logp'] - batch.scores['privileged'])
  ratio = np.exp(fill(stats['logp'] - batch.scores['old']))
  k3 = np.exp(-x) - 1 + x
  np.testing.assert_allclose(total, 0.001 * (k3 * ratio).sum(), rtol=1e-4)
  assert count == sum(batches.LENGTHS)
  slope = fill((1 - np.exp(-x) + k3) * ratio)
  np.testing.assert_allclose(grad['logp'], 0.001 * slope, atol=1e-8)


def test_far_apart_it_stays_finite():
  batch = batches.step_batch()
  scores = batch.scores | {
    'privileged': batch.scores['privileged'] + 300.0,
    'old': batch.scores['old'] - 300.0,
  }
  stats = batches.statistics(batches.step_batch(), ('logp',))
  total, _, grad = runs.terms('skill_sd', batch.replace(scores=scores), stats)[
    'skill'
  ]
  assert np.isfinite(total)
  assert np.isfinite(grad['logp']).all()


def test_no_term_is_refused():
  with pytest.raises(ValueError, match="use variant 'grpo'"):
    losses.make_config('skill_sd', skill_coef=0.0)

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tandem import losses
from tandem.losses import unlikelihood
from tests.losses import batches
from tests.losses import runs


def test_penalty_by_hand_and_at_the_ends():
  logp = jnp.log(jnp.array([0.5, 0.9, 1e-9, 1.0]))
  value, pull = jax.vjp(unlikelihood.penalty, logp)
  # -log(1 - p), at most -log 1e-6.
  want = [0.693147, 2.302585, 0.0, 13.8155]
  np.testing.assert_allclose(value, want, rtol=1e-3, atol=1e-8)
  (slope,) = pull(jnp.ones(4))  # p / (1 - p), and nothing past the bound
  np.testing.assert_allclose(slope, [1, 9, 1e-9, 0], rtol=1e-4, atol=1e-8)


@pytest.mark.parametrize('negatives', ['token', 'row'])
def test_term_by_hand(negatives):
  batch = batches.step_batch()
  stats = {'logp': batches.statistics(batch, ('logp',))['logp'] - 0.3}
  fields = {'negatives': negatives, 'unlikelihood_coef': 0.1}
  total, count, grad = runs.terms('unlikelihood', batch, stats, **fields)[
    'unlikelihood'
  ]
  if negatives == 'token':
    bad = batch.scores['privileged'] < batch.scores['old']
  else:
    bad = batch.rewards[:, None] <= 0.5
  bad = np.asarray(batch.valid & bad)
  p = np.minimum(np.exp(np.asarray(stats['logp'])), 1 - 1e-6)
  np.testing.assert_allclose(total, -0.1 * np.log1p(-p[bad]).sum(), rtol=1e-4)
  assert count == bad.sum()
  inside = bad & (p < 1 - 1e-6)
  want = np.where(inside, 0.1 * p / (1 - p), 0)
  np.testing.assert_allclose(grad['logp'], want, rtol=1e-3, atol=1e-7)


def test_rows_need_no_privileged_teacher():
  variant = losses.get('unlikelihood')
  cfg = losses.make_config('unlikelihood', negatives='row')
  assert variant.scorings(cfg) == ('old', 'reference')


@pytest.mark.parametrize(
  'fields,message',
  [
    ({'negatives': 'all'}, 'token'),
    ({'unlikelihood_coef': 0.0}, 'above 0'),
    ({'positive_reward': 0.9}, "negatives='row'"),
  ],
)
def test_contradictory_settings_raise(fields, message):
  with pytest.raises(ValueError, match=message):
    losses.make_config('unlikelihood', **fields)

import jax.numpy as jnp
import numpy as np
import pytest

from tandem import losses
from tandem.losses import rlsd
from tests.losses import batches
from tests.losses import runs


def at(step):
  return {'step': jnp.int32(step)}


def test_weights_by_hand():
  batch = batches.step_batch()
  credit, state, metrics = runs.credit('rlsd', batch)
  paid, _, _ = runs.credit('grpo', batch)
  a = np.asarray(paid.rows['advantage'])[:, None]
  gap = np.where(
    batch.valid, batch.scores['privileged'] - batch.scores['old'], 0
  )
  raw = np.exp(np.sign(a) * gap)
  weight = np.clip(raw, 0.8, 1.2)
  want = a * (0.5 + 0.5 * weight)
  np.testing.assert_allclose(credit.rows['advantage'], want, rtol=1e-5)
  valid = np.asarray(batch.valid)
  np.testing.assert_allclose(
    metrics['rlsd/clipped'], (raw != weight)[valid].mean(), rtol=1e-5
  )
  assert 0 < metrics['rlsd/clipped'] < 1
  assert state['step'] == 1


def test_schedule_is_linear_and_ends():
  cfg = losses.make_config('rlsd')
  got = [rlsd.mixing(at(step)['step'], cfg) for step in (0, 50, 99, 100, 200)]
  np.testing.assert_allclose(got, [0.5, 0.25, 0.005, 0, 0], atol=1e-7)


def test_afterwards_it_is_grpo():
  batch = batches.step_batch()
  stats = batches.statistics(batch, ('logp',))
  ours = runs.terms('rlsd', batch, stats, at(100))
  theirs = runs.terms(
    'grpo', batch, stats, kl_to='reference', kl_coef=0.01, kl_estimator='k3'
  )
  for term in ('policy', 'kl'):
    np.testing.assert_allclose(
      ours[term][2]['logp'], theirs[term][2]['logp'], rtol=1e-5
    )
  before = runs.terms('rlsd', batch, stats, at(99))['policy'][2]['logp']
  assert (before != ours['policy'][2]['logp']).any()


@pytest.mark.parametrize(
  'fields,message',
  [
    ({'weight_clip': 0.0}, 'weight_clip=0.0'),
    ({'mix_start': 1.5}, 'mix_start=1.5'),
    ({'mix_steps': 0}, 'at least 1'),
  ],
)
def test_contradictory_settings_raise(fields, message):
  with pytest.raises(ValueError, match=message):
    losses.make_config('rlsd', **fields)

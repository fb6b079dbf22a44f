import jax
import numpy as np
import pytest

from tandem import losses
from tests.losses import batches
from tests.losses import runs


def given():
  batch = batches.step_batch()
  return batch, batches.statistics(batch, ('logp',))


def gap(batch, stats):
  return np.where(batch.valid, batch.scores['privileged'] - stats['logp'], 0)


def sigmoid(x):
  return 1 / (1 + np.exp(-x))


@pytest.mark.parametrize('beta', [5.0, 0.0])
def test_term_by_hand(beta):
  """At beta = 0 (GRPO + OPSD) the gate is 1/2 whatever the teacher says."""
  batch, stats = given()
  total, count, grad = runs.terms('sdar', batch, stats, gate_beta=beta)['sdar']
  delta = gap(batch, stats)
  gate = np.where(batch.valid, sigmoid(beta * delta), 0)
  np.testing.assert_allclose(total, 0.01 * (gate * delta).sum(), rtol=1e-5)
  assert count == sum(batches.LENGTHS)
  np.testing.assert_allclose(grad['logp'], -0.01 * gate, atol=1e-8)


def test_opsd_leaves_the_policy_term_out():
  terms = runs.terms('sdar', *given(), policy_coef=0.0)
  assert terms.keys() == {'kl', 'sdar'}
  half = runs.terms('sdar', *given(), policy_coef=0.5)
  whole = runs.terms('sdar', *given())
  np.testing.assert_allclose(half['policy'][0], whole['policy'][0] / 2)
  assert half['policy'][1] == whole['policy'][1]
  assert half['sdar'][0] == terms['sdar'][0] == whole['sdar'][0]


def test_without_the_term_no_teacher_is_scored():
  variant, cfg = losses.get('sdar'), losses.make_config('sdar', sdar_coef=0.0)
  assert variant.scorings(cfg) == ('old', 'reference')
  assert variant.scorings(variant.config()) == (
    'old',
    'reference',
    'privileged',
  )
  assert runs.terms('sdar', *given(), sdar_coef=0.0).keys() == {'policy', 'kl'}


def test_a_teacher_that_excludes_a_token_says_nothing():
  batch, stats = given()
  score = batch.scores['privileged'].at[0, 0].set(-np.inf)
  excluded = batch.replace(scores=batch.scores | {'privileged': score})
  (total, count, grad), want = (
    runs.terms('sdar', b, stats)['sdar'] for b in (excluded, batch)
  )
  assert np.isfinite(total)
  assert count == want[1]
  assert grad['logp'][0, 0] == 0
  np.testing.assert_array_equal(grad['logp'][1:], want[2]['logp'][1:])


def test_metrics():
  batch, _ = given()
  _, _, metrics = runs.credit('sdar', batch)
  delta = gap(batch, {'logp': batch.scores['old']})[batch.valid]
  for name, want in (
    ('privileged/gap_mean', delta.mean()),
    ('sdar/gate_mean', sigmoid(5 * delta).mean()),
    ('sdar/gate_active', (delta > 0).mean()),
  ):
    np.testing.assert_allclose(metrics[name], want, rtol=1e-4, err_msg=name)


@pytest.mark.parametrize(
  'fields,message',
  [
    ({'sdar_coef': -0.1}, 'outside'),
    ({'gate_beta': -1.0}, 'outside'),
    ({'sdar_coef': 0.0, 'gate_beta': 1.0}, 'no effect'),
    ({'policy_coef': 0.0, 'eps_low': 0.1}, 'no policy term'),
    ({'policy_coef': 0.0, 'sdar_coef': 0.0}, 'nothing is left'),
  ],
)
def test_contradictory_settings_raise(fields, message):
  with pytest.raises(ValueError, match=message):
    losses.make_config('sdar', **fields)


SOLO = set(losses.LOSSES) - {'grpo', 'tandem'}


@pytest.mark.parametrize('name', sorted(SOLO))
def test_no_loss_for_one_speaker_takes_tandem_rollouts(name):
  variant = losses.get(name)
  cfg = variant.config()
  variant.check(cfg, 'solo', 8)
  with pytest.raises(ValueError, match=f"'{name}' on rollout.mode='tandem'"):
    variant.check(cfg, 'tandem', 8)
  with pytest.raises(ValueError, match='rollout.mode'):
    variant.check(cfg, 'duo', 8)


@pytest.mark.parametrize('name', sorted(SOLO))
def test_a_missing_teacher_is_named(name):
  variant = losses.get(name)
  cfg = variant.config()
  batch, _ = given()
  for missing in variant.scorings(cfg):
    scores = {k: v for k, v in batch.scores.items() if k != missing}
    with pytest.raises(ValueError, match=f"needs log-probs '{missing}'"):
      jax.eval_shape(
        lambda b: variant.credit(b, variant.init_state(cfg), cfg)[0],
        batch.replace(scores=scores),
      )

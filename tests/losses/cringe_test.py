import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tandem import losses
from tests.losses import batches
from tests.losses import runs


def given():
  batch = batches.step_batch()
  return batch, batches.statistics(batch, ('logp', 'contrast'))


def softplus(x):
  return np.log1p(np.exp(x))


def sigmoid(x):
  return 1 / (1 + np.exp(-x))


def test_rows_by_reward():
  batch, stats = given()
  terms = runs.terms('cringe', batch, stats)
  good = np.asarray(batch.rewards > 0.5)[:, None] & batch.valid
  bad = np.asarray(batch.valid) & ~good
  likelihood, cringe = terms['likelihood'], terms['cringe']
  logp, contrast = np.asarray(stats['logp']), np.asarray(stats['contrast'])
  tokens = sum(batches.LENGTHS)  # of both kinds, as in ParlAI
  np.testing.assert_allclose(
    likelihood[:2], (-logp[good].sum(), tokens), rtol=1e-5
  )
  np.testing.assert_allclose(
    cringe[:2], (softplus(contrast[bad]).sum(), tokens), rtol=1e-5
  )
  # The slope is the softmax of label and contrast: below 1, unlike 1 / (1 - p).
  slope = np.where(bad, sigmoid(contrast), 0)
  np.testing.assert_allclose(cringe[2]['contrast'], slope, rtol=1e-5)
  np.testing.assert_array_equal(likelihood[2]['logp'], np.where(good, -1, 0))
  assert not np.any(cringe[2]['logp'])


@pytest.mark.parametrize('coef', [1.0, 0.01])
def test_a_token_of_right_and_wrong_rows_settles_below_one(coef):
  """Two symbols: the loss stands still at p = pos / (pos + coef neg)."""
  batch = batches.step_batch((6,) * 8)
  batch = batch.replace(rewards=jnp.array([1.0, 1, 1, 0, 0, 0, 0, 0]))
  variant = losses.get('cringe')
  cfg = losses.make_config('cringe', cringe_coef=coef)
  credit, _, _ = variant.credit(batch, {}, cfg)

  def slope(p):
    def loss(gap):
      gaps = jnp.broadcast_to(gap, batch.valid.shape)
      stats = {'logp': -jnp.logaddexp(0.0, -gaps), 'contrast': gaps}
      return batches.loss(variant.objective(stats, credit, cfg))

    return jax.grad(loss)(jnp.log(p / (1 - p)))

  rest = 3 / (3 + coef * 5)
  np.testing.assert_allclose(slope(rest), 0, atol=1e-6)
  assert slope(0.98 * rest) < 0 < slope(1 - 0.9 * (1 - rest))


@pytest.mark.parametrize('name', ['token_cringe', 'cringe'])
def test_contrast_with_the_teacher_needs_no_logits(name):
  batch, stats = given()
  fields = {'contrast': 'teacher', 'cringe_coef': 1.0}
  variant, cfg = losses.get(name), losses.make_config(name, **fields)
  assert variant.stats(cfg) == ('logp',)
  assert 'privileged' in variant.scorings(cfg)
  stats = {'logp': stats['logp']}
  total, count, grad = runs.terms(name, batch, stats, **fields)['cringe']
  credit, _, _ = runs.credit(name, batch, **fields)
  negative = np.asarray(credit.rows['negative'])
  x = np.where(negative, stats['logp'] - batch.scores['privileged'], 0)
  np.testing.assert_allclose(total, softplus(x[negative]).sum(), rtol=1e-5)
  by_row = name == 'cringe'
  assert count == (sum(batches.LENGTHS) if by_row else negative.sum())
  slope = np.where(negative, sigmoid(x), 0)
  np.testing.assert_allclose(grad['logp'], slope, atol=1e-6)


def test_negative_tokens_are_the_teachers():
  batch, stats = given()
  credit, _, metrics = runs.credit('token_cringe', batch)
  gap = batch.scores['privileged'] - batch.scores['old']
  negative = np.asarray(batch.valid & (gap < 0))
  np.testing.assert_array_equal(credit.rows['negative'], negative)
  share = negative.sum() / sum(batches.LENGTHS)
  np.testing.assert_allclose(metrics['cringe/negative_share'], share, rtol=1e-5)
  terms = runs.terms('token_cringe', batch, stats)
  assert terms.keys() == {'policy', 'kl', 'cringe'}
  contrast = np.asarray(stats['contrast'])[negative]
  np.testing.assert_allclose(
    terms['cringe'][0], 0.01 * softplus(contrast).sum(), rtol=1e-5
  )


def test_adaptive_takes_both_weights_from_the_controller():
  batch, stats = given()
  state = {'rho': jnp.float32(0.8), 'steps': jnp.int32(20)}
  fixed = runs.terms('token_cringe', batch, stats)
  moved = runs.terms('adaptive_cringe', batch, stats, state)
  np.testing.assert_array_equal(moved['policy'][0], fixed['policy'][0])
  # lambda .005 + .015 * .8, mu .005 + .015 * .2; both .01 without it.
  np.testing.assert_allclose(
    moved['cringe'][0], 1.7 * fixed['cringe'][0], rtol=1e-5
  )
  np.testing.assert_allclose(moved['kl'][0], 0.8 * fixed['kl'][0], rtol=1e-5)
  _, after, metrics = runs.credit('adaptive_cringe', batch, state)
  want = 0.95 * 0.8 + 0.05 * metrics['cringe/negative_share']
  np.testing.assert_allclose(after['rho'], want, rtol=1e-5)


@pytest.mark.parametrize(
  'name,fields,message',
  [
    ('cringe', {'contrast': 'top_k'}, 'teacher'),
    ('cringe', {'cringe_coef': 0.0}, 'above 0'),
    ('cringe', {'agg': 'mean'}, 'token-mean'),
    ('cringe', {'agg_length': 4}, 'agg_length=4'),
    ('cringe', {'kl_coef': 0.1}, 'unknown'),
    ('token_cringe', {'enable': True}, "unknown to variant 'token_cringe'"),
    ('token_cringe', {'ema': 0.9}, 'unknown'),
    ('adaptive_cringe', {'cringe_coef': 0.1}, 'the controller sets it'),
    ('adaptive_cringe', {'kl_coef': 0.1}, 'the controller sets it'),
    ('adaptive_cringe', {'ema': 2.0}, 'ema=2.0'),
    ('adaptive_cringe', {'kl_to': 'none'}, 'weighs the KL'),
  ],
)
def test_contradictory_settings_raise(name, fields, message):
  with pytest.raises(ValueError, match=message):
    losses.make_config(name, **fields)

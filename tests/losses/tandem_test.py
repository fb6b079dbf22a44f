import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tandem import losses
from tandem.losses import grpo
from tandem.losses import tandem
from tests.losses import batches

EVERY_TERM = {
  'kl_to': 'reference',
  'kl_coef': 0.1,
  'entropy_coef': 0.01,
  'tis': 'sequence',
}


def small(author):
  """One group of two rows, 3 and 2 tokens, rewards 1 and 0, ratio 1."""
  batch = batches.step_batch((3, 2), group=2, width=3)
  old = jnp.full((2, 3), -1.0)
  return batch.replace(
    rewards=jnp.array([1.0, 0.0]),
    author=jnp.asarray(author, bool),
    scores={name: old for name in batch.scores},
  )


def gradients(name, batch, stats, **fields):
  variant, cfg = losses.get(name), losses.make_config(name, **fields)

  def loss(stats):
    terms, _ = batches.run(variant, cfg, batch, stats)
    return batches.loss(terms)

  return jax.grad(loss)(stats)


def statistics(batch):
  return batches.statistics(batch, ('logp', 'entropy'))


@pytest.mark.parametrize('fields', [{}, EVERY_TERM])
def test_senior_alone_is_grpo_bit_for_bit(fields):
  """METHODS §8 (i), and the same lowered text: nothing is there to differ."""
  batch = batches.step_batch()
  batch = batch.replace(author=jnp.ones_like(batch.author))
  stats = statistics(batch)
  results, texts, dtypes = [], [], []
  for name in ('grpo', 'tandem'):
    variant, cfg = losses.get(name), losses.make_config(name, **fields)
    credit, _, _ = variant.credit(batch, {}, cfg)

    def loss(stats, credit, variant=variant, cfg=cfg):
      return batches.loss(variant.objective(stats, credit, cfg))

    step = jax.jit(jax.value_and_grad(loss))
    results.append(step(stats, credit))
    texts.append(step.lower(stats, credit).as_text())
    dtypes.append(jax.tree.map(lambda x: x.dtype, credit.rows))
  jax.tree.map(np.testing.assert_array_equal, *results)
  assert texts[0] == texts[1]
  assert dtypes[0] == dtypes[1]


def test_junior_alone_gives_exact_zeros():
  batch = batches.step_batch()
  batch = batch.replace(author=jnp.zeros_like(batch.author))
  grads = gradients('tandem', batch, statistics(batch), **EVERY_TERM)
  assert not any(np.any(g) for g in grads.values())


@pytest.mark.parametrize('fields', [{}, EVERY_TERM])
def test_nothing_at_the_juniors_tokens_counts(fields):
  """CASES 3: no gradient there, and what stands there moves none elsewhere."""
  batch = batches.step_batch()
  stats = statistics(batch)
  grads = gradients('tandem', batch, stats, **fields)
  junior = ~np.asarray(batch.author)
  for grad in grads.values():
    assert not np.asarray(grad)[junior].any()
  assert np.asarray(grads['logp'])[~junior].any()
  stir = lambda x: jnp.where(batch.author, x, x * 3 - 1)
  moved = batch.replace(scores=jax.tree.map(stir, batch.scores))
  again = gradients('tandem', moved, jax.tree.map(stir, stats), **fields)
  jax.tree.map(np.testing.assert_array_equal, grads, again)
  # The same stir is felt without the gate, so the test can fail.
  before, after = (
    gradients('grpo', b, s, **fields)['logp']
    for b, s in ((batch, stats), (moved, jax.tree.map(stir, stats)))
  )
  assert (before != after).any()


def test_a_missing_author_is_an_error():
  batch = batches.step_batch(authors=False)
  with pytest.raises(ValueError, match='without authors'):
    tandem.credit(batch, {}, tandem.Config())
  grpo.credit(batch, {}, grpo.Config())


def test_denominators():
  # A = +-.70711, ratio 1. The senior wrote 2 of 3 and 0 of 2 tokens.
  batch = small([[1, 0, 1], [0, 0, 0]])
  logp = {'logp': batch.scores['old']}
  a = 0.70711
  for denom, agg, want in (
    ('senior', 'token-mean', -a / 2),
    ('all', 'token-mean', -a / 5),
    ('senior', 'seq-mean-token-sum', -a),  # row 1 is empty and dropped
    ('all', 'seq-mean-token-sum', -a / 2),
    ('senior', 'seq-mean-token-mean', -a / 2),
    ('all', 'seq-mean-token-mean', -a / 3 / 2),
  ):
    grad = gradients('tandem', batch, logp, denom=denom, agg=agg)['logp']
    np.testing.assert_allclose(
      grad, [[want, 0, want], [0, 0, 0]], rtol=1e-4, err_msg=f'{denom} {agg}'
    )


def test_lambda_reweights_the_policy_term():
  batch = small([[1, 0, 1], [0, 1, 1]])
  a, w = 0.70711, 0.25
  # Weights 1 .25 1 | .25 1 over 3.5, the position past row 1's end 0.
  want = np.array([[-1, -w, -1], [w, 1, 0]]) * a / 3.5
  logp = {'logp': batch.scores['old']}
  grads = gradients('tandem', batch, logp, lambda_jun_policy=w)
  np.testing.assert_allclose(grads['logp'], want, rtol=1e-4)
  grads = gradients('tandem', batch, logp, lambda_jun_policy=w, denom='all')
  np.testing.assert_allclose(grads['logp'], want * 3.5 / 5, rtol=1e-4)


def test_lambda_one_is_the_ungated_policy_term():
  batch = batches.step_batch()
  stats = statistics(batch)
  np.testing.assert_allclose(
    gradients('tandem', batch, stats, lambda_jun_policy=1.0)['logp'],
    gradients('grpo', batch, stats)['logp'],
    rtol=1e-6,
  )


def test_lambda_leaves_kl_and_entropy_to_the_seniors_tokens():
  batch = batches.step_batch()
  cfg = losses.make_config('tandem', lambda_jun_policy=0.5, **EVERY_TERM)
  terms, _ = batches.run(tandem.VARIANT, cfg, batch, statistics(batch))
  gated = losses.make_config('tandem', **EVERY_TERM)
  want, _ = batches.run(tandem.VARIANT, gated, batch, statistics(batch))
  for name in ('kl', 'entropy'):
    assert terms[name][0] == want[name][0]
  assert terms['policy'][0] != want['policy'][0]


def test_imitation_is_a_term_of_its_own():
  batch = small([[1, 0, 1], [0, 1, 1]])
  stats = {'logp': jnp.array([[-1.0, -2.0, -3.0], [-0.5, -1.0, -9.0]])}
  cfg = losses.make_config('tandem', lambda_jun_imitation=0.1)
  terms, _ = batches.run(tandem.VARIANT, cfg, batch, stats)
  # The junior wrote the tokens at -2 and -.5.
  np.testing.assert_allclose(terms['imitation'], (0.1 * 2.5, 2), rtol=1e-6)
  alone, _ = batches.run(tandem.VARIANT, tandem.Config(), batch, stats)
  assert terms['policy'] == alone['policy']
  extra = (
    gradients('tandem', batch, stats, lambda_jun_imitation=0.1)['logp']
    - gradients('tandem', batch, stats)['logp']
  )
  np.testing.assert_allclose(extra, [[0, -0.05, 0], [-0.05, 0, 0]], atol=1e-7)


def test_sequence_weight_sums_the_seniors_tokens():
  """METHODS §7: the junior's tokens have no ratio of old over rollout."""
  batch = small([[1, 0, 1], [0, 1, 1]])
  gap = jnp.array([[0.1, 7.0, 0.2], [-5.0, -0.3, 8.0]])
  scores = batch.scores | {'rollout': batch.scores['old'] - gap}
  cfg = losses.make_config('tandem', tis='sequence')
  credit, _, _ = tandem.credit(batch.replace(scores=scores), {}, cfg)
  want = np.exp([[0.3] * 3, [-0.3] * 3])
  np.testing.assert_allclose(credit.rows['weight'], want, rtol=1e-5)


def test_gspo_means_over_the_seniors_tokens():
  batch = small([[1, 0, 1], [0, 1, 0]])
  stats = {'logp': batch.scores['old'] + jnp.array([[0.1, 5, 0], [9, 0.05, 9]])}
  grads = gradients(
    'tandem',
    batch,
    stats,
    ratio='gspo',
    agg='seq-mean-token-mean',
    dual_clip=None,
  )
  # Rows' ratios e^.05 and e^.05; two senior tokens share row 0, one has row 1.
  unit = 0.70711 * np.exp(0.05) / 2
  want = [[-unit / 2, 0, -unit / 2], [0, unit, 0]]
  np.testing.assert_allclose(grads['logp'], want, rtol=1e-4)


def test_metrics():
  batch = small([[1, 0, 1], [0, 0, 1]])  # the last is past the row's end
  _, _, metrics = tandem.credit(batch, {}, tandem.Config())
  np.testing.assert_allclose(metrics['tandem/senior_share'], 2 / 5)
  assert metrics['tandem/rows_without_senior'] == 0.5

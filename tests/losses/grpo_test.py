import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tandem import losses
from tandem import types
from tandem.losses import grpo
from tests.losses import batches


def small(rewards=(1.0, 0.0), logp_old=-1.0):
  """One group of two rows, 3 and 1 tokens, old log-probs all equal."""
  batch = batches.step_batch((3, 1), group=2, width=3)
  old = jnp.full((2, 3), logp_old)
  return batch.replace(
    rewards=jnp.asarray(rewards),
    scores={name: old for name in batch.scores},
  )


def gradient(batch, logp, **fields):
  cfg = losses.make_config('grpo', **fields)

  def loss(logp):
    terms, _ = batches.run(grpo.VARIANT, cfg, batch, {'logp': logp})
    return batches.loss(terms)

  return jax.value_and_grad(loss)(logp)


def test_hand_value():
  # Rewards 1, 0: mean .5, sample std .70711, A = +-.70711.
  # Ratios e^.1 = 1.10517, e^.3 -> 1.2 where A > 0, 1; and e^-.5 -> .8 where
  # A < 0. Sum: -.70711 (1.10517 + 1.2 + 1) + .70711 * .8 = -1.771436; 4 tokens.
  logp = jnp.array([[-0.9, -0.7, -1.0], [-1.5, 0.0, 0.0]])
  value, grad = gradient(small(), logp)
  np.testing.assert_allclose(value, -1.771436 / 4, rtol=1e-5)
  want = [[-0.70711 * 1.10517 / 4, 0, -0.70711 / 4], [0, 0, 0]]
  np.testing.assert_allclose(grad, want, rtol=1e-4)


def test_first_update_is_reinforce():
  """At ratio 1 the surrogate's gradient is -A / count at every token."""
  batch = batches.step_batch()
  cfg = losses.make_config('grpo')
  logp = batch.scores['old']
  _, credit = batches.run(grpo.VARIANT, cfg, batch, {'logp': logp})
  _, grad = gradient(batch, logp)
  advantage = credit.rows['advantage'][:, None]
  want = -jnp.where(batch.valid, advantage, 0) / sum(batches.LENGTHS)
  np.testing.assert_allclose(grad, want, rtol=1e-5, atol=1e-8)


@pytest.mark.parametrize('reward', [0.0, 0.1, 1.0])
def test_zero_variance_gives_zero_gradient(reward):
  batch = small((reward, reward))
  _, grad = gradient(batch, batch.scores['old'] + 0.1)
  assert not grad.any()


def test_degenerate_groups_stay_in_the_denominator():
  batch = batches.step_batch()
  flat = batch.replace(rewards=batch.rewards.at[:4].set(1.0))
  terms, _ = batches.run(grpo.VARIANT, losses.make_config('grpo'), flat)
  assert terms['policy'][1] == sum(batches.LENGTHS)


def test_dr_grpo_is_grpo_times_the_deviation():
  batch = small()
  logp = batch.scores['old'] + 0.05
  plain, _ = gradient(batch, logp, scale_by_std=False)
  scaled, _ = gradient(batch, logp)
  np.testing.assert_allclose(plain, scaled * 0.70711, rtol=1e-4)


def test_ragged_groups_are_read_from_the_ids():
  batch = batches.step_batch()
  even, _ = gradient(batch, batch.scores['old'])
  ragged, _ = gradient(batch.replace(group=0), batch.scores['old'])
  np.testing.assert_allclose(even, ragged, rtol=1e-6)


def test_terms_have_their_own_sums():
  batch = small()
  logp = batch.scores['old'] + 0.2
  cfg = losses.make_config(
    'grpo', kl_to='reference', kl_coef=0.5, entropy_coef=0.1
  )
  stats = {'logp': logp, 'entropy': jnp.full((2, 3), 2.0)}
  terms, _ = batches.run(grpo.VARIANT, cfg, batch, stats)
  assert terms.keys() == {'policy', 'kl', 'entropy'}
  # k3(.2) = e^-.2 + .2 - 1 = .0187308 on 4 tokens, halved; -.1 * 2 on 4.
  np.testing.assert_allclose(terms['kl'], (0.5 * 4 * 0.0187308, 4), rtol=1e-4)
  np.testing.assert_allclose(terms['entropy'], (-0.8, 4), rtol=1e-6)
  alone, _ = batches.run(
    grpo.VARIANT, losses.make_config('grpo'), batch, {'logp': logp}
  )
  assert terms['policy'] == alone['policy']


def test_kl_has_the_gradient_of_k2_by_default():
  batch = small((1.0, 1.0))  # no policy gradient
  _, grad = gradient(
    batch, batch.scores['old'] + 0.2, kl_to='junior', kl_coef=0.5
  )
  # .5 * x / 4 with x = .2
  want = jnp.where(batch.valid, 0.5 * 0.2 / 4, 0)
  np.testing.assert_allclose(grad, want, rtol=1e-5)


def test_old_may_be_the_rollout_record():
  batch = small()
  scores = {'rollout': batch.scores['old'] - 0.1}
  logp = batch.scores['old']
  value, _ = gradient(batch.replace(scores=scores), logp, old='rollout')
  rescored, _ = gradient(batch.replace(scores={'old': scores['rollout']}), logp)
  assert value == rescored
  assert value != gradient(batch, logp)[0]


def test_tis_weighs_the_loss_after_clipping():
  batch = small()
  rollout = batch.scores['old'] - jnp.array([[0.1, 5.0, 0.0], [-0.2, 0, 0]])
  batch = batch.replace(scores=batch.scores | {'rollout': rollout})
  # Ratio 1: l = -+.70711. Token weights e^.1, 2 (capped), 1; e^-.2.
  want = -0.70711 * (np.exp(0.1) + 2 + 1) + 0.70711 * np.exp(-0.2)
  value, _ = gradient(batch, batch.scores['old'], tis='token')
  np.testing.assert_allclose(value, want / 4, rtol=1e-4)
  # Sequence weights: e^5.1 -> 2 on three tokens; e^-.2.
  want = -0.70711 * 6 + 0.70711 * np.exp(-0.2)
  value, _ = gradient(batch, batch.scores['old'], tis='sequence')
  np.testing.assert_allclose(value, want / 4, rtol=1e-4)


def test_gspo_clips_whole_rows():
  batch = small()
  fields = {
    'ratio': 'gspo',
    'agg': 'seq-mean-token-mean',
    'dual_clip': None,
  }
  # Row 0's mean log-ratio is .2 > log 1.2: clipped, though two tokens are at
  # ratio 1. Row 1 at e^.1, A < 0: gradient .70711 e^.1 / 2 rows.
  logp = batch.scores['old'] + jnp.array([[0.6, 0, 0], [0.1, 0, 0]])
  value, grad = gradient(batch, logp, **fields)
  want = 0.70711 * np.exp(0.1) / 2
  np.testing.assert_allclose(grad, [[0, 0, 0], [want, 0, 0]], rtol=1e-4)
  want = (-0.70711 * 1.2 + 0.70711 * np.exp(0.1)) / 2
  np.testing.assert_allclose(value, want, rtol=1e-4)


def test_cispo_keeps_every_token():
  batch = small()
  logp = batch.scores['old'] + jnp.array([[0.6, 0, 0], [-0.9, 0, 0]])
  _, grad = gradient(batch, logp, ratio='cispo', dual_clip=None)
  want = np.array([[-1.2, -1, -1], [0.8, 0, 0]]) * 0.70711 / 4
  np.testing.assert_allclose(grad, want, rtol=1e-4)


def test_overlong_rows_pay_before_grouping():
  # Lengths 3 and 1 of at most 3, buffer 2: penalties -1 and 0, so rewards
  # 1 and 0 become 0 and 0: a flat group.
  batch = small()
  fields = {'overlong_max_tokens': 3, 'overlong_buffer_tokens': 2}
  value, grad = gradient(batch, batch.scores['old'], **fields)
  assert not grad.any()
  cfg = losses.make_config('grpo', **fields)
  _, _, metrics = grpo.credit(batch, {}, cfg)
  assert metrics['reward/overlong'] == -0.5
  assert metrics['advantage/degenerate'] == 1


def test_metrics():
  batch = small()
  cfg = losses.make_config('grpo', tis='token', kl_to='reference', kl_coef=0.1)
  scores = batch.scores | {
    'rollout': batch.scores['old'] - jnp.array([[1.0, 0, 0], [0, 0, 0]]),
    'reference': batch.scores['old'] - 0.25,
  }
  _, _, metrics = grpo.credit(batch.replace(scores=scores), {}, cfg)
  # Weights min(e, 2), 1, 1; 1.
  np.testing.assert_allclose(metrics['tis/mean'], 5 / 4, rtol=1e-6)
  np.testing.assert_allclose(metrics['tis/capped'], 1 / 4, rtol=1e-6)
  np.testing.assert_allclose(metrics['kl/reference'], 0.25, rtol=1e-6)
  np.testing.assert_allclose(metrics['advantage/abs_mean'], 0.70711, rtol=1e-4)
  assert metrics['advantage/degenerate'] == 0


def test_no_gradient_reaches_the_credit():
  batch = batches.step_batch()
  cfg = losses.make_config('grpo', tis='token', kl_to='reference', kl_coef=0.1)

  def total(scores, rewards):
    terms, _ = batches.run(
      grpo.VARIANT,
      cfg,
      batch.replace(scores=scores, rewards=rewards),
      {'logp': batch.scores['old'] + 0.1},
    )
    return batches.loss(terms)

  grads = jax.grad(total, argnums=(0, 1))(batch.scores, batch.rewards)
  assert not any(np.any(g) for g in jax.tree.leaves(grads))


def test_mask_is_told_by_lengths():
  """CASES 12: the ending EOS is trained though pad is the same id."""
  batch = batches.step_batch((3, 1), group=2, width=3)
  same = batch.replace(tokens=jnp.zeros_like(batch.tokens))  # all pad = eos
  for one in (batch, same):
    _, grad = gradient(
      one.replace(rewards=jnp.array([1.0, 0.0])), one.scores['old']
    )
    np.testing.assert_array_equal(grad != 0, batch.valid)


def test_config_is_frozen():
  assert isinstance(grpo.Config(), grpo.VARIANT.config)
  with pytest.raises(dataclasses.FrozenInstanceError):
    grpo.Config().eps_low = 0.1
  assert isinstance(
    grpo.credit(batches.step_batch(), {}, grpo.Config())[0], types.Credit
  )

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tandem.losses import ratios


def clip(ratio, advantage, **kwargs):
  kwargs = {'eps_low': 0.2, 'eps_high': 0.28} | kwargs
  f = lambda gap: ratios.ppo_clip(
    gap[None, None], jnp.array([[advantage]]), **kwargs
  )[0, 0]
  return jax.value_and_grad(f)(jnp.log(ratio))


@pytest.mark.parametrize(
  'ratio,advantage,value,slope',
  [
    # The slope is in log rho, so it is -A rho where the ratio is not clipped.
    (1.1, 2.0, -2.2, -2.2),
    (1.27, 2.0, -2.54, -2.54),  # clip-higher leaves 1.27 alone
    (1.5, 2.0, -2.56, 0.0),  # 1.28 * 2
    (0.5, 2.0, -1.0, -1.0),  # a fall is never clipped where A > 0
    (0.5, -2.0, 1.6, 0.0),  # .8 * 2
    (1.5, -2.0, 3.0, 3.0),  # nor a rise where A < 0
    (1.0, -1.0, 1.0, 1.0),  # the tie at ratio 1 keeps the whole gradient
    (1.0, 1.0, -1.0, -1.0),
  ],
)
def test_ppo_clip(ratio, advantage, value, slope):
  got = clip(ratio, advantage)
  np.testing.assert_allclose(got, (value, slope), rtol=1e-5, atol=1e-7)


def test_dual_clip_bounds_negative_advantages_only():
  np.testing.assert_allclose(clip(5.0, -2.0), (10, 10), rtol=1e-5)
  np.testing.assert_allclose(clip(5.0, -2.0, dual_clip=3.0), (6, 0), rtol=1e-5)
  np.testing.assert_allclose(clip(2.0, -2.0, dual_clip=3.0), (4, 4), rtol=1e-5)
  np.testing.assert_allclose(
    clip(0.1, 2.0, dual_clip=3.0), clip(0.1, 2.0), rtol=1e-6
  )


def test_log_ratio_is_clamped():
  logp, old = jnp.array([[0.0, -500.0]]), jnp.array([[-100.0, 0.0]])
  np.testing.assert_array_equal(ratios.log_ratio(logp, old), [[20, -20]])
  grads = jax.grad(lambda *a: ratios.log_ratio(*a).sum(), argnums=(0, 1))
  grad, old_grad = grads(jnp.array([[1.0]]), jnp.array([[0.5]]))
  assert grad == 1
  assert old_grad == 0


def test_gspo_is_one_ratio_a_row_with_token_gradients():
  logp = jnp.array([[-1.0, -2.0, -9.0], [-1.0, -1.0, -1.0]])
  old = jnp.array([[-1.2, -2.4, -1.0], [-1.1, -1.0, -0.8]])
  mask = jnp.array([[1, 1, 0], [1, 1, 1]], bool)
  # Row 0: (.2 + .4) / 2 = .3; row 1: (.1 + 0 - .2) / 3 = -.0333.
  got = ratios.gspo_log_ratio(logp, old, mask)
  want = np.repeat([[0.3], [-0.1 / 3]], 3, axis=1)
  np.testing.assert_allclose(got, want, rtol=1e-5)
  f = lambda x: ratios.gspo_log_ratio(x, old, mask).sum()
  np.testing.assert_array_equal(jax.grad(f)(logp), np.ones((2, 3)))
  big = ratios.gspo_log_ratio(logp + 50, old, mask)
  np.testing.assert_array_equal(big, np.full((2, 3), 10))


def test_cispo_keeps_the_gradient_of_clipped_tokens():
  gap = jnp.log(jnp.array([[3.0, 0.1, 1.1]]))
  advantage = jnp.array([[2.0]])
  f = lambda logp: ratios.cispo(
    gap, logp, advantage, eps_low=0.2, eps_high=0.28
  ).sum()
  grad = jax.grad(f)(jnp.array([[-1.0, -1.0, -1.0]]))
  # -A clip(rho): 1.28, .8, 1.1
  np.testing.assert_allclose(grad, [[-2.56, -1.6, -2.2]], rtol=1e-5)


def test_tis_weights():
  old = jnp.array([[-1.0, -1.0, -1.0, 77.0]])
  rollout = jnp.array([[-1.1, -3.0, -0.5, 0.0]])
  mask = jnp.array([[1, 1, 1, 0]], bool)
  token = ratios.tis_weight(old, rollout, mask, level='token', cap=2.0)
  want = [[np.exp(0.1), 2.0, np.exp(-0.5), 1.0]]
  np.testing.assert_allclose(token, want, rtol=1e-6)
  row = ratios.tis_weight(old, rollout, mask, level='sequence', cap=9.0)
  # .1 + 2 - .5 = 1.6, e^1.6 = 4.953; the hidden 77 is not in it.
  np.testing.assert_allclose(row, np.full((1, 4), np.exp(1.6)), rtol=1e-6)
  f = lambda x: ratios.tis_weight(
    x, rollout, mask, level='token', cap=2.0
  ).sum()
  assert not jax.grad(f)(old).any()
  with pytest.raises(ValueError, match='sequence'):
    ratios.tis_weight(old, rollout, mask, level='segment', cap=2.0)

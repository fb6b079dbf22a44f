import jax.numpy as jnp
import numpy as np
import pytest

from tandem.losses import advantages


@pytest.mark.parametrize('take', [np.asarray, jnp.asarray])
def test_hand_values(take):
  # Group 1: mean .25, deviations (.75, -.25, -.25, -.25), squares .75,
  # sample std sqrt(.75 / 3) = .5. Group 2: mean .5, squares 1,
  # std sqrt(1 / 3) = .57735.
  rewards = take([1, 0, 0, 0, 1, 0, 0, 1])
  a = advantages.group_advantages(rewards, group=4)
  h = 0.5 / 0.57735027
  want = [1.5, -0.5, -0.5, -0.5, h, -h, -h, h]
  np.testing.assert_allclose(a, want, rtol=1e-5)
  assert a.dtype == jnp.float32
  plain = advantages.group_advantages(rewards, group=4, scale_by_std=False)
  want = [0.75, -0.25, -0.25, -0.25, 0.5, -0.5, -0.5, 0.5]
  np.testing.assert_allclose(plain, want, rtol=1e-6)


@pytest.mark.parametrize('scale', [True, False])
def test_equal_rewards_give_exact_zeros(scale):
  # The mean of seven 0.1s is not 0.1 in float32; over eps it would be 0.007.
  a = advantages.group_advantages([0.1] * 7, group=7, scale_by_std=scale)
  assert not np.asarray(a).any()


@pytest.mark.parametrize('scale', [True, False])
def test_group_of_one_is_its_reward(scale):
  rewards = [0.3, -2.0, 0.0]
  a = advantages.group_advantages(rewards, group=1, scale_by_std=scale)
  np.testing.assert_array_equal(a, np.asarray(rewards, np.float32))


def test_ragged_groups_in_any_order():
  rng = np.random.default_rng(0)
  rewards = rng.normal(size=12).astype(np.float32)
  even = np.repeat(np.arange(3), 4)
  want = advantages.group_advantages(rewards, group=4)
  got = advantages.group_advantages(rewards, group_id=even)
  np.testing.assert_allclose(got, want, rtol=1e-5)
  order = rng.permutation(12)
  got = advantages.group_advantages(rewards[order], group_id=even[order])
  np.testing.assert_allclose(got, np.asarray(want)[order], rtol=1e-5)
  ragged = np.array([7, 7, 7, 7, 2, 5, 5, 5, 5, 5, 5, 5])
  got = advantages.group_advantages(rewards, group_id=ragged)
  np.testing.assert_allclose(got[:4], want[:4], rtol=1e-5)
  assert got[4] == rewards[4]
  np.testing.assert_allclose(
    got[5:], advantages.group_advantages(rewards[5:], group=7), rtol=1e-5
  )


def test_degenerate_groups():
  rewards = [1, 1, 0, 1, 0, 0, 0.5]
  ids = [0, 0, 1, 1, 2, 2, 3]
  got = advantages.degenerate(rewards, group_id=ids)
  np.testing.assert_array_equal(got, [1, 1, 0, 0, 1, 1, 0])
  np.testing.assert_array_equal(
    advantages.degenerate(rewards[:6], group=2), got[:6]
  )


def test_overlong_penalty():
  # 100 tokens at most, the last 20 punished: 80 -> 0, 90 -> -10/20, 100 -> -1.
  got = advantages.overlong_penalty(
    np.array([10, 80, 81, 90, 100, 130]), max_tokens=100, buffer_tokens=20
  )
  np.testing.assert_allclose(got, [0, 0, -0.05, -0.5, -1, -1], rtol=1e-6)


def test_refusals():
  with pytest.raises(ValueError, match='group=3 does not divide N=4'):
    advantages.group_advantages(np.zeros(4), group=3)
  with pytest.raises(ValueError, match='exactly one'):
    advantages.group_advantages(np.zeros(4))
  with pytest.raises(ValueError, match='exactly one'):
    advantages.group_advantages(np.zeros(4), group=2, group_id=np.zeros(4))

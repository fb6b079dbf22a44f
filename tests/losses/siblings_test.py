"""CRAFT's estimator beside a loop, its limits, and METHODS' facts."""

import functools
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tandem.losses import advantages
from tandem.losses import craft
from tandem.losses import siblings

STATIC = ('group', 'tau', 'g_min', 'cti_variant', 'fallback', 'ended_sibling')
importance = jax.jit(siblings.importance, static_argnames=STATIC)


def rows(n=8, t=6, seed=0):
  rng = np.random.default_rng(seed)
  delta = rng.normal(size=(n, t)).astype(np.float32)
  valid = np.arange(t)[None] < rng.integers(1, t + 1, n)[:, None]
  paid = rng.normal(size=n).astype(np.float32)
  return np.where(valid, delta, np.nan), valid, paid


def loop(delta, valid, paid, group, tau=1.0, g_min=2, neutral=False):
  """Equation 7 as a loop over rows, positions and siblings, in float64."""
  cti, fell_back = np.zeros(delta.shape), np.zeros(delta.shape, bool)
  for i, t in zip(*np.nonzero(valid), strict=True):
    start = i // group * group
    others = [
      j
      for j in range(start, start + group)
      if j != i and (neutral or valid[j, t])
    ]
    gaps = [float(delta[j, t]) if valid[j, t] else 0.0 for j in others]
    if len(others) < max(g_min - 1, 1):
      cti[i, t] = paid[i] * delta[i, t]
      fell_back[i, t] = True
      continue
    weights = [math.exp(gap / tau) for gap in gaps]
    mean = sum(w * paid[j] for w, j in zip(weights, others, strict=True))
    cti[i, t] = mean / sum(weights) - paid[i]
  return cti, fell_back


@pytest.mark.parametrize(
  'fields',
  [
    {},
    {'tau': 0.3},
    {'g_min': 4},
    {'ended_sibling': 'neutral'},
    {'ended_sibling': 'neutral', 'g_min': 4},
  ],
  ids=str,
)
def test_arrays_equal_the_loop(fields):
  delta, valid, paid = rows()
  neutral = fields.get('ended_sibling') == 'neutral'
  numbers = {k: v for k, v in fields.items() if k != 'ended_sibling'}
  want = loop(delta, valid, paid, 4, neutral=neutral, **numbers)
  got = importance(delta, valid, paid, group=4, **fields)
  np.testing.assert_allclose(got[0], want[0], atol=1e-5)
  np.testing.assert_array_equal(got[1], want[1])
  # Row after row by a matrix of siblings, the rows in another order.
  order = np.array([5, 0, 1, 4, 7, 3, 2, 6])
  who = siblings.peers(jnp.asarray(order // 4), jnp.arange(8))
  mixed = importance(
    delta[order], valid[order], paid[order], sibling=who, **fields
  )
  np.testing.assert_allclose(mixed[0], want[0][order], atol=1e-5)
  np.testing.assert_array_equal(mixed[1], want[1][order])


def test_peers_are_other_episodes_of_the_group():
  # Two groups; episodes 0 and 1 of two turns each in the first.
  group, episode = np.array([0, 0, 0, 0, 1]), np.array([0, 0, 1, 1, 2])
  turn = np.array([0, 1, 0, 1, 0])
  np.testing.assert_array_equal(
    siblings.peers(group, episode),
    [
      [0, 0, 1, 1, 0],
      [0, 0, 1, 1, 0],
      [1, 1, 0, 0, 0],
      [1, 1, 0, 0, 0],
      [0, 0, 0, 0, 0],
    ],
  )
  by_turn = siblings.peers(group, episode, turn)
  assert [list(np.flatnonzero(r)) for r in by_turn] == [[2], [3], [0], [1], []]


def test_temperature_limits():
  rng = np.random.default_rng(0)
  delta = rng.normal(size=(8, 6)).astype(np.float32)
  valid, paid = np.ones((8, 6), bool), rng.normal(size=8).astype(np.float32)
  hot, _ = importance(delta, valid, paid, group=4, tau=1e6)
  cold, _ = importance(delta, valid, paid, group=4, tau=1e-30)
  for i, t in np.ndindex(8, 6):
    others = [j for j in range(i // 4 * 4, i // 4 * 4 + 4) if j != i]
    np.testing.assert_allclose(
      hot[i, t], paid[others].mean() - paid[i], atol=1e-5
    )
    best = max(others, key=lambda j: delta[j, t])
    np.testing.assert_allclose(cold[i, t], paid[best] - paid[i], atol=1e-6)


def test_a_huge_group_minimum_is_the_fallback_everywhere():
  """METHODS §8 and A6: G_min = 999 is A Delta."""
  delta, valid, paid = rows()
  want = np.where(valid, paid[:, None] * delta, 0)
  cti, fell_back = importance(delta, valid, paid, group=4, g_min=999)
  np.testing.assert_allclose(cti, want, rtol=1e-6)
  np.testing.assert_array_equal(fell_back, valid)
  cti, _ = importance(delta, valid, paid, group=4, cti_variant='fallback')
  np.testing.assert_allclose(cti, want, rtol=1e-6)
  cti, _ = importance(delta, valid, paid, group=4, g_min=999, fallback='zero')
  np.testing.assert_array_equal(cti, 0)


def test_negated_is_the_other_sign_where_siblings_speak():
  delta, valid, paid = rows()
  cti, fell_back = importance(delta, valid, paid, group=4)
  negated, _ = importance(delta, valid, paid, group=4, cti_variant='negated')
  sign = np.where(fell_back, 1, -1)
  np.testing.assert_array_equal(negated, sign * np.asarray(cti))
  assert fell_back.any()
  assert not fell_back.all()


def test_unbounded_gaps_weigh_nothing_and_earn_nothing():
  delta, _, paid = rows()
  valid = np.ones((8, 6), bool)
  delta = np.where(np.isnan(delta), 0.5, delta)
  delta[0] = -np.inf
  delta[5:, 0] = np.inf  # row 4 is left without siblings at t = 0
  cti, fell_back = importance(delta, valid, paid, group=4)
  assert np.isfinite(cti).all()
  np.testing.assert_allclose(cti[4, 0], paid[4] * delta[4, 0], rtol=1e-6)
  assert fell_back[4, 0]
  zeroed, _ = importance(delta, valid, paid, group=4, g_min=999)
  assert not np.asarray(zeroed)[0].any()
  weights = np.exp(delta[2:4, 1])
  want = weights @ paid[2:4] / weights.sum() - paid[1]
  np.testing.assert_allclose(cti[1, 1], want, rtol=1e-5)


def test_credit_is_odd_continuous_and_inside_one():
  cti = jnp.array([-3.0, -0.0401, -1e-7, 0.0, 1e-7, 0.0401, 3.0])
  c = siblings.signed_credit(cti, beta_pos=5.0, beta_neg=5.0)
  np.testing.assert_array_equal(c, -c[::-1])
  np.testing.assert_allclose(c[2:5], [-2.5e-7, 0, 2.5e-7], rtol=1e-5)
  # theta_gate = .1 is |CTI| = .0401; equation 8 as printed.
  np.testing.assert_allclose(c[5], 0.1, rtol=1e-2)
  np.testing.assert_allclose(
    c[4:], 2 * jax.nn.sigmoid(5 * cti[4:]) - 1, atol=1e-6
  )
  c = siblings.signed_credit(cti, beta_pos=1.0, beta_neg=9.0)
  np.testing.assert_allclose(c[5], math.tanh(0.0401 / 2), rtol=1e-5)
  np.testing.assert_allclose(c[1], -math.tanh(9 * 0.0401 / 2), rtol=1e-5)
  sharp = siblings.signed_credit(cti, beta_pos=1e30, beta_neg=1e30)
  np.testing.assert_array_equal(sharp, np.sign(cti))


def test_uniform_gap():
  """F-a: CTI = -G / (G - 1) A; 3 of 8: -1.38 and +.83, c -.998 and +.969."""
  rewards = np.array([1, 1, 1, 0, 0, 0, 0, 0.0])
  paid = advantages.group_advantages(rewards, group=8)
  delta, valid = np.full((8, 6), 0.3, np.float32), np.ones((8, 6), bool)
  cti, c = craft.sibling_credit(delta, valid, paid, group=8)
  np.testing.assert_allclose(cti[:, 0], -8 / 7 * paid, rtol=1e-5)
  np.testing.assert_allclose(cti[[0, 7], 0], [-1.38, 0.83], atol=5e-3)
  np.testing.assert_allclose(c[[0, 7], 0], [-0.998, 0.969], atol=5e-4)


def test_binary_rewards_set_credit_against_the_advantage():
  """F-b: sign(c) = -sign(A) or 0 in each of 10,000 random groups."""
  rng = np.random.default_rng(0)
  n = 80_000
  rewards = (rng.random(n) < 0.5).astype(np.float32)
  paid = advantages.group_advantages(rewards, group=8)
  delta = rng.normal(0, 3, (n, 1)).astype(np.float32)
  cti, _ = importance(delta, np.ones((n, 1), bool), paid, group=8)
  c = siblings.signed_credit(cti, beta_pos=5.0, beta_neg=5.0)
  product = np.sign(c[:, 0]) * np.sign(paid)
  assert product.max() <= 0
  assert (product < 0).mean() > 0.9  # and seldom 0
  # Real rewards and gaps of deviation .5: -.987 token by token (METHODS has
  # -.9985, which needs gaps of .17, or rows' means over many tokens).
  paid = advantages.group_advantages(rng.normal(size=n), group=8)
  delta = rng.normal(0, 0.5, (n, 1)).astype(np.float32)
  cti, _ = importance(delta, np.ones((n, 1), bool), paid, group=8)
  corr = np.corrcoef(cti[:, 0], paid)[0, 1]
  np.testing.assert_allclose(corr, -0.987, atol=2e-3)


# A sibling is worth +1 with probability SHARE and then weighs HEAVY, else -1
# and 1. The estimate of sum_j w_j A_j over M siblings has the law of a binomial
# count, so its mean and variance are known.
SHARE, HEAVY = 0.05, 4.75
TARGET = (SHARE * HEAVY - (1 - SHARE)) / (SHARE * HEAVY + (1 - SHARE))


def exact(count):
  """Mean and variance of the estimate with `count` siblings."""
  wins = np.arange(count + 1)
  chance = np.array(
    [math.comb(count, k) * SHARE**k * (1 - SHARE) ** (count - k) for k in wins]
  )
  value = (wins * HEAVY - (count - wins)) / (wins * HEAVY + (count - wins))
  mean = chance @ value
  return mean, chance @ (value - mean) ** 2


@functools.cache
def estimates(count, groups):
  """[groups] Monte Carlo estimates, one row of each group."""
  rng = np.random.default_rng(count)
  size = count + 1
  win = rng.random(groups * size) < SHARE
  paid = np.where(win, 1.0, -1.0).astype(np.float32)
  delta = np.where(win, np.log(HEAVY), 0.0).astype(np.float32)[:, None]
  cti, _ = importance(delta, np.ones_like(delta, bool), paid, group=size)
  return (np.asarray(cti)[:, 0] + paid).reshape(groups, size)[:, 0]


def test_proposition_1_consistent_with_a_bias_of_one_over_g():
  for count, groups in ((7, 20_000), (63, 1000)):
    got, (mean, variance) = estimates(count, groups), exact(count)
    error = math.sqrt(variance / groups)
    assert abs(got.mean() - mean) < 4 * error
  bias = {m: exact(m)[0] - TARGET for m in (31, 63, 255, 511)}
  np.testing.assert_allclose(bias[511] / bias[255], 255 / 511, rtol=0.02)
  # Delta method: bias M -> -E[w (w (A - target))] / E[w]^2.
  norm = (SHARE * HEAVY + 1 - SHARE) ** 2
  slope = SHARE * HEAVY**2 * (1 - TARGET) - (1 - SHARE) * (1 + TARGET)
  np.testing.assert_allclose(bias[511] * 511, -slope / norm, rtol=0.02)
  assert abs(bias[511]) < 0.01


def test_proposition_2_needs_twice_the_largest_reward():
  """F-f: with |A| <= R the distance to the mean is 2 R at most, not R."""
  count, groups = 63, 1000
  _, variance = exact(count)
  got = estimates(count, groups).var()
  # The variance of a sample variance: here within a fifth at four sigma.
  np.testing.assert_allclose(got, variance, rtol=0.2)
  norm = (SHARE * HEAVY + 1 - SHARE) ** 2
  bound = (SHARE * HEAVY**2 + 1 - SHARE) / norm / count  # E[w^2] R^2 / M
  assert bound < variance < 4 * bound
  assert bound < got < 4 * bound


@pytest.mark.parametrize(
  'fields,message',
  [
    ({'tau': 0.0}, 'tau=0.0'),
    ({'g_min': 1}, 'at least 2'),
    ({'cti_variant': 'signed'}, 'negated'),
    ({'fallback': 'none'}, 'product'),
    ({'ended_sibling': 'keep'}, 'exclude'),
    ({'group': 3}, 'does not divide'),
    ({'group': None}, 'exactly one'),
  ],
)
def test_unknown_options_raise(fields, message):
  delta, valid, paid = rows()
  with pytest.raises(ValueError, match=message):
    siblings.importance(delta, valid, paid, **{'group': 4} | fields)

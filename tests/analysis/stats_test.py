"""Statistics against hand values and scipy's own."""

import math

import numpy as np
import pytest
from scipy import stats as reference

from tandem.analysis import stats


def test_binomial_se():
  # sqrt(.5 * .5 / 400) = .025
  assert stats.binomial_se(0.5, 400) == pytest.approx(0.025)
  np.testing.assert_allclose(
    stats.binomial_se([0.0, 0.2, 1.0], 100), [0, 0.04, 0]
  )
  with pytest.raises(ValueError, match='share 37 is not in'):
    stats.binomial_se(37, 400)
  with pytest.raises(ValueError, match='0 trials'):
    stats.binomial_se(0.5, 0)


def test_rise_in_se():
  # Variances .2 * .8 / 400 + .6 * .4 / 400 = .001; .4 / sqrt(.001) = 12.65.
  rise = stats.rise_in_se(0.2, 0.6, n_before=400, n_after=400)
  assert rise == pytest.approx(0.4 / math.sqrt(0.001))
  assert stats.rise_in_se(0.0, 1.0, n_before=9, n_after=9) == math.inf
  assert stats.rise_in_se(1.0, 0.0, n_before=9, n_after=9) == -math.inf
  assert stats.rise_in_se(1.0, 1.0, n_before=9, n_after=9) == 0.0


@pytest.mark.parametrize('alternative', stats.ALTERNATIVES)
def test_paired_t_equals_scipy(alternative):
  rng = np.random.default_rng(0)
  a = rng.normal(0.3, 1, 30)
  b = rng.normal(0, 1, 30)
  ours = stats.paired_t(a, b, alternative=alternative)
  theirs = reference.ttest_rel(a, b, alternative=alternative)
  assert ours.t == pytest.approx(theirs.statistic, rel=1e-12)
  assert ours.p == pytest.approx(theirs.pvalue, rel=1e-10)
  assert ours.df == 29
  assert ours.mean == pytest.approx((a - b).mean())


def test_paired_t_by_hand():
  # d = 1, 2, 3: mean 2, sd 1, t = 2 / (1 / sqrt 3) = 2 sqrt 3.
  assert stats.paired_t([2, 4, 6], [1, 2, 3]).t == pytest.approx(2 * 3**0.5)


def test_paired_t_of_constant_differences():
  assert stats.paired_t([2, 3], [1, 2]).t == math.inf
  assert stats.paired_t([2, 3], [1, 2]).p == 0.0
  assert stats.paired_t([1, 2], [2, 3]).p == 1.0
  same = stats.paired_t([1, 2], [1, 2])
  assert (same.t, same.p) == (0.0, 0.5)


def test_paired_t_refuses():
  with pytest.raises(ValueError, match='cannot be paired'):
    stats.paired_t([1, 2], [1, 2, 3])
  with pytest.raises(ValueError, match='at least 2'):
    stats.paired_t([1], [1])
  with pytest.raises(ValueError, match=r'first vector\[1\] is nan'):
    stats.paired_t([1, np.nan], [1, 2])
  with pytest.raises(ValueError, match='two-sided'):
    stats.paired_t([1, 2], [1, 2], alternative='bigger')


def test_average_ranks():
  np.testing.assert_array_equal(
    stats.average_ranks([3, 1, 3, 2, 3]), [4, 1, 4, 2, 4]
  )
  values = np.random.default_rng(0).integers(0, 5, 50)
  np.testing.assert_array_equal(
    stats.average_ranks(values), reference.rankdata(values)
  )


def test_correlations_with_ties():
  rng = np.random.default_rng(1)
  x = rng.normal(size=60)
  right = (x + rng.normal(size=60) > 0).astype(float)  # ties everywhere
  assert stats.pearson(x, right) == pytest.approx(
    reference.pearsonr(x, right)[0]
  )
  assert stats.spearman(x, right) == pytest.approx(
    reference.spearmanr(x, right)[0]
  )
  # A monotone map changes Pearson and leaves Spearman alone.
  assert stats.spearman(np.exp(x), right) == stats.spearman(x, right)
  assert stats.pearson(np.exp(x), right) != stats.pearson(x, right)


def test_correlation_without_variation_is_zero():
  assert stats.pearson([1, 1, 1], [1, 2, 3]) == 0.0
  assert stats.spearman([1, 2, 3], [0, 0, 0]) == 0.0
  assert stats.pearson([1, 2, 3], [2, 4, 6]) == pytest.approx(1)


def test_moving_average():
  # Ends: (1 + 2) / 2 and (3 + 4) / 2; inside: means of three.
  np.testing.assert_allclose(
    stats.moving_average([1, 2, 3, 4], 3), [1.5, 2, 3, 3.5]
  )
  np.testing.assert_array_equal(stats.moving_average([5, 1], 1), [5, 1])
  np.testing.assert_allclose(stats.moving_average([1, np.nan, 3], 3), [1, 2, 3])
  np.testing.assert_allclose(stats.moving_average([1, 3], 11), [2, 2])
  with pytest.raises(ValueError, match='window=4.*try 5'):
    stats.moving_average([1, 2], 4)


def test_bootstrap_se():
  values = np.random.default_rng(0).integers(0, 2, 200).astype(float)
  # The bootstrap's law is known here: sd(ddof 0) / sqrt(200).
  expected = values.std() / math.sqrt(200)
  assert stats.bootstrap_se(values) == pytest.approx(expected, rel=0.03)
  # Two benchmarks of 100: variances add at weight 1/4 each.
  halves = ['a'] * 100 + ['b'] * 100
  expected = 0.5 * math.hypot(values[:100].std() / 10, values[100:].std() / 10)
  assert stats.bootstrap_se(values, benchmark=halves) == pytest.approx(
    expected, rel=0.03
  )
  with pytest.raises(ValueError, match='num_resamples=1'):
    stats.bootstrap_se(values, num_resamples=1)
  with pytest.raises(ValueError, match='one name per problem'):
    stats.bootstrap_se(values, benchmark=['a'])

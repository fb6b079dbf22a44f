"""pass@k against its definition, and CASES 24."""

import itertools

import numpy as np
import pytest

from tandem.analysis import passk


def brute_force(n, c, k):
  """The share of k-subsets of n responses, c of them right, that hold one."""
  right = [i < c for i in range(n)]
  subsets = list(itertools.combinations(right, k))
  return sum(map(any, subsets)) / len(subsets)


def test_equals_counting_subsets():
  for n in range(1, 9):
    for c in range(n + 1):
      for k in range(1, n + 1):
        assert passk.pass_at_k(n, c, k) == brute_force(n, c, k), (n, c, k)


def test_cases_24():
  assert [passk.pass_at_k(4, 1, k) for k in (1, 2, 4)] == [0.25, 0.5, 1.0]
  assert all(passk.pass_at_k(4, 0, k) == 0.0 for k in (1, 2, 3, 4))
  with pytest.raises(ValueError, match=r'k=5 of n=4.*at least 5 responses'):
    passk.pass_at_k(4, 1, 5)


def test_large_counts_are_exact():
  # C(2000, 1000) overflows float64; one right of n is found with chance k / n.
  assert passk.pass_at_k(2000, 1, 1000) == 0.5
  # 1 - (1 - tiny) would lose these digits; whole numbers do not.
  assert passk.pass_at_k(10**9, 1, 1) == 1e-9


@pytest.mark.parametrize(
  ('n', 'c', 'k', 'message'),
  [
    (0, 0, 1, 'n=0'),
    (4, 5, 1, 'c=5 right of n=4'),
    (4, -1, 1, 'c=-1'),
    (4, 1, 0, 'k=0'),
    (4.0, 1, 1, r'n=4\.0 is not a whole number'),
    (4, 0.5, 1, r'c=0\.5'),
    (4, 1, None, 'k=None'),
  ],
)
def test_refuses(n, c, k, message):
  with pytest.raises(ValueError, match=message):
    passk.pass_at_k(n, c, k)


def test_returns_float_for_numpy_ints():
  value = passk.pass_at_k(np.int32(4), np.int64(1), np.int8(2))
  assert type(value) is float
  assert value == 0.5


def test_mean_over_problems():
  # n=4: pass@2 of c = 0, 1, 4 is 0, .5, 1; the mean is .5.
  estimate = passk.mean_pass_at_k(4, [0, 1, 4], 2)
  assert estimate.value == 0.5
  assert estimate.num_problems == 3
  # A resampled mean of 3 has deviation sd(0, .5, 1; ddof 0) / sqrt 3 = .2357.
  assert abs(estimate.se - 0.2357) < 0.01
  assert estimate == passk.mean_pass_at_k(4, [0, 1, 4], 2)
  assert estimate.se != passk.mean_pass_at_k(4, [0, 1, 4], 2, seed=1).se


def test_one_n_per_problem():
  np.testing.assert_array_equal(
    passk.per_problem([2, 4], [1, 1], 2), [1.0, 0.5]
  )
  with pytest.raises(ValueError, match='problem 1: pass@k with k=3 of n=2'):
    passk.per_problem([4, 2], [1, 1], 3)
  with pytest.raises(ValueError, match='one per problem'):
    passk.per_problem([4, 4, 4], [1, 1], 1)
  with pytest.raises(ValueError, match='P >= 1'):
    passk.per_problem(4, [], 1)


def test_macro_mean_weights_benchmarks_equally():
  # Benchmark a: 1 of 1; b: 0 of 3. Macro (1 + 0) / 2, pooled would be 1/4.
  estimate = passk.mean_pass_at_k(
    1, [1, 0, 0, 0], 1, benchmark=['a', 'b', 'b', 'b']
  )
  assert estimate.value == 0.5
  # Resampled inside each benchmark, neither mean can move.
  assert estimate.se == 0.0

"""pass@k: the chance that at least one of k responses is right."""

import dataclasses
import math
import operator

import numpy as np

from tandem.analysis import stats


@dataclasses.dataclass(frozen=True)
class Estimate:
  """A mean over problems, its bootstrap standard error, and their number."""

  value: float
  se: float
  num_problems: int


def _whole(value, name):
  try:
    return operator.index(value)
  except TypeError as error:
    raise ValueError(
      f'{name}={value!r} is not a whole number; wanted a count; pass an int.'
    ) from error


def pass_at_k(n, c, k):
  """Unbiased estimate of pass@k from n responses of which c are right.

    1 - C(n - c, k) / C(n, k)

  The share of the k-subsets of the n responses that hold a right one. It is
  not best@k: with n=4, c=1 it is .25, .5 and 1 at k = 1, 2, 4. Computed in
  whole numbers and rounded once.

  Args:
    n: graded responses of one problem, at least 1.
    c: right ones, from 0 to n.
    k: size of the subset, from 1 to n.

  Returns:
    A float in [0, 1].

  Raises:
    ValueError: a count that is not whole, c outside [0, n], or k outside
      [1, n] (fewer responses than k say nothing about pass@k).

  Source: Chen et al. 2021 (arXiv 2107.03374) eq. 1, as METHODS §2.6 states it.
  """
  n, c, k = _whole(n, 'n'), _whole(c, 'c'), _whole(k, 'k')
  if n < 1:
    raise ValueError(
      f'n={n} responses; wanted at least 1; sample the problem first.'
    )
  if not 0 <= c <= n:
    raise ValueError(
      f'c={c} right of n={n} responses; wanted 0 <= c <= n; count the right '
      'ones among those n.'
    )
  if not 1 <= k <= n:
    raise ValueError(
      f'pass@k with k={k} of n={n} responses; wanted 1 <= k <= n; sample at '
      f'least {max(k, 1)} responses per problem or lower k.'
    )
  subsets = math.comb(n, k)
  return (subsets - math.comb(n - c, k)) / subsets


def per_problem(n, c, k):
  """pass@k of each problem.

  Args:
    n: [P] int, or one int for all: graded responses per problem.
    c: [P] int: right ones.
    k: size of the subset, at most every n.

  Returns:
    [P] float64.

  Raises:
    ValueError: as `pass_at_k`, naming the first problem at fault; no problem.
  """
  c = np.asarray(c)
  if c.ndim != 1 or c.size == 0:
    raise ValueError(
      f'counts have shape {c.shape}; wanted [P] with P >= 1; pass one count of '
      'right responses per problem.'
    )
  n = np.asarray(n)
  if n.shape not in ((), c.shape):
    raise ValueError(
      f'n has shape {n.shape} and c {c.shape}; wanted one number, or one per '
      'problem.'
    )
  values = np.empty(c.shape, dtype=np.float64)
  for row, (total, right) in enumerate(zip(np.broadcast_to(n, c.shape), c)):
    try:
      values[row] = pass_at_k(total, right, k)
    except ValueError as error:
      raise ValueError(f'problem {row}: {error}') from error
  return values


def mean_pass_at_k(n, c, k, *, benchmark=None, num_resamples=10_000, seed=0):
  """pass@k averaged over problems, with its bootstrap standard error.

  Args:
    n: [P] int, or one int for all: graded responses per problem.
    c: [P] int: right ones.
    k: size of the subset.
    benchmark: [P] names; the mean is then the macro mean over them.
    num_resamples: bootstrap draws over problems, inside each benchmark.
    seed: of the draws.

  Returns:
    Estimate.
  """
  values = per_problem(n, c, k)
  return Estimate(
    value=stats.macro_mean(values, benchmark=benchmark),
    se=stats.bootstrap_se(
      values, benchmark=benchmark, num_resamples=num_resamples, seed=seed
    ),
    num_problems=values.size,
  )

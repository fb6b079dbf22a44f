"""Errors, tests and correlations: the few statistics that the tables need."""

import dataclasses
import math

import numpy as np
from scipy import special

ALTERNATIVES = ('greater', 'less', 'two-sided')


@dataclasses.dataclass(frozen=True)
class PairedT:
  """A paired t test of `a - b`: its mean, t, degrees of freedom and p."""

  mean: float
  t: float
  df: int
  p: float


def _vector(values, name, *, at_least):
  """Returns `values` as a finite float64 vector of a minimal length."""
  array = np.asarray(values, dtype=np.float64)
  if array.ndim != 1 or array.size < at_least:
    raise ValueError(
      f'{name} has shape {array.shape}; wanted a vector of at least '
      f'{at_least}; pass one number per problem or row.'
    )
  if not np.isfinite(array).all():
    bad = int(np.flatnonzero(~np.isfinite(array))[0])
    raise ValueError(
      f'{name}[{bad}] is {array[bad]}; wanted finite numbers; drop the '
      'missing entries from every vector before comparing.'
    )
  return array


def _pair(x, y, *, at_least):
  x = _vector(x, 'the first vector', at_least=at_least)
  y = _vector(y, 'the second vector', at_least=at_least)
  if x.shape != y.shape:
    raise ValueError(
      f'vectors of {x.size} and {y.size} entries cannot be paired; wanted '
      'equal lengths; keep the problems that both have, in one order.'
    )
  return x, y


def binomial_se(p, n):
  """Standard error of a share: sqrt(p (1 - p) / n).

  Args:
    p: shares in [0, 1], any shape.
    n: number of independent trials behind each, at least 1; broadcasts.

  Returns:
    float64 of the broadcast shape; a float where both are scalars.

  Raises:
    ValueError: a share outside [0, 1], or fewer than one trial.
  """
  p = np.asarray(p, dtype=np.float64)
  n = np.asarray(n, dtype=np.float64)
  if ((p < 0) | (p > 1)).any():
    raise ValueError(
      f'share {p[(p < 0) | (p > 1)].flat[0]:g} is not in [0, 1]; pass '
      'accuracies as shares, not as percent.'
    )
  if (n < 1).any():
    raise ValueError(
      f'{n[n < 1].flat[0]:g} trials have no standard error; wanted at least 1; '
      'pass the number of graded responses.'
    )
  se = np.sqrt(p * (1 - p) / n)
  return float(se) if se.ndim == 0 else se


def rise_in_se(before, after, *, n_before, n_after):
  """How many standard errors a share rose by, the two samples independent.

    z = (after - before) / sqrt(se_before^2 + se_after^2)

  Returns 0 where nothing changed, and an infinity of the change's sign where
  both errors are zero (all right or all wrong).
  """
  rise = after - before
  se = math.hypot(binomial_se(before, n_before), binomial_se(after, n_after))
  if se == 0:
    return math.copysign(math.inf, rise) if rise else 0.0
  return rise / se


def paired_t(a, b, *, alternative='greater'):
  """Paired t test of per-problem values, df = n - 1.

  Args:
    a: [P] one value per problem.
    b: [P] the same problems in the same order.
    alternative: 'greater' claims mean(a - b) > 0; 'less'; 'two-sided'.

  Returns:
    PairedT. Where every difference is the same number, t is an infinity of
    its sign, or 0 where that number is 0.

  Raises:
    ValueError: fewer than two pairs, unequal lengths, missing numbers, or an
      unknown alternative.

  Source: METHODS §2.6 (per-problem differences pooled over benchmarks,
    one-sided in the claimed direction).
  """
  if alternative not in ALTERNATIVES:
    raise ValueError(
      f'unknown alternative {alternative!r}; wanted one of '
      f'{", ".join(ALTERNATIVES)}.'
    )
  a, b = _pair(a, b, at_least=2)
  difference = a - b
  mean = float(difference.mean())
  df = difference.size - 1
  # A constant difference leaves rounding noise in std(), hence the comparison.
  if (difference == difference[0]).all():
    mean = float(difference[0])
    t = math.copysign(math.inf, mean) if mean else 0.0
  else:
    se = float(difference.std(ddof=1)) / math.sqrt(difference.size)
    t = mean / se
  if alternative == 'greater':
    p = special.stdtr(df, -t)
  elif alternative == 'less':
    p = special.stdtr(df, t)
  else:
    p = 2 * special.stdtr(df, -abs(t))
  return PairedT(mean=mean, t=t, df=df, p=float(p))


def average_ranks(values):
  """Ranks from 1, ties sharing the mean of the ranks they cover.

  Args:
    values: [P] finite numbers.

  Returns:
    [P] float64.
  """
  values = _vector(values, 'values', at_least=1)
  _, inverse, counts = np.unique(
    values, return_inverse=True, return_counts=True
  )
  last = np.cumsum(counts)
  return (last - (counts - 1) / 2)[inverse]


def pearson(x, y, *, tolerance=1e-12):
  """Pearson correlation; 0 where either side does not vary.

  Args:
    x: [P] finite numbers.
    y: [P] finite numbers.
    tolerance: a denominator (the product of both root sums of squares) at or
      below this counts as no variation.

  Raises:
    ValueError: fewer than two pairs, unequal lengths, or missing numbers.

  Source: METHODS §3.4 (GR-OPD's Fig. 4: zero when the denominator vanishes).
  """
  x, y = _pair(x, y, at_least=2)
  x = x - x.mean()
  y = y - y.mean()
  denominator = math.sqrt(float(x @ x)) * math.sqrt(float(y @ y))
  if denominator <= tolerance:
    return 0.0
  # Rounding can pass 1 by an ulp, and arccos or 1 - r^2 would then be NaN.
  return min(1.0, max(-1.0, float(x @ y) / denominator))


def spearman(x, y, *, tolerance=1e-12):
  """Spearman correlation: Pearson of the average ranks (METHODS §8)."""
  x, y = _pair(x, y, at_least=2)
  return pearson(average_ranks(x), average_ranks(y), tolerance=tolerance)


def moving_average(values, window):
  """Centred moving average that shrinks at the ends and skips NaN.

  Args:
    values: [S] numbers; NaN where missing.
    window: odd number of entries, at least 1.

  Returns:
    [S] float64; NaN only where the whole window is missing.

  Raises:
    ValueError: an even or non-positive window.

  Source: METHODS §3.4 (7 and 11 steps, shrinking at the ends).
  """
  if window < 1 or window % 2 == 0:
    raise ValueError(
      f'window={window} has no centre; wanted an odd number of at least 1; '
      f'try {max(1, window // 2 * 2 + 1)}.'
    )
  values = np.asarray(values, dtype=np.float64)
  present = np.isfinite(values)
  ones = np.ones(window)
  half = window // 2
  total = np.convolve(np.where(present, values, 0.0), ones)
  count = np.convolve(present.astype(np.float64), ones)
  inside = slice(half, half + values.size)
  total, count = total[inside], count[inside]
  return np.where(count > 0, total / np.maximum(count, 1), np.nan)


def _groups(size, benchmark):
  """Returns the row indices of each benchmark; one group where none is named."""
  if benchmark is None:
    return [np.arange(size)]
  labels = np.asarray(benchmark)
  if labels.shape != (size,):
    raise ValueError(
      f'benchmark has shape {labels.shape}; wanted ({size},): one name per '
      'problem.'
    )
  return [np.flatnonzero(labels == name) for name in np.unique(labels)]


def macro_mean(values, *, benchmark=None):
  """Mean per benchmark, then the unweighted mean over benchmarks.

  Args:
    values: [P] one value per problem.
    benchmark: [P] names, or None for a single benchmark.
  """
  values = _vector(values, 'values', at_least=1)
  groups = _groups(values.size, benchmark)
  return float(np.mean([values[rows].mean() for rows in groups]))


def bootstrap_se(values, *, benchmark=None, num_resamples=10_000, seed=0):
  """Standard error of `macro_mean`, problems resampled inside benchmarks.

  Args:
    values: [P] one value per problem.
    benchmark: [P] names, or None for a single benchmark.
    num_resamples: draws with replacement, at least 2.
    seed: of the draws; the same seed gives the same bits.

  Returns:
    The (ddof 1) deviation of the resampled macro means.

  Raises:
    ValueError: no values, missing numbers, or fewer than two resamples.

  Source: METHODS §2.6 (10,000 resamples, macro of resampled means).
  """
  values = _vector(values, 'values', at_least=1)
  if num_resamples < 2:
    raise ValueError(
      f'num_resamples={num_resamples} has no deviation; wanted at least 2; '
      'the papers use 10,000.'
    )
  groups = _groups(values.size, benchmark)
  rng = np.random.default_rng(seed)
  macro = np.zeros(num_resamples)
  for rows in groups:
    # A multinomial draw of counts is resampling with replacement, without an
    # index array of num_resamples x P: blocks bound the memory.
    for start in range(0, num_resamples, 1000):
      stop = min(start + 1000, num_resamples)
      counts = rng.multinomial(
        rows.size, np.full(rows.size, 1 / rows.size), size=stop - start
      )
      macro[start:stop] += counts @ values[rows] / rows.size
  return float((macro / len(groups)).std(ddof=1))

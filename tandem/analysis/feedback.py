"""Does a teacher's feedback tell right responses from wrong ones, and how soon?

Diagnostics of on-policy distillation on fixed responses, before or during a
run: how strongly the pooled feedback of a response's first H tokens goes with
its verdict inside a group, and how well it ranks over all of them.
"""

from collections.abc import Sequence

import numpy as np

from tandem.analysis import stats

STD_FLOOR = 1e-6


def prefix_scores(
  feedback: np.ndarray, lengths: np.ndarray, horizon: int, *, clip: float = 5.0
) -> np.ndarray:
  """Mean clipped feedback of each response's first min(H, L) tokens.

  Args:
    feedback: [N, T] float; log q(y_t) - log p(y_t).
    lengths: [N] int; emitted tokens, at least 1.
    horizon: H, at least 1.
    clip: bound of a token's feedback.

  Returns:
    [N] float64.

  Raises:
    ValueError: a horizon below 1, or a response without a token.

  Source: GR-OPD's J_H, as METHODS 3.4 has it.
  """
  feedback, lengths = np.asarray(feedback, np.float64), np.asarray(lengths)
  if horizon < 1 or lengths.min() < 1:
    raise ValueError(
      f'horizon={horizon} and a shortest response of {lengths.min()} tokens: '
      'both must be at least 1.'
    )
  used = np.minimum(lengths, horizon)
  inside = np.arange(feedback.shape[1])[None] < used[:, None]
  clipped = np.where(inside, np.clip(feedback, -clip, clip), 0.0)
  return clipped.sum(1) / used


def j_h(scores: np.ndarray, correct: np.ndarray, *, group: int) -> float:
  """Mean over groups of Cov(S, C) / Std(S), both of the population.

  A group whose scores or verdicts do not vary adds 0 and stays in the mean.

  Args:
    scores: [N] float, of `prefix_scores`; rows of a group adjacent.
    correct: [N] 0 or 1; the verifier's.
    group: rows per group; N is a multiple of it.

  Raises:
    ValueError: lengths that differ, or a group that does not divide N.

  Source: GR-OPD's J_H, as METHODS 3.4 has it.
  """
  scores, correct = np.asarray(scores, float), np.asarray(correct, float)
  if scores.shape != correct.shape or scores.size % group:
    raise ValueError(
      f'{scores.size} scores, {correct.size} verdicts, group={group}: equal '
      'numbers, and a multiple of the group.'
    )
  s, c = scores.reshape(-1, group), correct.reshape(-1, group)
  covariance = ((s - s.mean(1, keepdims=True)) * c).mean(1)
  std = s.std(1)
  told = (std > STD_FLOOR) & (c.std(1) > 0)
  return float(np.where(told, covariance / np.where(told, std, 1), 0.0).mean())


def auroc(scores: Sequence[float], correct: Sequence[float]) -> float:
  """Chance that a right response scores above a wrong one, ties a half.

  Args:
    scores: [N] float.
    correct: [N] 0 or 1.

  Raises:
    ValueError: all right or all wrong.
  """
  correct = np.asarray(correct, bool)
  right, wrong = int(correct.sum()), int((~correct).sum())
  if not right or not wrong:
    raise ValueError(
      f'{right} right and {wrong} wrong responses; a ranking needs both.'
    )
  ranks = stats.average_ranks(np.asarray(scores, float))
  above = ranks[correct].sum() - right * (right + 1) / 2
  return float(above / (right * wrong))

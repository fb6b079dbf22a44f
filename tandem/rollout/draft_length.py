"""How far to draft: the k that gives the most tokens for its time.

On the host, between rollouts, from what the last ones measured. Which k is
taken changes no token (near-ties aside), so it may depend on the clock.
"""

from collections.abc import Mapping
import math


def expected_tokens(acceptance: float, k: int, bonus: float = 0) -> float:
  """Mean tokens of a round in which each draft stands with that chance.

    1 + a + ... + a^(k-1) + b a^k        for k > 1; lockstep's one for k = 1

  Args:
    acceptance: a, the chance that decoding goes on past a drafted token: where
      the drafter holds the turn always, elsewhere if the verifier agrees.
    k: positions of a round.
    bonus: b, the chance that the verifier holds the turn after a draft that
      stands, and adds a token.

  Source: arXiv 2211.17192, equation 1, where b is 1.
  """
  if not 0 <= acceptance <= 1:
    raise ValueError(
      f'acceptance={acceptance} is a share; it must be from 0 to 1.'
    )
  if k == 1:
    return 1.0
  drafted = math.fsum(acceptance**i for i in range(k))
  return drafted + bonus * acceptance**k


def choose_k(
  acceptance: float,
  costs: Mapping[int, float],
  bonus: Mapping[int, float] | None = None,
) -> int:
  """The k of `costs` with the most expected tokens per second.

  Args:
    acceptance: passed.sum() / tested.sum() of recent Counts.
    costs: measured seconds of a round by k; k=1 is lockstep.
    bonus: as in expected_tokens, by k; 0 of those it leaves out.

  Returns:
    A key of `costs`; the smallest of equals.

  Raises:
    ValueError: no costs, a k below 1, or a cost that is not above zero.
  """
  if not costs:
    raise ValueError('costs is empty; measure a round of at least one k.')
  for k, seconds in costs.items():
    if k < 1 or not seconds > 0:
      raise ValueError(
        f'costs[{k}]={seconds}: k must be at least 1 and its cost above 0 '
        'seconds.'
      )
  bonus = bonus or {}
  tokens = lambda k: expected_tokens(acceptance, k, bonus.get(k, 0))
  return max(sorted(costs), key=lambda k: tokens(k) / costs[k])


class Controller:
  """Tries each k, then takes the best, and goes on measuring.

  Every k is run twice first: the first time compiles, and tells no cost.
  """

  def __init__(self, choices: Mapping[int, float]):
    """Of each k, the chance of a bonus, as in expected_tokens."""
    self._bonus = choices
    self._runs = dict.fromkeys(choices, 0)
    self._costs: dict[int, float] = {}
    self._acceptance = 0.0

  def next(self) -> int:
    """The k of the coming rollout."""
    for k, runs in self._runs.items():
      if runs < 2:
        return k
    return choose_k(self._acceptance, self._costs, self._bonus)

  def record(self, k: int, seconds: float, tested: int, passed: int) -> None:
    """Takes in a rollout.

    Args:
      k: what it was run with.
      seconds: of a round.
      tested: drafts that were tested; 0 where nothing was drafted.
      passed: drafts that stood.
    """
    self._runs[k] += 1
    if tested:
      self._acceptance = passed / tested
    if self._runs[k] > 1:
      # Half the old: a machine's mood passes, and so does a model's.
      self._costs[k] = (self._costs.get(k, seconds) + seconds) / 2

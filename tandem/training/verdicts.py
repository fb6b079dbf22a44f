"""Verdicts of the steps that a kill undid: a resumed run gives them again.

The lost steps' responses come again by their noise keys; a verdict does too,
but where one of the two gradings ran out of time. What the rollout files hold
is therefore not graded twice. Rows that they do not hold are: those of dropped
groups, and of steps that log.rollout_every_steps or log.rollouts_mb left out.
"""

import collections
from collections.abc import Iterable
from collections.abc import Mapping
from collections.abc import Sequence
import dataclasses

from tandem import types
from tandem.training import collect
from tandem.training import mesh as mesh_lib

# (problem, gold, response) -> verdicts, in order of the rows.
_Known = dict[tuple[str, str, str], collections.deque[types.Verdict]]


class _Repeated:
  """A verifier that knows some verdicts already."""

  def __init__(self, verifier, known: _Known):
    self._verifier = verifier
    self._known = known

  def grade(
    self,
    golds: Sequence[str],
    responses: Sequence[str],
    questions: Sequence[str],
  ) -> list[types.Verdict]:
    """As `rewards.verifier.Verifier.grade`."""
    asked = list(zip(questions, golds, responses, strict=True))
    found = [
      self._known[row].popleft() if self._known.get(row) else None
      for row in asked
    ]
    new = [row for row, verdict in zip(asked, found) if verdict is None]
    graded = iter(
      self._verifier.grade(
        [gold for _, gold, _ in new],
        [response for _, _, response in new],
        [question for question, _, _ in new],
      )
    )
    return [next(graded) if x is None else x for x in found]


class Recorded:
  """What rollout files say of steps that are to be made again."""

  def __init__(self, rows: Iterable[Mapping]):
    """Takes them in; all hosts must call it together.

    Args:
      rows: of the rollout files, in order; what process 0 passes counts.
    """
    self._known: dict[tuple[str, int], _Known] = {}
    told = [
      (
        (row['keys']['purpose'], row['keys']['step']),
        (row['problem'], row['gold'], row['text']),
        row['verdict'],
      )
      for row in rows
    ]
    for step, response, verdict in mesh_lib.gather_json(told)[0]:
      known = self._known.setdefault(tuple(step), {})
      same = known.setdefault(tuple(response), collections.deque())
      same.append(types.Verdict(**verdict))

  def collector(
    self, collector: collect.Collector, purpose: str, step: int
  ) -> collect.Collector:
    """The collector as it grades a step: what is on record is repeated.

    Args:
      collector: of the run.
      purpose: as in the rows' keys.
      step: likewise.
    """
    known = self._known.get((purpose, step))
    if not known:
      return collector
    return dataclasses.replace(
      collector, verifier=_Repeated(collector.verifier, known)
    )

"""Verdicts that need no process: what is certain in linear time."""

import re

REASONS = (
  'equal',
  'different',
  'no_box',
  'unparsed',
  'refused',
  'timeout',
  'crashed',
)
MAX_CHARS = 4000  # of an answer that is looked at
_INTEGER = re.compile(r'[+-]?[0-9]{1,40}')
_PLAIN_CHARS = 128  # up to here the release's repetition filter is off


def at_once(gold: str, answer: str | None, mode: str) -> str | None:
  """A reason that needs no worker, or None.

  Only what takes linear time and what `equivalence.judge` itself would say:
  no answer, an answer equal to the gold letter for letter, two plain integers
  of at most 40 ASCII digits, an answer too long to be looked at. `judge`
  starts with this very function, so a verdict never depends on which process
  gave it.

  Args:
    gold: the right answer.
    answer: what extract.extract found, or None.
    mode: one of extract.MODES.

  Returns:
    One of REASONS, or None where the comparison has to be made.
  """
  if answer is None:
    return 'no_box'
  if mode == 'roll':
    return None  # math-verify alone decides, equal text included
  gold, answer = gold.strip(), answer.strip()
  if not answer:
    return 'unparsed'
  if mode == 'trl_release':
    same = gold == answer and len(answer) <= _PLAIN_CHARS
    return 'equal' if same else None
  if gold == answer:
    return 'equal'
  if _INTEGER.fullmatch(gold) and _INTEGER.fullmatch(answer):
    return 'equal' if int(gold) == int(answer) else 'different'
  return 'refused' if len(answer) > MAX_CHARS else None

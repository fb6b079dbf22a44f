"""The papers' own equality rules, to reproduce their rewards.

`roll` is math-verify alone. `trl_release` is a chain: normalised strings, then
sympy on their difference part by part, then math-verify; long repetitive
answers are rejected. Unlike `strict` they inherit math-verify's leniencies.

Source: METHODS 2.3 and 3.3; the release's text was not at hand, so the order
of the chain is as described there and the score of repetition is ours.
"""

from collections.abc import Callable
import re

import math_verify
import sympy

from tandem.rewards import normalise

_MAX_PLAIN = 128
_REPETITIVE = 0.2


def roll(gold: str, answer: str) -> str:
  """math-verify's parse without fallback, and its comparison."""
  return _math_verify(gold, answer)


def trl_release(gold: str, answer: str) -> str:
  """The release's chain of comparisons."""
  if len(answer) > _MAX_PLAIN and repetition(answer) > _REPETITIVE:
    return 'refused'
  one, two = _plain(gold), _plain(answer)
  if one == two != '':
    return 'equal'
  parts_one, parts_two = _parts(one), _parts(two)
  if len(parts_one) == len(parts_two) and all(
    map(_sympy_equal, parts_one, parts_two)
  ):
    return 'equal'
  return _math_verify(gold, answer)


JUDGES: dict[str, Callable[[str, str], str]] = {
  'roll': roll,
  'trl_release': trl_release,
}


def repetition(text: str) -> float:
  """Share of repeated text in [0, 1): mean length of the prefix that suffixes
  adjacent in order have in common, over half the length."""
  text = text[:2000]
  suffixes = sorted(text[n:] for n in range(len(text)))
  common = 0
  for one, two in zip(suffixes, suffixes[1:]):
    common += next(
      (n for n, pair in enumerate(zip(one, two)) if pair[0] != pair[1]),
      min(len(one), len(two)),
    )
  return 2 * common / (len(text) * (len(text) + 1))


def _math_verify(gold: str, answer: str) -> str:
  # Its own time limits are signals of the main thread, and would cancel ours.
  parsed = [
    math_verify.parse(
      f'${text}$', fallback_mode='no_fallback', parsing_timeout=None
    )
    for text in (gold, answer)
  ]
  if not parsed[1]:
    return 'unparsed'
  if math_verify.verify(*parsed, timeout_seconds=None):
    return 'equal'
  return 'different'


def _plain(text: str) -> str:
  text = normalise.normalise(text)
  text = re.sub(r'\\text\s*\{([^{}]*)\}', r'\1', text)
  text = re.sub(r'\^\s*\\circ|\\%|\\\$|%', '', text)
  text = re.sub(r'(?<=\d),(?=\d{3}(?!\d))', '', text)
  text = re.sub(r'^[a-zA-Z]\s*=\s*', '', text)
  return re.sub(r'\s+', '', text)


def _parts(text: str) -> list[str]:
  if text[:1] in ('(', '[') and text[-1:] in (')', ']') and ',' in text:
    return [text[0], *text[1:-1].split(','), text[-1]]
  return [text]


def _sympy_equal(one: str, two: str) -> bool:
  if one == two:
    return True
  if re.search(r'\^\{?[^{}^]*\^|\d{5,}', one + two):
    return False
  from latex2sympy2_extended import latex2sympy

  try:
    left, right = latex2sympy(one), latex2sympy(two)
    if not isinstance(left - right, sympy.Expr):
      return False
    return sympy.simplify(left - right) == 0
  except Exception:  # the release counts any failure as unequal
    return False

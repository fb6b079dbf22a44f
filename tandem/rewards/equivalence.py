"""Is an extracted answer the gold one? The judge that runs in the workers.

Cheap and certain steps first: equal text, plain integers, normalised text,
then trees compared by shape and value, then (for notation the parser lacks)
math-verify's LaTeX parser and sympy.
"""

from collections.abc import Iterator
import re

from tandem.rewards import algebra
from tandem.rewards import answer as answer_lib
from tandem.rewards import compare
from tandem.rewards import expression
from tandem.rewards import normalise
from tandem.rewards import published
from tandem.rewards import quantities
from tandem.rewards import words
from tandem.rewards.tokens import ParseError
from tandem.rewards.tokens import TooBig

# Words that lead up to a value: "The answer is 42", in a box.
_LEAD = re.compile(
  r'^\s*\\text\s*\{[^{}]*\b(?:is|are|equals?|be|answer)\s*:?\s*\}(?=.*\S)'
)
_COMMAS = re.compile(r'(?<![\d.,\w])[1-9]\d{0,2}(?:,\d{3})+(?![\d,])')
_SPACES = re.compile(r'-?[1-9]\d{0,2}(?: \d{3})+(?:\.\d+)?')
_EXPONENT = re.compile(r'(?<![\w.])(\d+(?:\.\d+)?|\.\d+)[eE]([+-]?\d{1,4})\b')
# Possessive, so that thousands of digits are read once.
_NUMERAL = r'(?=[A-F]*+[0-9])([0-9A-F]++(?:\.[0-9A-F]++)?)'
_LETTERED_BASE = re.compile(
  rf'\(?{_NUMERAL}\)?_\{{?(?:\\text\{{)?\s*\(?(\d{{1,2}}|two|eight|ten)\)?\s*\}}*'
)
_WORDED_BASE = re.compile(
  _NUMERAL + r'\s*(?:\\text\{)?\s*\(?(?:in\s+)?base[- ]?(\d{1,2})\)?\s*\}?'
)


def judge(
  gold: str, answer: str | None, question: str | None, mode: str
) -> str:
  """Compares an answer with the gold one.

  Args:
    gold: the right answer, as the data set writes it.
    answer: what extract.extract found.
    question: the problem's text, or None.
    mode: one of extract.MODES.

  Returns:
    One of 'equal', 'different', 'no_box', 'unparsed', 'refused'.
  """
  reason = answer_lib.at_once(gold, answer, mode)
  if reason is not None:
    return reason
  if mode in published.JUDGES:
    return published.JUDGES[mode](gold, answer)
  question = question or ''
  rules = quantities.Rules(
    percent=bool(re.search(r'percent|\\?%', question)),
    close=quantities.rounded if mode == 'tolerant' else None,
  )
  return _strict(gold, answer, question, rules)


def warm() -> None:
  """Runs every path once, so that no item pays for an import."""
  for gold, answer in (
    (r'\frac{\sqrt{3}}{2}', r'\sin 60^\circ'),
    ('[-1,1]', r'\{x \mid x^2 \le 1\}'),
    (r'\frac{1}{3}', r'\int_0^1 x^2 dx'),
  ):
    judge(gold, answer, None, 'strict')
  judge('1', '2', None, 'roll')


def _strict(gold: str, answer: str, question: str, rules) -> str:
  if len(gold) > answer_lib.MAX_CHARS:
    return 'refused'
  gold, answer = normalise.normalise(gold), normalise.normalise(answer)
  if not answer:
    return 'unparsed'
  if _squeezed(gold) == _squeezed(answer) or words.same(gold, answer):
    return 'equal'
  try:
    golds = list(readings(gold, question))
    answers = list(readings(answer, question))
    for one in golds:
      if any(compare.match(one, other, rules) for other in answers):
        return 'equal'
    if not answers or not golds:
      found = algebra.equal(gold, answer, golds, answers)
      if found is not None:
        return 'equal' if found else 'different'
      return 'different' if words.is_prose(answer) else 'unparsed'
  except TooBig:
    return 'refused'
  return 'different'


def _squeezed(text: str) -> str:
  return re.sub(r'\s+', '', text)


def readings(text: str, question: str = '') -> Iterator[tuple]:
  """Trees that a normalised answer may stand for, likeliest first.

  More than one where notation is ambiguous: 1,234 is a number or a list, 2e-5
  a power of ten or a product, 312_7 a numeral with its base.

  Raises:
    TooBig: if the text is too long or too deep.
  """
  text = _LEAD.sub('', text)
  text = re.sub(r'^\s*(?:\\approx|=|\\implies|\\therefore)\s*', '', text)
  meaning = words.meaning(text)
  if meaning is not None:
    yield meaning
    return
  match = _LETTERED_BASE.fullmatch(text) or _WORDED_BASE.fullmatch(text)
  if match:
    digits, base = match.groups()
    base = int({'two': '2', 'eight': '8', 'ten': '10'}.get(base, base))
    yield ('base', digits, base)
    if 'base' in question:
      yield from _parsed(digits)
    return
  if _SPACES.fullmatch(text):
    text = text.replace(' ', '')
  for spelled in (_EXPONENT.sub(r'(\1 \\times 10^{\2})', text), text):
    outside = _join_thousands(spelled)
    if outside != spelled:
      yield from _parsed(outside)
    if outside == spelled or not re.search(r',0\d', spelled):
      yield from _parsed(spelled)  # no list has an item 000
    if spelled == text:
      break


def _parsed(text: str) -> Iterator[tuple]:
  try:
    yield expression.parse(text)
  except ParseError:
    return


def _join_thousands(text: str) -> str:
  """Joins 12,345 outside brackets, where a comma would separate items."""

  def join(match: re.Match) -> str:
    before = text[: match.start()]
    depth = sum(before.count(c) for c in '([') + before.count(r'\{')
    depth -= sum(before.count(c) for c in ')]') + before.count(r'\}')
    return match.group() if depth else match.group().replace(',', '')

  return _COMMAS.sub(join, text)

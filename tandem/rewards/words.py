"""Answers in words: names, choices, numerals, phrases with a meaning."""

# ruff: noqa: SIM905  (lists of words are easier to read as words)

from fractions import Fraction
import re

_UNITS = (
  'zero one two three four five six seven eight nine ten eleven twelve thirteen '
  'fourteen fifteen sixteen seventeen eighteen nineteen'
).split()
_TENS = 'twenty thirty forty fifty sixty seventy eighty ninety'.split()
_NUMBERS = {name: n for n, name in enumerate(_UNITS)}
_NUMBERS |= {name: 10 * n for n, name in enumerate(_TENS, start=2)}
_NUMBERS |= {
  f'{ten} {one}': 10 * n + k
  for n, ten in enumerate(_TENS, start=2)
  for k, one in enumerate(_UNITS[1:10], start=1)
}
_NUMBERS |= {'hundred': 100, 'one hundred': 100, 'one thousand': 1000}
_EMPTY = ('no solution', 'no real solution', 'empty set', 'no root', 'none')
_EMPTY += ('no such number', 'no real root', 'there are no solution')
_LINE = (
  'all real number',
  'all real',
  'real number',
  'all x',
  'any real number',
)

_TEXT = re.compile(r'\\text\s*\{([^{}]*)\}')
_PROSE = re.compile(r"[A-Za-z\s.,;:'\"!?()\-]*")
_CHOICE = re.compile(
  r'[(\[]?\s*([A-J])\s*[)\].:]?(?:(?<=[)\].:])\s*.*)?', re.DOTALL
)
_CLOCK = re.compile(
  r'\s*(\d{1,2}):(\d{2})\s*(?:([ap])\.?\s*m\.?)?\s*', re.IGNORECASE
)
_SHORT = {'dne': 'does not exist', 'undef': 'undefined'}
_FUNCTION = re.compile(r'\b(?:sin|cos|tan|log|sqrt|exp|ln|pi|infty|infinity)\b')


def is_prose(text: str) -> bool:
  """Whether a normalised answer is words and not an expression."""
  plain = _unwrapped(text)
  if not _PROSE.fullmatch(plain) or _FUNCTION.search(plain):
    return False
  runs = re.findall(r'[A-Za-z]+', plain)
  return bool(runs) and (
    text != plain and max(map(len, runs)) >= 2 or max(map(len, runs)) >= 3
  )


def same(gold: str, answer: str) -> bool:
  """Whether two answers are the same words, or the same choice of A to J."""
  if _clock(gold) and _clock(answer):
    return _same_time(_clock(gold), _clock(answer))
  if _same_choice(gold, answer) or _same_choice(answer, gold):
    return True
  if not is_prose(gold) and not is_prose(answer):
    return False
  return _canonical(gold) == _canonical(answer) != ''


def _same_choice(letter: str, other: str) -> bool:
  """Whether one is a lone letter and the other chooses that letter."""
  plain, chosen = _unwrapped(letter), _CHOICE.fullmatch(_unwrapped(other))
  if not chosen or plain.strip(' ()[].:') != chosen.group(1):
    return False
  lone = _unwrapped(other).strip(' ()[].:') == chosen.group(1)
  # A bare letter before more text must be marked as a choice by either side.
  return lone or plain != letter or other.startswith((r'\text', '(', '['))


def meaning(text: str) -> tuple | None:
  """The tree that a phrase stands for, ('text', words) if it is only words,
  None if it is no prose."""
  if not is_prose(text):
    return None
  phrase = _canonical(text)
  if phrase in _NUMBERS:
    return ('num', Fraction(_NUMBERS[phrase]), str(_NUMBERS[phrase]))
  if phrase in _EMPTY:
    return ('sym', r'\emptyset')
  if phrase in _LINE:
    return ('sym', r'\mathbb{R}')
  parts = re.split(r'\s*,\s*|\s+and\s+|\s+or\s+', _unwrapped(text).strip())
  if len(parts) > 1 and all(parts):
    trees = [meaning(part) or _letter(part) for part in parts]
    return ('list', trees, ',')
  if not re.search(r'[A-Za-z]{4}|\s', phrase) and text == _unwrapped(text):
    return None  # `abc` may be a product
  return ('words', phrase)


def _clock(text: str) -> tuple[int, int, str] | None:
  match = _CLOCK.fullmatch(_unwrapped(text))
  if not match:
    return None
  return (
    int(match.group(1)),
    int(match.group(2)),
    (match.group(3) or '').lower(),
  )


def _same_time(one: tuple, two: tuple) -> bool:
  """Two times of day; where one lacks its half of the day, it may be either's
  by the 24-hour clock, or the same digits with the mark left out."""
  if not one[2] or not two[2]:
    return one[:2] == two[:2] or _minutes(one) == _minutes(two)
  return _minutes(one) == _minutes(two)


def _minutes(time: tuple) -> int:
  hours, minutes, half = time
  if half:
    hours = hours % 12 + 12 * (half == 'p')
  return 60 * hours + minutes


def _letter(part: str) -> tuple:
  return ('words', _canonical(part))


def _unwrapped(text: str) -> str:
  return _TEXT.sub(r'\1', text)


def _canonical(text: str) -> str:
  plain = re.sub(r'[^a-z0-9]+', ' ', _unwrapped(text).lower()).split()
  plain = [w for w in plain if w not in ('the', 'a', 'an')] or plain
  plain = ' '.join(_SHORT.get(word, word) for word in plain).split()
  return ' '.join(map(_singular, plain))


def _singular(word: str) -> str:
  if len(word) > 3 and word.endswith('s') and not word.endswith('ss'):
    return word[:-1]
  return word

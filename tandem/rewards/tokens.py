"""Splits normalised LaTeX into the tokens that `expression.py` reads."""

# ruff: noqa: SIM905  (lists of words are easier to read as words)

import dataclasses
import re

from tandem.rewards import units
from tandem.rewards.answer import MAX_CHARS


class ParseError(ValueError):
  """The text is not an expression of the grammar."""


class TooBig(ValueError):
  """The text asks for more work than an answer may."""


MAX_DEPTH = 1200  # nested braces and brackets

FUNCTIONS = frozenset(
  'sin cos tan cot sec csc arcsin arccos arctan arccot arcsec arccsc sinh cosh '
  'tanh coth sech csch arsinh arcosh artanh arcsinh arccosh arctanh ln log lg '
  'exp sqrt cbrt abs min max gcd lcm det floor ceil sgn Re Im arg deg'.split()
)
_BARE = {'pi': r'\pi', 'infinity': r'\infty', 'infty': r'\infty'}
_BARE |= {'inf': r'\infty', 'oo': r'\infty', 'theta': r'\theta'}
_BARE |= {'cup': r'\cup', 'cap': r'\cap', 'asin': r'\arcsin'}
_BARE |= {'acos': r'\arccos', 'atan': r'\arctan', 'frac': r'\frac'}
_BARE |= {'alpha': r'\alpha', 'beta': r'\beta', 'lambda': r'\lambda'}
_BARE |= {name: '\\' + name for name in FUNCTIONS if len(name) > 2}
_BARE |= {'ln': r'\ln', 'lg': r'\lg'}

_TOKEN = re.compile(
  r'(?P<space>\s+)'
  r'|(?P<text>\\text\s*\{)'
  r'|(?P<set>\\mathbb\{[RZNQC]\})'
  r'|(?P<cmd>\\[a-zA-Z]+\*?|\\.)'
  r'|(?P<num>\d+(?:\.\d*)?|\.\d+)'
  r'|(?P<run>[a-zA-Z]+)'
  r'|(?P<op>\*\*|<=|>=|!=|:=|==|.)',
  re.DOTALL,
)
_OPERATORS = {'**': '^', '<=': r'\le', '>=': r'\ge', '!=': r'\ne'}
_OPERATORS |= {':=': '=', '==': '='}
_NUMERIC = re.compile(r'\s*[-+]?\$?[\d.,/^{}()]+\s*')


@dataclasses.dataclass(frozen=True)
class Token:
  """kind: num, cmd, let, word, text, unit, set, op; spaced: white before it."""

  kind: str
  value: str
  spaced: bool = False


def tokenize(text: str) -> list[Token]:
  """Tokens of one normalised answer.

  Runs of letters become functions and constants where they name one, units
  after a number, words from four letters on, and single letters otherwise.

  Raises:
    TooBig: past twice MAX_CHARS (signs spelled out are longer) or MAX_DEPTH nested brackets.
  """
  if len(text) > 2 * MAX_CHARS:
    raise TooBig(f'{len(text)} characters')
  tokens = []
  position, spaced, depth = 0, False, 0
  while position < len(text):
    match = _TOKEN.match(text, position)
    kind, value = match.lastgroup, match.group()
    position = match.end()
    if kind == 'space' or value in (r'\ ', r'\,', '{}'):
      spaced = True
      continue
    if kind == 'text':
      end = _closing(text, position)
      inside = text[position:end]
      position = end + 1
      if _NUMERIC.fullmatch(inside):
        new = tokenize(inside)
      else:
        new = [Token('text', inside.strip(), spaced)]
    elif kind == 'run':
      new = _letters(value, tokens, spaced)
    elif kind == 'op':
      depth += (value in '({[') - (value in ')}]')
      if depth > MAX_DEPTH:
        raise TooBig('nested too deep')
      new = [_operator(value, spaced)]
    else:
      new = [Token(kind, value, spaced)]
    tokens.extend(new)
    spaced = False
  return tokens


def _operator(value: str, spaced: bool) -> Token:
  value = _OPERATORS.get(value, value)
  return Token('cmd' if value.startswith('\\') else 'op', value, spaced)


def _closing(text: str, start: int) -> int:
  depth = 1
  for position in range(start, len(text)):
    depth += (text[position] == '{') - (text[position] == '}')
    if depth == 0:
      return position
  raise ParseError('a brace is not closed')


def _letters(run: str, before: list[Token], spaced: bool) -> list[Token]:
  after_number = bool(before) and (
    before[-1].kind == 'num' or before[-1].value in ('}', ')')
  )
  if run in _BARE:
    return [Token('cmd', _BARE[run], spaced)]
  if run.lower() in ('and', 'or'):
    return [Token('text', run.lower(), spaced)]
  if after_number and len(run) > 1 and units.is_unit(run):
    return [Token('unit', run, spaced)]
  if before and before[-1].kind == 'unit' and before[-1].value != 'unit':
    return [Token('unit', run, spaced)]
  for name in ('sqrt', 'sin', 'cos', 'tan', 'log', 'pi', 'ln'):
    # `2xsin`, `xpi`: a name glued to a variable on its left.
    if run.endswith(name) and 0 < len(run) - len(name) <= 2:
      head = _letters(run[: -len(name)], before, spaced)
      return head + [Token('cmd', _BARE[name])]
  if len(run) >= 4:
    return [Token('word', run, spaced)]
  return [Token('let', c, spaced and n == 0) for n, c in enumerate(run)]

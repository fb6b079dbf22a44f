"""Atoms of the grammar: numbers, symbols, brackets, commands, matrices."""

from fractions import Fraction
import re

from tandem.rewards import tokens as tokens_lib
from tandem.rewards.tokens import ParseError
from tandem.rewards.tokens import Token

GREEK = tuple(
  '\\' + name
  for name in [
    'alpha',
    'beta',
    'gamma',
    'delta',
    'epsilon',
    'zeta',
    'eta',
    'theta',
    'iota',
    'kappa',
    'lambda',
    'mu',
    'nu',
    'xi',
    'rho',
    'sigma',
    'tau',
    'upsilon',
    'phi',
    'chi',
    'psi',
    'omega',
    'Gamma',
    'Delta',
    'Theta',
    'Lambda',
    'Xi',
    'Pi',
    'Sigma',
    'Phi',
    'Psi',
    'Omega',
    'ell',
    'hbar',
  ]
)
COMMANDS = (r'\frac', r'\sqrt', r'\binom', r'\pi', r'\infty', r'\lfloor')
COMMANDS += (r'\lceil', r'\{', r'\langle', r'\begin', r'\emptyset')
COMMANDS += (r'\ldots', r'\sum', r'\prod', r'\choose', r'\vec', r'\hat')
COMMANDS += (r'\dot', r'\ddot', r'\bar', r'\tilde', r'\|', r'\overrightarrow')
_DECOR = (
  r'\dot',
  r'\ddot',
  r'\vec',
  r'\hat',
  r'\bar',
  r'\tilde',
  r'\overrightarrow',
)
_CALLED = 'fghFGHIPQ'
_CLOSERS = {'(': ')]', '[': ')]', ']': '[]'}
_CLOSERS = {k: tuple(v) for k, v in _CLOSERS.items()}


class Atoms:
  """What binds tightest. `expression.Parser` gives the levels above:
  items, relation, sum, product, power, postfix."""

  def __init__(self, tokens: list[Token]):
    self.tokens = tokens
    self.at = 0
    self.bars = 0
    self.in_set = False

  def peek(self, ahead: int = 0) -> str | None:
    n = self.at + ahead
    return self.tokens[n].value if n < len(self.tokens) else None

  def kind(self, ahead: int = 0) -> str | None:
    n = self.at + ahead
    return self.tokens[n].kind if n < len(self.tokens) else None

  def is_op(self, *values: str) -> bool:
    return self.kind() in ('op', 'cmd') and self.peek() in values

  def take(self, *values: str) -> bool:
    if self.is_op(*values):
      self.at += 1
      return True
    return False

  def need(self, *values: str) -> str:
    got = self.peek()
    if not self.take(*values):
      raise ParseError(f'expected one of {values}, got {got!r}')
    return got

  def atom(self) -> tuple:
    kind, value = self.kind(), self.peek()
    if kind is None:
      raise ParseError('ends where a value should be')
    self.at += 1
    if kind == 'num':
      return self._number(value)
    if kind == 'let':
      return self._symbol(value)
    if kind == 'set':
      return ('sym', value)
    if kind in ('text', 'word', 'unit'):
      words = [value]
      while self.kind() in ('text', 'word'):
        words.append(self.peek())
        self.at += 1
      return ('text', ' '.join(words))
    if value in ('(', '['):
      return self._bracket(value)
    if value == ']':
      return self._bracket(value)
    if value == '{':
      inner = self.items(('}',))
      self.need('}')
      return self._symbol_after(inner)
    if value in ('|', r'\|'):
      self.bars += 1
      inner = self.sum()
      self.bars -= 1
      self.need(value)
      return ('fn', 'abs', [inner])
    if kind == 'cmd':
      return self._command(value)
    raise ParseError(f'{value!r} where a value should be')

  def _symbol_after(self, inner: tuple) -> tuple:
    if inner[0] == 'list':
      raise ParseError('a list in plain braces')
    return inner if inner[0] in ('num', 'sym') else ('paren', inner)

  def _number(self, text: str) -> tuple:
    if self.is_op('_'):
      base = self._subscript()
      base = {'two': '2', 'ten': '10', 'eight': '8'}.get(base, base)
      if not base.isdigit():
        raise ParseError('a number with a subscript')
      return ('base', text, int(base))
    return ('num', Fraction(text), text)

  def _symbol(self, name: str) -> tuple:
    if self.is_op('_'):
      name += '_' + self._subscript()
    while self.take("'"):
      name += "'"
    called = name[0] in _CALLED and self.is_op('(')
    if called and self.kind(1) == 'num' and self.peek(2) == ')':
      name += f'({self.peek(1)})'  # f(3) is a value of its own, no product
      self.at += 3
    return ('sym', name)

  def _subscript(self) -> str:
    self.need('_')
    if not self.take('{'):
      self.at += 1
      if self.at > len(self.tokens):
        raise ParseError('an empty subscript')
      return self.tokens[self.at - 1].value
    inside = []
    while not self.take('}'):
      if self.peek() is None:
        raise ParseError('a subscript is not closed')
      inside.append(self.peek())
      self.at += 1
    return ''.join(inside)

  def _bracket(self, opening: str) -> tuple:
    bars, self.bars = self.bars, 0
    closers = _CLOSERS[opening]
    if opening == '[':
      closers += ('[',)
    inner = self.items(closers)
    closing = self.need(*closers)
    self.bars = bars
    if inner[0] == 'list':
      return ('group', opening, closing, inner[1])
    if opening == '(' and closing == ')':
      return ('paren', inner)
    if (opening, closing) == ('[', ']'):
      return ('paren', inner)
    raise ParseError('a half-open bracket around one value')

  def _command(self, value: str) -> tuple:
    if value in (r'\frac',):
      top = self._argument()
      return ('div', top, self._argument())
    if value == r'\sqrt':
      if self.take('['):
        index = self.items((']',))
        self.need(']')
        return ('fn', 'root', [self._argument(), index])
      return ('fn', 'sqrt', [self._argument()])
    if value == r'\binom':
      top = self._argument()
      return ('fn', 'binom', [top, self._argument()])
    if value in (r'\pi', r'\infty', r'\emptyset', r'\ldots'):
      return ('sym', value)
    if value in GREEK:
      return self._symbol(value)
    if value in _DECOR:
      inner = self._argument()
      return inner if inner[0] == 'sym' else ('paren', inner)
    if value == r'\{':
      return self._set()
    if value == r'\langle':
      inner = self.items((r'\rangle',))
      self.need(r'\rangle')
      return ('group', '(', ')', inner[1] if inner[0] == 'list' else [inner])
    for name in ('floor', 'ceil'):
      if value == r'\l' + name:
        inner = self.sum()
        self.need(r'\r' + name)
        return ('fn', name, [inner])
    if value == r'\begin':
      return self._matrix()
    if value in (r'\sum', r'\prod'):
      return self._series(value[1:])
    if value[1:] in tokens_lib.FUNCTIONS:
      return self._function(value[1:])
    raise ParseError(f'unknown command {value}')

  def _argument(self) -> tuple:
    """A braced group, or the single next token as LaTeX takes it."""
    if self.take('{'):
      inner = self.items(('}',))
      self.need('}')
      return inner
    token = self.tokens[self.at] if self.at < len(self.tokens) else None
    if token and token.kind == 'num' and token.value.isdigit():
      # \frac12 and \sqrt2: one digit is the argument, the rest goes back.
      self.tokens[self.at] = Token('num', token.value[0])
      if len(token.value) > 1:
        rest = Token('num', token.value[1:])
        self.tokens.insert(self.at + 1, rest)
    return self.atom()

  def _function(self, name: str) -> tuple:
    base = power = None
    while self.is_op('_', '^'):
      if self.is_op('_'):
        self.at += 1
        base = self._script()
      else:
        self.at += 1
        power = self._script()
    if self.is_op('(') or (self.is_op('[') and name != 'sqrt'):
      self.at += 1
      inner = self.items((')', ']'))
      self.need(')', ']')
      args = inner[1] if inner[0] == 'list' else [inner]
    elif self.is_op('{'):
      args = [self._argument()]
    else:
      args = [self._bare_argument()]
    if base is not None:
      args = [*args, base]
    if power == ('neg', ('num', Fraction(1), '1')):
      return ('fn', 'arc' + name, args)
    value = ('fn', name, args)
    return value if power is None else ('pow', value, power)

  def _bare_argument(self) -> tuple:
    """`\\sin 2x` takes the factors up to the next function or sign."""
    if self.take('-'):
      return ('neg', self._bare_argument())
    factors = [self.power()]
    while self.starts_atom() and self.peek()[1:] not in tokens_lib.FUNCTIONS:
      if self.is_op('(', '{', '['):
        break
      factors.append(self.power())
    return factors[0] if len(factors) == 1 else ('mul', factors)

  def _set(self) -> tuple:
    bars, self.bars = self.bars, 1  # here a bar means "such that"
    self.in_set, outer = True, self.in_set
    member = self.items((r'\}', r'\mid', '|', ':'))
    self.bars, self.in_set = bars, outer
    if self.take(r'\mid', '|', ':'):
      condition = self.items((r'\}',))
      self.need(r'\}')
      return ('builder', member, condition)
    self.need(r'\}')
    found = member[1] if member[0] == 'list' else [member]
    return ('group', '{', '}', found)

  def _matrix(self) -> tuple:
    name = self._environment()
    if name == 'array':
      self._environment()  # the column pattern
    rows = [[]]
    if name not in ('array', 'matrix') and not name.endswith('matrix'):
      raise ParseError(f'environment {name}')
    while not self.take(r'\end'):
      if self.peek() is None:
        raise ParseError('a matrix is not closed')
      if self.take(r'\\'):
        rows.append([])
      elif self.take('&') or self.take(r'\hline'):
        pass
      else:
        rows[-1].append(self.relation())
    self._environment()
    rows = [row for row in rows if row]
    return ('matrix', name, rows)

  def _environment(self) -> str:
    self.need('{')
    inside = []
    while not self.take('}'):
      if self.peek() is None:
        raise ParseError('an environment without a name')
      inside.append(self.peek())
      self.at += 1
    return re.sub(r'[^a-z]', '', ''.join(inside)) or 'array'

  def _series(self, name: str) -> tuple:
    self.need('_')
    low = self._script()
    self.need('^')
    high = self._script()
    body = self.product()
    if low[0] != 'rel' or low[2] != ['='] or low[1][0][0] != 'sym':
      raise ParseError('a sum without an index')
    return ('sum', name, low[1][0][1], low[1][1], high, body)

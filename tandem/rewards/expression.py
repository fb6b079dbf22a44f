"""Parser of answers: normalised LaTeX to a tree of plain tuples.

Own and not latex2sympy, because nothing may be evaluated before its size is
known, because decimals must stay exact and units apart, and for speed (0.1 ms
against 10-60 ms). The nodes:

  ('num', Fraction, text)      ('sym', name)          ('text', words)
  ('add', [..]) ('mul', [..])  ('div', a, b)          ('neg', a) ('pm', a, sign)
  ('pow', a, b) ('fn', name, [args])                  ('paren', a)
  ('percent', a) ('degree', a) ('qty', a, unit text)  ('base', digits, base)
  ('group', open, close, [..]) brackets with commas, and every set
  ('list', [..], separator)    ('rel', [operands], [operators])
  ('setop', operator, a, b)    ('builder', member, condition)
  ('matrix', environment, [[..]])                     ('ratio', [..])
  ('sum', 'sum' | 'prod', name, low, high, body)
"""

from fractions import Fraction

from tandem.rewards import atoms
from tandem.rewards import tokens as tokens_lib
from tandem.rewards.tokens import ParseError

RELATIONS = ('=', '<', '>', r'\le', r'\ge', r'\ne', r'\in', r'\approx')
RELATIONS += (r'\equiv', r'\notin', r'\to', r'\implies', r'\iff', r'\sim')
_SETOPS = (r'\cup', r'\cap', r'\setminus', r'\bigcup')
_TIMES = ('*', r'\cdot', r'\times', r'\ast')
_OVER = ('/', r'\div')


def parse(text: str) -> tuple:
  """Parses one normalised answer.

  Raises:
    ParseError: if the text is not of the grammar.
    TooBig: if it is too long or too deep to be tried.
  """
  parser = Parser(tokens_lib.tokenize(text))
  tree = parser.items(())
  if parser.peek() is not None:
    raise ParseError(f'left over: {parser.peek()}')
  return tree


class Parser(atoms.Atoms):
  """Recursive descent over the tokens; one method per level of binding."""

  # Lists, relations, sets.

  def items(self, closers: tuple[str, ...]) -> tuple:
    """Everything up to a closer: one item, or a list."""
    found, separators = [], set()
    while True:
      if self.at >= len(self.tokens) or self.is_op(*closers):
        break
      if found and not self._separator(separators):
        break
      if self.at >= len(self.tokens) or self.is_op(*closers):
        break
      found.append(self.relation())
    if len(found) == 1 and not separators:
      return found[0]
    kind = 'or' if 'or' in separators else ','
    return ('list', found, ';' if ';' in separators else kind)

  def _separator(self, seen: set) -> bool:
    start = self.at
    while True:
      if self.is_op(',', ';'):
        seen.add(self.peek())
      elif self.kind() == 'text' and self.peek().lower().strip(' ,') in (
        'and',
        'or',
      ):
        seen.add(self.peek().lower().strip(' ,'))
      elif self.is_op(r'\\', '&') and start != self.at:
        pass
      else:
        return self.at > start
      self.at += 1

  def relation(self) -> tuple:
    operands, operators = [self.operand()], []
    while self.is_op(*RELATIONS):
      operators.append(self.peek())
      self.at += 1
      operands.append(self.operand())
    return ('rel', operands, operators) if operators else operands[0]

  def operand(self) -> tuple:
    dollars = self.take(r'\$')
    value = self.setops()
    if self.is_op(':') and not self.in_set:
      parts = [value]
      while self.take(':'):
        parts.append(self.setops())
      value = ('ratio', parts)
    unit = self._unit()
    if dollars and not unit:
      unit = 'dollar'
    return ('qty', value, unit) if unit else value

  def _unit(self) -> str:
    words = []
    while self.at < len(self.tokens):
      kind, value = self.kind(), self.peek()
      if kind in ('text', 'unit', 'word'):
        if value.lower().strip(' ,') in ('and', 'or'):
          break
        words.append(value)
      elif not words and value != r'\$':
        break
      elif (
        value in ('^', '{', '}', '/', '-', r'\cdot', r'\$')
        or (kind == 'num' and words[-1] in ('^', '{', '-'))
        or (kind == 'let' and words[-1] in ('/', r'\cdot'))
      ):
        words.append(value)
      else:
        break
      self.at += 1
    return ' '.join(words)

  def setops(self) -> tuple:
    value = self.sum()
    while self.is_op(*_SETOPS):
      operator = self.peek()
      self.at += 1
      value = ('setop', operator, value, self.sum())
    return value

  # Arithmetic.

  def sum(self) -> tuple:
    terms = [self.signed()]
    while self.is_op('+', '-', r'\pm', r'\mp'):
      terms.append(self.signed())
    return terms[0] if len(terms) == 1 else ('add', terms)

  def signed(self) -> tuple:
    if self.take('+'):
      return self.signed()
    if self.take('-'):
      return ('neg', self.signed())
    if self.take(r'\pm'):
      if self.take('-'):
        pass
      return ('pm', self.signed(), 1)
    if self.take(r'\mp'):
      return ('pm', self.signed(), -1)
    return self.product()

  def product(self) -> tuple:
    value = self.chain()
    while True:
      if self.take(*_TIMES):
        value = ('mul', [value, self._negatable()])
      elif self.take(*_OVER):
        value = ('div', value, self._negatable())
      elif self.starts_atom():
        value = ('mul', [value, self.chain()])
      else:
        return value

  def _negatable(self) -> tuple:
    if self.take('-'):
      return ('neg', self._negatable())
    self.take('+')
    return self.power()

  def chain(self) -> tuple:
    """Factors written side by side, mixed numbers included."""
    factors = [self.power()]
    while self.starts_atom():
      mixed = self._mixed(factors[-1])
      if mixed:
        factors[-1] = self.postfix(mixed)
        continue
      if self.kind() == 'num' and factors[-1][0] == 'num':
        raise ParseError('two numbers side by side')
      factors.append(self.power())
    return factors[0] if len(factors) == 1 else ('mul', factors)

  def _mixed(self, whole: tuple) -> tuple | None:
    """`5\\frac{1}{4}` and `5 1/4`: a whole number and a proper fraction."""
    if whole[0] != 'num' or whole[1].denominator != 1 or '.' in whole[2]:
      return None
    start = self.at
    if self.is_op(r'\frac'):
      part = self.atom()
      if part[0] == 'div' and part[1][0] == part[2][0] == 'num':
        top, bottom = part[1][1], part[2][1]
        if top < bottom and top.denominator == bottom.denominator == 1:
          return ('num', whole[1] + top / bottom, '')
    elif (
      self.kind() == self.kind(2) == 'num'
      and self.peek(1) == '/'
      and self.tokens[self.at].spaced
    ):
      top, bottom = self.peek(), self.peek(2)
      if top.isdigit() and bottom.isdigit() and int(top) < int(bottom):
        self.at += 3
        return ('num', whole[1] + Fraction(int(top), int(bottom)), '')
    self.at = start
    return None

  def starts_atom(self) -> bool:
    kind, value = self.kind(), self.peek()
    if kind in ('num', 'let', 'set'):
      return True
    if kind == 'op':
      if value == '[':
        after = self.peek(1)
        return after is not None and after not in (',', ')', r'\cup', r'\cap')
      return value in ('(', '{') or (value == '|' and not self.bars)
    if kind == 'cmd':
      return (
        value in atoms.COMMANDS
        or value in atoms.GREEK
        or value[1:] in tokens_lib.FUNCTIONS
      )
    return False

  def power(self) -> tuple:
    value = self.postfix(self.atom())
    if self.is_op('^'):
      self.at += 1
      value = ('pow', value, self._script())
      value = self.postfix(value)
    return value

  def postfix(self, value: tuple) -> tuple:
    while True:
      if self.is_op('^') and self.peek(1) == r'\circ':
        self.at += 2
        value = ('degree', value)
      elif self.is_op('!') and self.peek(1) != '=':
        self.at += 1
        value = ('fn', 'factorial', [value])
      elif self.take(r'\%', '%'):
        value = ('percent', value)
      else:
        return value

  def _script(self) -> tuple:
    """An exponent: a braced expression, or one token with its sign."""
    if self.take('{'):
      inner = self.items(('}',))
      self.need('}')
      return self.postfix(inner)
    if self.take('-'):
      return ('neg', self._script())
    if self.kind() == 'num' and self.tokens[self.at].value.isdigit():
      # `x^12` without braces: LaTeX would raise the 1 only; nobody means it.
      return self.atom()
    value = self.atom()
    if self.take('^'):  # towers typed as 9^9^9 bind to the right
      return ('pow', value, self._script())
    return value

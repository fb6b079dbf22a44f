"""Values of expressions: exact where rational, else to 60 digits, bounded.

Two expressions are compared by their values, at fixed sample points where they
hold variables. Rational arithmetic is exact (polynomial identities are decided
by exact values), anything else is mpmath's at 60 digits. Work is estimated
before it is done, so a tower of powers is refused and not computed.
"""

from collections.abc import Callable
from fractions import Fraction

import mpmath

from tandem.rewards import arithmetic
from tandem.rewards.arithmetic import NotNumeric
from tandem.rewards.arithmetic import Number
from tandem.rewards.arithmetic import Undefined
from tandem.rewards.arithmetic import as_float
from tandem.rewards.arithmetic import is_real
from tandem.rewards.tokens import TooBig

__all__ = ['NotNumeric', 'Number', 'Undefined', 'as_float', 'is_real']
__all__ += ['agree', 'evaluate', 'point', 'same', 'symbols']

DIGITS = 60
MAX_TERMS = 2_000  # of a written-out sum

# Exact and without special relations; some inside (0, 1), some negative, some
# large (floors of small arguments agree too often).
_POINTS = (
  (Fraction(37, 61), Fraction(71, 103), Fraction(29, 83), Fraction(43, 97)),
  (Fraction(83, 59), Fraction(127, 47), Fraction(211, 89), Fraction(97, 71)),
  (Fraction(19, 67), Fraction(53, 149), Fraction(91, 107), Fraction(13, 37)),
  (Fraction(-47, 79), Fraction(61, 101), Fraction(-17, 31), Fraction(23, 53)),
  (Fraction(-173, 73), Fraction(-101, 43), Fraction(67, 29), Fraction(-7, 3)),
  (Fraction(139, 41), Fraction(-59, 113), Fraction(-79, 37), Fraction(11, 5)),
  (Fraction(-7, 97), Fraction(-89, 131), Fraction(-31, 59), Fraction(-3, 23)),
  (Fraction(137, 11), Fraction(523, 37), Fraction(331, 19), Fraction(89, 3)),
  (Fraction(911, 23), Fraction(-613, 29), Fraction(433, 17), Fraction(79, 4)),
)
SAMPLES = len(_POINTS)


def symbols(node: tuple) -> set[str]:
  """Names of the variables in a tree."""
  if node[0] == 'sym':
    return set() if node[1] in _CONSTANTS else {node[1]}
  if node[0] == 'sum':
    inside = symbols(node[5]) - {node[2]}
    return inside | symbols(node[3]) | symbols(node[4])
  found = set()
  for part in node[1:]:
    if isinstance(part, tuple) and part and isinstance(part[0], str):
      found |= symbols(part)
    elif isinstance(part, list):
      for item in part:
        for inner in item if isinstance(item, list) else [item]:
          if isinstance(inner, tuple):
            found |= symbols(inner)
  return found


def point(names: list[str], sample: int) -> dict[str, Fraction]:
  """The sample point of a number, for variables in a fixed order."""
  row = _POINTS[sample]
  return {
    name: row[n % len(row)] + Fraction(n // len(row), 7)
    for n, name in enumerate(names)
  }


def evaluate(
  node: tuple,
  where: dict[str, Number] | None = None,
  digits: int = DIGITS,
) -> Number:
  """The value of a tree at a point.

  Args:
    node: a tree of expression.py.
    where: values of its variables.
    digits: of the floats, where there are any.

  Returns:
    A Fraction if every step was rational, else a number of mpmath.

  Raises:
    Undefined: where there is no value.
    TooBig: where finding it would take too long.
    NotNumeric: for what is not a number at all.
  """
  with mpmath.workdps(digits):
    try:
      return _value(node, where or {})
    except (ZeroDivisionError, ValueError, OverflowError) as error:
      if isinstance(error, (NotNumeric, TooBig)):
        raise
      raise Undefined(str(error)) from error


def same(a: Number, b: Number) -> bool:
  """Whether two values are one; exact for Fractions, else to 25 digits."""
  if isinstance(a, Fraction) and isinstance(b, Fraction):
    return a == b
  with mpmath.workdps(DIGITS):
    a, b = arithmetic.mp(a), arithmetic.mp(b)
    if mpmath.isinf(a) or mpmath.isinf(b):
      return a == b
    size = max(abs(a), abs(b))
    # Where both vanish, what is left is the rounding of cancelled terms.
    return abs(a - b) <= max(size * mpmath.mpf(10) ** -25, _TINY)


def agree(a: tuple, b: tuple, where: dict[str, Number]) -> bool:
  """Whether two trees have one value at a point.

  Values that nearly vanish are found again to more digits: what cancels
  shrinks with the rounding, what is merely small stays.

  Raises:
    As `evaluate`.
  """
  x, y = evaluate(a, where), evaluate(b, where)
  if not same(x, y):
    return False
  sizes = [abs(arithmetic.mp(value)) for value in (x, y)]
  exact = isinstance(x, Fraction) and isinstance(y, Fraction)
  if exact or max(sizes) > _SMALL:
    return True
  x, y = (arithmetic.mp(evaluate(n, where, 4 * DIGITS)) for n in (a, b))
  with mpmath.workdps(DIGITS):
    near = max(abs(x), abs(y)) * mpmath.mpf(10) ** -25
    vanish = [abs(v) <= size * _TINY for v, size in zip((x, y), sizes)]
    return abs(x - y) <= near or all(vanish)


_TINY = mpmath.mpf(10) ** -52
_SMALL = mpmath.mpf(10) ** -25


def _value(node: tuple, where: dict) -> Number:
  kind = node[0]
  if kind == 'num':
    return node[1]
  if kind == 'sym':
    return _symbol(node[1], where)
  if kind == 'add':
    total = _value(node[1][0], where)
    for term in node[1][1:]:
      total = arithmetic.add(total, _value(term, where))
    return total
  if kind == 'mul':
    return _product(node[1], where)
  if kind == 'neg':
    return -_value(node[1], where)
  if kind == 'div':
    return arithmetic.divide(_value(node[1], where), _value(node[2], where))
  if kind == 'pow':
    return arithmetic.power(_value(node[1], where), _value(node[2], where))
  if kind in ('paren', 'qty'):
    return _value(node[1], where)
  if kind == 'percent':
    return arithmetic.divide(_value(node[1], where), Fraction(100))
  if kind == 'degree':
    return arithmetic.multiply(_value(node[1], where), mpmath.pi / 180)
  if kind == 'base':
    return _digits(node[1], node[2])
  if kind == 'fn':
    return arithmetic.function(node[1], [_value(a, where) for a in node[2]])
  if kind == 'sum':
    return _series(node, where)
  if kind == 'ratio' and len(node[1]) == 2:
    return arithmetic.divide(*(_value(part, where) for part in node[1]))
  if kind == 'matrix' and node[1] == 'vmatrix':
    return _determinant([[_value(x, where) for x in r] for r in node[2]])
  raise NotNumeric(kind)


def _product(factors: list[tuple], where: dict) -> Number:
  product, too_big = Fraction(1), None
  for factor in factors:
    try:
      product = arithmetic.multiply(product, _value(factor, where))
    except TooBig as error:  # nothing, if another factor is zero
      too_big = error
  if too_big and product != 0:
    raise too_big
  return product


_CONSTANTS: dict[str, Callable] = {
  r'\pi': lambda: +mpmath.pi,
  'e': lambda: +mpmath.e,
  'i': lambda: mpmath.mpc(0, 1),
  r'\infty': lambda: mpmath.inf,
}


def _symbol(name: str, where: dict) -> Number:
  if name in where:
    return where[name]
  if name in _CONSTANTS:
    return _CONSTANTS[name]()
  raise NotNumeric(name)


def _digits(text: str, base: int) -> Fraction:
  if not 2 <= base <= 36 or len(text) > 1000:
    raise NotNumeric('a base')
  whole, _, part = text.partition('.')
  try:
    value = Fraction(int(whole or '0', base))
    return value + (Fraction(int(part, base), base ** len(part)) if part else 0)
  except ValueError as error:
    raise NotNumeric('digits of another base') from error


def _series(node: tuple, where: dict) -> Number:
  _, kind, name, low, high, body = node
  first, last = _value(low, where), _value(high, where)
  if not (isinstance(first, Fraction) and isinstance(last, Fraction)):
    raise NotNumeric('a sum without end')
  if first.denominator != 1 or last.denominator != 1:
    raise NotNumeric('a sum with a variable bound')
  if last - first > MAX_TERMS:
    raise TooBig('a sum')
  total = Fraction(0 if kind == 'sum' else 1)
  for k in range(int(first), int(last) + 1):
    term = _value(body, {**where, name: Fraction(k)})
    total = (
      arithmetic.add(total, term)
      if kind == 'sum'
      else arithmetic.multiply(total, term)
    )
  return total


def _determinant(rows: list[list[Number]]) -> Number:
  if any(len(row) != len(rows) for row in rows) or len(rows) > 6:
    raise NotNumeric('no small square matrix')
  if len(rows) == 1:
    return rows[0][0]
  total = Fraction(0)
  for n, head in enumerate(rows[0]):
    minor = [row[:n] + row[n + 1 :] for row in rows[1:]]
    term = arithmetic.multiply(head, _determinant(minor))
    total = arithmetic.add(total, -term if n % 2 else term)
  return total

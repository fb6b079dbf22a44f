"""Values of expressions: exact where rational, else to 60 digits, bounded.

# ruff: noqa: SIM905  (lists of words are easier to read as words)

Two expressions are compared by their values, at fixed sample points where they
hold variables. Rational arithmetic is exact (polynomial identities are decided
by exact values), anything else is mpmath's at 60 digits. Work is estimated
before it is done, so a tower of powers is refused and not computed.
"""

from collections.abc import Callable
from fractions import Fraction
import math

import mpmath

from tandem.rewards.tokens import TooBig

DIGITS = 60
MAX_BITS = 400_000  # of an exact integer
MAX_LOG2 = 1 << 30  # of a floating magnitude
MAX_FACTORIAL = 20_000
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


class Undefined(ArithmeticError):
  """The expression has no value here: a division by zero, an odd domain."""


class NotNumeric(ValueError):
  """The node has no number for a value: a text, a set, a relation."""


Number = Fraction | mpmath.mpf | mpmath.mpc


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


def evaluate(node: tuple, where: dict[str, Number] | None = None) -> Number:
  """The value of a tree at a point.

  Args:
    node: a tree of expression.py.
    where: values of its variables.

  Returns:
    A Fraction if every step was rational, else a number of mpmath.

  Raises:
    Undefined: where there is no value.
    TooBig: where finding it would take too long.
    NotNumeric: for what is not a number at all.
  """
  with mpmath.workdps(DIGITS):
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
    a, b = _mp(a), _mp(b)
    if mpmath.isinf(a) or mpmath.isinf(b):
      return a == b
    size = max(abs(a), abs(b))
    # Where both vanish, what is left is the rounding of cancelled terms.
    return abs(a - b) <= max(size * mpmath.mpf(10) ** -25, _TINY)


def is_real(a: Number) -> bool:
  """Whether a value is on the real line, up to rounding."""
  if isinstance(a, Fraction):
    return True
  return abs(mpmath.im(a)) <= mpmath.mpf(10) ** -30 * (1 + abs(mpmath.re(a)))


_TINY = mpmath.mpf(10) ** -52


def _mp(a: Number):
  if isinstance(a, Fraction):
    return mpmath.mpf(a.numerator) / a.denominator
  return a


def _value(node: tuple, where: dict) -> Number:
  kind = node[0]
  if kind == 'num':
    return node[1]
  if kind == 'sym':
    return _symbol(node[1], where)
  if kind == 'add':
    total = _value(node[1][0], where)
    for term in node[1][1:]:
      total = _add(total, _value(term, where))
    return total
  if kind == 'mul':
    product = _value(node[1][0], where)
    for factor in node[1][1:]:
      product = _multiply(product, _value(factor, where))
    return product
  if kind == 'neg':
    return -_value(node[1], where)
  if kind == 'div':
    return _divide(_value(node[1], where), _value(node[2], where))
  if kind == 'pow':
    return _power(_value(node[1], where), _value(node[2], where))
  if kind in ('paren', 'qty'):
    return _value(node[1], where)
  if kind == 'percent':
    return _divide(_value(node[1], where), Fraction(100))
  if kind == 'degree':
    return _multiply(_value(node[1], where), mpmath.pi / 180)
  if kind == 'base':
    return _digits(node[1], node[2])
  if kind == 'fn':
    return _function(node[1], [_value(a, where) for a in node[2]])
  if kind == 'sum':
    return _series(node, where)
  if kind == 'ratio' and len(node[1]) == 2:
    return _divide(*(_value(part, where) for part in node[1]))
  if kind == 'matrix' and node[1] == 'vmatrix':
    return _determinant([[_value(x, where) for x in r] for r in node[2]])
  raise NotNumeric(kind)


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


def _bits(a: Fraction) -> int:
  return max(a.numerator.bit_length(), a.denominator.bit_length())


def _checked(a: Number) -> Number:
  if isinstance(a, Fraction):
    if _bits(a) > MAX_BITS:
      raise TooBig('an exact number of too many digits')
  elif mpmath.isnan(a):
    raise Undefined('no number')
  return a


def _add(a, b):
  if isinstance(a, Fraction) and isinstance(b, Fraction):
    return _checked(a + b)
  return _checked(_mp(a) + _mp(b))


def _multiply(a, b):
  if isinstance(a, Fraction) and isinstance(b, Fraction):
    return _checked(a * b)
  return _checked(_mp(a) * _mp(b))


def _divide(a, b):
  if b == 0:
    raise Undefined('division by zero')
  if isinstance(a, Fraction) and isinstance(b, Fraction):
    return _checked(a / b)
  return _checked(_mp(a) / _mp(b))


def _log2(a) -> float:
  """log2 |a|, as a float; a is not zero."""
  if isinstance(a, Fraction):
    return a.numerator.bit_length() - a.denominator.bit_length() + 0.5
  magnitude = mpmath.mag(a)
  return float(magnitude) if magnitude < MAX_LOG2 else math.inf


def _power(base, exponent):
  if isinstance(exponent, Fraction) and isinstance(base, Fraction):
    if base == 0:
      if exponent <= 0:
        raise Undefined('zero to a power that is not positive')
      return Fraction(0)
    if exponent.denominator == 1:
      if abs(base) == 1:
        return base if exponent.numerator % 2 else Fraction(1)
      if _bits(base) * abs(exponent) <= MAX_BITS:
        return base**exponent.numerator
    root = _exact_root(base, exponent.denominator)
    if root is not None and _bits(root) * abs(exponent.numerator) <= MAX_BITS:
      return root**exponent.numerator
  if base == 0:
    return mpmath.mpf(0)
  size = _log2(exponent) if exponent != 0 else 0.0
  weight = abs(_log2(base)) + 4
  if size > 40 or weight * 2.0**size > MAX_LOG2:
    if mpmath.isinf(_mp(base)) or mpmath.isinf(_mp(exponent)):
      return _checked(mpmath.power(_mp(base), _mp(exponent)))
    raise TooBig('a power')
  return _checked(mpmath.power(_mp(base), _mp(exponent)))


def _exact_root(a: Fraction, n: int) -> Fraction | None:
  """The n-th root if it is rational, of a positive number."""
  if a <= 0 or n > 64 or _bits(a) > 4096:
    return None
  parts = []
  for part in (a.numerator, a.denominator):
    root = math.isqrt(part) if n == 2 else round(part ** (1 / n)) if (
      part < 1 << 50
    ) else None  # fmt: skip
    if root is None or root**n != part:
      return None
    parts.append(root)
  return Fraction(*parts)


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
    total = _add(total, term) if kind == 'sum' else _multiply(total, term)
  return total


def _determinant(rows: list[list[Number]]) -> Number:
  if any(len(row) != len(rows) for row in rows) or len(rows) > 6:
    raise NotNumeric('no small square matrix')
  if len(rows) == 1:
    return rows[0][0]
  total = Fraction(0)
  for n, head in enumerate(rows[0]):
    minor = [row[:n] + row[n + 1 :] for row in rows[1:]]
    term = _multiply(head, _determinant(minor))
    total = _add(total, -term if n % 2 else term)
  return total


def _factorial(n: Number) -> Number:
  if isinstance(n, Fraction) and n.denominator == 1 and n >= 0:
    if n > MAX_FACTORIAL:
      raise TooBig('a factorial')
    return Fraction(math.factorial(int(n)))
  if abs(n) > MAX_FACTORIAL:
    raise TooBig('a factorial')
  return mpmath.gamma(_mp(n) + 1)


def _binomial(n: Number, k: Number) -> Number:
  if isinstance(n, Fraction) and isinstance(k, Fraction):
    if n.denominator == k.denominator == 1 and k >= 0:
      if min(k, abs(n - k)) * (_bits(n) + 1) > MAX_BITS:
        raise TooBig('a binomial')
      if n >= 0:
        return Fraction(math.comb(int(n), int(k)))
  if abs(n) > 10**6 or abs(k) > 10**6:
    raise TooBig('a binomial')
  return mpmath.binomial(_mp(n), _mp(k))


def _real(a: Number):
  if not is_real(a):
    raise Undefined('no real number')
  return a if isinstance(a, Fraction) else mpmath.re(a)


def _integer(a: Number) -> int:
  a = _real(a)
  if not isinstance(a, Fraction) or a.denominator != 1:
    raise Undefined('no whole number')
  return int(a)


def _log(a: Number, base: Number | None = None) -> Number:
  if a == 0:
    raise Undefined('log of zero')
  if a == 1:
    return Fraction(0)
  value = mpmath.log(_mp(a))
  return value if base is None else value / mpmath.log(_mp(base))


def _exp(a: Number) -> Number:
  return _power(mpmath.e + 0, a)


def _root(a: Number, n: Number = Fraction(2)) -> Number:
  if a == 0:
    return Fraction(0)
  if isinstance(n, Fraction) and n.denominator == 1 and n.numerator % 2:
    if is_real(a) and _real(a) < 0:  # the real root of an odd index
      return -_root(-_real(a), n)
  return _power(a, _divide(Fraction(1), n))


def _floor(a: Number, up: bool = False) -> Number:
  a = _real(a)
  if isinstance(a, Fraction):
    return Fraction(math.ceil(a) if up else math.floor(a))
  if abs(a) > 10**15:
    raise TooBig('a floor')
  return Fraction(int(mpmath.ceil(a) if up else mpmath.floor(a)))


def _bounded(function: Callable) -> Callable:
  """A periodic function: its argument's size is what it costs."""

  def call(a: Number) -> Number:
    if a != 0 and _log2(a) > 5000:
      raise TooBig('an angle')
    return function(_mp(a))

  return call


_FUNCTIONS: dict[str, Callable] = {
  name: _bounded(getattr(mpmath, ours))
  for name, ours in (
    [(n, n) for n in ['sin', 'cos', 'tan', 'cot', 'sec', 'csc', 'sinh', 'cosh', 'tanh', 'coth']]
    + [('arc' + n, 'a' + n) for n in ['sin', 'cos', 'tan', 'cot', 'sec', 'csc']]
    + [('arc' + n, 'a' + n) for n in ['sinh', 'cosh', 'tanh']]
    + [('ar' + n, 'a' + n) for n in ['sinh', 'cosh', 'tanh']]
    + [('sech', 'sech'), ('csch', 'csch')]
  )
}
_FUNCTIONS |= {
  'ln': _log,
  'log': _log,
  'lg': lambda a: _log(a, Fraction(10)),
  'exp': _exp,
  'sqrt': _root,
  'root': _root,
  'cbrt': lambda a: _root(a, Fraction(3)),
  'abs': lambda a: abs(a),
  'factorial': _factorial,
  'binom': _binomial,
  'floor': _floor,
  'ceil': lambda a: _floor(a, up=True),
  'min': lambda *a: min(map(_real, a)),
  'max': lambda *a: max(map(_real, a)),
  'gcd': lambda *a: Fraction(math.gcd(*map(_integer, a))),
  'lcm': lambda *a: Fraction(math.lcm(*map(_integer, a))),
  'Re': lambda a: a if isinstance(a, Fraction) else mpmath.re(a),
  'Im': lambda a: Fraction(0) if isinstance(a, Fraction) else mpmath.im(a),
  'sgn': lambda a: Fraction((_real(a) > 0) - (_real(a) < 0)),
  'arg': lambda a: mpmath.arg(_mp(a)),
}


def _function(name: str, args: list[Number]) -> Number:
  if name not in _FUNCTIONS:
    raise NotNumeric(name)
  if name.startswith(('sinh', 'cosh')) and args[0] != 0:
    if _log2(args[0]) > 25:
      raise TooBig('a hyperbolic function')
  try:
    return _checked(_FUNCTIONS[name](*args))
  except TypeError as error:
    raise NotNumeric(f'{name} of {len(args)}') from error


def as_float(a: Number):
  """The value as a real mpmath number, for ordering."""
  return mpmath.re(_mp(a))

"""Bounded arithmetic on exact rationals and 60-digit floats.

Each step estimates its work before it is done: a tower of powers, a factorial
or an angle beyond the limits raises TooBig and computes nothing.
"""

from collections.abc import Callable
from fractions import Fraction
import math

import mpmath

from tandem.rewards.tokens import TooBig

MAX_BITS = 400_000  # of an exact integer
MAX_LOG2 = 1 << 30  # of a floating magnitude
MAX_FACTORIAL = 20_000


class Undefined(ArithmeticError):
  """The expression has no value here: a division by zero, an odd domain."""


class NotNumeric(ValueError):
  """The node has no number for a value: a text, a set, a relation."""


Number = Fraction | mpmath.mpf | mpmath.mpc


def as_float(a: Number):
  """The value as a real mpmath number, for ordering."""
  return mpmath.re(mp(a))


def is_real(a: Number) -> bool:
  """Whether a value is on the real line, up to rounding."""
  if isinstance(a, Fraction):
    return True
  return abs(mpmath.im(a)) <= mpmath.mpf(10) ** -30 * (1 + abs(mpmath.re(a)))


def mp(a: Number):
  if isinstance(a, Fraction):
    return mpmath.mpf(a.numerator) / a.denominator
  return a


def _bits(a: Fraction) -> int:
  return max(a.numerator.bit_length(), a.denominator.bit_length())


def _checked(a: Number) -> Number:
  if isinstance(a, Fraction):
    if _bits(a) > MAX_BITS:
      raise TooBig('an exact number of too many digits')
  elif mpmath.isnan(a):
    raise Undefined('no number')
  return a


def add(a, b):
  if isinstance(a, Fraction) and isinstance(b, Fraction):
    return _checked(a + b)
  return _checked(mp(a) + mp(b))


def multiply(a, b):
  if isinstance(a, Fraction) and isinstance(b, Fraction):
    return _checked(a * b)
  return _checked(mp(a) * mp(b))


def divide(a, b):
  if b == 0:
    raise Undefined('division by zero')
  if isinstance(a, Fraction) and isinstance(b, Fraction):
    return _checked(a / b)
  return _checked(mp(a) / mp(b))


def _log2(a) -> float:
  """log2 |a|, as a float; a is not zero."""
  if isinstance(a, Fraction):
    return a.numerator.bit_length() - a.denominator.bit_length() + 0.5
  magnitude = mpmath.mag(a)
  return float(magnitude) if magnitude < MAX_LOG2 else math.inf


def power(base, exponent):
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
    if mpmath.isinf(mp(base)) or mpmath.isinf(mp(exponent)):
      return _checked(mpmath.power(mp(base), mp(exponent)))
    raise TooBig('a power')
  return _checked(mpmath.power(mp(base), mp(exponent)))


def _exact_root(a: Fraction, n: int) -> Fraction | None:
  """The n-th root if it is rational, of a positive number."""
  if a <= 0 or n > 64 or _bits(a) > 4096:
    return None
  parts = []
  for part in (a.numerator, a.denominator):
    if n == 2:
      root = math.isqrt(part)
    elif part < 1 << 50:
      root = round(part ** (1 / n))
    else:
      return None
    if root**n != part:
      return None
    parts.append(root)
  return Fraction(*parts)


def _factorial(n: Number) -> Number:
  if isinstance(n, Fraction) and n.denominator == 1 and n >= 0:
    if n > MAX_FACTORIAL:
      raise TooBig('a factorial')
    return Fraction(math.factorial(int(n)))
  if abs(n) > MAX_FACTORIAL:
    raise TooBig('a factorial')
  return mpmath.gamma(mp(n) + 1)


def _binomial(n: Number, k: Number) -> Number:
  whole = isinstance(n, Fraction) and isinstance(k, Fraction)
  if whole and n.denominator == k.denominator == 1 and k >= 0 and n >= 0:
    if min(k, abs(n - k)) * (_bits(n) + 1) > MAX_BITS:
      raise TooBig('a binomial')
    return Fraction(math.comb(int(n), int(k)))
  if abs(n) > 10**6 or abs(k) > 10**6:
    raise TooBig('a binomial')
  return mpmath.binomial(mp(n), mp(k))


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
  value = mpmath.log(mp(a))
  return value if base is None else value / mpmath.log(mp(base))


def _exp(a: Number) -> Number:
  return power(mpmath.e + 0, a)


def _root(a: Number, n: Number = Fraction(2)) -> Number:
  if a == 0:
    return Fraction(0)
  odd = isinstance(n, Fraction) and n.denominator == 1 and n.numerator % 2
  if odd and is_real(a) and _real(a) < 0:  # the real root of an odd index
    return -_root(-_real(a), n)
  return power(a, divide(Fraction(1), n))


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
    return function(mp(a))

  return call


_FUNCTIONS: dict[str, Callable] = {
  name: _bounded(getattr(mpmath, ours))
  for name, ours in (
    [
      (n, n)
      for n in [
        'sin',
        'cos',
        'tan',
        'cot',
        'sec',
        'csc',
        'sinh',
        'cosh',
        'tanh',
        'coth',
      ]
    ]
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
  'arg': lambda a: mpmath.arg(mp(a)),
}


def function(name: str, args: list[Number]) -> Number:
  if name not in _FUNCTIONS:
    raise NotNumeric(name)
  hyperbolic = name.startswith(('sinh', 'cosh'))
  if hyperbolic and args[0] != 0 and _log2(args[0]) > 25:
    raise TooBig('a hyperbolic function')
  try:
    return _checked(_FUNCTIONS[name](*args))
  except TypeError as error:
    raise NotNumeric(f'{name} of {len(args)}') from error

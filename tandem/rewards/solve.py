"""What only a computer algebra system can say: sympy, on small inputs."""

from fractions import Fraction

import mpmath
import sympy

from tandem.rewards import values

_MAX_NODES = 60
_MAX_POWER = 12
_PLAIN = ('sqrt', 'exp', 'abs', 'ln', 'log', 'sin', 'cos', 'tan')


def condition(left: tuple, op: str, right: tuple, name: str):
  """Solves a relation in one real variable.

  Args:
    left, right: trees of expression.py in the variable.
    op: a relation sign as expression.py spells it.
    name: the variable.

  Returns:
    Pieces as sets.py has them, or None where sympy finds no such set.
  """
  x = sympy.Symbol(name, real=True)
  budget = [_MAX_NODES]
  try:
    difference = _sympy(left, x, budget) - _sympy(right, x, budget)
    relation = {
      '<': sympy.Lt,
      '>': sympy.Gt,
      r'\le': sympy.Le,
      r'\ge': sympy.Ge,
      '=': sympy.Eq,
      r'\ne': sympy.Ne,
    }[op](difference, 0)
    if relation in (True, False):
      return None
    found = relation.as_set()
  except (NotImplementedError, values.NotNumeric, TypeError, ValueError):
    return None
  return _pieces(found)


def _pieces(found: sympy.Set):
  if found is sympy.S.EmptySet:
    return ()
  if isinstance(found, sympy.Union):
    parts = [_pieces(part) for part in found.args]
    return None if None in parts else tuple(p for part in parts for p in part)
  if isinstance(found, sympy.FiniteSet):
    return tuple((_number(v), True, _number(v), True) for v in found)
  if found == sympy.S.Reals:
    return ((-mpmath.inf, False, mpmath.inf, False),)
  if isinstance(found, sympy.Interval):
    low, high, left_open, right_open = found.args
    low, high = _number(low), _number(high)
    return ((low, not left_open, high, not right_open),)
  return None


def _number(value: sympy.Expr) -> values.Number:
  if value.is_Rational:
    return Fraction(int(value.p), int(value.q))
  if value.is_infinite:
    return mpmath.inf if value > 0 else -mpmath.inf
  with mpmath.workdps(values.DIGITS):
    return mpmath.mpf(str(value.evalf(values.DIGITS)))


def _sympy(node: tuple, x: sympy.Symbol, budget: list[int]) -> sympy.Expr:
  budget[0] -= 1
  if budget[0] < 0:
    raise values.NotNumeric('too long to solve')
  kind = node[0]
  if kind == 'num':
    return sympy.Rational(node[1].numerator, node[1].denominator)
  if kind == 'sym':
    known = {x.name: x, r'\pi': sympy.pi, 'e': sympy.E}
    if node[1] not in known:
      raise values.NotNumeric(node[1])
    return known[node[1]]
  if kind in ('add', 'mul'):
    terms = [_sympy(term, x, budget) for term in node[1]]
    return sympy.Add(*terms) if kind == 'add' else sympy.Mul(*terms)
  if kind == 'neg':
    return -_sympy(node[1], x, budget)
  if kind == 'paren':
    return _sympy(node[1], x, budget)
  if kind == 'div':
    return _sympy(node[1], x, budget) / _sympy(node[2], x, budget)
  if kind == 'pow':
    power = _sympy(node[2], x, budget)
    if power.is_number and abs(power) > _MAX_POWER:
      raise values.NotNumeric('a power too high to solve')
    return _sympy(node[1], x, budget) ** power
  if kind == 'fn' and node[1] in _PLAIN and len(node[2]) == 1:
    name = {'abs': 'Abs', 'ln': 'log'}.get(node[1], node[1])
    return getattr(sympy, name)(_sympy(node[2][0], x, budget))
  raise values.NotNumeric(kind)

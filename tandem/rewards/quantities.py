"""Numbers, expressions and quantities: equal by value, units converted."""

from collections.abc import Callable
import dataclasses
from fractions import Fraction

import mpmath

from tandem.rewards import units
from tandem.rewards import values
from tandem.rewards.tokens import TooBig


@dataclasses.dataclass(frozen=True)
class Rules:
  """percent: the question asks for a percentage. close: an extra test that
  two numbers of a rounded gold agree, or None for exactness."""

  percent: bool = False
  close: Callable[[tuple, tuple], bool] | None = None


def bare(node: tuple) -> tuple:
  while node[0] == 'paren':
    node = node[1]
  if node[0] == 'neg' and node[1][0] in ('percent', 'degree', 'qty'):
    inner = node[1]
    return (inner[0], ('neg', inner[1]), *inner[2:])
  return node


def _quantity(node: tuple) -> tuple[tuple, str | None]:
  if node[0] == 'percent':
    return node[1], 'percent'
  if node[0] == 'degree':
    return node[1], 'degree'
  if node[0] == 'qty':
    inner, unit = _quantity(bare(node[1]))
    first = node[2].split()[0].lower() if node[2].split() else ''
    if first in ('percent', 'percentage'):
      return inner, 'percent'
    return inner, node[2] if unit is None else unit
  return node, None


def quantities(a: tuple, b: tuple, rules: Rules) -> bool:
  (value_a, unit_a), (value_b, unit_b) = _quantity(a), _quantity(b)
  if unit_a == unit_b:
    return leaves(value_a, value_b, rules)
  if 'percent' in (unit_a, unit_b):
    return _percents(value_a, unit_a, value_b, unit_b, rules)
  if unit_a is None or unit_b is None:
    if leaves(value_a, value_b, rules):
      return True
    unit = unit_a or unit_b
    if units.parse_unit(unit)[1] != (('angle', 1),):
      return False
    turned = ('degree', value_a if unit_a else value_b)
    return leaves(turned, value_b if unit_a else value_a, rules)
  (scale_a, dimensions_a), (scale_b, dimensions_b) = map(
    units.parse_unit, (unit_a, unit_b)
  )
  if dimensions_a == dimensions_b:
    return leaves(_scaled(value_a, scale_a), _scaled(value_b, scale_b), rules)
  if units.known(dimensions_a) and units.known(dimensions_b):
    angles = {dimensions_a, dimensions_b}
    if angles == {(('angle', 1),), (('radian', 1),)}:
      one = ('degree', value_a) if dimensions_a[0][0] == 'angle' else value_a
      two = ('degree', value_b) if dimensions_b[0][0] == 'angle' else value_b
      return leaves(one, two, rules)
    return False
  shared = {n for n, _ in dimensions_a} & {n for n, _ in dimensions_b}
  bare = not dimensions_a or not dimensions_b
  return (bool(shared) or bare) and leaves(value_a, value_b, rules)


def _scaled(value: tuple, scale: Fraction) -> tuple:
  return ('mul', [value, ('num', scale, str(scale))])


def _percents(value_a, unit_a, value_b, unit_b, rules: Rules) -> bool:
  unit = unit_b if unit_a == 'percent' else unit_a
  if unit is not None:
    return False
  share = lambda v, u: ('percent', v) if u == 'percent' else v
  if leaves(share(value_a, unit_a), share(value_b, unit_b), rules):
    return True
  if not leaves(value_a, value_b, rules):
    return False
  # The sign left out. Below 1 a bare number reads as a share instead, unless
  # the question asks for a percentage.
  try:
    return rules.percent or abs(values.evaluate(value_a)) >= 1
  except (values.Undefined, values.NotNumeric):
    return rules.percent


def leaves(a: tuple, b: tuple, rules: Rules) -> bool:
  a, b = bare(a), bare(b)
  if 'text' in (a[0], b[0]) or not _arithmetic(a) or not _arithmetic(b):
    return False
  try:
    if same_expression(a, b):
      return True
  except TooBig:
    if not a[0] == b[0] == 'pow':
      raise
    return same_expression(_logarithm(a), _logarithm(b))
  return rules.close is not None and rules.close(a, b)


def _logarithm(power: tuple) -> tuple:
  """The tree of a power's logarithm: two giants are equal if these are."""
  return ('mul', [power[2], ('fn', 'ln', [power[1]])])


def _arithmetic(node: tuple) -> bool:
  return node[0] not in ('rel', 'list', 'group', 'setop', 'builder', 'text')


def same_expression(a: tuple, b: tuple) -> bool:
  """Equality of two expressions as functions of their variables.

  They must agree at every sample point where both are real (where they never
  are, at every point where both exist), and there must be such points.
  """
  names = sorted(values.symbols(a) | values.symbols(b))
  if not names:
    try:
      return values.agree(a, b, {})
    except (values.Undefined, values.NotNumeric):
      return False
  real, other = [], []
  for sample in range(values.SAMPLES):
    where = values.point(names, sample)
    try:
      both = [values.evaluate(node, where) for node in (a, b)]
      kept = real if all(map(values.is_real, both)) else other
      kept.append(values.agree(a, b, where))
    except values.Undefined:
      continue
    except values.NotNumeric:
      return False
    if kept is real and not kept[-1]:
      return False
  if len(real) >= 2:
    return True
  return len(other) >= 2 and all(other)


def rounded(gold: tuple, answer: tuple) -> bool:
  """Whether an answer rounds to a gold that is written as a decimal.

  To half a unit of the gold's last written place; or, where the answer is a
  decimal of at least three digits, of the answer's.
  """
  try:
    x, y = (values.as_float(values.evaluate(n)) for n in (gold, answer))
  except (values.Undefined, values.NotNumeric):
    return False
  step = _last_place(gold)
  if step is None:
    return False
  gap = abs(x - y) * (1 - mpmath.mpf(10) ** -9)
  if gap <= step[0] / 2:
    return True
  other = _last_place(answer)
  return other is not None and other[1] >= 3 and gap <= other[0] / 2


def _last_place(node: tuple):
  """(unit of the last place, significant digits) of a written decimal."""
  node = bare(node)
  if node[0] == 'neg':
    return _last_place(node[1])
  if node[0] == 'num' and '.' in node[2]:
    whole, _, part = node[2].partition('.')
    digits = len((whole + part).lstrip('0'))
    return mpmath.mpf(10) ** -len(part), digits
  if node[0] == 'mul' and len(node[1]) == 2:
    mantissa, power = (bare(part) for part in node[1])
    inner = _last_place(mantissa)
    if inner is None and mantissa[0] == 'num':
      inner = (mpmath.mpf(1), len(mantissa[2]))
    if inner and power[0] == 'pow' and bare(power[1])[:2] == ('num', 10):
      scale = values.as_float(values.evaluate(power))
      return inner[0] * scale, inner[1]
  return None

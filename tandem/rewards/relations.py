"""Equations and inequalities as conditions: when two say the same."""

import mpmath

from tandem.rewards import values

_FLIP = {'<': '>', '>': '<', r'\le': r'\ge', r'\ge': r'\le'}


def is_name(node: tuple) -> bool:
  """Whether a left side only names a value: `x`, `f(x)`, `AB`, a word."""
  kind = node[0]
  if kind == 'sym':
    return True
  if kind == 'text':
    return True
  if kind == 'div':  # of segments, or of anything that is named
    return is_name(node[1]) and is_name(node[2])
  if kind == 'mul':
    head, *rest = node[1]
    if head[0] == 'pow':  # f^{-1}(x)
      head = head[1]
    return head[0] == 'sym' and all(_is_argument(part) for part in rest)
  return False


def _is_argument(node: tuple) -> bool:
  if node[0] == 'paren':
    return node[1][0] in ('sym', 'num') or _is_argument(node[1])
  if node[0] == 'group':
    return all(part[0] in ('sym', 'num') for part in node[3])
  return node[0] == 'sym' and node[1].isupper()  # a segment, an angle


def equivalent(a: tuple, b: tuple) -> bool:
  """Whether two relations of two sides hold at the same points.

  Both sides' difference must be proportional, by a positive factor where the
  sign matters; or one is `y = ...` and the other's only solution for y.
  """
  if len(a[2]) != 1 or len(b[2]) != 1:
    return False
  (left_a, right_a), (left_b, right_b) = a[1], b[1]
  op_a, op_b = a[2][0], b[2][0]
  if op_a not in ('=', r'\ne', *_FLIP) or op_b not in ('=', r'\ne', *_FLIP):
    return False
  names = sorted(values.symbols(a) | values.symbols(b))
  if not names:
    return False
  factor = _factor((left_a, right_a), (left_b, right_b), names)
  if factor is not None:
    if op_a in ('=', r'\ne'):
      return op_a == op_b
    return op_b == (op_a if factor > 0 else _FLIP[op_a])
  if op_a == op_b == '=':
    return _same_curve(a, b, names) or _same_curve(b, a, names)
  return False


def _difference(sides: tuple, where: dict):
  left, right = (values.evaluate(side, where) for side in sides)
  return values.evaluate(('add', [_given(left), ('neg', _given(right))]))


def _given(number) -> tuple:
  return ('num', number, '')


def _factor(a: tuple, b: tuple, names: list[str]):
  """The real constant that `a`'s difference is of `b`'s, or None."""
  ratios = []
  for sample in range(values.SAMPLES):
    where = values.point(names, sample)
    try:
      x, y = _difference(a, where), _difference(b, where)
      ratio = values.evaluate(('div', _given(x), _given(y)))
    except values.Undefined:
      continue
    except values.NotNumeric:
      return None
    if ratio == 0 or not values.is_real(ratio):
      return None
    if ratios and not values.same(ratios[0], ratio):
      return None
    ratios.append(ratio)
  return values.as_float(ratios[0]) if len(ratios) >= 3 else None


def _same_curve(explicit: tuple, other: tuple, names: list[str]) -> bool:
  """Whether `name = value` is what the other equation says of that name."""
  (left, right), sides = explicit[1], other[1]
  if left[0] != 'sym' or left[1] in values.symbols(right):
    return False
  if not any(left[1] in values.symbols(side) for side in sides):
    return False
  name, held = left[1], 0
  for sample in range(values.SAMPLES):
    where = values.point(names, sample)
    try:
      where[name] = values.evaluate(right, where)
      if not values.is_real(where[name]):
        continue
      one, two = (values.evaluate(side, where) for side in sides)
    except values.Undefined:
      continue
    except values.NotNumeric:
      return False
    if not values.same(one, two):
      return False
    held += 1
    if held <= 2 and _other_root(sides, name, where):
      return False
  return held >= 3


def _other_root(sides: tuple, name: str, where: dict) -> bool:
  """Whether a sign change shows a solution besides the known one."""
  known = values.as_float(where[name])
  before = None
  for n in range(-40, 41):
    at = mpmath.mpf(n) * mpmath.mpf('0.2531') + mpmath.mpf('0.017')
    try:
      value = _difference(sides, {**where, name: at})
      value = values.as_float(value) if values.is_real(value) else None
    except values.Undefined:
      value = None
    if value is not None and before is not None:
      last, height = before
      crossed = height * value < 0 and abs(height - value) < 100
      if crossed and not last < known < at:
        return True
    before = None if value is None else (at, value)
  return False

"""Whether two trees mean the same answer, by the shape that each has.

Conventions (data README): a unit or degree sign may be left out, different
units are converted; order matters in tuples and not in lists of solutions; the
right side of an explicit `x = ...` may stand alone; an exact value is not
equal to a rounded decimal. `Rules` carries the question's and mode's say.
"""

from collections.abc import Callable
import dataclasses
from fractions import Fraction

import mpmath

from tandem.rewards import relations
from tandem.rewards import sets
from tandem.rewards import units
from tandem.rewards import values
from tandem.rewards.tokens import TooBig

MAX_ITEMS = 60  # of an unordered list; matching is quadratic


@dataclasses.dataclass(frozen=True)
class Rules:
  """percent: the question asks for a percentage. close: an extra test that
  two numbers of a rounded gold agree, or None for exactness."""

  percent: bool = False
  close: Callable[[tuple, tuple], bool] | None = None


def match(a: tuple, b: tuple, rules: Rules) -> bool:
  """Whether answer `b` says what gold `a` says.

  Raises:
    TooBig: if deciding would take too long.
  """
  a, b = _bare(a), _bare(b)
  if a == b:
    return a[0] != 'text'
  for one, other in ((a, b), (b, a)):
    spread = _spread(one)
    if spread:
      return match(spread, other, rules) if one is a else match(
        other, spread, rules
      )  # fmt: skip
  if 'rel' in (a[0], b[0]) or _relational(a) or _relational(b):
    if _relations(a, b, rules):
      return True
  if _conditional(a) and _conditional(b):
    if values.symbols(a) != values.symbols(b):
      return False  # x > 2 is not n > 2
  if sets.is_setlike(a) or sets.is_setlike(b):
    verdict = _as_sets(a, b)
    if verdict is not None:
      return verdict
  a, b = _one(a, rules), _one(b, rules)
  if 'matrix' in (a[0], b[0]):
    return _matrices(a, b, rules)
  if a[0] in ('group', 'list') or b[0] in ('group', 'list'):
    return _collections(a, b, rules)
  if 'ratio' in (a[0], b[0]):
    return _ratios(a, b, rules)
  if a[0] == 'rel' or b[0] == 'rel':
    return False
  return _quantities(a, b, rules)


def _bare(node: tuple) -> tuple:
  while node[0] == 'paren':
    node = node[1]
  if node[0] == 'neg' and node[1][0] in ('percent', 'degree', 'qty'):
    inner = node[1]
    return (inner[0], ('neg', inner[1]), *inner[2:])
  return node


def _one(node: tuple, rules: Rules) -> tuple:
  """Alternatives that are all one value are that value: `1/2 or 0.5`."""
  if node[0] == 'list' and node[2] == 'or' and 1 < len(node[1]) <= MAX_ITEMS:
    head, *rest = node[1]
    if all(match(head, other, rules) for other in rest):
      return head
  return node


def _spread(node: tuple) -> tuple | None:
  """A tree with plus-minus signs as the list of its two readings."""
  if node[0] == 'list':
    parts = [_spread(item) for item in node[1]]
    if not any(parts):
      return None
    whole = []
    for item, part in zip(node[1], parts):
      whole.extend(part[1] if part else [item])
    return ('list', whole, 'or')
  if not _holds_pm(node):
    return None
  return ('list', [_choose(node, 1), _choose(node, -1)], 'or')


def _holds_pm(node) -> bool:
  if isinstance(node, tuple) and node and node[0] == 'pm':
    return True
  return isinstance(node, (tuple, list)) and any(map(_holds_pm, node))


def _choose(node, sign: int):
  if isinstance(node, tuple) and node and node[0] == 'pm':
    inner = _choose(node[1], sign)
    return inner if node[2] == sign else ('neg', inner)
  if isinstance(node, (tuple, list)):
    return type(node)(_choose(part, sign) for part in node)
  return node


# Relations.


def _conditional(node: tuple) -> bool:
  """Whether a tree is a condition on variables that are not bound."""
  if node[0] == 'list':
    return all(map(_conditional, node[1]))
  return node[0] == 'rel' and r'\in' not in node[2]


def _relational(node: tuple) -> bool:
  return node[0] == 'list' and any(item[0] == 'rel' for item in node[1])


def _relations(a: tuple, b: tuple, rules: Rules) -> bool:
  if a[0] == b[0] == 'rel' and relations.equivalent(a, b):
    return True
  if a[0] == b[0] == 'rel' and len(a[1]) == len(b[1]):
    if a[2] == b[2] and _pairwise(a[1], b[1], rules):
      return True
  if _relational(a) and _relational(b):
    if _unordered(a[1], b[1], rules):
      return True
  named_a, named_b = _named(a), _named(b)
  if named_a and named_b:
    if named_a[0] != named_b[0]:
      order = sorted(range(len(named_a[0])), key=lambda n: named_a[0][n])
      other = sorted(range(len(named_b[0])), key=lambda n: named_b[0][n])
      if [named_a[0][n] for n in order] != [named_b[0][n] for n in other]:
        return False
      return _pairwise(
        [named_a[1][n] for n in order], [named_b[1][n] for n in other], rules
      )
    return _pairwise(named_a[1], named_b[1], rules)
  for named, other, flip in ((named_a, b, False), (named_b, a, True)):
    if not named or _relational(other) or other[0] == 'rel':
      continue
    names, parts = named
    if len(parts) == 1:
      value = parts[0]
    elif len(set(names)) == 1:
      value = ('list', parts, 'or')
    else:
      value = ('group', '(', ')', parts)
    return match(other, value, rules) if flip else match(value, other, rules)
  return False


def _named(node: tuple) -> tuple[list[str], list[tuple]] | None:
  """`x = 1`, `f(x) = ...`, `x = 1, y = 2`, `x = 1 or 2`: names and values."""
  if node[0] == 'list' and node[1] and node[1][0][0] == 'rel':
    names, parts = [], []
    for item in node[1]:
      if item[0] == 'rel':
        inner = _named(item)
        if not inner:
          return None
        names += inner[0]
        parts += inner[1]
      elif not sets.is_setlike(item):
        names.append(names[-1])
        parts.append(item)
    return names, parts
  if node[0] != 'rel':
    return None
  operands, operators = node[1:]
  if any(op not in ('=', r'\approx', r'\in') for op in operators):
    return None
  left, value = operands[0], operands[-1]
  if r'\in' in operators:
    return None if not relations.is_name(left) else ([repr(left)], [value])
  if not relations.is_name(left) and relations.is_name(value):
    left, value = value, left
  if left[0] == 'group' and value[0] == 'group':
    if len(left[3]) == len(value[3]) and all(map(relations.is_name, left[3])):
      return [repr(part) for part in left[3]], list(value[3])
  if relations.is_name(left):
    return [repr(left)], [value]
  if not values.symbols(left) and not values.symbols(value):
    return [''], [value]  # an arithmetic statement: 2 + 3 = 5
  return None


# Sets and collections.


def _as_sets(a: tuple, b: tuple) -> bool | None:
  """The verdict if both are sets of reals, None if that cannot be said."""
  try:
    return sets.same_set(sets.real_set(a), sets.real_set(b))
  except sets.NoSet:
    return None


def _collections(a: tuple, b: tuple, rules: Rules) -> bool:
  (kind_a, items_a), (kind_b, items_b) = _items(a), _items(b)
  kinds = {kind_a, kind_b}
  if kinds == {'single', 'tuple'} or kinds == {'single'}:
    return False
  dots = any(('sym', r'\ldots') in items for items in (items_a, items_b))
  if 'set' in kinds and not dots:
    items_a, items_b = (_distinct(i, rules) for i in (items_a, items_b))
    if 'tuple' in kinds:
      return False
  if 'tuple' in kinds or dots:
    if a[0] == b[0] == 'group' and a[1:3] != b[1:3]:
      return False
    return _pairwise(items_a, items_b, rules)
  return _unordered(items_a, items_b, rules)


def _items(node: tuple) -> tuple[str, list[tuple]]:
  if node[0] == 'list':
    return 'list', node[1]
  if node[0] == 'group':
    return ('set' if node[1] == '{' else 'tuple'), node[3]
  if node == ('sym', r'\emptyset'):
    return 'set', []
  return 'single', [node]


def _distinct(items: list[tuple], rules: Rules) -> list[tuple]:
  if len(items) > MAX_ITEMS:
    raise TooBig('a long list')
  kept = []
  for item in items:
    if not any(match(item, other, rules) for other in kept):
      kept.append(item)
  return kept


def _pairwise(a: list[tuple], b: list[tuple], rules: Rules) -> bool:
  return len(a) == len(b) and all(match(x, y, rules) for x, y in zip(a, b))


def _unordered(a: list[tuple], b: list[tuple], rules: Rules) -> bool:
  if len(a) != len(b):
    return False
  if len(a) > MAX_ITEMS:
    raise TooBig('a long list')
  left = list(b)
  for item in a:
    found = next((o for o in left if match(item, o, rules)), None)
    if found is None:
      return False
    left.remove(found)
  return True


def _matrices(a: tuple, b: tuple, rules: Rules) -> bool:
  rows = []
  for node in (a, b):
    if node[0] == 'matrix' and node[1] == 'vmatrix':
      rows.append(None)
    elif node[0] == 'matrix':
      rows.append(node[2])
    elif node[0] == 'group' and node[1] != '{':
      rows.append(node[3])  # a vector written as a tuple
    else:
      rows.append(None)
  if None in rows:
    return 'group' not in (a[0], b[0]) and _leaves(a, b, rules)
  for n, node in enumerate((a, b)):
    if node[0] == 'group':
      if any(item[0] == 'group' for item in rows[n]):
        rows[n] = [i[3] if i[0] == 'group' else [i] for i in rows[n]]
      else:
        other = rows[1 - n]
        flat = len(other) == 1
        rows[n] = [rows[n]] if flat else [[item] for item in rows[n]]
  first, second = rows
  return len(first) == len(second) and all(
    _pairwise(x, y, rules) for x, y in zip(first, second)
  )


def _ratios(a: tuple, b: tuple, rules: Rules) -> bool:
  if a[0] == b[0] == 'ratio':
    if len(a[1]) != len(b[1]):
      return False
    if _pairwise(a[1], b[1], rules):
      return True
    if any(map(_is_clock, (a, b))):
      return False  # 2:30 and 1:15 are times, not one ratio
    try:
      first, second = ([values.evaluate(p) for p in n[1]] for n in (a, b))
      return all(
        values.same(first[0] * y, second[0] * x)
        for x, y in zip(first[1:], second[1:])
      )
    except (values.Undefined, values.NotNumeric, TypeError):
      return False
  ratio = a if a[0] == 'ratio' else b
  return len(ratio[1]) == 2 and _leaves(a, b, rules)


def _is_clock(node: tuple) -> bool:
  parts = node[1]
  return all(p[0] == 'num' and p[2].isdigit() for p in parts) and all(
    len(p[2]) == 2 for p in parts[1:]
  )


# Numbers with and without units.


def _quantity(node: tuple) -> tuple[tuple, str | None]:
  if node[0] == 'percent':
    return node[1], 'percent'
  if node[0] == 'degree':
    return node[1], 'degree'
  if node[0] == 'qty':
    inner, unit = _quantity(_bare(node[1]))
    first = node[2].split()[0].lower() if node[2].split() else ''
    if first in ('percent', 'percentage'):
      return inner, 'percent'
    return inner, node[2] if unit is None else unit
  return node, None


def _quantities(a: tuple, b: tuple, rules: Rules) -> bool:
  (value_a, unit_a), (value_b, unit_b) = _quantity(a), _quantity(b)
  if unit_a == unit_b:
    return _leaves(value_a, value_b, rules)
  if 'percent' in (unit_a, unit_b):
    return _percents(value_a, unit_a, value_b, unit_b, rules)
  if unit_a is None or unit_b is None:
    if _leaves(value_a, value_b, rules):
      return True
    unit = unit_a or unit_b
    if units.parse_unit(unit)[1] != (('angle', 1),):
      return False
    turned = ('degree', value_a if unit_a else value_b)
    return _leaves(turned, value_b if unit_a else value_a, rules)
  (scale_a, dimensions_a), (scale_b, dimensions_b) = map(
    units.parse_unit, (unit_a, unit_b)
  )
  if dimensions_a == dimensions_b:
    return _leaves(_scaled(value_a, scale_a), _scaled(value_b, scale_b), rules)
  if units.known(dimensions_a) and units.known(dimensions_b):
    angles = {dimensions_a, dimensions_b}
    if angles == {(('angle', 1),), (('radian', 1),)}:
      one = ('degree', value_a) if dimensions_a[0][0] == 'angle' else value_a
      two = ('degree', value_b) if dimensions_b[0][0] == 'angle' else value_b
      return _leaves(one, two, rules)
    return False
  shared = {n for n, _ in dimensions_a} & {n for n, _ in dimensions_b}
  bare = not dimensions_a or not dimensions_b
  return (bool(shared) or bare) and _leaves(value_a, value_b, rules)


def _scaled(value: tuple, scale: Fraction) -> tuple:
  return ('mul', [value, ('num', scale, str(scale))])


def _percents(value_a, unit_a, value_b, unit_b, rules: Rules) -> bool:
  unit = unit_b if unit_a == 'percent' else unit_a
  if unit is not None:
    return False
  share = lambda v, u: ('percent', v) if u == 'percent' else v
  if _leaves(share(value_a, unit_a), share(value_b, unit_b), rules):
    return True
  if not _leaves(value_a, value_b, rules):
    return False
  # The sign left out. Below 1 a bare number reads as a share instead, unless
  # the question asks for a percentage.
  try:
    return rules.percent or abs(values.evaluate(value_a)) >= 1
  except (values.Undefined, values.NotNumeric):
    return rules.percent


def _leaves(a: tuple, b: tuple, rules: Rules) -> bool:
  a, b = _bare(a), _bare(b)
  if 'text' in (a[0], b[0]) or not _arithmetic(a) or not _arithmetic(b):
    return False
  if same_expression(a, b):
    return True
  return rules.close is not None and rules.close(a, b)


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
      return values.same(values.evaluate(a), values.evaluate(b))
    except (values.Undefined, values.NotNumeric):
      return False
  real, other = [], []
  for sample in range(values.SAMPLES):
    where = values.point(names, sample)
    try:
      x, y = values.evaluate(a, where), values.evaluate(b, where)
    except values.Undefined:
      continue
    except values.NotNumeric:
      return False
    kept = real if values.is_real(x) and values.is_real(y) else other
    kept.append(values.same(x, y))
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
  node = _bare(node)
  if node[0] == 'neg':
    return _last_place(node[1])
  if node[0] == 'num' and '.' in node[2]:
    whole, _, part = node[2].partition('.')
    digits = len((whole + part).lstrip('0'))
    return mpmath.mpf(10) ** -len(part), digits
  if node[0] == 'mul' and len(node[1]) == 2:
    mantissa, power = (_bare(part) for part in node[1])
    inner = _last_place(mantissa)
    if inner is None and mantissa[0] == 'num':
      inner = (mpmath.mpf(1), len(mantissa[2]))
    if inner and power[0] == 'pow' and _bare(power[1])[:2] == ('num', 10):
      scale = values.as_float(values.evaluate(power))
      return inner[0] * scale, inner[1]
  return None

"""Whether two trees mean the same answer, by the shape that each has.

Conventions (data README): a unit or degree sign may be left out, different
units are converted; order matters in tuples and not in lists of solutions; the
right side of an explicit `x = ...` may stand alone; an exact value is not
equal to a rounded decimal. `Rules` carries the question's and mode's say.
"""

from tandem.rewards import quantities
from tandem.rewards import relations
from tandem.rewards import sets
from tandem.rewards import values
from tandem.rewards.tokens import TooBig

MAX_ITEMS = 60  # of an unordered list; matching is quadratic


def match(a: tuple, b: tuple, rules: quantities.Rules) -> bool:
  """Whether answer `b` says what gold `a` says.

  Raises:
    TooBig: if deciding would take too long.
  """
  a, b = quantities.bare(a), quantities.bare(b)
  if a == b:
    return True
  spread_a, spread_b = _spread(a), _spread(b)
  if spread_a or spread_b:
    return match(spread_a or a, spread_b or b, rules)
  relational = 'rel' in (a[0], b[0]) or _relational(a) or _relational(b)
  if relational and _relations(a, b, rules):
    return True
  conditions = _conditional(a) and _conditional(b)
  if conditions and values.symbols(a) != values.symbols(b):
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
  return quantities.quantities(a, b, rules)


def _one(node: tuple, rules: quantities.Rules) -> tuple:
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


def _relations(a: tuple, b: tuple, rules: quantities.Rules) -> bool:
  if a[0] == b[0] == 'rel' and relations.equivalent(a, b):
    return True
  signs = a[0] == b[0] == 'rel' and a[2] == b[2]
  if signs and _pairwise(a[1], b[1], rules):
    return True
  if _relational(a) and _relational(b) and _unordered(a[1], b[1], rules):
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
    else:  # coordinates stand in the order of their names
      order = sorted(range(len(parts)), key=lambda n: names[n])
      value = ('group', '(', ')', [parts[n] for n in order])
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
  tuples = left[0] == value[0] == 'group' and len(left[3]) == len(value[3])
  if tuples and all(map(relations.is_name, left[3])):
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


def _collections(a: tuple, b: tuple, rules: quantities.Rules) -> bool:
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
    # A list may lack the brackets of a tuple, but not those of an interval.
    brackets = {n[1] + n[2] if n[0] == 'group' else '()' for n in (a, b)}
    if len(brackets) > 1 and not dots:
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


def _distinct(items: list[tuple], rules: quantities.Rules) -> list[tuple]:
  if len(items) > MAX_ITEMS:
    raise TooBig('a long list')
  kept = []
  for item in items:
    if not any(match(item, other, rules) for other in kept):
      kept.append(item)
  return kept


def _pairwise(a: list[tuple], b: list[tuple], rules: quantities.Rules) -> bool:
  return len(a) == len(b) and all(match(x, y, rules) for x, y in zip(a, b))


def _unordered(a: list[tuple], b: list[tuple], rules: quantities.Rules) -> bool:
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


def _matrices(a: tuple, b: tuple, rules: quantities.Rules) -> bool:
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
    return 'group' not in (a[0], b[0]) and quantities.leaves(a, b, rules)
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


def _ratios(a: tuple, b: tuple, rules: quantities.Rules) -> bool:
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
  return len(ratio[1]) == 2 and quantities.leaves(a, b, rules)


def _is_clock(node: tuple) -> bool:
  parts = node[1]
  return all(p[0] == 'num' and p[2].isdigit() for p in parts) and all(
    len(p[2]) == 2 for p in parts[1:]
  )

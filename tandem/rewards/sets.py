"""Sets of real numbers as unions of intervals, read from any notation.

A set is a tuple of pieces (low, low_closed, high, high_closed) in order, apart
from each other, with numbers of values.py as ends; a point is a piece whose
ends agree. `[2,5)`, `2 <= x < 5`, `{x : 2 <= x < 5}` and `R \\ {5}` are read.
"""

from fractions import Fraction

import mpmath

from tandem.rewards import solve
from tandem.rewards import values

Piece = tuple[values.Number, bool, values.Number, bool]
RealSet = tuple[Piece, ...]

LINE: RealSet = ((-mpmath.inf, False, mpmath.inf, False),)
_FLIP = {'<': '>', '>': '<', r'\le': r'\ge', r'\ge': r'\le', '=': '='}
_FLIP |= {r'\ne': r'\ne'}


class NoSet(ValueError):
  """The tree is no set of real numbers."""


def is_setlike(node: tuple) -> bool:
  """Whether a tree can only be meant as a set of reals (a pair may be)."""
  kind = node[0]
  if kind in ('setop', 'builder'):
    return True
  if kind == 'group':
    return len(node[3]) == 2 and node[1:3] not in (('(', ')'), ('{', '}'))
  if kind == 'rel':
    return any(op in _FLIP and op != '=' or op == r'\in' for op in node[2])
  if kind == 'list':
    return any(is_setlike(item) and item[0] == 'rel' for item in node[1])
  return node in (('sym', r'\emptyset'), ('sym', r'\mathbb{R}'))


def real_set(node: tuple) -> RealSet:
  """Reads a tree as a set of real numbers.

  Raises:
    NoSet: if it is none, or its ends are not numbers.
    TooBig: if finding out would take too long.
  """
  kind = node[0]
  if kind == 'paren':
    return real_set(node[1])
  if kind == 'group':
    return _brackets(node)
  if kind == 'setop':
    _, operator, a, b = node
    a, b = real_set(a), real_set(b)
    if operator == r'\cap':
      return _meet(a, b)
    if operator == r'\setminus':
      return _meet(a, _complement(b))
    return _join(a + b)
  if kind == 'builder':
    _, member, condition = node
    if member[0] == 'rel' and member[2] == [r'\in']:
      return _meet(real_set(member[1][1]), real_set(condition))
    if member[0] != 'sym':
      raise NoSet('a set of terms')
    return real_set(condition)
  if kind == 'rel':
    return _relation(node)
  if kind == 'list':
    return _several(node)
  if node == ('sym', r'\mathbb{R}'):
    return LINE
  if node == ('sym', r'\emptyset'):
    return ()
  raise NoSet(kind)


def same_set(a: RealSet, b: RealSet) -> bool:
  """Whether two sets have the same pieces."""
  return len(a) == len(b) and all(
    values.same(p[0], q[0])
    and values.same(p[2], q[2])
    and (p[1], p[3]) == (q[1], q[3])
    for p, q in zip(a, b)
  )


def _end(node: tuple) -> values.Number:
  try:
    value = values.evaluate(node)
  except (values.NotNumeric, values.Undefined) as error:
    raise NoSet('an end that is no number') from error
  if not values.is_real(value):
    raise NoSet('an end that is not real')
  return value if isinstance(value, Fraction) else mpmath.re(value)


def _less(a: values.Number, b: values.Number) -> bool:
  a, b = (values.as_float(x) for x in (a, b))
  return a < b


def _piece(low, low_closed, high, high_closed) -> RealSet:
  low_closed = low_closed and not mpmath.isinf(values.as_float(low))
  high_closed = high_closed and not mpmath.isinf(values.as_float(high))
  if values.same(low, high):
    return ((low, True, high, True),) if low_closed and high_closed else ()
  if not _less(low, high):
    return ()
  return ((low, low_closed, high, high_closed),)


def _brackets(node: tuple) -> RealSet:
  _, opening, closing, items = node
  if opening == '{':
    return _join(tuple((v, True, v, True) for v in map(_end, items)))
  if len(items) != 2:
    raise NoSet('no pair')
  low, high = map(_end, items)
  if not _less(low, high) and not values.same(low, high):
    raise NoSet('ends out of order')
  return _piece(low, opening == '[', high, closing == ']')


def _several(node: tuple) -> RealSet:
  _, items, separator = node
  parts = [real_set(item) for item in items]
  if separator == 'or':
    return _join(tuple(piece for part in parts for piece in part))
  common = LINE
  for part in parts:
    common = _meet(common, part)
  # "x < -5, x > 5" lists alternatives: nothing satisfies both.
  return common or _join(tuple(piece for part in parts for piece in part))


def _relation(node: tuple) -> RealSet:
  _, operands, operators = node
  if operators == [r'\in']:
    return real_set(operands[1])
  names = set().union(*(values.symbols(operand) for operand in operands))
  if len(names) != 1 or any(op not in _FLIP for op in operators):
    raise NoSet('no condition on one variable')
  common = LINE
  for left, op, right in zip(operands, operators, operands[1:]):
    if right[0] == 'sym' and not values.symbols(left):
      left, op, right = right, _FLIP[op], left
    if left[0] == 'sym' and not values.symbols(right):
      part = _bound(op, _end(right))
    else:
      part = solve.condition(left, op, right, names.copy().pop())
      if part is None:
        raise NoSet('a condition that is not solved')
      part = _join(part)
    common = _meet(common, part)
  return common


def _bound(op: str, end: values.Number) -> RealSet:
  if op == '=':
    return ((end, True, end, True),)
  if op == r'\ne':
    return _complement(((end, True, end, True),))
  if op in ('<', r'\le'):
    return _piece(-mpmath.inf, False, end, op == r'\le')
  return _piece(end, op == r'\ge', mpmath.inf, False)


def _join(pieces: RealSet) -> RealSet:
  """The union of pieces, touching ones melted together."""
  pieces = sorted(pieces, key=lambda p: (values.as_float(p[0]), not p[1]))
  merged = []
  for piece in pieces:
    if merged:
      low, low_closed, high, high_closed = merged[-1]
      touching = values.same(high, piece[0]) and (high_closed or piece[1])
      if touching or _less(piece[0], high):
        if values.same(high, piece[2]):
          merged[-1] = (low, low_closed, high, high_closed or piece[3])
        elif _less(high, piece[2]):
          merged[-1] = (low, low_closed, piece[2], piece[3])
        continue
    merged.append(piece)
  return tuple(merged)


def _meet(a: RealSet, b: RealSet) -> RealSet:
  found = []
  for p in a:
    for q in b:
      if values.same(p[0], q[0]):
        low, low_closed = p[0], p[1] and q[1]
      else:
        low, low_closed = q[:2] if _less(p[0], q[0]) else p[:2]
      if values.same(p[2], q[2]):
        high, high_closed = p[2], p[3] and q[3]
      else:
        high, high_closed = p[2:] if _less(p[2], q[2]) else q[2:]
      found.extend(_piece(low, low_closed, high, high_closed))
  return _join(tuple(found))


def _complement(a: RealSet) -> RealSet:
  found, low, low_closed = [], -mpmath.inf, False
  for piece in a:
    found.extend(_piece(low, low_closed, piece[0], not piece[1]))
    low, low_closed = piece[2], not piece[3]
  found.extend(_piece(low, low_closed, mpmath.inf, False))
  return tuple(found)

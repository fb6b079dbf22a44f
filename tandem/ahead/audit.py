"""A pass over a compiled program's text for what must not stand in it.

Each function returns what it found, so that an empty answer is a good one.
"""

from collections.abc import Sequence
import math

from tandem.ahead import collectives
from tandem.ahead import hlo

_PRODUCTS = ('dot', 'convolution')
_COPIES = ('copy', 'copy-start', 'transpose')
# What a gather does, whole or in a chain of steps around a ring.
_GATHERS = ('all-gather', 'collective-permute', 'all-to-all')


def wide_products(
  module: hlo.Module, least: float = 1e6
) -> list[tuple[str, str]]:
  """Products whose operands are both float32: (name, where).

  Args:
    module: of one device.
    least: elements of both operands together that make it one of note.
  """
  found = []
  for computation in module.computations.values():
    for one in computation.values():
      if one.opcode not in _PRODUCTS:
        continue
      sides = [computation.get(name) for name in one.operands[:2]]
      shapes = [side.shapes[0] for side in sides if side and side.shapes]
      wide = len(shapes) == 2 and all(x.dtype == 'f32' for x in shapes)
      if wide and sum(math.prod(x.sizes) for x in shapes) >= least:
        found.append((one.name, one.op_name))
  return found


def arrays_over(
  module: hlo.Module, elements: float, dims: Sequence[int]
) -> list[tuple[str, tuple[int, ...]]]:
  """Arrays of more elements that have one of these sizes: (name, sizes).

  With the vocabulary's sizes it finds stored logits.
  """
  found = []
  for computation in module.computations.values():
    for one in computation.values():
      for shape in one.shapes:
        if math.prod(shape.sizes) > elements and set(shape.sizes) & set(dims):
          found.append((one.name, shape.sizes))
  return found


def _copies(module: hlo.Module, computation, one) -> list[hlo.Instruction]:
  """The copies whose result `one` stores, itself or as a fusion's result."""
  while one is not None and one.opcode == 'bitcast':
    one = computation.get(one.operands[0])
  if one is None:
    return []
  if one.opcode in _COPIES:
    return [one]
  if one.opcode != 'fusion':
    return []
  inner = module.computations.get(one.calls[0], {})
  roots = [x for x in inner.values() if x.root]
  if roots and roots[0].opcode == 'tuple':
    roots = [inner.get(name) for name in roots[0].operands]
  return [x for root in roots for x in _copies(module, inner, root)]


def loop_copies(
  module: hlo.Module, least: float
) -> list[tuple[str, float, str]]:
  """Copies and transposes in a loop that ends on data: (name, bytes, where).

  Those that are stored. One within a fusion that feeds a product is the order
  in which its operand is read, and makes no second array.

  Args:
    module: of one device.
    least: bytes; with those of a layer's cache, it finds copies of one.
  """
  found = []
  for name, _, inside in module.runs():
    computation = module.computations[name]
    for top in computation.values() if inside else ():
      if top.opcode == 'bitcast':
        continue
      for one in _copies(module, computation, top):
        size = max((x.bytes for x in one.shapes), default=0)
        if size >= least:
          found.append((one.name, size, one.op_name))
  return found


def gathered_per_step(
  sent: Sequence[collectives.Collective], trips: int
) -> float:
  """Bytes of one device that each step of a loop on data gathers.

  A chain of permutes around a ring counts as the gather that it is.
  """
  return sum(x.in_loop for x in sent if x.kind in _GATHERS) / trips

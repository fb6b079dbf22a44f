"""Bytes that a compiled program moves between memory and chip.

Per instruction, operands and results that lie in main memory; what a fusion
makes on its way stays on the chip. Slices and updates in place count what they
touch, and not the array that they touch it in.
"""

import re

from tandem.ahead import hlo

_ALIASES = re.compile(r'\{(\d*)\}: \((\d+), \{\}\)')
_FREE = frozenset(
  (
    'after-all',
    'all-gather-done',
    'all-reduce-done',
    'async-done',
    'bitcast',
    'call',
    'collective-permute-done',
    'conditional',
    'constant',
    'copy-done',
    'get-tuple-element',
    'iota',
    'opt-barrier',
    'parameter',
    'partition-id',
    'recv',
    'recv-done',
    'replica-id',
    'send',
    'send-done',
    'slice-done',
    'tuple',
    'while',
  )
)
_SLICES = ('dynamic-slice', 'gather', 'slice')


def _in_memory(one: hlo.Instruction) -> float:
  shapes = one.shapes
  if one.opcode == 'copy-start':  # (copy, what is copied, a counter)
    shapes = shapes[:1]
  return sum(x.bytes for x in shapes if x.in_memory)


def _touched(module, name: str, number: int, whole: float) -> float:
  """Bytes that a fused computation reads of its parameter `number`."""
  computation = module.computations[name]
  mine = [
    one
    for one in computation.values()
    if one.opcode == 'parameter' and one.operands == (str(number),)
  ]
  if not mine:
    return whole
  names, total = {mine[0].name}, 0.0
  for one in computation.values():
    if not names & set(one.operands):
      continue
    first = one.operands[0] in names
    if one.opcode in ('bitcast', 'copy') and first and not one.root:
      names.add(one.name)
    elif one.opcode in _SLICES and first:
      total += one.bytes
    elif one.opcode in ('dynamic-update-slice', 'scatter') and first:
      pass  # updated in place: what is written is counted with the result
    elif one.opcode == 'fusion':  # a fusion may hold others
      for at, operand in enumerate(one.operands):
        if operand in names:
          total += _touched(module, one.calls[0], at, whole)
    else:
      return whole
  return min(total, whole)


def _written(module, name: str) -> list[float | None]:
  """Bytes that a fused computation writes of each of its results.

  Of an update in place its update; None: the whole result.
  """
  computation = module.computations[name]
  root = next((one for one in computation.values() if one.root), None)
  if root is None:
    return [None]
  roots = [root]
  if root.opcode == 'tuple':
    roots = [computation.get(operand) for operand in root.operands]
  out = []
  for one in roots:
    while one is not None and one.opcode in ('bitcast', 'copy', 'convert'):
      one = computation.get(one.operands[0])
    opcode = one.opcode if one is not None else ''
    at = {'dynamic-update-slice': 1, 'scatter': 2}.get(opcode)
    update = None if at is None else computation.get(one.operands[at])
    if opcode == 'fusion' and len(one.shapes) == 1:
      out += _written(module, one.calls[0])
    else:
      out.append(update.bytes if update else None)
  return out


def _handed_on(
  module, one: hlo.Instruction
) -> tuple[frozenset[int], frozenset[int]]:
  """Results and operands of a fusion that it only hands on.

  A TPU's compiler spreads a gather over fusions of other work; its buffers go
  through all of them, and are read and written where it starts.
  """
  inner = module.computations[one.calls[0]]
  chained = [x for x in inner.values() if x.chain]
  if not chained:
    return frozenset(), frozenset()
  listed = re.search(r'output_to_operand_aliasing=\{(.*?\)\})', one.text)
  pairs = _ALIASES.findall(listed.group(1)) if listed else []
  results = frozenset(int(result or 0) for result, _ in pairs)
  if any('"AsyncCollectiveStart"' in x.text for x in inner.values()):
    return results, frozenset()
  sources = [inner[name] for x in chained for name in x.operands]
  shards = [int(x.operands[0]) for x in sources if x.opcode == 'parameter']
  return results, frozenset(shards + [int(operand) for _, operand in pairs])


def _results(module, one: hlo.Instruction, without=frozenset()) -> float:
  """Bytes that a fusion writes to memory, but of those results."""
  if without:
    kept = (x for at, x in enumerate(one.shapes) if at not in without)
    return sum(x.bytes for x in kept if x.in_memory)
  written = _written(module, one.calls[0])
  if len(written) != len(one.shapes):  # results within results
    return _in_memory(one)
  return sum(
    shape.bytes if part is None else min(part, shape.bytes)
    for shape, part in zip(one.shapes, written)
    if shape.in_memory
  )


def of(module: hlo.Module, trips: int = 1) -> tuple[float, float]:
  """(bytes of one device, those inside a loop that ends on data).

  Args:
    module: of one device.
    trips: see `Module.runs`.
  """
  total = looped = 0.0
  for one, times, inside in touched(module, trips):
    total += times * one[1]
    looped += times * one[1] * inside
  return total, looped


def touched(module: hlo.Module, trips: int = 1):
  """Yields ((instruction, bytes it moves once), times, in a loop on data)."""
  for name, times, inside in module.runs(trips):
    computation = module.computations[name]
    for one in computation.values():
      if one.opcode in _FREE:
        continue
      fused = one.calls[0] if one.opcode == 'fusion' else None
      results = operands = frozenset()
      if fused:
        results, operands = _handed_on(module, one)
      moved = _results(module, one, results) if fused else _in_memory(one)
      if fused:
        pass
      elif one.opcode in _SLICES:
        yield (one, 2 * moved), times, inside
        continue
      elif one.opcode == 'slice-start':
        part = one.shapes[1]  # of what is sliced, the slice, a counter
        yield (one, part.bytes * (1 + part.in_memory)), times, inside
        continue
      elif one.opcode in ('dynamic-update-slice', 'scatter'):
        at = 1 if one.opcode == 'dynamic-update-slice' else 2
        update = computation.get(one.operands[at])
        yield (one, 2 * update.bytes if update else moved), times, inside
        continue
      for number, operand in enumerate(one.operands):
        source = computation.get(operand)
        if source is None or number in operands:
          continue
        whole = _in_memory(source)
        moved += _touched(module, fused, number, whole) if fused else whole
      yield (one, moved), times, inside

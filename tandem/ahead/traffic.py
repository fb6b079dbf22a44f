"""Bytes that a compiled program moves between memory and chip.

Per instruction, operands and results that lie in main memory; what a fusion
makes on its way stays on the chip. Slices and updates in place count what they
touch, and not the array that they touch it in.
"""

from tandem.ahead import hlo

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
    'tuple',
    'while',
  )
)
_SLICES = ('dynamic-slice', 'gather', 'slice')


def _in_memory(one: hlo.Instruction) -> float:
  return sum(x.bytes for x in one.shapes if x.in_memory)


def _touched(computation, number: int, whole: float) -> float:
  """Bytes that a fused computation reads of its parameter `number`."""
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
    if one.opcode in ('bitcast', 'copy') and first:
      names.add(one.name)
    elif one.opcode in _SLICES and first:
      total += one.bytes
    elif one.opcode in ('dynamic-update-slice', 'scatter') and first:
      pass  # updated in place: what is written is counted with the result
    else:
      return whole
  return min(total, whole)


def _written(computation, whole: float) -> float:
  """Bytes that a fused computation writes: an update in place its update."""
  root = next((one for one in computation.values() if one.root), None)
  while root is not None and root.opcode in ('bitcast', 'copy', 'convert'):
    root = computation.get(root.operands[0])
  if root is None:
    return whole
  at = {'dynamic-update-slice': 1, 'scatter': 2}.get(root.opcode)
  if at is None:
    return whole
  update = computation.get(root.operands[at])
  return min(whole, update.bytes) if update else whole


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
      called = module.computations.get(one.calls[0]) if one.calls else None
      fused = called if one.opcode == 'fusion' else None
      moved = _in_memory(one)
      if fused:
        moved = min(moved, _written(fused, moved))
      elif one.opcode in _SLICES:
        yield (one, 2 * moved), times, inside
        continue
      elif one.opcode in ('dynamic-update-slice', 'scatter'):
        at = 1 if one.opcode == 'dynamic-update-slice' else 2
        update = computation.get(one.operands[at])
        yield (one, 2 * update.bytes if update else moved), times, inside
        continue
      for number, operand in enumerate(one.operands):
        source = computation.get(operand)
        if source is None:
          continue
        whole = _in_memory(source)
        moved += _touched(fused, number, whole) if fused else whole
      yield (one, moved), times, inside

"""What devices send each other, from a compiled program's text."""

import collections
import dataclasses
import math
import re

import numpy as np

from tandem.ahead import hlo

KINDS = (
  'all-gather',
  'all-reduce',
  'reduce-scatter',
  'all-to-all',
  'collective-permute',
  'ragged-all-to-all',
  'collective-broadcast',
)
_GROUPS = re.compile(r'replica_groups=\{\{([\d,]+)\}')
_PAIRS = re.compile(r'source_target_pairs=\{\{(\d+),(\d+)\}')
_IOTA = re.compile(
  r'replica_groups=\[([\d,]+)\]<=\[([\d,]+)\](?:T\(([\d,]+)\))?'
)
# A mesh of the compiler's own, not ours: sizes by name, the order of its
# devices where they are not counted through, and the axes that a group spans.
_MESH = re.compile(
  r'replica_groups=mesh\[([^\]]*)\](?:, device_ids=\(([^)]*(?:\([^)]*\))?)\))?'
  r' \{([^}]*)\}'
)
_MESH_AXIS = re.compile(r"'([^']*)'(?::\((\d+)\)(\d+))?(?:=(\d+))?")
_ORDER = re.compile(r'(?:.*<=)?\[([\d,]+)\](?:T\(([\d,]+)\))?')


@dataclasses.dataclass(frozen=True)
class Collective:
  """Collectives of one kind over the same mesh axes, added up.

  Attributes:
    kind: one of KINDS.
    axes: mesh axes that the devices of a group differ in.
    size: devices in a group.
    count: how often, trip counts applied.
    bytes: of one device, trip counts applied: of the whole array that a gather
      makes, that a reduction adds up, or that is sent on.
    in_loop: the share of `bytes` inside a loop that ends on data (decoding).
    largest: bytes of the largest one.
    where: where it comes from in our code.
    reach: from the first device of a group to its last.
  """

  kind: str
  axes: tuple[str, ...]
  size: int
  count: float
  bytes: float
  in_loop: float
  largest: float
  where: str
  reach: int = 0

  def seconds(self, chip, of_host: int = 0) -> float:
    """On one ring through the group, both ways; latency not counted.

    Between GPUs an all-to-all takes no ring.

    Args:
      chip: its rates.
      of_host: devices of a host, where hosts are joined by a slower network;
        a group that reaches beyond one is as fast as that.
    """
    leaves = of_host and chip.between and self.reach >= of_host
    rate = chip.between if leaves else chip.ring
    if self.kind in ('collective-permute', 'collective-broadcast'):
      return self.bytes / (rate / 2)  # one way
    share = (self.size - 1) / self.size
    if self.kind == 'all-reduce':
      return 2 * self.bytes * share / rate
    if self.kind == 'all-to-all' and chip.platform == 'tpu':
      # On a torus half the ring on average, both ways; a GPU's is switched.
      return self.bytes * share / rate * max(self.size / 8, 1)
    return self.bytes * share / rate


def _ints(text: str) -> list[int]:
  return [int(part) for part in text.split(',')]


def _ordered(dims: str, order: str | None) -> np.ndarray:
  """Devices counted through `dims`, whose axes are then exchanged."""
  ids = np.arange(math.prod(_ints(dims))).reshape(_ints(dims))
  return ids.transpose(_ints(order)) if order else ids


def _mesh_group(sizes: str, order: str | None, axes: str) -> tuple[int, ...]:
  """The first group of a `mesh[...] {...}`; parts of axes are cut out first."""
  shape = {name: int(n) for name, _, _, n in _MESH_AXIS.findall(sizes)}
  ids = np.arange(math.prod(shape.values()))
  if order:
    found = _ORDER.fullmatch(order)
    ids = _ordered(*found.groups()) if found else np.array(_ints(order))
  ids = ids.reshape(tuple(shape.values()))
  at = [slice(0, 1)] * len(shape)
  for name, before, size, _ in _MESH_AXIS.findall(axes):
    dim = list(shape).index(name)
    whole = shape[name]
    before, size = (int(before), int(size)) if size else (1, whole)
    step = whole // before // size
    at[dim] = slice(0, step * size, step)
  return tuple(int(x) for x in ids[tuple(at)].ravel())


def group(text: str, devices: int) -> tuple[int, ...]:
  """The first group of devices of an instruction's attributes.

  Raises:
    ValueError: groups in a spelling that is not known here.
  """
  if found := _PAIRS.search(text):
    return tuple(int(x) for x in found.groups())
  if found := _GROUPS.search(text):
    return tuple(_ints(found.group(1)))
  if found := _IOTA.search(text):
    shape, dims, order = found.groups()
    ids = _ordered(dims, order).reshape(_ints(shape))
    return tuple(int(x) for x in ids[0])
  if found := _MESH.search(text):
    return _mesh_group(*found.groups())
  if found := re.search(r'replica_groups=(?!\{\})[^\n]{,80}', text):
    raise ValueError(
      f'{found.group()!r} is no spelling of groups that is known; known are '
      '{{0,1},..}, [1,2]<=[2], mesh[..] {..} and {}. Is the compiler a newer '
      'one?'
    )
  return tuple(range(devices))


def _hops(text: str) -> list[tuple[str, str]]:
  """(from, to) of all that a permute sends."""
  pairs = re.search(r'source_target_pairs=\{(\{.*?\})\}', text)
  return re.findall(r'\{(\d+),(\d+)\}', pairs.group(1))


def _axes(ids, mesh) -> tuple[str, ...]:
  sizes = tuple(mesh.shape.values())
  places = np.stack(np.unravel_index(np.asarray(ids), sizes), 1)
  differ = (places != places[:1]).any(0)
  return tuple(name for name, yes in zip(mesh.shape, differ) if yes)


def find(module: hlo.Module, mesh, trips: int = 1) -> list[Collective]:
  """All collectives, largest first.

  Args:
    module: of one device.
    mesh: that it was compiled for; device i of the program is its i-th.
    trips: see `Module.runs`.
  """
  found = collections.defaultdict(list)
  for one, times, inside in module.everywhere(trips):
    kind = one.opcode.removesuffix('-start')
    if kind not in KINDS:
      continue
    ids = group(one.text, mesh.size)
    size = len(ids)
    parts = one.shapes
    if (
      one.opcode.endswith('-start') and len(parts) > 1 and kind != 'all-reduce'
    ):
      # (operands, results, and for a permute two counters)
      parts = [x for x in parts if x.sizes]
      parts = parts[len(parts) // 2 :]
    size_of = sum(x.bytes for x in parts)
    if kind == 'reduce-scatter':
      size_of *= size
    if one.name in module.scattered:
      kind = 'reduce-scatter'
    axes, reach = _axes(ids, mesh), max(ids) - min(ids)
    if kind == 'collective-permute':
      size = math.prod(mesh.shape[name] for name in axes)
      reach = max(abs(int(a) - int(b)) for a, b in _hops(one.text))
    if size > 1:
      key = (kind, axes, size, reach)
      found[key].append((times, size_of, inside, one.op_name))
  out = []
  for (kind, axes, size, reach), ones in found.items():
    largest = max(ones, key=lambda x: x[1])
    out.append(
      Collective(
        kind=kind,
        axes=axes,
        size=size,
        count=sum(times for times, *_ in ones),
        bytes=sum(times * b for times, b, *_ in ones),
        in_loop=sum(times * b for times, b, inside, _ in ones if inside),
        largest=largest[1],
        where=max(ones, key=lambda x: x[0] * x[1])[3],
        reach=reach,
      )
    )
  return sorted(out, key=lambda x: -x.bytes)

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
  """

  kind: str
  axes: tuple[str, ...]
  size: int
  count: float
  bytes: float
  in_loop: float
  largest: float
  where: str

  def seconds(self, chip, hosts: int = 1) -> float:
    """On one ring through the group, both ways; latency not counted."""
    rate = chip.between or chip.ring if hosts > 1 else chip.ring
    if self.kind in ('collective-permute', 'collective-broadcast'):
      return self.bytes / (rate / 2)  # one way
    share = (self.size - 1) / self.size
    if self.kind == 'all-reduce':
      return 2 * self.bytes * share / rate
    if self.kind == 'all-to-all':  # half the ring on average, both ways
      return self.bytes * share / rate * max(self.size / 8, 1)
    return self.bytes * share / rate


def group(text: str, devices: int) -> tuple[int, ...]:
  """The first group of devices of an instruction's attributes."""
  ints = lambda x: [int(part) for part in x.split(',')]
  if found := _PAIRS.search(text):
    return tuple(int(x) for x in found.groups())
  if found := _GROUPS.search(text):
    return tuple(ints(found.group(1)))
  if found := _IOTA.search(text):
    shape, dims, order = found.groups()
    ids = np.arange(math.prod(ints(dims))).reshape(ints(dims))
    if order:
      ids = ids.transpose(ints(order))
    return tuple(int(x) for x in ids.reshape(ints(shape))[0])
  return tuple(range(devices))


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
    if kind == 'collective-permute':
      axes = _axes(ids, mesh)
      size = math.prod(mesh.shape[name] for name in axes)
    else:
      axes = _axes(ids, mesh)
    if size > 1:
      key = (kind, axes, size)
      found[key].append((times, size_of, inside, one.op_name))
  out = []
  for (kind, axes, size), ones in found.items():
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
      )
    )
  return sorted(out, key=lambda x: -x.bytes)

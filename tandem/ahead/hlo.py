"""Reading a compiled program's text: instructions, and how often each runs.

The text is of one device: shapes in it are shards. A loop's body stands there
once; `runs` multiplies it out, by the trip count that the compiler wrote
beside the loop or that its condition counts to, else by the one that the caller
names.
"""

from collections.abc import Iterator
import dataclasses
import functools
import math
import re

_SHAPE = re.compile(r'([a-z]\w*)\[([\d,]*)\](?:\{([^}]*)\})?')
_HEAD = re.compile(r'^(ENTRY )?%?([\w.\-]+)(?: \(.*)? (?:->.* )?\{$')
_LINE = re.compile(r'^\s+(ROOT )?%?([\w.\-]+) = (.*)$', re.DOTALL)
_END = re.compile(r'^\}(, execution_thread=.*)?$')
_CALLS = re.compile(
  r'(?:calls|to_apply|body|condition|branch_computations|called_computations)='
  r'(?:\{([^}]*)\}|%?([\w.\-]+))'
)
_TRIPS = re.compile(r'"known_trip_count":\{"n":"(\d+)"')
_CHAIN = re.compile(r'frontend_attributes=\{[^}]*chain_id="(\d+)"')
_BITS = {
  'pred': 8,
  's4': 4,
  'u4': 4,
  'token': 0,
  'c64': 64,
  'c128': 128,
  'opaque': 0,
}


def _bits(dtype: str) -> int:
  found = re.search(r'\d+', dtype)
  return _BITS.get(dtype, int(found.group()) if found else 8)


@dataclasses.dataclass(frozen=True)
class Shape:
  """One array: its dtype, sizes, and whether it lies in main memory."""

  dtype: str
  sizes: tuple[int, ...]
  in_memory: bool  # False: on the chip, where a TPU's layout says S(1)

  @property
  def bytes(self) -> float:
    return math.prod(self.sizes) * _bits(self.dtype) / 8


@dataclasses.dataclass(frozen=True)
class Instruction:
  """One line of a computation."""

  name: str
  opcode: str
  shapes: tuple[Shape, ...]  # of the result; several of a tuple
  operands: tuple[str, ...]
  calls: tuple[str, ...]  # computations that it runs
  root: bool
  text: str  # what follows the operands
  literal: str = ''  # of a constant

  @property
  def bytes(self) -> float:
    return sum(shape.bytes for shape in self.shapes)

  @property
  def op_name(self) -> str:
    """Where it comes from in our code, as far as jax tells."""
    found = re.search(r'op_name="([^"]*)"', self.text)
    return found.group(1) if found else ''

  @property
  def chain(self) -> str:
    """What a collective has in common with its other appearances, or ''."""
    found = _CHAIN.search(self.text)
    return f'{self.opcode} {found.group(1)}' if found else ''


def _closing(text: str, start: int) -> int:
  """Index of the parenthesis that closes the one at `start`."""
  depth = 0
  for at in range(start, len(text)):
    depth += (text[at] == '(') - (text[at] == ')')
    if not depth:
      return at
  return len(text)


def shapes(text: str) -> tuple[Shape, ...]:
  """All arrays of a type, tuples flattened."""
  return tuple(
    Shape(
      dtype,
      tuple(int(size) for size in sizes.split(',') if size),
      'S(' not in (layout or ''),
    )
    for dtype, sizes, layout in _SHAPE.findall(text)
  )


def _instruction(root, name: str, rest: str) -> Instruction:
  end = _closing(rest, 0) + 1 if rest.startswith('(') else rest.find(' ')
  kind, rest = rest[:end], rest[end:].strip()
  opcode = rest[: rest.find('(')]
  close = _closing(rest, len(opcode))
  inside, after = rest[len(opcode) + 1 : close], rest[close + 1 :]
  calls = []
  for several, one in _CALLS.findall(after):
    calls += [c.strip().lstrip('%') for c in (several or one).split(',')]
  # Long texts put comments between operands, and older ones their types.
  operands = re.findall(r'%([\w.\-]+)', inside)
  if not operands and opcode not in ('constant', 'parameter'):
    bare = re.sub(r'/\*.*?\*/', '', inside)
    operands = [part.split()[-1] for part in bare.split(',') if part.split()]
  if opcode == 'parameter':
    operands = [inside.strip()]
  return Instruction(
    name,
    opcode,
    shapes(kind),
    tuple(operands),
    tuple(calls),
    bool(root),
    after,
    inside.strip() if opcode == 'constant' else '',
  )


def _lines(text: str) -> Iterator[str]:
  """Lines of a text, one an instruction.

  Attributes of a kernel may hold line ends, and then a line may begin as the
  end of a computation does.
  """
  held, inside = '', False
  for line in text.splitlines():
    ends = bool(_END.match(line))
    if inside and not ends and line[:1] not in ('', ' '):
      held += '\n' + line
      continue
    if held:
      yield held
    held = line
    inside = not ends and (inside or bool(_HEAD.match(line)))
  yield held


class Module:
  """A compiled program's text, taken apart.

  Attributes:
    computations: name -> its instructions by name, in order.
    entry: the name of the one that starts.
  """

  def __init__(self, text: str):
    self.computations: dict[str, dict[str, Instruction]] = {}
    self.entry, current = '', None
    for line in _lines(text):
      if current is None:
        found = _HEAD.match(line)
        if found:
          current = self.computations.setdefault(found.group(2), {})
          self.entry = found.group(2) if found.group(1) else self.entry
      elif _END.match(line):
        current = None
      elif found := _LINE.match(line):
        one = _instruction(*found.groups())
        current[one.name] = one

  def runs(self, trips: int = 1) -> Iterator[tuple[str, float, bool]]:
    """Yields (computation, times it runs, whether inside a loop on data).

    Bodies of loops, branches and calls; fusions and reducers are parts of
    their instruction and no computations of their own here.

    Args:
      trips: of a loop whose count the compiler does not know.
    """
    return iter(self._runs(trips))

  def _trips(self, loop: Instruction) -> int | None:
    """How often a loop runs; None where that depends on data.

    CPU and GPU compilers write it beside the loop. A TPU's leave it in the
    condition, which for jax's scans is counter < constant, from 0 by 1.
    """
    if known := _TRIPS.search(loop.text):
      return int(known.group(1))
    name = re.search(r'condition=%?([\w.\-]+)', loop.text).group(1)
    condition = self.computations.get(name, {})
    end = next((one for one in condition.values() if one.root), None)
    if not end or end.opcode != 'compare' or 'direction=LT' not in end.text:
      return None
    counter, bound = (condition[operand] for operand in end.operands)
    if counter.opcode != 'get-tuple-element' or not bound.literal.isdigit():
      return None
    return int(bound.literal)

  @functools.cache  # noqa: B019, a module lives as long as its report
  def _runs(self, trips: int) -> tuple[tuple[str, float, bool], ...]:
    out, stack = [], [(self.entry, 1.0, False)]
    while stack:
      name, times, inside = stack.pop()
      out.append((name, times, inside))
      for one in self.computations[name].values():
        if one.opcode == 'while':
          known = self._trips(one)
          # A loop on data inside another counts once a trip: of drafts from a
          # cut cache, so with a cut in each round; others are rare and short.
          count = known or (1 if inside else trips)
          loops = inside or known is None
          body = re.search(r'body=%?([\w.\-]+)', one.text).group(1)
          stack.append((body, times * count, loops))
        elif one.opcode in ('call', 'conditional'):
          # All branches of a conditional: an upper bound.
          stack += [(call, times, inside) for call in one.calls]
    return tuple(out)

  def everywhere(
    self, trips: int = 1
  ) -> Iterator[tuple[Instruction, float, bool]]:
    """Yields (instruction, times, in a loop on data), inside fusions too.

    A collective that a TPU's compiler spreads over fusions of others stands in
    each of them, one of a chain; it is yielded once.
    """
    for name, times, inside in self.runs(trips):
      stack, chains = [name], set()
      while stack:
        for one in self.computations[stack.pop()].values():
          if one.chain and one.chain in chains:
            continue
          chains.add(one.chain)
          yield one, times, inside
          if one.opcode not in ('while', 'call', 'conditional'):
            stack += [c for c in one.calls if c in self.computations]

  @functools.cached_property
  def scattered(self) -> frozenset[str]:
    """Names of all-reduces of which each device keeps its slice.

    A TPU's compiler writes a reduce-scatter as a fusion of the two.
    """
    found = set()
    for computation in self.computations.values():
      root = next((one for one in computation.values() if one.root), None)
      if root is None or root.opcode != 'dynamic-slice':
        continue
      source = computation.get(root.operands[0])
      if source is not None and source.opcode == 'all-reduce':
        found.add(source.name)
    return frozenset(found)

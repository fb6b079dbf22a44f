"""What the chunked backends share: the static plan, slices, products, shards.

Chunks go over the vocabulary and not over rows because a chunk's head gradient
is then complete and can be written once, in the head's own dtype; over rows, a
whole float32 head gradient would be carried. The vocabulary need not divide:
the tail is a static last slice (151,936 = 128 * 1187 has no useful divisors).
"""

import math
from typing import NamedTuple

import jax
import jax.numpy as jnp

Array = jax.Array

# Most [M, chunk] elements kept at once: 64 MiB of float32.
CHUNK_ELEMENTS = 2**24
MIN_CHUNK = 512
MAX_CHUNK = 8192


class Plan(NamedTuple):
  """What is static under jit."""

  inverse_temperature: float
  entropy: bool
  vocab_first: bool  # the head is [V, D]
  chunk: int  # vocabulary entries of the (local) head at a time
  local_rows: int  # rows on one device, as far as the mesh tells
  implementation: str
  axis: str | None  # mesh axis over which the vocabulary is cut
  row_axes: tuple[str, ...]  # over which rows are, where that is our business
  mesh: jax.sharding.Mesh | jax.sharding.AbstractMesh | None

  @property
  def vocab_dim(self) -> int:
    """The head's vocabulary axis."""
    return 0 if self.vocab_first else 1

  @property
  def head_spec(self) -> jax.P:
    """Partition of the head (and of its gradient)."""
    return jax.P(self.axis) if self.vocab_first else jax.P(None, self.axis)

  @property
  def rows_spec(self) -> jax.P:
    """Partition of whatever leads with rows."""
    return jax.P(self.row_axes) if self.row_axes else jax.P()


def make_plan(
  rows: int,
  vocab: int,
  *,
  temperature: float,
  entropy: bool,
  vocab_first: bool,
  chunk: int | None,
  mesh,
  vocab_axis: str,
  implementation: str = 'xla',
) -> Plan:
  """Finds over how many devices rows and vocabulary are cut, and the chunk."""
  mesh = mesh or jax.sharding.get_abstract_mesh()
  types = dict(zip(mesh.axis_names, mesh.axis_types))
  manual = jax.sharding.AxisType.Manual
  # Inside a caller's own shard_map arrays are local already.
  free = {k: mesh.shape[k] for k, kind in types.items() if kind != manual}
  cut = free.pop(vocab_axis, 1)
  if vocab % cut:
    raise ValueError(
      f'V={vocab} is not a multiple of mesh axis {vocab_axis!r} = {cut}; choose '
      'an axis size that divides it.'
    )
  parts = math.prod(free.values())
  row_axes = ()
  if implementation != 'xla':
    # The partitioner cannot cut a Pallas call: rows become our business.
    row_axes = tuple(k for k, size in free.items() if size > 1)
    if rows % parts:
      raise NotImplementedError(
        f'{implementation}: M={rows} is not a multiple of the {parts} devices '
        f'of mesh axes {row_axes}; pad the rows.'
      )
  local_rows, vocab = -(-rows // parts), vocab // cut
  return Plan(
    inverse_temperature=1.0 / temperature,
    entropy=entropy,
    vocab_first=vocab_first,
    chunk=min(chunk or chunk_size(local_rows, vocab), vocab),
    local_rows=local_rows,
    implementation=implementation,
    axis=vocab_axis if cut > 1 else None,
    row_axes=row_axes,
    mesh=mesh if cut > 1 or row_axes else None,
  )


def chunk_size(rows: int, vocab: int) -> int:
  """Entries at a time: all of a small vocabulary, else a multiple of 128."""
  if rows * vocab <= CHUNK_ELEMENTS // 4:
    return vocab
  chunk = min(max(CHUNK_ELEMENTS // rows, MIN_CHUNK), MAX_CHUNK) // 128 * 128
  return min(chunk, vocab)


def over_chunks(vocab: int, chunk: int, body, carry):
  """carry = body(carry, start, width) over the vocabulary, tail last."""
  full, tail = divmod(vocab, chunk)
  if full == 1:
    carry = body(carry, 0, chunk)
  elif full:
    step = lambda i, carry: body(carry, i * chunk, chunk)
    carry = jax.lax.fori_loop(0, full, step, carry)
  return body(carry, full * chunk, tail) if tail else carry


def slice_vocab(plan: Plan, head: Array, start, width: int) -> Array:
  """`width` vocabulary entries of the head; `start` may be traced."""
  return jax.lax.dynamic_slice_in_dim(head, start, width, axis=plan.vocab_dim)


def write_vocab(plan: Plan, head: Array, part: Array, start) -> Array:
  """The head with `part` at `start`; in place when the head is a loop carry."""
  return jax.lax.dynamic_update_slice_in_dim(
    head, part.astype(head.dtype), start, axis=plan.vocab_dim
  )


def _dot(a: Array, b: Array, a_axis: int, b_axis: int) -> Array:
  return jax.lax.dot_general(
    a,
    b,
    (((a_axis,), (b_axis,)), ((), ())),
    preferred_element_type=jnp.float32,
  )


def product(plan: Plan, hidden: Array, head: Array) -> Array:
  """[M, C] float32 logits at temperature 1, whatever the inputs' dtype."""
  return _dot(hidden, head, 1, 1 if plan.vocab_first else 0)


def logits(plan: Plan, hidden: Array, head: Array) -> Array:
  """[M, C] float32 tempered logits."""
  z = product(plan, hidden, head)
  scale = plan.inverse_temperature
  return z if scale == 1.0 else z * scale


def gradients(
  plan: Plan, dz: Array, hidden: Array, head: Array
) -> tuple[Array, Array]:
  """d hidden [M, D] and d head (as the head lies), float32, of `dz` [M, C]."""
  dz = dz.astype(hidden.dtype)
  if plan.vocab_first:
    return _dot(dz, head, 1, 0), _dot(dz, hidden, 0, 0)
  return _dot(dz, head, 1, 1), _dot(hidden, dz, 0, 0)


def sum_gradients(
  plan: Plan, hidden: Array, head: Array, dz
) -> tuple[Array, Array]:
  """d hidden [M, D] float32 and d head as the head, chunk after chunk.

  `dz(start, part of the head)` gives d loss / d logits of a chunk, [M, C].
  """

  def body(carry, start, width):
    d_hidden, d_head = carry
    w = slice_vocab(plan, head, start, width)
    part, d_w = gradients(plan, dz(start, w), hidden, w)
    return d_hidden + part, write_vocab(plan, d_head, d_w, start)

  carry = (jnp.zeros(hidden.shape, jnp.float32), jnp.zeros_like(head))
  return over_chunks(head.shape[plan.vocab_dim], plan.chunk, body, carry)


def is_target(targets: Array, start, width: int) -> Array:
  """[M, C] bool: this vocabulary entry is the row's target."""
  return jnp.arange(width)[None] == (targets - start)[:, None]


def local_targets(plan: Plan, targets: Array, head: Array) -> Array:
  """Targets counted from the first entry of this shard's `head`."""
  if not plan.axis:
    return targets
  first = jax.lax.axis_index(plan.axis) * head.shape[plan.vocab_dim]
  return targets - first


def psum(plan: Plan, x: Array) -> Array:
  return jax.lax.psum(x, plan.axis) if plan.axis else x


def pmax(plan: Plan, x: Array) -> Array:
  return jax.lax.pmax(x, plan.axis) if plan.axis else x


def on_shards(plan: Plan, function, in_specs, out_specs):
  """`function`, on each device's part of the vocabulary (and of the rows).

  In XLA manual over the vocabulary's axis only: rows stay with the partitioner.
  Left that axis too it would gather the whole head, because a chunk is a
  dynamic slice of it.
  """
  names = {*plan.row_axes, *([plan.axis] if plan.axis else [])}
  if not names:
    return function
  return jax.shard_map(
    function,
    mesh=plan.mesh,
    in_specs=in_specs,
    out_specs=out_specs,
    axis_names=names,
    check_vma=False,
  )

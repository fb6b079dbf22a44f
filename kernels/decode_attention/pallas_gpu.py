"""The GPU kernel, through Triton: reads a row's slots up to its length.

Grid (entries x heads, tiles of queries, parts of the slots). The queries of an
entry that read one head are a matrix, padded to the 16 rows that the tensor
cores take; a group's prompt is so read once for the group, as far as its
queries fit one tile. A few rows alone leave most of a card idle, so the slots
are cut into parts, put together afterwards by their log-sum-exp.

Nothing is masked in memory: the last tile is moved back to end where the slots
do, and what an earlier tile has seen is left out.

Facts looked up about jax 0.10.2's `pallas.ops.gpu.decode_attention`, which is
not used though it has the layout: it takes one length for all queries of a row,
where each query of a draft has its own; slots must divide into its parts and
tiles; it rounds each part's sum to the queries' dtype; and it knows no `owner`.
`paged_attention` there wants pages.
"""

import functools

import jax
from jax.experimental import pallas as pl
from jax.experimental.pallas import triton
import jax.numpy as jnp

from tandem.kernels.decode_attention import parts

ROWS, SLOTS = 64, 64  # most queries and slots of a tile
PROGRAMS = 512  # several for each core of today's cards
MAX_ELEMENTS = 2**31  # Triton's offsets are 32 bits wide


def unfit(k: jax.Array, devices: int, layout: str) -> str | None:
  """Why no GPU could read a store cut over `devices`, or None."""
  h = k.shape[3]
  if layout != 'heads':
    return f'layout={layout!r}; it reads one head at a time'
  if k.dtype not in (jnp.float32, jnp.bfloat16):
    return f'the cache is {k.dtype}, not float32 or bfloat16'
  if h & (h - 1) or h < 16:
    return f'H={h} must be a power of two, at least 16'
  if k.size // devices >= MAX_ELEMENTS:
    return f'{k.size // devices} elements are beyond its 32-bit offsets'
  return None


def _kernel(
  q, limits, blocks, owner, k, v, out, top, total, *, kv, block, each
):
  """One part of the slots of one head, for one tile of an entry's queries."""
  x, head, part = (
    pl.program_id(0) // kv,
    pl.program_id(0) % kv,
    pl.program_id(2),
  )
  mine, size, h = owner[x], k.shape[2], k.shape[3]
  precision = jax.lax.Precision.HIGHEST if k.dtype == jnp.float32 else None
  dot = functools.partial(
    jnp.dot, precision=precision, preferred_element_type=jnp.float32
  )
  queries, limit = q[...], limits[...][:, None]

  def step(j, carry):
    out, top, total = carry
    start = jnp.minimum(j * block, size - block)
    here = pl.ds(start, block)
    slot = start + jax.lax.broadcasted_iota(jnp.int32, (1, block), 1)
    s = dot(queries, k[mine, head, here, :].T) * h**-0.5
    fresh = (slot >= j * block) & (slot < limit)
    s = jnp.where(fresh, s, parts.MASKED)
    now = jnp.maximum(top, jnp.max(s, axis=1))
    p, keep = jnp.exp(s - now[:, None]), jnp.exp(top - now)
    values = v[mine, head, here, :]
    out = out * keep[:, None] + dot(p.astype(values.dtype), values)
    return out, now, total * keep + jnp.sum(p, axis=1)

  rows = queries.shape[0]
  carry = (
    jnp.zeros((rows, h), jnp.float32),
    jnp.full((rows,), parts.START, jnp.float32),
    jnp.zeros((rows,), jnp.float32),
  )
  end = jnp.minimum((part + 1) * each, blocks[x])
  carry = jax.lax.fori_loop(part * each, end, step, carry)
  out[...], top[...], total[...] = carry


def partial(
  queries: parts.Queries,
  k: jax.Array,
  v: jax.Array,
  *,
  layout: str,
  interpret: bool = False,
) -> parts.Part:
  """As xla.partial, for layout `heads` only."""
  del layout
  q, limits, owner, heads = queries
  short = max(0, 16 - k.shape[2])  # of one tile, which the tensor cores set
  k, v = (jnp.pad(x, ((0, 0), (0, 0), (0, short), (0, 0))) for x in (k, v))
  (entries, rows, h), (_, kv, size, _) = q.shape, k.shape
  if owner is None:
    owner = jnp.arange(entries, dtype=jnp.int32)
  # Queries by the head they read, [X, K, R / K, H].
  shape = (entries, rows // heads, kv, heads // kv)
  by_head = lambda x: jnp.swapaxes(x.reshape(shape + x.shape[2:]), 1, 2)
  each_head = rows // kv
  tile = min(ROWS, max(16, pl.next_power_of_2(each_head)))
  tiles = pl.cdiv(each_head, tile)
  more = tiles * tile - each_head
  q = by_head(q).reshape(entries, kv, each_head, h)
  q = jnp.pad(q, ((0, 0), (0, 0), (0, more), (0, 0)))
  limits = by_head(jnp.minimum(limits, size - short))[:, 0].reshape(
    entries, each_head
  )
  limits = jnp.pad(limits, ((0, 0), (0, more)))
  block = min(SLOTS, 2 ** (size.bit_length() - 1))
  blocks = pl.cdiv(size, block)
  cut = min(blocks, pl.cdiv(PROGRAMS, entries * kv * tiles))
  each = pl.cdiv(blocks, cut)
  whole = lambda x: pl.BlockSpec(x.shape, lambda *_: (0,) * x.ndim)
  live = -(-limits.max(1) // block)

  def spec(*trailing):
    return pl.BlockSpec(
      (None, None, None, tile) + trailing,
      lambda a, i, s: (s, a // kv, a % kv, i) + (0,) * len(trailing),
    )

  out, top, total = pl.pallas_call(
    functools.partial(_kernel, kv=kv, block=block, each=each),
    grid=(entries * kv, tiles, cut),
    in_specs=[
      pl.BlockSpec(
        (None, None, tile, h), lambda a, i, s: (a // kv, a % kv, i, 0)
      ),
      pl.BlockSpec((None, tile), lambda a, i, s: (a // kv, i)),
      whole(live),
      whole(owner),
      whole(k),
      whole(v),
    ],
    out_specs=[spec(h), spec(), spec()],
    out_shape=[
      jax.ShapeDtypeStruct((cut, entries, kv, tiles * tile) + d, jnp.float32)
      for d in ((h,), (), ())
    ],
    interpret=interpret,
    compiler_params=triton.CompilerParams(num_warps=4, num_stages=2),
    name='decode_attention',
  )(q, limits, live, owner, k, v)
  most = top.max(0)
  weight = jnp.exp(top - most[None])
  out = (out * weight[..., None]).sum(0)[:, :, :each_head]

  def as_rows(x):
    x = x.reshape(entries, kv, rows // heads, heads // kv, *x.shape[3:])
    return jnp.swapaxes(x, 1, 2).reshape(entries, rows, *x.shape[4:])

  total = (total * weight).sum(0)[:, :, :each_head]
  return parts.Part(*map(as_rows, (out, most[:, :, :each_head], total)))

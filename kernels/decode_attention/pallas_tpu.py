"""The TPU kernel: reads a row's slots up to its length, and no further.

Grid (entries, blocks of slots). Lengths are prefetched scalars. A step past an
entry's length does nothing but fetch the first block of the next entry, and the
grid ends at the longest length, so early steps of a rollout do not walk the
empty cache. Keys are taken by `owner`, so rows handed to other prompts read
them where they lie; entries in a row with one owner and one block fetch once.

Keys lie slot by slot, a slot's K heads together, and both are rows of one
matrix [slots * K, H]. All queries are multiplied with all of it, and scores of
a query with another head are masked. That is K times the products that count,
yet below a hundred queries the matrix unit waits for the keys to be loaded as
its weights anyhow; taking one head's rows apart would be a relayout of every
block. With heads cut over devices K is 1 or 2.

Facts looked up about jax 0.10.2's own kernels, which are not used:
`paged_attention` takes one query a row, wants [K, pages, page, H], and returns
no log-sum-exp, without which a prompt shared by a group cannot be merged in;
`ragged_paged_attention` takes more queries but wants keys and values
interleaved in one array of pages, and returns no log-sum-exp either.
"""

import jax
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu
import jax.numpy as jnp

from tandem.kernels.decode_attention import parts

VMEM_BYTES = 56 * 2**20
ROWS = 256  # queries whose scores are in flight at once
# Rows of the key matrix in a block: large enough to outlast a grid step's
# overhead, small enough that the last block of a row is not mostly waste.
COLUMNS = 2048
SLOTS = (256, 1024)  # least and most slots in a block


def block_slots(size: int, kv: int) -> int:
  """Slots of one block."""
  low, high = SLOTS
  return min(size, max(low, min(high, COLUMNS // kv // 16 * 16)))


def unfit(k: jax.Array, kv: int, layout: str, whole_tiles: bool) -> str | None:
  """Why no TPU could read such a store, or None.

  Keys [.., slots, K, H] and [.., slots * K, H] are the same bytes on a TPU only
  where tiles are whole; else the compiler copies the cache to make the second.

  Args:
    k: keys of the store.
    kv: K on one device.
    layout: of the store.
    whole_tiles: ask for them; an interpreter has no tiles.
  """
  h = k.shape[3]
  if layout != 'slots':
    return f'layout={layout!r}; it reads a slot with all its heads'
  if k.dtype not in (jnp.float32, jnp.bfloat16):
    return f'the cache is {k.dtype}, not float32 or bfloat16'
  if whole_tiles and (h % 128 or (kv % 8 and kv not in (1, 2, 4))):
    return (
      f'K={kv} heads of H={h} do not fill tiles, and the cache would be copied '
      'at every step; H must be a multiple of 128 and K one of 1, 2, 4, 8n'
    )
  return None


def _kernel(
  blocks,
  owner,
  q,
  limits,
  q_head,
  slot,
  k_head,
  k,
  v,
  out,
  top,
  total,
  *,
  size,
  block,
  tile,
):
  """One block of slots, seen by all of an entry's queries."""
  x, j = pl.program_id(0), pl.program_id(1)
  precision = jax.lax.Precision.HIGHEST if k.dtype == jnp.float32 else None

  def dot(a, b, axis):
    return jax.lax.dot_general(
      a,
      b,
      (((1,), (axis,)), ((), ())),
      precision=precision,
      preferred_element_type=jnp.float32,
    )

  @pl.when(j == 0)
  def _():
    out[...] = jnp.zeros_like(out)
    top[...] = jnp.full_like(top, parts.START)
    total[...] = jnp.zeros_like(total)

  def attend(values, i):
    at = pl.ds(i * tile, tile)
    s = dot(q[0, at], k[0], 1) * q.shape[-1] ** -0.5
    visible = slot[...] + j * block < limits[0, at]
    visible &= q_head[at] == k_head[...]
    s = jnp.where(visible, s, parts.MASKED)
    before = top[0, at]
    now = jnp.maximum(before, s.max(1, keepdims=True))
    p, keep = jnp.exp(s - now), jnp.exp(before - now)
    top[0, at] = now
    total[0, at] = total[0, at] * keep + p.sum(1, keepdims=True)
    out[0, at] = out[0, at] * keep + dot(p.astype(values.dtype), values, 0)

  def body(tail):
    values = v[0]
    if tail:  # what lies past the end may be NaN, and 0 * NaN is NaN
      row = jax.lax.broadcasted_iota(jnp.int32, values.shape, 0)
      inside = row < (size - j * block) * (values.shape[0] // block)
      values = jnp.where(inside, values, jnp.zeros_like(values))
    pl.loop(0, q.shape[1] // tile)(lambda i: attend(values, i))

  live, last = j < blocks[x], pl.cdiv(size, block) - 1
  if size % block:
    pl.when(live & (j < last))(lambda: body(False))
    pl.when(live & (j == last))(lambda: body(True))
  else:
    pl.when(live)(lambda: body(False))


def partial(
  queries: parts.Queries,
  k: jax.Array,
  v: jax.Array,
  *,
  layout: str,
  interpret: bool = False,
) -> parts.Part:
  """As xla.partial, for layout `slots` only."""
  del layout
  q, limits, owner, heads = queries
  (entries, rows, h), (_, size, kv, _) = q.shape, k.shape
  block = block_slots(size, kv)
  # bfloat16 tiles are 16 rows high.
  tile = min(ROWS, -(-rows // 16) * 16)
  padded = -(-rows // tile) * tile
  q = jnp.pad(q, ((0, 0), (0, padded - rows), (0, 0)))
  limits = jnp.pad(jnp.minimum(limits, size), ((0, 0), (0, padded - rows)))
  blocks = -(-limits.max(1) // block)
  if owner is None:
    owner = jnp.arange(entries, dtype=jnp.int32)
  column = jnp.arange(block * kv, dtype=jnp.int32)[None]
  q_head = jnp.arange(padded, dtype=jnp.int32)[:, None] % heads // (heads // kv)
  flat = lambda x: x.reshape(x.shape[0], size * kv, h)

  def at(x, j, blocks, owner):
    # Past its end an entry fetches for the next one, and the last for nobody.
    idle = j >= blocks[x]
    after = jnp.minimum(x + 1, entries - 1)
    stay = jnp.minimum(j, jnp.maximum(blocks[x] - 1, 0))
    j = jnp.where(idle & (after > x), 0, stay)
    return owner[jnp.where(idle, after, x)], j, 0

  entry = lambda *shape: pl.BlockSpec((1,) + shape, lambda x, *_: (x, 0, 0))
  whole = lambda *shape: pl.BlockSpec(shape, lambda *_: (0, 0))
  keys = pl.BlockSpec((1, block * kv, h), at)

  def kernel(*refs):
    _kernel(*refs, size=size, block=block, tile=tile)

  out, top, total = pl.pallas_call(
    kernel,
    grid_spec=pltpu.PrefetchScalarGridSpec(
      num_scalar_prefetch=2,
      grid=(entries, jnp.maximum(blocks.max(), 1)),
      in_specs=[
        entry(padded, h),
        entry(padded, 1),
        whole(padded, 1),
        whole(1, block * kv),
        whole(1, block * kv),
        keys,
        keys,
      ],
      out_specs=[entry(padded, h), entry(padded, 1), entry(padded, 1)],
    ),
    out_shape=[
      jax.ShapeDtypeStruct((entries, padded, d), jnp.float32) for d in (h, 1, 1)
    ],
    interpret=interpret,
    compiler_params=pltpu.CompilerParams(
      dimension_semantics=('arbitrary', 'arbitrary'),
      vmem_limit_bytes=VMEM_BYTES,
    ),
  )(
    blocks,
    owner,
    q,
    limits[..., None],
    q_head,
    column // kv,
    column % kv,
    flat(k),
    flat(v),
  )
  return parts.Part(out[:, :rows], top[:, :rows, 0], total[:, :rows, 0])

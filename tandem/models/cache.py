"""The key/value cache: one contract for every way of decoding.

A prompt's keys and values are stored once for its group (`prefix`); each row
has its own `suffix`. A row's token in suffix slot `s` stands at position
`prefix_length + s` (or later, in a cache of `cache_size.tail`). Writes name
their slots, out-of-range ones are dropped, and a slot may be overwritten at
will: nothing after the slot of the query is ever read.

Each layer has its own leaves. Stacked leaves driven by a scan would be
rewritten whole at every step.

Keys and values may be stored in another dtype than the model's. As int8, each
token and kv head has a float32 scale of its own; it multiplies scores and
weights, which are small, so the keys and values are never dequantised.
"""

from collections.abc import Callable

from flax import struct
import jax
import jax.numpy as jnp

from tandem import types
from tandem.kernels.decode_attention import api as kernel

# What `read` is, and `reader` makes.
Read = Callable[..., jax.Array]
PARTS = ('prefix_k', 'prefix_v', 'suffix_k', 'suffix_v')
DTYPES = ('bfloat16', 'float32', 'int8')  # or None: the model's own
_NEVER = -1e30  # A finite minus infinity: inf - inf would be a NaN.


@struct.dataclass
class LayerCache:
  """One layer's keys and values.

  Shapes are those of layout `heads` (CPU and GPU); in layout `slots` (TPU)
  axes 1 and 2 are exchanged. Which one copies nothing was measured, not chosen.
  """

  prefix_k: jax.Array  # [B, K, P, H]
  prefix_v: jax.Array  # [B, K, P, H]
  suffix_k: jax.Array  # [N, K, S, H]
  suffix_v: jax.Array  # [N, K, S, H]
  layout: str = struct.field(pytree_node=False)
  # Of int8: by the names above, those shapes less H, float32.
  scales: dict[str, jax.Array] | None = None


@struct.dataclass
class Cache:
  """All layers.

  Attributes:
    layers: one LayerCache per layer.
    prefix_lengths: [B] int32; the visible prefix tokens of each prompt.
    owner: [N] int32, the prompt of each row; None where the rows of a prompt
      are adjacent and N / B in number.
    first: [N] int32, the token of each row in suffix slot 0; None where that
      is its first one.
    lanes: L; rows and prompts are cut into L equal runs, and the owner of a row
      is a prompt of its own run.
  """

  layers: tuple[LayerCache, ...]
  prefix_lengths: jax.Array
  owner: jax.Array | None = None
  first: jax.Array | None = None
  lanes: int = struct.field(pytree_node=False, default=1)

  def starts(self) -> jax.Array:
    """[N] int32: the position of each row's own first token."""
    if self.owner is not None:
      return jnp.take(self.prefix_lengths, self.owner, mode='clip')
    rows = self.layers[0].suffix_k.shape[0]
    return jnp.repeat(self.prefix_lengths, rows // self.prefix_lengths.shape[0])

  def slots(self, at: jax.Array) -> jax.Array:
    """[N, C] int32: the suffix slots of each row's own tokens `at` [N, C]."""
    return at if self.first is None else at - self.first[:, None]


def default_layout(platform: str | None = None) -> str:
  """The layout that a platform, or else this backend, decodes uncopied."""
  return 'slots' if (platform or jax.default_backend()) == 'tpu' else 'heads'


def allocate(
  cfg: types.ModelConfig,
  prefix: list[tuple[jax.Array, jax.Array]],
  prefix_lengths: jax.Array,
  *,
  slots: int,
  group: int = 1,
  rows: int | None = None,
  owner: jax.Array | None = None,
  lanes: int = 1,
  dtype: str | None = None,
  layout: str | None = None,
) -> Cache:
  """A cache with a filled prefix and empty suffixes.

  Rows are groups of adjacent siblings, or, given `owner`, any rows of any
  prompts: a row may be handed to another prompt by a new `owner` alone, since
  whatever its suffix holds is overwritten before it is read.

  Args:
    cfg: the model's shapes.
    prefix: per layer, keys and values [B, P, K, H] of the prompts.
    prefix_lengths: [B] int32.
    slots: S, suffix slots per row.
    group: G, rows per prompt; N = B * G. Not read where owner is given.
    rows: N, for a check only; None takes it from group or owner.
    owner: [N] int32, each row's prompt.
    lanes: as in Cache.
    dtype: that keys and values are stored in, one of DTYPES; None keeps the
      prefix's.
    layout: `heads`, `slots`, or None for the backend's own.

  Raises:
    ValueError: rows is not what group or owner say, or an unknown dtype.
  """
  if dtype not in (None, *DTYPES):
    raise ValueError(
      f'dtype={dtype!r} is no dtype of the cache; one of {", ".join(DTYPES)}, '
      "or None for the model's own."
    )
  layout = layout or default_layout()
  layers = []
  n = prefix_lengths.shape[0] * group if owner is None else owner.shape[0]
  if rows not in (None, n):
    raise ValueError(
      f'rows={rows}, but {"group" if owner is None else "owner"} makes {n} '
      'rows; leave rows out, or give owner one entry per row.'
    )
  for k, v in prefix:
    shape = (n, cfg.num_kv_heads, slots, cfg.head_dim)
    if layout == 'slots':
      shape = (n, slots, cfg.num_kv_heads, cfg.head_dim)
    else:
      k, v = jnp.swapaxes(k, 1, 2), jnp.swapaxes(v, 1, 2)
    store = jnp.dtype(dtype or k.dtype)
    (k, k_scale), (v, v_scale) = _stored(k, store), _stored(v, store)
    empty, scales = jnp.zeros(shape, store), None
    if k_scale is not None:
      none = jnp.zeros(shape[:-1], jnp.float32)
      scales = {'prefix_k': k_scale, 'prefix_v': v_scale}
      scales |= {'suffix_k': none, 'suffix_v': none}
    layers.append(LayerCache(k, v, empty, empty, layout, scales))
  return Cache(tuple(layers), prefix_lengths, owner, lanes=lanes)


def _stored(x: jax.Array, dtype) -> tuple[jax.Array, jax.Array | None]:
  """x [..., H] as it is kept; int8 with the scale [...] of its largest."""
  if dtype != jnp.int8:
    return x.astype(dtype), None
  wide = x.astype(jnp.float32)
  scale = jnp.maximum(jnp.abs(wide).max(-1), 1e-30) / 127
  return jnp.round(wide / scale[..., None]).astype(dtype), scale


def write(
  layer: LayerCache, k: jax.Array, v: jax.Array, slots: jax.Array
) -> LayerCache:
  """Stores k, v [N, C, K, H] at suffix slots [N, C]; out of range: dropped."""
  by_slots = layer.layout == 'slots'

  def put(buffer, values):
    # Row by row, so that on a mesh no device asks for another's. Negative slots
    # are out of range too; numpy's reading would be the last one.
    if not by_slots:
      values = jnp.swapaxes(values, 1, 2)  # K, C
    of_row = lambda x, at, new: x.at[at if by_slots else (slice(None), at)].set(
      new, mode='drop', wrap_negative_indices=False
    )
    return jax.vmap(of_row)(buffer, slots, values)

  (k, k_scale), (v, v_scale) = (
    _stored(x, layer.suffix_k.dtype) for x in (k, v)
  )
  scales = layer.scales
  if scales is not None:
    scales = scales | {
      'suffix_k': put(scales['suffix_k'], k_scale),
      'suffix_v': put(scales['suffix_v'], v_scale),
    }
  return layer.replace(
    suffix_k=put(layer.suffix_k, k),
    suffix_v=put(layer.suffix_v, v),
    scales=scales,
  )


# Scores and mixtures, by layout. q is [B, G, K, C, R, H]; keys and values are
# those of a prompt [B, ...], which its group shares, or of rows [B, G, ...]:
#   score(q, keys) -> [B, G, K, C, R, slots]
#   mix(weights [B, G, K, C, R, slots], values) -> [B, G, K, C, R, H]


def _dot(a, b):
  return jnp.matmul(a, b, preferred_element_type=jnp.float32)


def _score_by_heads(q, keys):
  # Keys first and values last: on a CPU an einsum picks an order that copies
  # the values, and is half as fast.
  b, g, kv, c, r, h = q.shape
  if keys.ndim == 5:
    s = _dot(keys, jnp.swapaxes(q.reshape(b, g, kv, c * r, h), -1, -2))
    return jnp.swapaxes(s, -1, -2).reshape(b, g, kv, c, r, -1)
  rows = jnp.moveaxis(q, 1, 2).reshape(b, kv, g * c * r, h)
  s = _dot(keys, jnp.swapaxes(rows, -1, -2))
  s = jnp.swapaxes(s, -1, -2).reshape(b, kv, g, c, r, -1)
  return jnp.moveaxis(s, 2, 1)


def _mix_by_heads(weights, values):
  b, g, kv, c, r, s = weights.shape
  if values.ndim == 5:
    out = _dot(weights.reshape(b, g, kv, c * r, s), values)
    return out.reshape(b, g, kv, c, r, -1)
  rows = jnp.moveaxis(weights, 1, 2).reshape(b, kv, g * c * r, s)
  out = _dot(rows, values).reshape(b, kv, g, c, r, -1)
  return jnp.moveaxis(out, 2, 1)


def _score_by_slots(q, keys):
  spec = 'bgkcrh,bgskh->bgkcrs' if keys.ndim == 5 else 'bgkcrh,bskh->bgkcrs'
  return jnp.einsum(spec, q, keys, preferred_element_type=jnp.float32)


def _mix_by_slots(weights, values):
  spec = 'bgkcrs,bgskh->bgkcrh' if values.ndim == 5 else 'bgkcrs,bskh->bgkcrh'
  return jnp.einsum(spec, weights, values, preferred_element_type=jnp.float32)


_BY_HEADS = _score_by_heads, _mix_by_heads
_BY_SLOTS = _score_by_slots, _mix_by_slots


def _of_owners(x: jax.Array, owner: jax.Array, lanes: int) -> jax.Array:
  """x [B, ...] of each row's prompt, [N, ...]; gathered within its lane."""
  each = x.shape[0] // lanes
  mine = jnp.clip(owner, 0, x.shape[0] - 1) % each
  by_lane = jax.vmap(lambda x, i: x.at[i].get(mode='promise_in_bounds'))(
    x.reshape((lanes, each) + x.shape[1:]), mine.reshape(lanes, -1)
  )
  return by_lane.reshape(owner.shape + x.shape[1:])


def read(
  layer: LayerCache,
  q: jax.Array,
  prefix_lengths: jax.Array,
  slots: jax.Array,
  owner: jax.Array | None = None,
  lanes: int = 1,
) -> jax.Array:
  """Attention of q over prefix and suffix, merged by log-sum-exp.

  A group reads its prompt once. With `owner` the prompts are gathered row by
  row, in every layer of every step: N * P slots read, written and read again
  where groups read B * P. Storage is B * P either way. On a mesh that cuts
  rows, prompts are fetched from other devices, unless lanes keep them apart.

  Args:
    layer: the keys and values; those of q's own slots already written.
    q: [N, C, Q, H], rotated.
    prefix_lengths: [B] int32.
    slots: [N, C] int32; a query sees suffix slots up to its own.
    owner: [N] int32, as in Cache.
    lanes: as in Cache.

  Returns:
    [N, C, Q, H] in q's dtype.
  """
  n, c, heads, h = q.shape
  parts = {name: getattr(layer, name) for name in PARTS}
  scales = layer.scales or {}
  if owner is not None:
    # From here on a group of one row for each of N prompts.
    mine = lambda x: _of_owners(x, owner, lanes)
    of_prefix = lambda tree: {
      name: mine(x) if name.startswith('prefix') else x
      for name, x in tree.items()
    }
    parts, scales = of_prefix(parts), of_prefix(scales)
    prefix_lengths = mine(prefix_lengths)
  by_slots = layer.layout == 'slots'
  score, mix = _BY_SLOTS if by_slots else _BY_HEADS
  b = prefix_lengths.shape[0]
  kv = layer.suffix_k.shape[2 if by_slots else 1]
  q = q.reshape(b, n // b, c, kv, heads // kv, h) * h**-0.5
  q = jnp.moveaxis(q, 3, 2)  # [B, G, K, C, R, H]
  slots = slots.reshape(b, n // b, 1, c, 1, 1)

  def grouped(name, x):
    """x [B, ...] of the prefix as it is, [N, ...] of the suffix [B, G, ...]."""
    if name.startswith('prefix'):
      return x
    return x.reshape((b, n // b) + x.shape[1:])

  part = lambda name: grouped(name, parts[name]).astype(q.dtype)

  def scaled(name, x):
    """x [B, G, K, C, R, slots] by the scales of its keys or values."""
    if name not in scales:
      return x
    scale = grouped(name, scales[name])
    scale = jnp.swapaxes(scale, -1, -2) if by_slots else scale  # K, slots
    scale = scale[:, None] if name.startswith('prefix') else scale
    return x * scale[:, :, :, None, None]

  def scores(name, visible):
    s = scaled(name, score(q, part(name)))
    return jnp.where(visible, s, _NEVER)

  # The prefix is read once for the group: g is an axis of the query alone.
  p = layer.prefix_k.shape[1 if by_slots else 2]
  in_prefix = jnp.arange(p)[None] < prefix_lengths[:, None]  # [B, P]
  size = layer.suffix_k.shape[1 if by_slots else 2]
  in_suffix = jnp.arange(size)[None, None, None, None, None] <= slots
  prefix = scores('prefix_k', in_prefix[:, None, None, None, None])
  suffix = scores('suffix_k', in_suffix)
  top = jnp.maximum(prefix.max(-1), suffix.max(-1))[..., None]
  prefix, suffix = jnp.exp(prefix - top), jnp.exp(suffix - top)
  total = prefix.sum(-1) + suffix.sum(-1)

  def mixed(name, weights):
    values = part(name)
    wide = lambda w, v: mix(w.astype(jnp.float32), v.astype(jnp.float32))
    # XLA's CPU backend refuses these dots of bfloat16 into float32.
    return jax.lax.platform_dependent(
      scaled(name, weights).astype(values.dtype), values, cpu=wide, default=mix
    )

  out = mixed('prefix_v', prefix) + mixed('suffix_v', suffix)
  out = jnp.moveaxis(out / total[..., None], 3, 2)  # [B, G, C, K, R, H]
  return out.astype(q.dtype).reshape(n, c, heads, h)


def reader(implementation: str, mesh: jax.sharding.Mesh | None = None):
  """A function in the place of `read`, by a kernel of kernels.decode_attention.

  A kernel reads a row's slots up to its length, and prompts of any owner where
  they lie. It needs float32 or bfloat16 storage, of the queries' dtype.

  Args:
    implementation: among those of decode_attention.
    mesh: the mesh that cuts rows and heads, where none is active.
  """

  def read_by_kernel(layer, q, prefix_lengths, slots, owner=None, lanes=1):
    if layer.scales is not None:
      raise NotImplementedError(
        f'implementation={implementation!r} reads no int8 cache; store it as '
        'bfloat16, or decode with cache.read.'
      )
    return kernel.decode_attention(
      q,
      *(getattr(layer, name) for name in PARTS),
      prefix_lengths,
      slots,
      layout=layer.layout,
      owner=owner,
      lanes=lanes,
      implementation=implementation,
      mesh=mesh,
    )

  return read_by_kernel

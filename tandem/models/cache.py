"""The key/value cache: one contract for every way of decoding.

A prompt's keys and values are stored once for its group (`prefix`); each row
has its own `suffix`. A row's token in suffix slot `s` stands at position
`prefix_length + s`. Writes name their slots, out-of-range ones are dropped,
and a slot may be overwritten at will: nothing at or after the slot of the
query is ever read.

Each layer has its own leaves. Stacked leaves driven by a scan would be
rewritten whole at every step.
"""

from flax import struct
import jax
import jax.numpy as jnp

from tandem import types

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


@struct.dataclass
class Cache:
  """All layers.

  Attributes:
    layers: one LayerCache per layer.
    prefix_lengths: [B] int32; the visible prefix tokens of each prompt.
    owner: [N] int32, the prompt of each row; None where the rows of a prompt
      are adjacent and N / B in number.
  """

  layers: tuple[LayerCache, ...]
  prefix_lengths: jax.Array
  owner: jax.Array | None = None

  def starts(self) -> jax.Array:
    """[N] int32: the position of each row's suffix slot 0."""
    if self.owner is not None:
      return jnp.take(self.prefix_lengths, self.owner, mode='clip')
    rows = self.layers[0].suffix_k.shape[0]
    return jnp.repeat(self.prefix_lengths, rows // self.prefix_lengths.shape[0])


def default_layout() -> str:
  """The layout that this backend decodes without copying."""
  return 'slots' if jax.default_backend() == 'tpu' else 'heads'


def allocate(
  cfg: types.ModelConfig,
  prefix: list[tuple[jax.Array, jax.Array]],
  prefix_lengths: jax.Array,
  *,
  slots: int,
  group: int = 1,
  rows: int | None = None,
  owner: jax.Array | None = None,
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
    layout: `heads`, `slots`, or None for the backend's own.

  Raises:
    ValueError: rows is not what group or owner say.
  """
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
    empty = jnp.zeros(shape, k.dtype)
    layers.append(LayerCache(k, v, empty, empty, layout))
  return Cache(tuple(layers), prefix_lengths, owner)


def write(
  layer: LayerCache, k: jax.Array, v: jax.Array, slots: jax.Array
) -> LayerCache:
  """Stores k, v [N, C, K, H] at suffix slots [N, C]; out of range: dropped."""
  rows = jnp.arange(slots.shape[0])[:, None]
  # Negative slots are out of range too; numpy's reading would be the last one.
  put = {'mode': 'drop', 'wrap_negative_indices': False}
  at = (rows, slots) if layer.layout == 'slots' else (rows, slice(None), slots)
  return layer.replace(
    suffix_k=layer.suffix_k.at[at].set(k, **put),
    suffix_v=layer.suffix_v.at[at].set(v, **put),
  )


def read(
  layer: LayerCache,
  q: jax.Array,
  prefix_lengths: jax.Array,
  slots: jax.Array,
  owner: jax.Array | None = None,
) -> jax.Array:
  """Attention of q over prefix and suffix, merged by log-sum-exp.

  A group reads its prompt once. With `owner` the prompts are gathered row by
  row, in every layer of every step: N * P slots read, written and read again
  where groups read B * P. Storage is B * P either way.

  Args:
    layer: the keys and values; those of q's own slots already written.
    q: [N, C, Q, H], rotated.
    prefix_lengths: [B] int32.
    slots: [N, C] int32; a query sees suffix slots up to its own.
    owner: [N] int32, as in Cache.

  Returns:
    [N, C, Q, H] in q's dtype.
  """
  n, c, heads, h = q.shape
  if owner is not None:
    mine = lambda x: jnp.take(x, owner, axis=0, mode='clip')
    layer = layer.replace(
      prefix_k=mine(layer.prefix_k), prefix_v=mine(layer.prefix_v)
    )
    prefix_lengths = mine(prefix_lengths)
  b = prefix_lengths.shape[0]
  kv = layer.suffix_k.shape[2 if layer.layout == 'slots' else 1]
  axes = 'sk' if layer.layout == 'slots' else 'ks'
  q = q.reshape(b, n // b, c, kv, heads // kv, h) * h**-0.5
  slots = slots.reshape(b, n // b, c)
  grouped = lambda x: x.reshape((b, n // b) + x.shape[1:])

  def scores(keys, spec, visible):
    s = jnp.einsum(spec, q, keys, preferred_element_type=jnp.float32)
    return jnp.where(visible, s, _NEVER)

  # The prefix is read once for the group: g is an axis of the query alone.
  p = layer.prefix_k.shape[1 if layer.layout == 'slots' else 2]
  in_prefix = jnp.arange(p)[None] < prefix_lengths[:, None]  # [B, P]
  size = layer.suffix_k.shape[1 if layer.layout == 'slots' else 2]
  in_suffix = jnp.arange(size)[None, None, None] <= slots[..., None]
  prefix = scores(
    layer.prefix_k,
    f'bgckrh,b{axes}h->bgckrs',
    in_prefix[:, None, None, None, None],
  )
  suffix = scores(
    grouped(layer.suffix_k),
    f'bgckrh,bg{axes}h->bgckrs',
    in_suffix[:, :, :, None, None],
  )
  top = jnp.maximum(prefix.max(-1), suffix.max(-1))[..., None]
  prefix, suffix = jnp.exp(prefix - top), jnp.exp(suffix - top)
  total = prefix.sum(-1) + suffix.sum(-1)

  def mixed(weights, values, spec):
    dot = lambda w, v: jnp.einsum(
      spec, w, v, preferred_element_type=jnp.float32
    )
    wide = lambda w, v: dot(w.astype(jnp.float32), v.astype(jnp.float32))
    # XLA's CPU backend refuses these dots of bfloat16 into float32.
    return jax.lax.platform_dependent(
      weights.astype(values.dtype), values, cpu=wide, default=dot
    )

  out = mixed(prefix, layer.prefix_v, f'bgckrs,b{axes}h->bgckrh')
  out += mixed(suffix, grouped(layer.suffix_v), f'bgckrs,bg{axes}h->bgckrh')
  out = out / total[..., None]
  return out.astype(q.dtype).reshape(n, c, heads, h)

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
  """All layers; `prefix_lengths` [B] int32 counts the visible prefix tokens."""

  layers: tuple[LayerCache, ...]
  prefix_lengths: jax.Array


def default_layout() -> str:
  """The layout that this backend decodes without copying."""
  return 'slots' if jax.default_backend() == 'tpu' else 'heads'


def allocate(
  cfg: types.ModelConfig,
  prefix: list[tuple[jax.Array, jax.Array]],
  prefix_lengths: jax.Array,
  *,
  group: int,
  slots: int,
  layout: str | None = None,
) -> Cache:
  """A cache with a filled prefix and empty suffixes.

  Args:
    cfg: the model's shapes.
    prefix: per layer, keys and values [B, P, K, H] of the prompts.
    prefix_lengths: [B] int32.
    group: G, rows per prompt; N = B * G.
    slots: S, suffix slots per row.
    layout: `heads`, `slots`, or None for the backend's own.
  """
  layout = layout or default_layout()
  layers = []
  for k, v in prefix:
    rows = k.shape[0] * group
    shape = (rows, cfg.num_kv_heads, slots, cfg.head_dim)
    if layout == 'slots':
      shape = (rows, slots, cfg.num_kv_heads, cfg.head_dim)
    else:
      k, v = jnp.swapaxes(k, 1, 2), jnp.swapaxes(v, 1, 2)
    empty = jnp.zeros(shape, k.dtype)
    layers.append(LayerCache(k, v, empty, empty, layout))
  return Cache(tuple(layers), prefix_lengths)


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
) -> jax.Array:
  """Attention of q over prefix and suffix, merged by log-sum-exp.

  Args:
    layer: the keys and values; those of q's own slots already written.
    q: [N, C, Q, H], rotated.
    prefix_lengths: [B] int32.
    slots: [N, C] int32; a query sees suffix slots up to its own.

  Returns:
    [N, C, Q, H] in q's dtype.
  """
  n, c, heads, h = q.shape
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

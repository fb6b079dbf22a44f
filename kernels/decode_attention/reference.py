"""The definition: each row's keys side by side, and one softmax over them."""

import jax
import jax.numpy as jnp


def decode_attention(
  q: jax.Array,
  prefix_k: jax.Array,
  prefix_v: jax.Array,
  suffix_k: jax.Array,
  suffix_v: jax.Array,
  prefix_lengths: jax.Array,
  slots: jax.Array,
  owner: jax.Array,
) -> jax.Array:
  """Attention of q over its row's prompt and its row's own suffix.

    out = softmax(q k^T / sqrt(H), over what is visible) v, all float32

  Args:
    q: [N, C, Q, H].
    prefix_k, prefix_v: [B, P, K, H].
    suffix_k, suffix_v: [N, S, K, H].
    prefix_lengths: [B] int32; slots of the prompt that are visible.
    slots: [N, C] int32; a query sees suffix slots up to its own.
    owner: [N] int32; the prompt of each row.

  Returns:
    [N, C, Q, H] float32; zero where a query sees nothing.
  """
  p, s = prefix_k.shape[1], suffix_k.shape[1]
  wide = lambda x: jnp.repeat(
    x.astype(jnp.float32), q.shape[2] // x.shape[2], axis=2
  )
  k = wide(jnp.concatenate([prefix_k[owner], suffix_k], axis=1))
  v = wide(jnp.concatenate([prefix_v[owner], suffix_v], axis=1))
  in_prefix = jnp.arange(p)[None, None] < prefix_lengths[owner][:, None, None]
  in_prefix = jnp.broadcast_to(in_prefix, slots.shape + (p,))
  in_suffix = jnp.arange(s)[None, None] <= slots[:, :, None]
  visible = jnp.concatenate([in_prefix, in_suffix], -1)[:, :, None]
  scores = jnp.einsum('ncqh,nsqh->ncqs', q.astype(jnp.float32), k)
  weights = jax.nn.softmax(scores * q.shape[-1] ** -0.5, where=visible, axis=-1)
  return jnp.einsum('ncqs,nsqh->ncqh', jnp.nan_to_num(weights), v)

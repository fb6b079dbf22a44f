"""The definition: one softmax over what came before, all float32."""

import jax
import jax.numpy as jnp


def attention(q: jax.Array, k: jax.Array, v: jax.Array) -> jax.Array:
  """softmax(q k^T / sqrt(H), keys up to the query's own) v.

  Args:
    q: [N, S, Q, H].
    k, v: [N, S, K, H]; query head i reads key head i // (Q / K).

  Returns:
    [N, S, Q, H] float32.
  """
  wide = lambda x: jnp.repeat(
    x.astype(jnp.float32), q.shape[2] // x.shape[2], axis=2
  )
  scores = jnp.einsum('nsqh,ntqh->nqst', q.astype(jnp.float32), wide(k))
  size = q.shape[1]
  visible = jnp.arange(size)[:, None] >= jnp.arange(size)[None]
  scores = jnp.where(
    visible[None, None], scores * q.shape[-1] ** -0.5, -jnp.inf
  )
  return jnp.einsum('nqst,ntqh->nsqh', jax.nn.softmax(scores, -1), wide(v))

"""The same by einsum: reads all slots of a store, and masks."""

import jax
import jax.numpy as jnp

from tandem.kernels.decode_attention import parts


def partial(
  queries: parts.Queries, k: jax.Array, v: jax.Array, *, layout: str
) -> parts.Part:
  """Attention of the queries over one store.

  Args:
    queries: of X entries by R rows.
    k, v: [X', T, K, H] in layout `slots`, [X', K, T, H] in `heads`.
    layout: of k and v.
  """
  q, limits, owner, heads = queries
  entries, rows, h = q.shape
  slot_axis, head_axis = (1, 2) if layout == 'slots' else (2, 1)
  kv, size = k.shape[head_axis], k.shape[slot_axis]
  axes = 'sk' if layout == 'slots' else 'ks'
  mine = lambda x: x
  if owner is not None:
    mine = lambda x: jnp.take(x, owner, axis=0, mode='clip')
  q = q.reshape(entries, rows // heads, kv, heads // kv, h)
  s = jnp.einsum(
    f'xckrh,x{axes}h->xckrs', q, mine(k), preferred_element_type=jnp.float32
  )
  limits = limits.reshape(s.shape[:-1] + (1,))
  slot = jnp.arange(size).reshape((1,) * (s.ndim - 1) + (size,))
  s = jnp.where(slot < limits, s * h**-0.5, parts.MASKED)
  top = jnp.maximum(s.max(-1, initial=parts.MASKED), parts.START)
  p = jnp.exp(s - top[..., None])

  def mixed(weights, values):
    return jnp.einsum(
      f'xckrs,x{axes}h->xckrh',
      weights,
      values,
      preferred_element_type=jnp.float32,
    )

  # XLA's CPU backend refuses these dots of bfloat16 into float32.
  wide = lambda w, v: mixed(w.astype(jnp.float32), v.astype(jnp.float32))
  out = jax.lax.platform_dependent(
    p.astype(v.dtype), mine(v), cpu=wide, default=mixed
  )
  flat = lambda x: x.reshape(entries, rows, *x.shape[4:])
  return parts.Part(flat(out), flat(top), flat(p.sum(-1)))

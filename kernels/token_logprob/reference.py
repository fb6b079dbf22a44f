"""The definition, dense: every other file here must agree with this one.

    z = hidden head / temperature          p = softmax(z)
    logp_m = log p[m, t_m]                 H_m = -sum_v p log p

  and, for a second pair with z' and q = softmax(z'),

    KL_m = sum_v p (log p - log q)         overlap_m = sum_v min(p, q)

It stores [M, V] arrays, so it is for tests and small vocabularies only.
"""

import jax
import jax.numpy as jnp

Array = jax.Array


def _log_softmax(hidden: Array, head: Array, temperature: float) -> Array:
  z = jnp.dot(hidden, head, preferred_element_type=jnp.float32) / temperature
  return jax.nn.log_softmax(z, axis=-1)


def forward(
  hidden: Array, head: Array, targets: Array, *, temperature: float = 1.0
) -> tuple[Array, Array]:
  """([M] log-prob of each target, [M] entropy), float32."""
  logp = _log_softmax(hidden, head, temperature)
  entropy = -jnp.sum(jnp.exp(logp) * logp, axis=-1)
  return jnp.take_along_axis(logp, targets[:, None], axis=-1)[:, 0], entropy


def backward(
  hidden: Array,
  head: Array,
  targets: Array,
  g_logp: Array,
  g_entropy: Array,
  *,
  temperature: float = 1.0,
) -> tuple[Array, Array]:
  """(d hidden [M, D], d head [D, V]) for cotangents [M] of `forward`.

  dz_v = g_logp (1[v = t] - p_v) - g_H p_v (log p_v + H)
  """
  logp = _log_softmax(hidden, head, temperature)
  p = jnp.exp(logp)
  entropy = -jnp.sum(p * logp, axis=-1, keepdims=True)
  dz = g_logp[:, None] * (jax.nn.one_hot(targets, head.shape[1]) - p)
  dz -= g_entropy[:, None] * p * (logp + entropy)
  dz /= temperature
  return dz @ head.T.astype(dz.dtype), hidden.T.astype(dz.dtype) @ dz


def pair_forward(
  hidden: Array,
  head: Array,
  hidden2: Array,
  head2: Array,
  *,
  temperature: float = 1.0,
) -> tuple[Array, Array]:
  """([M] KL(p || q), [M] sum_v min(p, q)), float32."""
  logp = _log_softmax(hidden, head, temperature)
  logq = _log_softmax(hidden2, head2, temperature)
  kl = jnp.sum(jnp.exp(logp) * (logp - logq), axis=-1)
  return kl, jnp.sum(jnp.exp(jnp.minimum(logp, logq)), axis=-1)


def pair_backward(
  hidden: Array,
  head: Array,
  hidden2: Array,
  head2: Array,
  g_kl: Array,
  *,
  temperature: float = 1.0,
) -> tuple[Array, Array]:
  """(d hidden [M, D], d head [D, V]) of the KL; the second pair is frozen.

  dz_v = g_KL p_v (log p_v - log q_v - KL)
  """
  logp = _log_softmax(hidden, head, temperature)
  logq = _log_softmax(hidden2, head2, temperature)
  p = jnp.exp(logp)
  kl = jnp.sum(p * (logp - logq), axis=-1, keepdims=True)
  dz = g_kl[:, None] * p * (logp - logq - kl) / temperature
  return dz @ head.T.astype(dz.dtype), hidden.T.astype(dz.dtype) @ dz

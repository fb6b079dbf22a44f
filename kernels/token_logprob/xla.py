"""Vocabulary-chunked log-prob and entropy in plain XLA: the portable backend.

Forward keeps [M] running sums (a log-sum-exp that is rescaled as the maximum
grows, the entropy's, the target's logit) over chunks of the vocabulary.
Backward recomputes each chunk's logits from the saved log-normaliser, so that
four products of size M*D*V are done where dense autodiff does three, and the
largest array besides the gradients themselves is [M, chunk].
"""

import jax
import jax.numpy as jnp

from tandem.kernels.token_logprob import chunks

Array = jax.Array

# Below any logit, yet finite: (m - m') * 0 must be 0 before the first chunk.
LOWEST = -1e30


def partial_sums(
  plan: chunks.Plan, hidden: Array, head: Array, targets: Array
) -> tuple[Array, Array, Array, Array]:
  """Over this part of the vocabulary, each [M] float32:

    top    = max z                      mass  = sum e^(z - top)
    spread = sum e^(z - top) (z - top)  taken = z of the target, or 0

  `spread` stays 0 unless the plan asks for the entropy.
  """
  rows, vocab = hidden.shape[0], head.shape[plan.vocab_dim]

  def body(carry, start, width):
    top, mass, spread, taken = carry
    w = chunks.slice_vocab(plan, head, start, width)
    z = chunks.logits(plan, hidden, w)
    new_top = jnp.maximum(top, jnp.max(z, axis=-1))
    shift = top - new_top
    z_shifted = z - new_top[:, None]
    e = jnp.exp(z_shifted)
    if plan.entropy:
      # sum e^(z-m) (z-m) and not sum e^(z-m) z: no cancellation at the end.
      spread = jnp.exp(shift) * (spread + shift * mass)
      spread += jnp.sum(e * z_shifted, axis=-1)
    mass = jnp.exp(shift) * mass + jnp.sum(e, axis=-1)
    hit = chunks.is_target(targets, start, width)
    taken += jnp.sum(jnp.where(hit, z, 0.0), axis=-1)
    return new_top, mass, spread, taken

  zero = jnp.zeros(rows, jnp.float32)
  carry = (jnp.full(rows, LOWEST, jnp.float32), zero, zero, zero)
  return chunks.over_chunks(vocab, plan.chunk, body, carry)


def gradients(
  plan: chunks.Plan,
  hidden: Array,
  head: Array,
  targets: Array,
  log_norm: Array,
  entropy: Array | None,
  g_logp: Array,
  g_entropy: Array | None,
) -> tuple[Array, Array]:
  """d hidden [M, D] float32, and d head as the head, of this part.

  `log_norm` and `entropy` are the whole vocabulary's, [M]; the cotangents [M]
  are already divided by the temperature.
  """
  g_logp, log_norm = g_logp[:, None], log_norm[:, None]
  if plan.entropy:
    g_entropy, entropy = g_entropy[:, None], entropy[:, None]

  def dz(start, w):
    logp = chunks.logits(plan, hidden, w) - log_norm
    weight = g_logp
    if plan.entropy:
      weight = weight + g_entropy * (logp + entropy)
    hit = chunks.is_target(targets, start, w.shape[plan.vocab_dim])
    return jnp.where(hit, g_logp, 0.0) - weight * jnp.exp(logp)

  return chunks.sum_gradients(plan, hidden, head, dz)

"""Vocabulary-chunked log-prob and entropy in plain XLA: the portable backend.

Forward keeps [M] running sums (a log-sum-exp that is rescaled as the maximum
grows, the entropy's, the target's logit) over chunks of the vocabulary.
Backward recomputes each chunk's logits from the saved log-normaliser, so that
four products of size M*D*V are done where dense autodiff does three, and the
largest array besides the gradients themselves is [M, chunk].
"""

import functools

import jax
import jax.numpy as jnp

from tandem.kernels.token_logprob import chunks

Array = jax.Array

# Below any logit, yet finite: (m - m') * 0 must be 0 before the first chunk.
LOWEST = -1e30


@functools.partial(jax.custom_vjp, nondiff_argnums=(0,))
def stats(plan: chunks.Plan, hidden: Array, head: Array, targets: Array):
  """(logp [M], entropy [M] or None), float32."""
  return _forward(plan, hidden, head, targets)[0]


def _forward(plan, hidden, head, targets):
  all_rows = jax.P()
  log_norm, taken, entropy = chunks.on_shards(
    plan,
    functools.partial(_forward_local, plan),
    in_specs=(all_rows, plan.head_spec, all_rows),
    out_specs=(all_rows, all_rows, all_rows if plan.entropy else None),
  )(hidden, head, targets)
  saved = (hidden, head, targets, log_norm, entropy)
  return (taken - log_norm, entropy), saved


def _backward(plan, saved, cotangents):
  hidden, head, targets, log_norm, entropy = saved
  rows = (log_norm, entropy, *cotangents)
  all_rows = jax.P()
  d_hidden, d_head = chunks.on_shards(
    plan,
    functools.partial(_backward_local, plan),
    in_specs=(
      all_rows,
      plan.head_spec,
      all_rows,
      *(x if x is None else all_rows for x in rows),
    ),
    out_specs=(all_rows, plan.head_spec),
  )(hidden, head, targets, *rows)
  return d_hidden, d_head, None


stats.defvjp(_forward, _backward)


def _forward_local(plan: chunks.Plan, hidden: Array, head: Array, targets):
  """(log-normaliser, target's logit, entropy or None), each [M] float32."""
  rows, vocab = hidden.shape[0], head.shape[0 if plan.vocab_first else 1]
  targets = chunks.local_targets(plan, targets, vocab)

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
  carry = chunks.over_chunks(vocab, plan.chunk, body, carry)
  top, mass, spread, taken = carry
  if plan.axis:
    shift = top - chunks.pmax(plan, top)
    top = top - shift
    spread = chunks.psum(plan, jnp.exp(shift) * (spread + shift * mass))
    mass = chunks.psum(plan, jnp.exp(shift) * mass)
    taken = chunks.psum(plan, taken)
  log_mass = jnp.log(mass)
  entropy = log_mass - spread / mass if plan.entropy else None
  return top + log_mass, taken, entropy


def _backward_local(
  plan, hidden, head, targets, log_norm, entropy, g_logp, g_entropy
):
  """(d hidden [M, D], d head), from cotangents and the saved [M] sums."""
  vocab = head.shape[0 if plan.vocab_first else 1]
  targets = chunks.local_targets(plan, targets, vocab)
  g_logp = (g_logp * plan.inverse_temperature)[:, None]
  if plan.entropy:
    g_entropy = (g_entropy * plan.inverse_temperature)[:, None]
    entropy = entropy[:, None]

  def body(carry, start, width):
    d_hidden, d_head = carry
    w = chunks.slice_vocab(plan, head, start, width)
    logp = chunks.logits(plan, hidden, w) - log_norm[:, None]
    weight = g_logp
    if plan.entropy:
      weight = weight + g_entropy * (logp + entropy)
    hit = chunks.is_target(targets, start, width)
    dz = jnp.where(hit, g_logp, 0.0) - weight * jnp.exp(logp)
    part, d_w = chunks.gradients(plan, dz, hidden, w)
    return d_hidden + part, chunks.write_vocab(plan, d_head, d_w, start)

  carry = (jnp.zeros(hidden.shape, jnp.float32), jnp.zeros_like(head))
  d_hidden, d_head = chunks.over_chunks(vocab, plan.chunk, body, carry)
  return chunks.psum(plan, d_hidden).astype(hidden.dtype), d_head

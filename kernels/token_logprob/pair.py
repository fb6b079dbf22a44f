"""KL and overlap of two laws over the whole vocabulary, in plain XLA.

The overlap sum_v min(p, q) needs both normalisers before its first term, so a
running sum over vocabulary chunks would take every product twice. Forward goes
over blocks of rows instead, each with its two [R, V] logits (R*V bounded);
backward, whose normalisers are saved, goes over vocabulary chunks as `xla` does
and for the same reason. With the policy's log-prob and entropy from the same
logits that is six products of size M*D*V where dense autodiff does four.
"""

import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp

from tandem.kernels.token_logprob import chunks

Array = jax.Array

BLOCK_ELEMENTS = 5 * 2**22  # most [R, V] of a law on a device: 80 MiB float32


class Plan(NamedTuple):
  """What is static under jit."""

  policy: chunks.Plan
  other: chunks.Plan  # the same but for its head's layout
  overlap: bool


@functools.partial(jax.custom_vjp, nondiff_argnums=(0,))
def stats(plan: Plan, hidden, head, hidden2, head2, targets):
  """(kl, overlap, logp, entropy), each [M] float32; None where not asked for.

  The overlap has no gradient, and neither has the second pair.
  """
  return _forward(plan, hidden, head, hidden2, head2, targets)[0]


def _head_specs(plan):
  rows = jax.P()
  return rows, plan.policy.head_spec, rows, plan.other.head_spec


def _forward(plan, *arrays):
  stats, log_norms = chunks.on_shards(
    plan.policy,
    functools.partial(_forward_local, plan),
    in_specs=(*_head_specs(plan), jax.P()),
    out_specs=jax.P(),
  )(*arrays)
  kl, _, _, entropy = stats
  return stats, (*arrays, log_norms, kl, entropy)


def _backward(plan, saved, cotangents):
  *arrays, log_norms, kl, entropy = saved
  g_kl, _, g_logp, g_entropy = cotangents
  d_hidden, d_head = chunks.on_shards(
    plan.policy,
    functools.partial(_backward_local, plan),
    in_specs=(*_head_specs(plan), *[jax.P()] * 4),
    out_specs=(jax.P(), plan.policy.head_spec),
  )(*arrays, log_norms, (kl, entropy), (g_kl, g_logp, g_entropy))
  return d_hidden, d_head, None, None, None


stats.defvjp(_forward, _backward)


def _forward_local(plan, hidden, head, hidden2, head2, targets):
  """stats, (log-normaliser of p, of q), each [M] float32."""
  policy = plan.policy
  rows, vocab = hidden.shape[0], head.shape[policy.vocab_dim]
  if targets is not None:
    targets = chunks.local_targets(policy, targets, head)

  def block(xs):
    hidden, hidden2, targets = xs
    z, e, mass, log_norm = _exponents(
      policy, chunks.logits(policy, hidden, head)
    )
    z2, e2, mass2, log_norm2 = _exponents(
      policy, chunks.logits(plan.other, hidden2, head2)
    )
    total = lambda x: chunks.psum(policy, jnp.sum(x, axis=-1))
    # With z and z2 counted from their maxima, equal laws give exactly zero.
    log_ratio = jnp.log(mass2) - jnp.log(mass)
    kl = total(e * (z - z2)) / mass + log_ratio
    overlap = taken = entropy = None
    if plan.overlap:
      ratio = mass / mass2
      overlap = total(jnp.minimum(e, e2 * ratio[:, None])) / mass
    if targets is not None:
      hit = chunks.is_target(targets, 0, vocab)
      taken = total(jnp.where(hit, z, 0.0)) - jnp.log(mass)
    if policy.entropy:
      entropy = jnp.log(mass) - total(e * z) / mass
    return (kl, overlap, taken, entropy), (log_norm, log_norm2)

  # Block b holds rows b, b + blocks, ...: where rows are cut over devices, each
  # block then has a part on every device.
  n = _num_blocks(policy.local_rows, vocab)
  size = -(-rows // n)

  def split(x):
    x = jnp.pad(x, [(0, n * size - rows)] + [(0, 0)] * (x.ndim - 1))
    return jnp.swapaxes(x.reshape(size, n, *x.shape[1:]), 0, 1)

  out = jax.lax.map(block, jax.tree.map(split, (hidden, hidden2, targets)))
  return jax.tree.map(lambda x: x.T.reshape(-1)[:rows], out)


def _num_blocks(rows, vocab):
  """Enough for BLOCK_ELEMENTS; up to twice that where it saves the padding."""
  enough = min(-(-rows * vocab // BLOCK_ELEMENTS), rows)
  fitting = (n for n in range(enough, 2 * enough) if rows % n == 0)
  return next(fitting, enough)


def _exponents(plan, z):
  """z - max z and its exponential [R, V]; that one's sum, log-normaliser [R].

  Maximum and sum are the whole vocabulary's, of whose logits z is a shard.
  """
  top = chunks.pmax(plan, jnp.max(z, axis=-1))
  z = z - top[:, None]
  e = jnp.exp(z)
  mass = chunks.psum(plan, jnp.sum(e, axis=-1))
  return z, e, mass, top + jnp.log(mass)


def _backward_local(
  plan, hidden, head, hidden2, head2, targets, log_norms, saved, cotangents
):
  """(d hidden [M, D], d head): see reference.pair_backward and backward."""
  policy = plan.policy
  column = lambda x: None if x is None else x[:, None]
  log_norm, log_norm2 = map(column, log_norms)
  kl, entropy = map(column, saved)
  scale = policy.inverse_temperature
  g_kl, g_logp, g_entropy = (
    None if g is None else g[:, None] * scale for g in cotangents
  )
  if targets is not None:
    targets = chunks.local_targets(policy, targets, head)

  def dz(start, w):
    width = w.shape[policy.vocab_dim]
    w2 = chunks.slice_vocab(plan.other, head2, start, width)
    logp = chunks.logits(policy, hidden, w) - log_norm
    logq = chunks.logits(plan.other, hidden2, w2) - log_norm2
    # Not logp * g - logq * g: equal laws must give exactly zero.
    weight = g_kl * ((logp - logq) - kl)
    if targets is not None:
      weight = weight - g_logp
    if policy.entropy:
      weight = weight - g_entropy * (logp + entropy)
    out = weight * jnp.exp(logp)
    if targets is not None:
      out += jnp.where(chunks.is_target(targets, start, width), g_logp, 0.0)
    return out

  d_hidden, d_head = chunks.sum_gradients(policy, hidden, head, dz)
  return chunks.psum(policy, d_hidden).astype(hidden.dtype), d_head

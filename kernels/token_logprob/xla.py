"""Vocabulary-chunked log-prob and entropy in plain XLA: the portable backend.

Forward keeps three [M] running sums (a log-sum-exp that is rescaled as the
maximum grows, the entropy's, the target's logit) over chunks of the vocabulary.
Backward recomputes each chunk's logits from the saved log-normaliser, so that
four products of size M*D*V are done where dense autodiff does three, and the
largest array besides the gradients themselves is [M, chunk].

Chunks go over the vocabulary and not over rows because a chunk's head gradient
is then complete and can be written once, in the head's own dtype; over rows, a
whole float32 head gradient would be carried. The vocabulary need not divide:
the tail is a static last slice (151,936 = 128 * 1187 has no useful divisors).
"""

import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp

Array = jax.Array

# Most [M, chunk] elements kept at once: 64 MiB of float32.
CHUNK_ELEMENTS = 2**24
MIN_CHUNK = 512
MAX_CHUNK = 8192
# Below any logit, yet finite: (m - m') * 0 must be 0 before the first chunk.
LOWEST = -1e30


class Plan(NamedTuple):
  """What is static under jit."""

  inverse_temperature: float
  entropy: bool
  chunk: int  # columns of the (local) head at a time
  axis: str | None = None  # mesh axis over which the vocabulary is cut
  mesh: jax.sharding.Mesh | jax.sharding.AbstractMesh | None = None


def chunk_size(rows: int, vocab: int) -> int:
  """Columns at a time: all of a small vocabulary, else a multiple of 128."""
  chunk = min(max(CHUNK_ELEMENTS // rows, MIN_CHUNK), MAX_CHUNK) // 128 * 128
  return vocab if rows * vocab <= CHUNK_ELEMENTS // 4 else min(chunk, vocab)


def over_chunks(vocab: int, chunk: int, body, carry):
  """carry = body(carry, start, width) over the vocabulary, tail last."""
  full, tail = divmod(vocab, chunk)
  if full == 1:
    carry = body(carry, 0, chunk)
  elif full:
    step = lambda i, carry: body(carry, i * chunk, chunk)
    carry = jax.lax.fori_loop(0, full, step, carry)
  return body(carry, full * chunk, tail) if tail else carry


def columns(head: Array, start, width: int) -> Array:
  """head[:, start : start + width]; `start` may be traced."""
  return jax.lax.dynamic_slice_in_dim(head, start, width, axis=1)


def logits(hidden: Array, head: Array, inverse_temperature: float) -> Array:
  """[M, C] float32, whatever the inputs' dtype."""
  z = jnp.dot(hidden, head, preferred_element_type=jnp.float32)
  return z if inverse_temperature == 1.0 else z * inverse_temperature


def is_target(targets: Array, start, width: int) -> Array:
  """[M, C] bool: the column is the row's target."""
  return jnp.arange(width)[None] == (targets - start)[:, None]


def backward_products(
  dz: Array, hidden: Array, head: Array
) -> tuple[Array, Array]:
  """(dz head^T [M, D] float32, hidden^T dz [D, C] float32)."""
  dz = dz.astype(hidden.dtype)
  dot = functools.partial(
    jax.lax.dot_general, preferred_element_type=jnp.float32
  )
  d_hidden = dot(dz, head, (((1,), (1,)), ((), ())))
  return d_hidden, dot(hidden, dz, (((0,), (0,)), ((), ())))


def _forward(plan: Plan, hidden: Array, head: Array, targets: Array):
  """Log-normaliser, target logit, entropy, each [M], of one vocabulary shard
  and, where the vocabulary is cut, of all of them together."""
  rows, vocab = hidden.shape[0], head.shape[1]
  if plan.axis:
    targets = targets - jax.lax.axis_index(plan.axis) * vocab

  def body(carry, start, width):
    top, mass, spread, taken = carry
    z = logits(hidden, columns(head, start, width), plan.inverse_temperature)
    new_top = jnp.maximum(top, jnp.max(z, axis=-1))
    shift = top - new_top
    z_shifted = z - new_top[:, None]
    e = jnp.exp(z_shifted)
    if plan.entropy:
      # sum e^(z-m) (z-m) and not sum e^(z-m) z: no cancellation at the end.
      spread = jnp.exp(shift) * (spread + shift * mass)
      spread += jnp.sum(e * z_shifted, axis=-1)
    mass = jnp.exp(shift) * mass + jnp.sum(e, axis=-1)
    taken += jnp.sum(jnp.where(is_target(targets, start, width), z, 0.0), -1)
    return new_top, mass, spread, taken

  zero = jnp.zeros(rows, jnp.float32)
  start = (jnp.full(rows, LOWEST, jnp.float32), zero, zero, zero)
  top, mass, spread, taken = over_chunks(vocab, plan.chunk, body, start)
  if plan.axis:
    shift = top - jax.lax.pmax(top, plan.axis)
    top = top - shift
    scale = jnp.exp(shift)
    spread = jax.lax.psum(scale * (spread + shift * mass), plan.axis)
    mass = jax.lax.psum(scale * mass, plan.axis)
    taken = jax.lax.psum(taken, plan.axis)
  log_mass = jnp.log(mass)
  return top + log_mass, taken, log_mass - spread / mass


def _backward(
  plan: Plan, hidden, head, targets, log_norm, entropy, g_logp, g_entropy
):
  """(d hidden [M, D], d head [D, V]), from cotangents and saved [M] sums."""
  vocab = head.shape[1]
  if plan.axis:
    targets = targets - jax.lax.axis_index(plan.axis) * vocab
  g_logp = (g_logp * plan.inverse_temperature)[:, None]
  if plan.entropy:
    g_entropy = (g_entropy * plan.inverse_temperature)[:, None]
    entropy = entropy[:, None]

  def body(carry, start, width):
    d_hidden, d_head = carry
    w = columns(head, start, width)
    logp = logits(hidden, w, plan.inverse_temperature) - log_norm[:, None]
    weight = g_logp
    if plan.entropy:
      weight = weight + g_entropy * (logp + entropy)
    dz = jnp.where(is_target(targets, start, width), g_logp, 0.0)
    dz = dz - weight * jnp.exp(logp)
    part, d_w = backward_products(dz, hidden, w)
    d_head = jax.lax.dynamic_update_slice_in_dim(
      d_head, d_w.astype(d_head.dtype), start, axis=1
    )
    return d_hidden + part, d_head

  start = (jnp.zeros(hidden.shape, jnp.float32), jnp.zeros_like(head))
  d_hidden, d_head = over_chunks(vocab, plan.chunk, body, start)
  if plan.axis:
    d_hidden = jax.lax.psum(d_hidden, plan.axis)
  return d_hidden.astype(hidden.dtype), d_head


def on_shards(plan: Plan, function, in_specs, out_specs):
  """`function`, over the shards of the vocabulary if it is cut.

  Manual over that axis only: rows stay with the partitioner. Left to itself it
  would gather the whole head, because a chunk is a dynamic slice of a cut axis.
  """
  if not plan.axis:
    return function
  return jax.shard_map(
    function,
    mesh=plan.mesh,
    in_specs=in_specs,
    out_specs=out_specs,
    axis_names={plan.axis},
    check_vma=False,
  )


@functools.partial(jax.custom_vjp, nondiff_argnums=(0,))
def stats(plan: Plan, hidden: Array, head: Array, targets: Array):
  """(logp [M], entropy [M] or None), float32."""
  return _stats_forward(plan, hidden, head, targets)[0]


def _stats_forward(plan, hidden, head, targets):
  cut = jax.P(None, plan.axis)
  log_norm, taken, entropy = on_shards(
    plan,
    functools.partial(_forward, plan),
    in_specs=(jax.P(), cut, jax.P()),
    out_specs=(jax.P(), jax.P(), jax.P()),
  )(hidden, head, targets)
  entropy = entropy if plan.entropy else None
  saved = (hidden, head, targets, log_norm, entropy)
  return (taken - log_norm, entropy), saved


def _stats_backward(plan, saved, cotangents):
  hidden, head, targets, log_norm, entropy = saved
  g_logp, g_entropy = cotangents
  cut = jax.P(None, plan.axis)
  rest = jax.tree.map(lambda _: jax.P(), (log_norm, entropy, g_logp, g_entropy))
  d_hidden, d_head = on_shards(
    plan,
    functools.partial(_backward, plan),
    in_specs=(jax.P(), cut, jax.P(), *rest),
    out_specs=(jax.P(), cut),
  )(hidden, head, targets, log_norm, entropy, g_logp, g_entropy)
  return d_hidden, d_head, None


stats.defvjp(_stats_forward, _stats_backward)

"""Differentiation and sharding of token_logprob, shared by its backends.

A backend gives two functions of one device's part of the head: `partial_sums`
(log-sum-exp pieces over that part) and `gradients` (from the whole vocabulary's
saved log-normaliser). Here the pieces of all parts are put together, and only
[M] vectors are saved for backward.
"""

import functools

import jax
import jax.numpy as jnp

from tandem.kernels.token_logprob import chunks
from tandem.kernels.token_logprob import pallas_gpu
from tandem.kernels.token_logprob import pallas_tpu
from tandem.kernels.token_logprob import xla

Array = jax.Array


def _backend(plan):
  if plan.implementation == 'xla':
    return xla
  return pallas_tpu if 'tpu' in plan.implementation else pallas_gpu


@functools.partial(jax.custom_vjp, nondiff_argnums=(0,))
def stats(plan: chunks.Plan, hidden: Array, head: Array, targets: Array):
  """(logp [M], entropy [M] or None), float32."""
  return _forward(plan, hidden, head, targets)[0]


def _forward(plan, hidden, head, targets):
  rows = plan.rows_spec
  log_norm, taken, entropy = chunks.on_shards(
    plan,
    functools.partial(_forward_local, plan),
    in_specs=(rows, plan.head_spec, rows),
    out_specs=rows,
  )(hidden, head, targets)
  saved = (hidden, head, targets, log_norm, entropy)
  return (taken - log_norm, entropy), saved


def _backward(plan, saved, cotangents):
  hidden, head, targets, log_norm, entropy = saved
  rows = plan.rows_spec
  d_hidden, d_head = chunks.on_shards(
    plan,
    functools.partial(_backward_local, plan),
    in_specs=(rows, plan.head_spec, rows, rows, rows, rows),
    out_specs=(rows, plan.head_spec),
  )(hidden, head, targets, log_norm, entropy, cotangents)
  return d_hidden, d_head, None


stats.defvjp(_forward, _backward)


def _forward_local(plan, hidden, head, targets):
  """(log-normaliser, target's logit, entropy or None), each [M] float32."""
  targets = chunks.local_targets(plan, targets, head)
  sums = _backend(plan).partial_sums(plan, hidden, head, targets)
  top, mass, spread, taken = sums
  if plan.axis:
    shift = top - chunks.pmax(plan, top)
    top = top - shift
    if plan.entropy:
      spread = chunks.psum(plan, jnp.exp(shift) * (spread + shift * mass))
    mass = chunks.psum(plan, jnp.exp(shift) * mass)
    taken = chunks.psum(plan, taken)
  log_mass = jnp.log(mass)
  entropy = log_mass - spread / mass if plan.entropy else None
  return top + log_mass, taken, entropy


def _backward_local(plan, hidden, head, targets, log_norm, entropy, cotangents):
  """(d hidden [M, D], d head): see reference.backward."""
  g_logp, g_entropy = (
    None if g is None else g * plan.inverse_temperature for g in cotangents
  )
  targets = chunks.local_targets(plan, targets, head)
  d_hidden, d_head = _backend(plan).gradients(
    plan, hidden, head, targets, log_norm, entropy, g_logp, g_entropy
  )
  d_hidden = chunks.psum(plan, d_hidden).astype(hidden.dtype)
  if plan.row_axes:
    d_head = jax.lax.psum(d_head, plan.row_axes)
  return d_hidden, d_head

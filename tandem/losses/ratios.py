"""Importance ratios and the surrogates built on them, per token.

Losses here are minimised and per token, [n, T]; advantages come as [n, 1] or
[n, T]. Give every function inputs that are finite: hide what the mask hides
first (`masked.hide`).
"""

import chex
import jax
import jax.numpy as jnp

from tandem.losses import masked

LIMIT = 20.0  # exp(20) is 4.9e8: far past any clip, far from overflow
GSPO_LIMIT = 10.0


def log_ratio(logp: jax.Array, old: jax.Array) -> jax.Array:
  """clip(logp - old, -20, 20), [n, T]; old carries no gradient."""
  chex.assert_equal_shape([logp, old])
  return jnp.clip(logp - jax.lax.stop_gradient(old), -LIMIT, LIMIT)


def gspo_log_ratio(
  logp: jax.Array, old: jax.Array, mask: jax.Array
) -> jax.Array:
  """The row's mean log-ratio as value, each token's own log-prob as gradient.

    log s_i(t) = sg(mean_t (logp - old)) + logp_t - sg(logp_t),  at most 10

  Args:
    logp, old: [n, T] float.
    mask: [n, T] bool; the mean is over it, and over the whole row: a row must
      not be split.

  Returns:
    [n, T] float; equal along a row in value.

  Source: GSPO-token (Zheng et al. 2025, arXiv 2507.18071); the bound of 10 as
    METHODS §1 found in verl.
  """
  chex.assert_equal_shape([logp, old, mask])
  count = jnp.sum(mask.astype(logp.dtype), axis=1)
  rows = masked.divide(jnp.sum(masked.hide(logp - old, mask), axis=1), count)
  rows = jax.lax.stop_gradient(rows)[:, None]
  own = logp - jax.lax.stop_gradient(logp)
  return jnp.minimum(rows + own, GSPO_LIMIT)


def ppo_clip(
  log_ratio: jax.Array,
  advantage: jax.Array,
  *,
  eps_low: float,
  eps_high: float,
  dual_clip: float | None = None,
) -> jax.Array:
  """PPO's pessimistic surrogate, with a second bound where A < 0 if asked.

    l = max(-A rho, -A clip(rho, 1 - eps_low, 1 + eps_high))
    dual clip c: where A < 0, l <- min(l, -A c)

  Args:
    log_ratio: [n, T] float.
    advantage: [n, 1] or [n, T] float; no gradient flows into it.
    eps_low, eps_high: how far the ratio is paid for; DAPO's clip-higher sets
      them apart.
    dual_clip: c > 1, or None for no second bound.

  Returns:
    [n, T] float.

  Source: PPO (Schulman et al. 2017, arXiv 1707.06347), equation 7; dual clip
    (Ye et al. 2020, arXiv 1912.09729), equation 5; asymmetric bounds DAPO
    (arXiv 2503.14476), §3.1.
  """
  chex.assert_rank([log_ratio, advantage], 2)
  advantage = jax.lax.stop_gradient(advantage)
  ratio = jnp.exp(log_ratio)
  clipped = jnp.clip(ratio, 1 - eps_low, 1 + eps_high)
  loss = jnp.maximum(-advantage * ratio, -advantage * clipped)
  if dual_clip is None:
    return loss
  bound = jnp.minimum(loss, -advantage * dual_clip)
  return jnp.where(advantage < 0, bound, loss)


def cispo(
  log_ratio: jax.Array,
  logp: jax.Array,
  advantage: jax.Array,
  *,
  eps_low: float,
  eps_high: float,
) -> jax.Array:
  """REINFORCE weighted by the clipped ratio: no token loses its gradient.

    l = -sg(clip(rho, 1 - eps_low, 1 + eps_high)) A logp

  The value means nothing by itself; only the gradient does.

  Args:
    log_ratio, logp: [n, T] float.
    advantage: [n, 1] or [n, T] float.
    eps_low, eps_high: bounds of the weight.

  Returns:
    [n, T] float.

  Source: CISPO (MiniMax-M1, arXiv 2506.13585), as METHODS §1 states it.
  """
  chex.assert_rank([log_ratio, logp, advantage], 2)
  weight = jnp.clip(jnp.exp(log_ratio), 1 - eps_low, 1 + eps_high)
  return -jax.lax.stop_gradient(weight * advantage) * logp


def tis_weight(
  old: jax.Array,
  rollout: jax.Array,
  mask: jax.Array,
  *,
  level: str,
  cap: float,
) -> jax.Array:
  """Truncated importance weight of the trainer's law over the decoder's.

    token:     w_t = min(exp(clip(old_t - rollout_t, -20, 20)), cap)
    sequence:  w   = min(exp(clip(sum_t m (old_t - rollout_t), -20, 20)), cap)

  Multiplies the per-token loss after clipping.

  Args:
    old, rollout: [n, T] float; the same tokens' log-probs, rescored by the
      trainer and recorded while decoding.
    mask: [n, T] bool; tokens that the policy itself drew. Under tandem the
      senior's: the junior's tokens have no such ratio.
    level: 'token' or 'sequence'.
    cap: upper bound.

  Returns:
    [n, T] float, no gradient; 1 off the mask at token level.

  Source: METHODS §1 (verl's rollout correction; cap 2 by default there, 1.2 in
    ROLL).
  """
  chex.assert_equal_shape([old, rollout, mask])
  if level not in ('token', 'sequence'):
    raise ValueError(f"tis={level!r} is no level; use 'token' or 'sequence'")
  gap = masked.hide(old - rollout, mask)
  if level == 'sequence':
    gap = jnp.broadcast_to(jnp.sum(gap, axis=1, keepdims=True), gap.shape)
  weight = jnp.minimum(jnp.exp(jnp.clip(gap, -LIMIT, LIMIT)), cap)
  return jax.lax.stop_gradient(weight)

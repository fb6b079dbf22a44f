"""Correlations of what a run logs, in jnp, so that they ride in the step."""

import chex
import jax
import jax.numpy as jnp


def average_ranks(x: jax.Array) -> jax.Array:
  """Ranks from 1, ties sharing the mean of theirs; [N] -> [N] float.

  Compares all pairs: N x N bools.
  """
  chex.assert_rank(x, 1)
  below = jnp.sum(x[None, :] < x[:, None], axis=1)
  equal = jnp.sum(x[None, :] == x[:, None], axis=1)
  return below + (equal + 1) / 2


def pearson(
  x: jax.Array, y: jax.Array, mask: jax.Array | None = None
) -> jax.Array:
  """Correlation of x and y where the mask is True; 0 where either is constant.

  Args:
    x, y: the same shape, any rank.
    mask: bool of that shape; None counts everything.

  Returns:
    Scalar in [-1, 1].
  """
  mask = jnp.ones(x.shape, bool) if mask is None else mask
  chex.assert_equal_shape([x, y, mask])
  x, y = _centred(x, mask), _centred(y, mask)
  # Each sum is rooted by itself: the product of two may leave float32.
  scale = jnp.sqrt(jnp.sum(x * x)) * jnp.sqrt(jnp.sum(y * y))
  some = scale > 0
  return jnp.where(some, jnp.sum(x * y), 0) / jnp.where(some, scale, 1)


def _centred(x, mask):
  """x minus its mean, exactly 0 off the mask and where x is constant."""
  count = jnp.maximum(jnp.sum(mask), 1)
  mean = jnp.sum(jnp.where(mask, x, 0)) / count
  low = jnp.min(jnp.where(mask, x, jnp.inf))
  high = jnp.max(jnp.where(mask, x, -jnp.inf))
  return jnp.where(mask & (low < high), x - mean, 0)


def spearman(x: jax.Array, y: jax.Array) -> jax.Array:
  """Pearson's correlation of average ranks, [N] and [N] -> scalar.

  With a binary y (a verdict) there are ties everywhere; any other rule for
  them changes the number.
  """
  return pearson(average_ranks(x), average_ranks(y))

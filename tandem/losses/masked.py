"""Sums under a mask, kept apart from their counts until the step is whole.

Every reduction returns (sum, count) and leaves the division to whoever has
added both over micro-batches, devices and hosts. Nothing under a mask reaches
a value or a gradient: entries are chosen with `where`, never multiplied away,
since 0 * inf is not 0.
"""

import chex
import jax
import jax.numpy as jnp

MODES = (
  'token-mean',
  'seq-mean-token-sum',
  'seq-mean-token-mean',
  'seq-mean-token-sum-norm',
)


def hide(x: jax.Array, mask: jax.Array, fill: float = 0.0) -> jax.Array:
  """`x` where the mask is True (or positive), `fill` elsewhere.

  Applied to the *inputs* of a formula it also keeps the gradient clean: a
  `where` after `exp` or `log` still multiplies an infinite slope by zero (the
  double-where trap of the JAX FAQ).
  """
  return jnp.where(mask.astype(bool), x, jnp.asarray(fill, x.dtype))


def divide(total: jax.Array, count: jax.Array) -> jax.Array:
  """total / count, and 0 with gradient 0 where the count is 0."""
  some = count > 0
  return jnp.where(some, total, 0) / jnp.where(some, count, 1)


def mean(x: jax.Array, mask: jax.Array) -> jax.Array:
  """Mean of `x` [n, T] over a mask [n, T]; 0 where the mask is empty."""
  return divide(*aggregate(x, mask, 'token-mean'))


def aggregate(
  per_token: jax.Array,
  mask: jax.Array,
  mode: str,
  *,
  length: int | None = None,
  denom_mask: jax.Array | None = None,
) -> tuple[jax.Array, jax.Array]:
  """A per-token loss reduced to (sum, count); the mean is sum / count.

  With l the loss, m the mask, d the denominator's mask (m unless given):

    token-mean               sum_it l m                      / sum_it d
    seq-mean-token-sum       sum_i (sum_t l m)               / rows
    seq-mean-token-mean      sum_i (sum_t l m / sum_t d)     / rows
    seq-mean-token-sum-norm  sum_i (sum_t l m / length)      / rows

  where `rows` counts the rows in which d is not wholly empty. An empty row
  adds nothing to the sum either, so it is dropped from the mean rather than
  pulling it down; a wholly empty batch gives (0, 0) and gradient 0.

  Args:
    per_token: [n, T] float. May hold NaN or inf where the mask is 0.
    mask: [n, T] bool, True where a token counts; or float weights >= 0.
    mode: one of MODES.
    length: the constant of `seq-mean-token-sum-norm` (the response budget);
      given with that mode and no other. Never T, which padding changes.
    denom_mask: [n, T] bool or float; what the denominator counts. It must
      cover the mask. None means the mask itself.

  Returns:
    Two scalars, float32 or per_token's dtype where that is wider. The count
    does not depend on per_token.

  Raises:
    ValueError: unknown mode; length missing or not asked for.

  Source: the four modes of verl's agg_loss as METHODS §1 lists them;
    `-norm` is Dr. GRPO (Liu et al. 2025, arXiv 2503.20783).
    We differ: rows empty under the mask are dropped in every sequence mode,
    and nothing is divided here.
  """
  chex.assert_rank([per_token, mask], 2)
  chex.assert_equal_shape([per_token, mask])
  if mode not in MODES:
    raise ValueError(f'agg={mode!r} is no aggregation mode; use one of {MODES}')
  if (length is not None) != (mode == 'seq-mean-token-sum-norm'):
    raise ValueError(
      f'length={length} with agg={mode!r}: the constant length belongs to '
      "'seq-mean-token-sum-norm' and that mode cannot do without it; set "
      'agg_length with that mode only (the response budget in tokens)'
    )
  dtype = jnp.promote_types(per_token.dtype, jnp.float32)  # counts stay exact
  weight = mask.astype(dtype)
  denom = weight if denom_mask is None else denom_mask.astype(dtype)
  chex.assert_equal_shape([mask, denom])
  rows = jnp.sum(hide(per_token, mask) * weight, axis=1)
  sizes = jnp.sum(denom, axis=1)
  if mode == 'token-mean':
    return jnp.sum(rows), jnp.sum(sizes)
  if mode == 'seq-mean-token-mean':
    rows = divide(rows, sizes)
  elif mode == 'seq-mean-token-sum-norm':
    rows = rows / length
  return jnp.sum(rows), jnp.sum((sizes > 0).astype(dtype))

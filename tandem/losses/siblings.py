"""Counterfactual token importance: siblings weighed by the teacher's gap.

    CTI_t^(i) = sum_{j != i} w_t^(j) A^(j) - A^(i),
    w_t^(j)   = exp(Delta_t^(j) / tau) / sum_{k != i} exp(Delta_t^(k) / tau)

t is the index inside the row. The softmax is written out over all pairs of a
group, each less its maximum: taking a row's own term off a group total cancels
when one weight dominates.

Source: CRAFT (arXiv 2606.29476), equation 7 and algorithm 1; what happens at
  positions that a sibling does not reach is a reconstruction (METHODS §4.8).
"""

import chex
import jax
import jax.numpy as jnp

from tandem.losses import checks
from tandem.losses import masked

VARIANTS = ('paper', 'fallback', 'negated')
FALLBACKS = ('product', 'zero')
ENDED = ('exclude', 'neutral')


def peers(group_id, episode_id, turn=None) -> jax.Array:
  """[N, N] bool: j is a sibling of i.

  Of the same group, of another episode (so never itself, nor its own other
  turns), and of the same turn where `turn` [N] is given.
  """
  same = lambda x: x[:, None] == x[None, :]
  out = same(group_id) & ~same(episode_id)
  return out if turn is None else out & same(turn)


def importance(
  delta,
  valid,
  advantages,
  *,
  group: int | None = None,
  sibling=None,
  tau: float = 1.0,
  g_min: int = 2,
  cti_variant: str = 'paper',
  fallback: str = 'product',
  ended_sibling: str = 'exclude',
) -> tuple[jax.Array, jax.Array]:
  """CTI of every token, and where the fallback stood in for it.

  Args:
    delta: [N, T] float; the teacher's gap. Not finite means no feedback: the
      token weighs nothing and its own fallback is 0.
    valid: [N, T] bool.
    advantages: [N] float.
    group: G for equal adjacent groups, all pairs of a group at once; or
    sibling: [N, N] bool (`peers`), for anything else; row after row, N x T at
      a time.
    tau: temperature of the weights, above 0.
    g_min: the smallest group that (7) is used for. Counted by position, as
      live siblings + 1, so that a group thins out as its rows end; 999 is the
      fallback everywhere.
    cti_variant: 'paper'; 'negated', its opposite sign; 'fallback', A Delta
      everywhere.
    fallback: 'product' is A Delta; 'zero' is 0.
    ended_sibling: 'exclude' drops siblings that ended before t; 'neutral'
      keeps them with Delta = 0, which is a weight of 1 before normalising.

  Returns:
    cti [N, T] float, 0 off the mask; fell_back [N, T] bool, within the mask.

  Raises:
    ValueError: an unknown option, tau not above 0, both or neither of group
      and sibling, a group that does not divide N.
  """
  delta, advantages = jnp.asarray(delta), jnp.asarray(advantages)
  valid = jnp.asarray(valid, bool)
  chex.assert_rank([delta, valid, advantages], [2, 2, 1])
  chex.assert_equal_shape([delta, valid])
  chex.assert_equal_shape_prefix([delta, advantages], 1)
  check(tau, g_min, cti_variant, fallback, ended_sibling)
  n, t = delta.shape
  if (group is None) == (sibling is None):
    raise ValueError('give exactly one of group (equal, adjacent) and sibling')
  if group is not None and (group < 1 or n % group):
    raise ValueError(
      f'group={group} does not divide N={n}; siblings must be adjacent, or '
      'told by `sibling`'
    )
  known = jnp.isfinite(delta)
  delta = masked.hide(delta, valid & known)
  own = advantages[:, None] * delta
  own = own if fallback == 'product' else jnp.zeros_like(own)
  if cti_variant == 'fallback':
    return own, valid
  live = valid & known if ended_sibling == 'exclude' else known | ~valid
  if group is not None:
    cut = lambda x: x.reshape(n // group, group, *x.shape[1:])
    others = ~jnp.eye(group, dtype=bool)
    by_row = jax.vmap(_pool, (0, None, None, None, None))
    by_group = jax.vmap(by_row, (None, 0, 0, 0, None))
    pooled, count = by_group(
      others, cut(delta), cut(live), cut(advantages), tau
    )
    pooled, count = pooled.reshape(n, t), count.reshape(n, t)
  else:
    pool = lambda row: _pool(row, delta, live, advantages, tau)
    pooled, count = jax.lax.map(pool, jnp.asarray(sibling, bool))
  cti = pooled - advantages[:, None]
  cti = -cti if cti_variant == 'negated' else cti
  enough = count >= max(g_min - 1, 1)
  return masked.hide(jnp.where(enough, cti, own), valid), valid & ~enough


def _pool(others, delta, live, advantages, tau):
  """sum_j w_j A_j over one row's siblings, and how many are live; [T] each.

  others [M] bool, delta [M, T] finite, live [M, T] bool, advantages [M].
  """
  live = live & others[:, None]
  count = jnp.sum(live, axis=0)
  top = jnp.max(jnp.where(live, delta, -jnp.inf), axis=0)
  top = jnp.where(count > 0, top, 0)
  # The difference first: delta / tau alone overflows as tau goes to 0.
  weight = jnp.exp((masked.hide(delta, live) - top[None, :]) / tau)
  weight = masked.hide(weight, live)
  total = jnp.sum(weight * advantages[:, None], axis=0)
  return masked.divide(total, jnp.sum(weight, axis=0)), count


def signed_credit(
  cti: jax.Array, *, beta_pos: float, beta_neg: float
) -> jax.Array:
  """c in (-1, 1): 2 sigmoid(beta |CTI|) - 1 with CTI's sign, beta by sign.

  Source: CRAFT, equations 8 and 9; 2 sigmoid(x) - 1 = tanh(x / 2).
  """
  beta = jnp.where(cti > 0, beta_pos, beta_neg).astype(cti.dtype)
  return jnp.tanh(beta * cti / 2)


def check(tau, g_min, cti_variant, fallback, ended_sibling) -> None:
  """Raises ValueError on options of `importance` that are none."""
  if not tau > 0:
    raise ValueError(f'tau={tau} must be above 0; 1.0 is usual')
  checks.at_least('g_min', g_min, 2)
  checks.choice('cti_variant', cti_variant, VARIANTS)
  checks.choice('fallback', fallback, FALLBACKS)
  checks.choice('ended_sibling', ended_sibling, ENDED)

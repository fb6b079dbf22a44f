"""What a row is worth beside its siblings."""

import chex
import jax
import jax.numpy as jnp

from tandem import types


def _floating(rewards) -> jax.Array:
  rewards = jnp.asarray(rewards)
  return rewards.astype(jnp.promote_types(rewards.dtype, jnp.float32))


def groups(batch: types.StepBatch) -> dict:
  """How the batch tells its groups: `group`, or `group_id` where ragged."""
  return {'group': batch.group} if batch.group else {'group_id': batch.group_id}


def siblings(rewards, group, group_id):
  """Each row's group as a row of numbers.

  Args:
    rewards: [N] float, or whatever number a row has.
    group: G for equal adjacent groups, or
    group_id: [N] int for ragged ones.

  Returns:
    values [N, M] and present [N, M] bool, the row itself included.
  """
  chex.assert_rank(rewards, 1)
  if (group is None) == (group_id is None):
    raise ValueError(
      f'group={group}, group_id={"given" if group_id is not None else None}: '
      'give exactly one, `group` for equal adjacent groups or `group_id` [N] '
      'for ragged ones'
    )
  n = rewards.shape[0]
  if group is not None:
    if group < 1 or n % group:
      raise ValueError(
        f'group={group} does not divide N={n}; rows must be prompts * group, '
        'siblings adjacent (ragged groups: pass group_id)'
      )
    values = jnp.repeat(rewards.reshape(-1, group), group, axis=0)
    return values, jnp.ones(values.shape, bool)
  group_id = jnp.asarray(group_id)
  chex.assert_equal_shape([rewards, group_id])
  present = group_id[:, None] == group_id[None, :]
  return jnp.broadcast_to(rewards[None, :], (n, n)), present


def flat(values, present):
  """[N] bool: all the rewards of the row's group are the same number."""
  low = jnp.min(jnp.where(present, values, jnp.inf), axis=1)
  high = jnp.max(jnp.where(present, values, -jnp.inf), axis=1)
  return low == high


def group_advantages(
  rewards,
  *,
  group: int | None = None,
  group_id=None,
  scale_by_std: bool = True,
  eps: float = 1e-6,
) -> jax.Array:
  """Reward minus its group's mean, by default over the group's deviation.

    A_i = (R_i - mean_g R) / (std_g R + eps)

  A group whose rewards are all equal gets exactly 0, not the rounding error
  of its mean over eps. A group of one gets A = R.

  Args:
    rewards: [N] numpy or jax; integers are taken as float32.
    group: G, rows per prompt, adjacent; N must be a multiple of it.
    group_id: [N] int, equal for siblings, in any order; instead of `group`
      where groups are ragged. Compares all pairs of rows, N x N bools.
    scale_by_std: False leaves the division out (Dr. GRPO).
    eps: added to the sample deviation (ddof 1).

  Returns:
    [N] float. Stop-gradient is the caller's business.

  Raises:
    ValueError: group does not divide N; both or neither of group, group_id.

  Source: Shao et al. 2024 (arXiv 2402.03300), outcome supervision; the sample
    deviation, eps and the group of one as METHODS §1 found in verl.
    We differ: A = R exactly for one row (verl divides by 1 + eps).
  """
  rewards = _floating(rewards)
  values, present = siblings(rewards, group, group_id)
  size = jnp.sum(present, axis=1).astype(rewards.dtype)
  mean = jnp.sum(jnp.where(present, values, 0), axis=1) / size
  centred = rewards - mean
  if scale_by_std:
    squares = jnp.where(present, (values - mean[:, None]) ** 2, 0)
    variance = jnp.sum(squares, axis=1) / jnp.maximum(size - 1, 1)
    centred = centred / (jnp.sqrt(variance) + eps)
  centred = jnp.where(flat(values, present), 0, centred)
  return jnp.where(size == 1, rewards, centred)


def degenerate(rewards, *, group: int | None = None, group_id=None):
  """True on rows of groups whose rewards are all equal: nothing to learn.

  What dynamic sampling refills (DAPO, Yu et al. 2025, arXiv 2503.14476, §3.2):
  the trainer draws new prompts in place of these. A group of one is never
  degenerate, since its advantage is its reward; dynamic sampling with G = 1
  would be a switch without effect and the trainer refuses it.

  Args:
    rewards: [N] numpy or jax.
    group: G for equal adjacent groups, or
    group_id: [N] int for ragged ones.

  Returns:
    [N] bool, equal on siblings.
  """
  values, present = siblings(_floating(rewards), group, group_id)
  return flat(values, present) & (jnp.sum(present, axis=1) > 1)


def overlong_penalty(lengths, *, max_tokens: int, buffer_tokens: int):
  """DAPO's soft punishment of length, added to the reward before grouping.

    0                                         L <= max - buffer
    ((max - buffer) - L) / buffer             up to max, where it is -1
    -1                                        beyond

  Args:
    lengths: [N] int; emitted tokens, EOS included.
    max_tokens: the length that costs a whole point.
    buffer_tokens: over how many tokens before it the cost grows.

  Returns:
    [N] float32 in [-1, 0].

  Source: DAPO (arXiv 2503.14476), equation 13.
  """
  lengths = jnp.asarray(lengths).astype(jnp.float32)
  over = lengths - (max_tokens - buffer_tokens)
  return -jnp.clip(over / buffer_tokens, 0.0, 1.0)

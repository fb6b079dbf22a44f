"""The teacher's feedback on the student's tokens, for `opd` and `gr_opd`.

    r_t = log q(y_t | h_t) - log p_old(y_t | h_t),  E[r_t | h_t] = -KL(p || q)

detached, clipped to +-feedback_clip. Rewards pay nothing here; the verifier's
verdicts only serve to watch the run (correlations, collapse).
"""

import dataclasses

import jax
import jax.numpy as jnp

from tandem import types
from tandem.losses import advantages
from tandem.losses import checks
from tandem.losses import grpo
from tandem.losses import masked
from tandem.losses import ranks

FROM_REWARDS = ('scale_by_std', 'overlong_max_tokens', 'overlong_buffer_tokens')


@dataclasses.dataclass(frozen=True)
class Config(grpo.Config):
  """GRPO's surrogate under a teacher's credit, and the collapse tag.

  The surrogate's defaults are the ones that GR-OPD most likely used: rows
  weigh the same, no dual clip (METHODS §3.2 (6), a reconstruction).

  Attributes:
    feedback_clip: bound of |r_t|; None leaves it unbounded, and then a teacher
      log-prob of -inf makes the loss non-finite.
    collapse_max_tokens: the response budget, in tokens; None logs no tag.
    collapse_length: share of the budget that the mean length reaches,
    collapse_reward: and mean reward not exceeded, in a collapsed step.
    collapse_steps: such steps in a row that raise the tag.
  """

  agg: str = 'seq-mean-token-mean'
  dual_clip: float | None = None
  feedback_clip: float | None = 5.0
  collapse_max_tokens: int | None = None
  collapse_length: float = 0.9
  collapse_reward: float = 0.05
  collapse_steps: int = 10

  def __post_init__(self):
    super().__post_init__()
    checks.all_idle(
      self, FROM_REWARDS, 'a teacher pays here and rewards do not'
    )
    if self.feedback_clip is not None and not self.feedback_clip > 0:
      raise ValueError(
        f'feedback_clip={self.feedback_clip} must be above 0, or None for '
        'feedback as it is'
      )
    checks.between('collapse_length', self.collapse_length, 0.0, 1.0)
    checks.at_least('collapse_steps', self.collapse_steps, 1)
    if self.collapse_max_tokens is None:
      checks.all_idle(
        self,
        ('collapse_length', 'collapse_reward', 'collapse_steps'),
        'set collapse_max_tokens to the response budget',
      )
    else:
      checks.at_least('collapse_max_tokens', self.collapse_max_tokens, 1)


def token_feedback(batch: types.StepBatch, old: jax.Array, cfg: Config):
  """r_t clipped, [N, T]; 0 off the mask.

  Args:
    batch: with scores['teacher'] [N, T].
    old: [N, T]; the student's log-probs that the ratio starts from.
    cfg: Config.

  Raises:
    ValueError: the batch has no teacher's scores.
  """
  teacher = masked.hide(checks.score(batch, 'teacher'), batch.valid)
  gap = teacher - masked.hide(old, batch.valid)
  if cfg.feedback_clip is not None:
    gap = jnp.clip(gap, -cfg.feedback_clip, cfg.feedback_clip)
  return jax.lax.stop_gradient(gap)


def base_credit(batch: types.StepBatch, cfg: Config):
  """GRPO's rows without its advantage, r_t [N, T], and metrics."""
  rows, metrics = grpo.base_credit(batch, cfg, batch.valid)
  # Of the verifier's advantages, which pay nobody here.
  del rows['advantage']
  del metrics['advantage/abs_mean'], metrics['advantage/degenerate']
  rows['mask'] = batch.valid
  gap = token_feedback(batch, rows['old'], cfg)
  metrics['feedback/mean'] = masked.mean(gap, batch.valid)
  if cfg.feedback_clip is not None:
    at_bound = jnp.abs(gap) >= cfg.feedback_clip
    metrics['feedback/clipped'] = masked.mean(
      at_bound.astype(jnp.float32), batch.valid
    )
  return rows, gap, metrics


def correlations(batch: types.StepBatch, scores: jax.Array):
  """Whether a row's score [N] follows its length or the verifier.

  Source: GR-OPD's figure 4 shows Pearson with length and Spearman with the
    verdict over the whole batch (METHODS §3.4); both of both are logged.
  """
  lengths = jnp.sum(batch.valid, axis=1).astype(scores.dtype)
  rewards = batch.rewards.astype(scores.dtype)
  return {
    'feedback/score_mean': jnp.mean(scores),
    'feedback/pearson_length': ranks.pearson(scores, lengths),
    'feedback/spearman_length': ranks.spearman(scores, lengths),
    'feedback/pearson_reward': ranks.pearson(scores, rewards),
    'feedback/spearman_reward': ranks.spearman(scores, rewards),
  }


def init_state(cfg: Config):
  """Collapsed steps in a row so far; {} where no tag is kept."""
  if cfg.collapse_max_tokens is None:
    return {}
  return {'collapsed_steps': jnp.zeros((), jnp.int32)}


def collapse(batch: types.StepBatch, state, cfg: Config):
  """(state, metrics): responses heading for the budget, rewards for zero.

  A step counts when mean length >= collapse_length * collapse_max_tokens and
  mean reward <= collapse_reward; the tag is up from the collapse_steps-th such
  step in a row on, and comes down with the first other one.
  """
  if cfg.collapse_max_tokens is None:
    return state, {}
  length = jnp.mean(jnp.sum(batch.valid, axis=1).astype(jnp.float32))
  long = length >= cfg.collapse_length * cfg.collapse_max_tokens
  poor = jnp.mean(batch.rewards) <= cfg.collapse_reward
  steps = jnp.where(long & poor, state['collapsed_steps'] + 1, 0)
  metrics = {
    'collapse/steps': steps.astype(jnp.float32),
    'collapse/tag': (steps >= cfg.collapse_steps).astype(jnp.float32),
  }
  return {'collapsed_steps': steps}, metrics


def scorings(cfg: Config) -> tuple[str, ...]:
  """GRPO's, and the teacher's."""
  return (*grpo.scorings(cfg), 'teacher')


def moments(batch: types.StepBatch, scores: jax.Array, ddof: int):
  """group_moments of the batch's own groups."""
  return group_moments(scores, ddof=ddof, **advantages.groups(batch))


def group_moments(
  scores: jax.Array,
  *,
  group: int | None = None,
  group_id=None,
  ddof: int = 1,
):
  """Mean, deviation and size of each row's group, [N] each.

  Equal scores have exactly their own value for mean, and deviation 0.

  Args:
    scores: [N] float.
    group: G for equal adjacent groups, or
    group_id: [N] int for ragged ones.
    ddof: 1 for the sample deviation, 0 for the population's. One row alone has
      deviation 0 by either.
  """
  values, present = advantages.siblings(scores, group, group_id)
  size = jnp.sum(present, axis=1).astype(scores.dtype)
  mean = jnp.sum(jnp.where(present, values, 0), axis=1) / size
  squares = jnp.where(present, (values - mean[:, None]) ** 2, 0)
  variance = jnp.sum(squares, axis=1) / jnp.maximum(size - ddof, 1)
  flat = advantages.flat(values, present)
  mean = jnp.where(flat, scores, mean)
  return mean, jnp.where(flat, 0, jnp.sqrt(variance)), size

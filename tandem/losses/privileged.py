"""What the self-distillation losses share: the privileged teacher's gap.

    Delta_t = sg[log pi(y_t | s+_t) - log pi_old(y_t | s_t)]

The teacher is the policy itself under privileged context (a skill, a worked
solution), scored frozen as `privileged`. Around it all of them keep GRPO's
surrogate and a KL to the reference, at SDAR's launchers' settings (k3, .01; .001
for its search task), so that they compare on equal terms.
"""

import dataclasses

import jax
import jax.numpy as jnp

from tandem import types
from tandem.losses import checks
from tandem.losses import grpo
from tandem.losses import kl
from tandem.losses import masked


@dataclasses.dataclass(frozen=True)
class Config(grpo.Config):
  """GRPO's numbers, anchored to the reference by default."""

  kl_to: str = 'reference'
  kl_coef: float = 0.01
  kl_estimator: str = 'k3'


def base_credit(batch: types.StepBatch, cfg: Config):
  """GRPO's rows, the teacher's, the gap and metrics.

  Returns:
    rows: GRPO's with `mask`, and `privileged` [N, T] with `informed` [N, T]
      bool, True on valid tokens whose privileged log-prob is finite. Elsewhere
      there is no feedback: the token adds 0 to a sum and still counts.
    gap: Delta [N, T]; 0 off the mask, infinite where not informed.
    metrics: {name: scalar}.
  """
  rows, metrics = grpo.base_credit(batch, cfg, batch.valid)
  score = jax.lax.stop_gradient(checks.score(batch, 'privileged'))
  rows['mask'] = batch.valid
  rows['informed'] = batch.valid & jnp.isfinite(score)
  rows['privileged'] = masked.hide(score, rows['informed'])
  gap = masked.hide(score, batch.valid) - masked.hide(rows['old'], batch.valid)
  known = masked.hide(gap, rows['informed'])
  metrics['privileged/gap_mean'] = masked.mean(known, rows['informed'])
  metrics['privileged/gap_positive'] = masked.mean(
    (known > 0).astype(jnp.float32), rows['informed']
  )
  return rows, gap, metrics


def token_term(
  per_token: jax.Array, mask: jax.Array, rows, cfg: Config, coef
) -> tuple[jax.Array, jax.Array]:
  """coef Agg(per_token), (sum, count); the count is of all valid tokens.

  Args:
    per_token: [n, T] float.
    mask: [n, T] bool; tokens that have a value.
    rows: the micro-batch's, for its `mask`.
    cfg: Config; its aggregation.
    coef: a number, or a scalar of credit.
  """
  total, count = masked.aggregate(
    per_token, mask, cfg.agg, length=cfg.agg_length, denom_mask=rows['mask']
  )
  return coef * total, count


def negative_term(
  per_token: jax.Array, negative: jax.Array, cfg, coef
) -> tuple[jax.Array, jax.Array]:
  """coef Agg(per_token) over the negative tokens [n, T], counting only them."""
  total, count = masked.aggregate(
    per_token, negative, cfg.agg, length=cfg.agg_length
  )
  return coef * total, count


def anchor_penalty(logp: jax.Array, rows, cfg: Config) -> jax.Array:
  """The KL estimate per token, [n, T], before its coefficient."""
  mask = rows['mask']
  return kl.penalty(
    cfg.kl_estimator,
    masked.hide(logp, mask),
    masked.hide(rows['anchor'], mask),
  )


def scorings(cfg: Config) -> tuple[str, ...]:
  """GRPO's, and the privileged teacher's."""
  return (*grpo.scorings(cfg), 'privileged')

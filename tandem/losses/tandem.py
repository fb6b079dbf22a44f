"""Tandem RL's update: GRPO on the tokens that the senior wrote.

    m_eff = valid and author
    L = Agg(l_t, mask = m_eff)            no KL and no entropy by default

Everything else is `grpo`'s, the same code on another mask, so that with the
senior alone (p = 1) the lowered program and its bits are GRPO's.

The two readings of the paper's lambda_jun are two fields:

  lambda_jun_policy     the released knob: the junior's tokens enter the
                        *policy* term with this weight (mask m + (1 - m) lambda)
  lambda_jun_imitation  the original one: a term of its own,
                        -lambda Agg(logp_senior(y_t), the junior's tokens),
                        whose gradient estimates that of KL(junior || senior)
                        in the states where the junior spoke

Source: Tandem RL (arXiv 2606.28166), the update as METHODS §2.4 gives it.
"""

import dataclasses

import jax
import jax.numpy as jnp

from tandem import types
from tandem.losses import checks
from tandem.losses import grpo
from tandem.losses import masked
from tandem.losses import variant


@dataclasses.dataclass(frozen=True)
class Config(grpo.Config):
  """GRPO's numbers and the gate's.

  The gate also bounds the KL and entropy terms (senior tokens only, whatever
  lambda_jun_policy is), GSPO's mean and the sum of sequence-level TIS.

  Attributes:
    denom: 'senior' divides by what the gate lets through, as the paper
      trained; 'all' by every emitted token, as its later release does (a
      gradient smaller by about the senior's share).
    lambda_jun_policy: weight of the junior's tokens in the policy term.
    lambda_jun_imitation: coefficient of the imitation term.
  """

  denom: str = 'senior'
  lambda_jun_policy: float = 0.0
  lambda_jun_imitation: float = 0.0

  def __post_init__(self):
    super().__post_init__()
    checks.choice('denom', self.denom, ('senior', 'all'))
    checks.between('lambda_jun_policy', self.lambda_jun_policy, 0.0, 1.0)
    checks.between(
      'lambda_jun_imitation', self.lambda_jun_imitation, 0.0, float('inf')
    )
    if self.lambda_jun_policy and self.ratio == 'gspo':
      raise ValueError(
        f"lambda_jun_policy={self.lambda_jun_policy} with ratio='gspo': the "
        "sequence ratio is the senior's tokens' and weighs no others; set "
        "ratio='token' or lambda_jun_policy=0"
      )


def credit(batch: types.StepBatch, state, cfg: Config):
  """GRPO's credit behind the gate; see variant.Variant.

  Raises:
    ValueError: the batch has no authors.
  """
  if batch.author is None:
    raise ValueError(
      "loss variant 'tandem' got a batch without authors (author=None): solo "
      "rollouts have none; set rollout.mode='tandem' or loss.variant='grpo'"
    )
  senior = jnp.logical_and(batch.valid, batch.author.astype(bool))
  rows, metrics = grpo.base_credit(batch, cfg, senior)
  rows['mask'] = senior
  if cfg.lambda_jun_policy:
    gate = jnp.where(batch.author.astype(bool), 1.0, cfg.lambda_jun_policy)
    rows['mask'] = masked.hide(gate.astype(jnp.float32), batch.valid)
    rows['senior'] = senior
  if cfg.denom == 'all':
    rows['valid'] = batch.valid
  if cfg.lambda_jun_imitation:
    rows['junior'] = jnp.logical_and(batch.valid, ~senior)
  ones = jnp.ones(senior.shape, jnp.float32)
  metrics['tandem/senior_share'] = masked.mean(
    jnp.where(senior, ones, 0), batch.valid
  )
  alone = jnp.any(batch.valid, axis=1) & ~jnp.any(senior, axis=1)
  metrics['tandem/rows_without_senior'] = jnp.mean(alone.astype(jnp.float32))
  return types.Credit(rows=rows, scalars={}), state, metrics


def objective(stats, credit: types.Credit, cfg: Config) -> variant.Terms:
  """GRPO's terms behind the gate, and the imitation term."""
  rows = credit.rows
  mask = rows['mask']
  terms = grpo.terms(
    stats,
    rows,
    cfg,
    mask=mask,
    sampled=rows['senior'] if cfg.lambda_jun_policy else mask,
    denom=rows['valid'] if cfg.denom == 'all' else mask,
  )
  if cfg.lambda_jun_imitation:
    terms['imitation'] = _imitation(stats['logp'], rows, cfg)
  return terms


def _imitation(logp: jax.Array, rows, cfg: Config):
  total, count = masked.aggregate(
    -logp, rows['junior'], cfg.agg, length=cfg.agg_length
  )
  return cfg.lambda_jun_imitation * total, count


def check(cfg: Config, mode: str, group: int) -> None:
  """Raises ValueError on rollouts that have no authors."""
  del cfg
  checks.choice('rollout.mode', mode, ('solo', 'tandem'))
  checks.at_least('group', group, 1)
  if mode != 'tandem':
    raise ValueError(
      f"loss variant 'tandem' with rollout.mode={mode!r}: there are no authors "
      "to gate by; set rollout.mode='tandem' or loss.variant='grpo'"
    )


VARIANT = variant.Variant(
  name='tandem',
  config=Config,
  credit=credit,
  objective=objective,
  scorings=grpo.scorings,
  stats=grpo.stats,
  check=check,
)

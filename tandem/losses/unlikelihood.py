"""Unlikelihood: GRPO, and -log(1 - p(y_t)) on negative tokens.

Its slope in log p is p / (1 - p): without bound as p goes to 1, where CRINGE's
stays below 1. So p is taken as at most 1 - 1e-6, and beyond that a token is
pushed no more.

Source: Welleck et al. 2019 (arXiv 1908.04319), equation 2's form as METHODS §5
  states it. Which tokens are negative is ours to choose: those that the
  privileged teacher likes less, as CRINGE's baselines have it, or whole rows.
"""

import dataclasses

import jax
import jax.numpy as jnp

from tandem import types
from tandem.losses import checks
from tandem.losses import grpo
from tandem.losses import masked
from tandem.losses import privileged
from tandem.losses import variant

TOP = -1e-6  # log of the largest p that is still pushed


@dataclasses.dataclass(frozen=True)
class Config(privileged.Config):
  """The anchored GRPO's numbers and the negatives'.

  Attributes:
    unlikelihood_coef: weight of the term, above 0.
    negatives: 'token', where Delta_t < 0; 'row', every token of a row whose
      reward does not exceed positive_reward (no privileged teacher needed).
    positive_reward: see there.
  """

  unlikelihood_coef: float = 0.01
  negatives: str = 'token'
  positive_reward: float = 0.5

  def __post_init__(self):
    super().__post_init__()
    checks.choice('negatives', self.negatives, ('token', 'row'))
    if not self.unlikelihood_coef > 0:
      raise ValueError(
        f'unlikelihood_coef={self.unlikelihood_coef} must be above 0; for no '
        "such term use variant 'grpo'"
      )
    if self.negatives == 'token':
      checks.idle(self, 'positive_reward', "set negatives='row'")


def penalty(logp: jax.Array) -> jax.Array:
  """-log(1 - exp(logp)), [n, T]; logp must be finite (hide it first)."""
  return -jnp.log(-jnp.expm1(jnp.minimum(logp, TOP)))


def credit(batch: types.StepBatch, state, cfg: Config):
  """GRPO's credit and the negative tokens; see variant.Variant."""
  if cfg.negatives == 'row':
    credit, state, metrics = grpo.credit(batch, state, cfg)
    rows = credit.rows
    poor = batch.rewards <= cfg.positive_reward
    rows['negative'] = batch.valid & poor[:, None]
  else:
    rows, gap, metrics = privileged.base_credit(batch, cfg)
    rows['negative'] = rows['informed'] & (gap < 0)
  metrics['unlikelihood/negative_share'] = masked.mean(
    rows['negative'].astype(jnp.float32), batch.valid
  )
  return types.Credit(rows=rows, scalars={}), state, metrics


def objective(stats, credit: types.Credit, cfg: Config) -> variant.Terms:
  """GRPO's terms and the negatives'; see variant.Variant."""
  terms = grpo.objective(stats, credit, cfg)
  negative = credit.rows['negative']
  per_token = penalty(masked.hide(stats['logp'], negative, -1.0))
  terms['unlikelihood'] = privileged.negative_term(
    per_token, negative, cfg, cfg.unlikelihood_coef
  )
  return terms


def scorings(cfg: Config) -> tuple[str, ...]:
  """Frozen scorings that credit reads."""
  return (grpo if cfg.negatives == 'row' else privileged).scorings(cfg)


VARIANT = variant.Variant(
  name='unlikelihood',
  config=Config,
  credit=credit,
  objective=objective,
  scorings=scorings,
  stats=grpo.stats,
  check=checks.solo_only('unlikelihood'),
)

"""Skill-SD: GRPO with an importance-weighted k3 to the privileged teacher.

    l_t = (exp(min(-x, 20)) - 1 + x) exp(min(logp - old, 10)),
    x   = logp - logp_teacher

added with weight skill_coef; the gradient goes through both factors, so that it
is the score-function estimate as well as the pathwise one.

Source: Skill-SD as METHODS §5 found it in SDAR's release (skillsd_utils); .001
  as its launcher has it (.1 in the class). The KL is the family's, see
  `privileged`.
"""

import dataclasses

import jax.numpy as jnp

from tandem import types
from tandem.losses import checks
from tandem.losses import grpo
from tandem.losses import masked
from tandem.losses import privileged
from tandem.losses import variant

GAP_LIMIT = 20.0
RATIO_LIMIT = 10.0


@dataclasses.dataclass(frozen=True)
class Config(privileged.Config):
  """The anchored GRPO's numbers, and skill_coef, above 0."""

  skill_coef: float = 0.001

  def __post_init__(self):
    super().__post_init__()
    if not self.skill_coef > 0:
      raise ValueError(
        f'skill_coef={self.skill_coef} must be above 0 (0.001 is usual); for '
        "no such term use variant 'grpo'"
      )


def credit(batch: types.StepBatch, state, cfg: Config):
  """GRPO's credit and the privileged log-probs; see variant.Variant."""
  rows, _, metrics = privileged.base_credit(batch, cfg)
  return types.Credit(rows=rows, scalars={}), state, metrics


def objective(stats, credit: types.Credit, cfg: Config) -> variant.Terms:
  """GRPO's terms and the teacher's; see variant.Variant."""
  terms = grpo.objective(stats, credit, cfg)
  rows = credit.rows
  informed = rows['informed']
  logp = masked.hide(stats['logp'], informed)
  x = logp - rows['privileged']
  k3 = jnp.exp(jnp.minimum(-x, GAP_LIMIT)) - 1 + x
  ratio = jnp.exp(
    jnp.minimum(logp - masked.hide(rows['old'], informed), RATIO_LIMIT)
  )
  terms['skill'] = privileged.token_term(
    k3 * ratio, informed, rows, cfg, cfg.skill_coef
  )
  return terms


VARIANT = variant.Variant(
  name='skill_sd',
  config=Config,
  credit=credit,
  objective=objective,
  scorings=privileged.scorings,
  stats=grpo.stats,
  check=checks.solo_only('skill_sd'),
)

"""SDAR: GRPO with a gated pull towards the privileged teacher; and its kin.

    L = L_PG + kl_coef KL + sdar_coef Agg(g_t (log pi_T - log pi)),
    g_t = sg[sigmoid(gate_beta (log pi_T - log pi))]

with the *current* log-prob in the gate and in the gap, so a weighted likelihood
term: its gradient is -g_t grad log pi, and the teacher's size enters only
through the gate.

  GRPO + OPSD  gate_beta=0: a constant gate of 1/2, which is uniform
               self-imitation and no longer reads the teacher
  OPSD         policy_coef=0
  GRPO         sdar_coef=0: the program is GRPO's own, with its KL

Source: SDAR's loss and coefficients as METHODS §5 found them in its release
  (sdar_utils); CRAFT (arXiv 2606.29476), equation 3, states the same term.
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

# What only the policy term reads.
POLICY = (
  'scale_by_std',
  'advantage_eps',
  'eps_low',
  'eps_high',
  'dual_clip',
  'ratio',
  'tis',
  'overlong_max_tokens',
  'overlong_buffer_tokens',
)


@dataclasses.dataclass(frozen=True)
class Config(privileged.Config):
  """The anchored GRPO's numbers and the gate's.

  Attributes:
    sdar_coef: weight of the distillation term; 0 leaves it out.
    gate_beta: sharpness of the gate, at least 0.
    policy_coef: weight of the policy term; 0 leaves it out.
  """

  sdar_coef: float = 0.01
  gate_beta: float = 5.0
  policy_coef: float = 1.0

  def __post_init__(self):
    super().__post_init__()
    for field in ('sdar_coef', 'gate_beta', 'policy_coef'):
      checks.between(field, getattr(self, field), 0.0, float('inf'))
    if not self.sdar_coef:
      checks.idle(self, 'gate_beta', 'there is no term with sdar_coef=0')
    if not self.policy_coef:
      checks.all_idle(self, POLICY, 'there is no policy term to bound')
      if not self.sdar_coef:
        raise ValueError(
          'policy_coef=0 with sdar_coef=0: nothing is left to learn from; give '
          'one of them a weight'
        )


def credit(batch: types.StepBatch, state, cfg: Config):
  """GRPO's credit and the privileged log-probs; see variant.Variant.

  The gate's metrics are taken at the old log-probs: the first update's.
  """
  if not cfg.sdar_coef:
    return grpo.credit(batch, state, cfg)
  rows, gap, metrics = privileged.base_credit(batch, cfg)
  gate = jax.nn.sigmoid(cfg.gate_beta * masked.hide(gap, rows['informed']))
  metrics['sdar/gate_mean'] = masked.mean(gate, rows['informed'])
  metrics['sdar/gate_active'] = masked.mean(
    (gate > 0.5).astype(jnp.float32), rows['informed']
  )
  return types.Credit(rows=rows, scalars={}), state, metrics


def base_terms(stats, credit: types.Credit, cfg: Config) -> variant.Terms:
  """GRPO's terms, the policy's under its coefficient."""
  terms = grpo.objective(stats, credit, cfg)
  if not cfg.policy_coef:
    del terms['policy']
  elif cfg.policy_coef != 1:  # at 1 nothing is multiplied: GRPO's own program
    total, count = terms['policy']
    terms['policy'] = cfg.policy_coef * total, count
  return terms


def objective(stats, credit: types.Credit, cfg: Config) -> variant.Terms:
  """base_terms and the gated one; see variant.Variant."""
  terms = base_terms(stats, credit, cfg)
  if not cfg.sdar_coef:
    return terms
  rows = credit.rows
  informed = rows['informed']
  gap = rows['privileged'] - masked.hide(stats['logp'], informed)
  gate = jax.lax.stop_gradient(jax.nn.sigmoid(cfg.gate_beta * gap))
  terms['sdar'] = privileged.token_term(
    gate * gap, informed, rows, cfg, cfg.sdar_coef
  )
  return terms


def scorings(cfg: Config) -> tuple[str, ...]:
  """Frozen scorings that credit reads."""
  return (privileged if cfg.sdar_coef else grpo).scorings(cfg)


VARIANT = variant.Variant(
  name='sdar',
  config=Config,
  credit=credit,
  objective=objective,
  scorings=scorings,
  stats=grpo.stats,
  check=checks.solo_only('sdar'),
)

"""RLSD: the privileged gap re-weights GRPO's advantage, token by token.

    w_t = clip(exp(sign(A) Delta_t), 1 - clip, 1 + clip)
    A_t = A ((1 - l) + l w_t),  l = mix_start max(0, 1 - step / mix_steps)

Delta from old log-probs; A_t takes the advantage's place in the surrogate, and
from step mix_steps on the loss is GRPO's. The step is the variant's own state:
steps whose credit was computed, from 0.

Source: RLSD as METHODS §5 found it in SDAR's release (rlsd_utils); 100 steps as
  its launcher has them (50 in the class). The KL is the family's, see
  `privileged`.
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


@dataclasses.dataclass(frozen=True)
class Config(privileged.Config):
  """The anchored GRPO's numbers and the schedule's.

  Attributes:
    weight_clip: how far w_t may leave 1, in (0, 1].
    mix_start: l at step 0, in (0, 1].
    mix_steps: steps until l is 0.
  """

  weight_clip: float = 0.2
  mix_start: float = 0.5
  mix_steps: int = 100

  def __post_init__(self):
    super().__post_init__()
    for field in ('weight_clip', 'mix_start'):
      if not 0 < getattr(self, field) <= 1:
        raise ValueError(
          f'{field}={getattr(self, field)} must lie in (0, 1]; for no mixing '
          "use variant 'grpo'"
        )
    checks.at_least('mix_steps', self.mix_steps, 1)


def init_state(cfg: Config):
  """The step count that the schedule goes by."""
  del cfg
  return {'step': jnp.zeros((), jnp.int32)}


def mixing(step: jax.Array, cfg: Config) -> jax.Array:
  """l at a step, [] float32."""
  left = 1 - step.astype(jnp.float32) / cfg.mix_steps
  return cfg.mix_start * jnp.maximum(left, 0)


def credit(batch: types.StepBatch, state, cfg: Config):
  """GRPO's credit with the advantage [N, T] re-weighted; see variant.Variant."""
  rows, gap, metrics = privileged.base_credit(batch, cfg)
  gap = masked.hide(gap, rows['informed'])
  advantage = rows['advantage'][:, None]
  low, high = 1 - cfg.weight_clip, 1 + cfg.weight_clip
  raw = jnp.exp(jnp.sign(advantage) * gap)
  weight = jnp.clip(raw, low, high)
  mix = mixing(state['step'], cfg)
  rows['advantage'] = advantage * ((1 - mix) + mix * weight)
  metrics['rlsd/mix'] = mix
  metrics['rlsd/weight_mean'] = masked.mean(weight, batch.valid)
  outside = (raw < low) | (raw > high)
  metrics['rlsd/clipped'] = masked.mean(
    outside.astype(jnp.float32), batch.valid
  )
  rows = jax.lax.stop_gradient(rows)
  state = {'step': state['step'] + 1}
  return types.Credit(rows=rows, scalars={}), state, metrics


VARIANT = variant.Variant(
  name='rlsd',
  config=Config,
  credit=credit,
  objective=grpo.objective,
  scorings=privileged.scorings,
  stats=grpo.stats,
  check=checks.solo_only('rlsd'),
  init_state=init_state,
)

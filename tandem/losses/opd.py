"""On-policy distillation, token by token.

`feedback` chooses what the teacher says of the student's own responses:

  sampled  A_t = clip(r_t), r_t = log q(y_t) - log p_old(y_t), paid by GRPO's
           clipped surrogate; with a discount, the sum of what follows too
  full     Agg(KL(p || q)) of each position over the whole vocabulary, and
  top_k    the same sum over the student's K most likely tokens,
           both differentiated through p itself

With K(theta) = E[sum_t log p - log q] the sequence's reverse KL,

    -grad K = E[sum_t z_t r_t] + E[sum_t z_t sum_{u>t} r_u],  z_t = grad log p_t

(METHODS §3.2 (2)): discount 0 and `full` have the first sum's expectation, which
is not a gradient of K; discount 1 without clipping has both and is. As a reward
or a penalty of its value alone the `top_k` sum would have gradient zero.

Source: sampled-token feedback without group normalisation and its discount as
  Thinking Machines' on-policy distillation has them (METHODS §5); clip and
  aggregation as GR-OPD's vanilla baseline (§3.2 (7), a reconstruction).
"""

import dataclasses

import jax
import jax.numpy as jnp

from tandem import types
from tandem.losses import checks
from tandem.losses import feedback as teacher_feedback
from tandem.losses import gr_opd
from tandem.losses import grpo
from tandem.losses import masked
from tandem.losses import variant

# What only the sampled feedback's surrogate reads.
SURROGATE = (
  'feedback_clip',
  'discount',
  'eps_low',
  'eps_high',
  'dual_clip',
  'ratio',
  'old',
  'tis',
  'kl_to',
  'entropy_coef',
)


@dataclasses.dataclass(frozen=True)
class Config(teacher_feedback.Config):
  """The surrogate's numbers and the kind of feedback.

  Attributes:
    feedback: 'sampled', 'full' or 'top_k'.
    discount: weight of the next token's return in this one's, in [0, 1]: 0 is
      the token's own feedback, 1 the whole rest of the response.
    top_k: K of 'top_k' (16 in thunlp's OPD); None elsewhere.
  """

  feedback: str = 'sampled'
  discount: float = 0.0
  top_k: int | None = None

  def __post_init__(self):
    super().__post_init__()
    checks.choice('feedback', self.feedback, ('sampled', 'full', 'top_k'))
    checks.between('discount', self.discount, 0.0, 1.0)
    checks.idle(self, 'advantage_eps', 'nothing is divided by a deviation')
    if (self.top_k is not None) != (self.feedback == 'top_k'):
      raise ValueError(
        f"top_k={self.top_k} with feedback='{self.feedback}': the number "
        "belongs to feedback='top_k', which needs it (16 is usual)"
      )
    if self.top_k is not None:
      checks.at_least('top_k', self.top_k, 1)
    if self.feedback != 'sampled':
      checks.all_idle(
        self, SURROGATE, f"feedback='{self.feedback}' has no surrogate"
      )


def returns_to_go(
  feedback: jax.Array, valid: jax.Array, *, discount: float
) -> jax.Array:
  """R_t = r_t + discount R_{t+1} along each row.

  Args:
    feedback: [N, T] float.
    valid: [N, T] bool; a token that is not valid adds nothing.
    discount: in [0, 1].

  Returns:
    [N, T] float; 0 off the mask.
  """
  feedback = masked.hide(feedback, valid)
  if discount == 0:
    return feedback
  decay = jnp.full_like(feedback, discount)

  def join(later, earlier):
    return later[0] * earlier[0], earlier[1] + earlier[0] * later[1]

  _, total = jax.lax.associative_scan(
    join, (decay, feedback), reverse=True, axis=1
  )
  return masked.hide(total, valid)


def credit(batch: types.StepBatch, state, cfg: Config):
  """Each token's own advantage [N, T]; see variant.Variant."""
  state, collapse = teacher_feedback.collapse(batch, state, cfg)
  if cfg.feedback != 'sampled':
    rows = {'mask': batch.valid}
    return types.Credit(rows=rows, scalars={}), state, collapse
  rows, gap, metrics = teacher_feedback.base_credit(batch, cfg)
  rows['advantage'] = returns_to_go(gap, batch.valid, discount=cfg.discount)
  scores = gr_opd.sequence_scores(
    gap, batch.valid, gamma=1.0, feedback_clip=None
  )
  metrics |= teacher_feedback.correlations(batch, scores)
  metrics['advantage/abs_mean'] = masked.mean(
    jnp.abs(rows['advantage']), batch.valid
  )
  rows = jax.lax.stop_gradient(rows)
  return types.Credit(rows=rows, scalars={}), state, metrics | collapse


def objective(stats, credit: types.Credit, cfg: Config) -> variant.Terms:
  """GRPO's terms, or the KL itself; see variant.Variant."""
  if cfg.feedback == 'sampled':
    return grpo.objective(stats, credit, cfg)
  total = masked.aggregate(
    stats[_kl_stat(cfg)], credit.rows['mask'], cfg.agg, length=cfg.agg_length
  )
  return {'kl_teacher': total}


def _kl_stat(cfg: Config) -> str:
  """kl_teacher, or kl_teacher_top<K>: sum_{v in top-K of p} p (log p - log q)."""
  return 'kl_teacher' if cfg.top_k is None else f'kl_teacher_top{cfg.top_k}'


def scorings(cfg: Config) -> tuple[str, ...]:
  """Frozen scorings that credit reads; a KL needs none, it is a statistic."""
  return teacher_feedback.scorings(cfg) if cfg.feedback == 'sampled' else ()


def stats(cfg: Config) -> tuple[str, ...]:
  """Current-policy statistics that objective reads."""
  if cfg.feedback == 'sampled':
    return grpo.stats(cfg)
  return ('logp', _kl_stat(cfg))


VARIANT = variant.Variant(
  name='opd',
  config=Config,
  credit=credit,
  objective=objective,
  scorings=scorings,
  stats=stats,
  check=checks.solo_only('opd'),
  init_state=teacher_feedback.init_state,
)

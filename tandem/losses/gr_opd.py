"""GR-OPD: on-policy distillation paid by row, calibrated inside the group.

    S_i = sum_t gamma^(t-1) clip(r_it, +-5) / sum_t gamma^(t-1)          (4)
    A_i = clip((S_i - (1 - lambda) mean_g S) / (std_g S + eps), +-5)     (5)

A_i is broadcast to every token of the row and paid by GRPO's clipped surrogate
(6). t counts response tokens from the first generated one, EOS included; with
gamma = .99 the first 100 tokens hold 63 % of the weight and the first 500 99 %,
whatever the length.

lambda keeps that share of the group's mean: 0 only ranks siblings, 1 lets the
group's level through. The level estimates minus a KL, so it is negative, and
lambda > 0 pushes every response down on average.

Dividing by the deviation forgets its size: near the teacher, where scores
differ by less and less, siblings are still told apart at full strength, down to
deviations of advantage_eps.

Source: GR-OPD, equations (4) to (6) as METHODS §3.2 derives them; which
  deviation and eps (5) uses is not stated there (std_ddof, advantage_eps).
"""

import dataclasses

import chex
import jax
import jax.numpy as jnp

from tandem import types
from tandem.losses import checks
from tandem.losses import feedback as teacher_feedback
from tandem.losses import grpo
from tandem.losses import masked
from tandem.losses import variant

PRESSURE_EPS = 1e-8  # of the paper's table 2


def sequence_scores(
  feedback, valid, *, gamma: float = 0.99, feedback_clip: float | None = 5.0
) -> jax.Array:
  """S_i of equation (4): a discounted mean of clipped feedback, [N].

  Args:
    feedback: [N, T] float; log q - log p of each token. May hold anything off
      the mask, and -inf on it where there is a clip.
    valid: [N, T] bool.
    gamma: in (0, 1]; 1 is the plain mean.
    feedback_clip: bound of each token's feedback, or None.

  Returns:
    [N] float; 0 for a row without tokens.
  """
  feedback, valid = jnp.asarray(feedback), jnp.asarray(valid, bool)
  chex.assert_rank([feedback, valid], 2)
  chex.assert_equal_shape([feedback, valid])
  feedback = feedback.astype(jnp.promote_types(feedback.dtype, jnp.float32))
  feedback = masked.hide(feedback, valid)
  if feedback_clip is not None:
    feedback = jnp.clip(feedback, -feedback_clip, feedback_clip)
  position = (jnp.cumsum(valid, axis=1) - 1).astype(feedback.dtype)
  # Underflows to 0 beyond 8,700 tokens at .99, where nothing is left to say.
  weight = jnp.where(valid, jnp.exp(position * jnp.log(gamma)), 0)
  weight = weight.astype(feedback.dtype)
  return masked.divide(
    jnp.sum(weight * feedback, axis=1), jnp.sum(weight, axis=1)
  )


def calibrate(
  scores, mean, std, *, lambda_retain, adv_clip, eps, zero_std
) -> jax.Array:
  """A_i of equation (5) from scores and their group's moments, all [N]."""
  advantages = (scores - (1 - lambda_retain) * mean) / (std + eps)
  if adv_clip is not None:
    advantages = jnp.clip(advantages, -adv_clip, adv_clip)
  if zero_std == 'zero':
    advantages = jnp.where(std <= eps, 0, advantages)
  return advantages


def sequence_credit(
  feedback,
  valid,
  *,
  group: int | None = None,
  group_id=None,
  gamma: float = 0.99,
  lambda_retain: float = 0.0,
  feedback_clip: float | None = 5.0,
  adv_clip: float | None = 5.0,
  std_ddof: int = 1,
  eps: float = 1e-6,
  zero_std: str = 'clip',
) -> tuple[jax.Array, jax.Array]:
  """Equations (4) and (5): what each row scores and what it is paid.

  Before the clip, the mean of A over a group is lambda mean_g S / (s + eps),
  and the gap between two siblings (S_i - S_j) / (s + eps) whatever lambda is.

  Args:
    feedback: [N, T] float, numpy or jax; log q - log p of each token.
    valid: [N, T] bool.
    group: G, rows per prompt, adjacent; or
    group_id: [N] int, for ragged groups.
    gamma: discount by response position, in (0, 1].
    lambda_retain: share of the group's mean that is kept, in [0, 1].
    feedback_clip: bound of each token's feedback; None for none.
    adv_clip: bound of the result; None for none.
    std_ddof: 1 for the sample deviation, 0 for the population's.
    eps: added to the deviation.
    zero_std: groups whose deviation is at most eps. 'clip' takes (5) at its
      word: 0 with lambda = 0, else a whole group at the clip. 'zero' pays them
      nothing.

  Returns:
    scores [N], advantages [N]. Stop-gradient is the caller's business.

  Raises:
    ValueError: a number outside its range; group does not divide N.
  """
  _check_numbers(gamma, lambda_retain, feedback_clip, adv_clip, std_ddof)
  checks.choice('zero_std', zero_std, ('clip', 'zero'))
  scores = sequence_scores(
    feedback, valid, gamma=gamma, feedback_clip=feedback_clip
  )
  mean, std, _ = teacher_feedback.group_moments(
    scores, group=group, group_id=group_id, ddof=std_ddof
  )
  advantages = calibrate(
    scores,
    mean,
    std,
    lambda_retain=lambda_retain,
    adv_clip=adv_clip,
    eps=eps,
    zero_std=zero_std,
  )
  return scores, advantages


def _check_numbers(gamma, lambda_retain, feedback_clip, adv_clip, std_ddof):
  if not 0 < gamma <= 1:
    raise ValueError(f'gamma={gamma} must lie in (0, 1]; 0.99 is usual')
  checks.between('lambda_retain', lambda_retain, 0.0, 1.0)
  for name, bound in (('feedback_clip', feedback_clip), ('adv_clip', adv_clip)):
    if bound is not None and not bound > 0:
      raise ValueError(f'{name}={bound} must be above 0, or None for no bound')
  checks.choice('std_ddof', std_ddof, (0, 1))


@dataclasses.dataclass(frozen=True)
class Config(teacher_feedback.Config):
  """See sequence_credit; eps is advantage_eps.

  Attributes:
    gamma, lambda_retain, adv_clip, std_ddof, zero_std: as there. The paper
      keeps lambda 0 where the pair differs in pattern, .25 where it matches.
  """

  gamma: float = 0.99
  lambda_retain: float = 0.0
  adv_clip: float | None = 5.0
  std_ddof: int = 1
  zero_std: str = 'clip'

  def __post_init__(self):
    super().__post_init__()
    _check_numbers(
      self.gamma,
      self.lambda_retain,
      self.feedback_clip,
      self.adv_clip,
      self.std_ddof,
    )
    checks.choice('zero_std', self.zero_std, ('clip', 'zero'))


def credit(batch: types.StepBatch, state, cfg: Config):
  """One advantage a row from the teacher's feedback; see variant.Variant.

  Metrics, besides feedback's: the pressure proxy |mean S| / (mean_g std_g S +
  1e-8), its retained part (times lambda), the share of groups whose deviation
  is at most eps, and the share of rows at the clip.
  """
  rows, gap, metrics = teacher_feedback.base_credit(batch, cfg)
  # Clipped already, by token_feedback.
  scores = sequence_scores(
    gap, batch.valid, gamma=cfg.gamma, feedback_clip=None
  )
  mean, std, size = teacher_feedback.moments(batch, scores, cfg.std_ddof)
  rows['advantage'] = calibrate(
    scores,
    mean,
    std,
    lambda_retain=cfg.lambda_retain,
    adv_clip=cfg.adv_clip,
    eps=cfg.advantage_eps,
    zero_std=cfg.zero_std,
  )
  over_groups = lambda x: jnp.sum(x / size) / jnp.sum(1 / size)
  pressure = jnp.abs(jnp.mean(scores)) / (over_groups(std) + PRESSURE_EPS)
  metrics |= teacher_feedback.correlations(batch, scores) | {
    'advantage/abs_mean': jnp.mean(jnp.abs(rows['advantage'])),
    'gr_opd/std': over_groups(std),
    'gr_opd/zero_std': over_groups(
      (std <= cfg.advantage_eps).astype(std.dtype)
    ),
    'gr_opd/pressure': pressure,
    'gr_opd/pressure_retained': cfg.lambda_retain * pressure,
  }
  if cfg.adv_clip is not None:
    at_bound = jnp.abs(rows['advantage']) >= cfg.adv_clip
    metrics['gr_opd/clipped'] = jnp.mean(at_bound.astype(jnp.float32))
  state, collapse = teacher_feedback.collapse(batch, state, cfg)
  rows = jax.lax.stop_gradient(rows)
  return types.Credit(rows=rows, scalars={}), state, metrics | collapse


def check(cfg: Config, mode: str, group: int) -> None:
  """Raises ValueError off solo rollouts, or without siblings to rank by."""
  del cfg
  checks.solo('gr_opd', mode, group, least=2)


VARIANT = variant.Variant(
  name='gr_opd',
  config=Config,
  credit=credit,
  objective=grpo.objective,
  scorings=teacher_feedback.scorings,
  stats=grpo.stats,
  check=check,
  init_state=teacher_feedback.init_state,
)

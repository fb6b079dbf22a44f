"""GRPO and its line: Dr. GRPO, DAPO, GSPO, CISPO are settings, not variants.

    L = Agg(w_t l_t) + kl_coef Agg(KL_t) - entropy_coef Agg(H_t)

with l_t the clipped surrogate of `ratios`, A the group's advantage, w_t the
truncated weight against rollout / trainer mismatch (1 when `tis` is none).
Sources: GRPO, Shao et al. 2024 (arXiv 2402.03300), equation 3; METHODS §1 for
what released code does.

Settings that make the others, from the defaults (verl's GRPO):

  Dr. GRPO  scale_by_std=False, agg='seq-mean-token-sum-norm',
            agg_length=<response budget>                   (arXiv 2503.20783)
  DAPO      eps_high=0.28, overlong_max_tokens=<budget>,
            overlong_buffer_tokens=<tokens>, and the trainer's
            dynamic sampling                               (arXiv 2503.14476)
  GSPO      ratio='gspo', agg='seq-mean-token-mean', dual_clip=None,
            eps_low=3e-4, eps_high=4e-4                    (arXiv 2507.18071)
  CISPO     ratio='cispo', dual_clip=None                  (arXiv 2506.13585)
  KL-Reg    kl_to='junior', kl_coef=<beta>, kl_estimator='k3', solo rollouts
            (the tandem paper's baseline; METHODS §2.4)
  g16       rollout with group 16: no loss setting
"""

import dataclasses

import jax
import jax.numpy as jnp

from tandem import types
from tandem.losses import advantages
from tandem.losses import checks
from tandem.losses import kl
from tandem.losses import masked
from tandem.losses import ratios
from tandem.losses import variant


@dataclasses.dataclass(frozen=True)
class Config:
  """GRPO's numbers; a setting that would do nothing raises.

  Attributes:
    scale_by_std: divide advantages by the group's deviation.
    advantage_eps: added to that deviation.
    eps_low, eps_high: the ratio's bounds.
    dual_clip: c, the second bound where A < 0; None for none.
    agg: one of masked.MODES.
    agg_length: constant of 'seq-mean-token-sum-norm', in tokens.
    ratio: 'token', 'gspo' (one per row) or 'cispo' (clipped weight, no min).
    old: 'rescored' runs the scoring `old`; 'rollout' takes the decode-time
      record instead, a forward cheaper and off by the mismatch.
    tis: 'none', 'token' or 'sequence'; weight of `old` over the record.
    tis_cap: its upper bound.
    kl_to: 'none', 'reference' or 'junior'.
    kl_coef: beta; required with kl_to.
    kl_estimator: 'k2', 'k3' or 'k3+'; see `kl` for what each one pulls to.
    entropy_coef: bonus on the entropy of the policy.
    overlong_max_tokens, overlong_buffer_tokens: DAPO's soft punishment, added
      to the reward; both or neither.
  """

  scale_by_std: bool = True
  advantage_eps: float = 1e-6
  eps_low: float = 0.2
  eps_high: float = 0.2
  dual_clip: float | None = 3.0
  agg: str = 'token-mean'
  agg_length: int | None = None
  ratio: str = 'token'
  old: str = 'rescored'
  tis: str = 'none'
  tis_cap: float = 2.0
  kl_to: str = 'none'
  kl_coef: float = 0.0
  kl_estimator: str = 'k3+'
  entropy_coef: float = 0.0
  overlong_max_tokens: int | None = None
  overlong_buffer_tokens: int | None = None

  def __post_init__(self):
    checks.choice('agg', self.agg, masked.MODES)
    checks.choice('ratio', self.ratio, ('token', 'gspo', 'cispo'))
    checks.choice('old', self.old, ('rescored', 'rollout'))
    checks.choice('tis', self.tis, ('none', 'token', 'sequence'))
    checks.choice('kl_to', self.kl_to, ('none', 'reference', 'junior'))
    kl.check(self.kl_estimator)
    _check_policy(self)
    _check_terms(self)


def _check_policy(cfg) -> None:
  checks.between('advantage_eps', cfg.advantage_eps, 0.0, 1.0)
  if not cfg.scale_by_std:
    checks.idle(
      cfg, 'advantage_eps', 'nothing is divided with scale_by_std=False'
    )
  if not (0 < cfg.eps_low <= 1 and cfg.eps_high > 0):
    raise ValueError(
      f'eps_low={cfg.eps_low}, eps_high={cfg.eps_high}: the ratio is clipped '
      'to [1 - eps_low, 1 + eps_high]; eps_low must lie in (0, 1] and eps_high '
      'above 0'
    )
  if cfg.dual_clip is not None and cfg.dual_clip <= 1:
    raise ValueError(
      f'dual_clip={cfg.dual_clip} must exceed 1 (3.0 is usual), or be None'
    )
  if cfg.dual_clip is not None and cfg.ratio != 'token':
    raise ValueError(
      f"dual_clip={cfg.dual_clip} with ratio='{cfg.ratio}': only the token "
      'ratio has that bound; set dual_clip=None'
    )
  if cfg.ratio == 'gspo' and cfg.agg != 'seq-mean-token-mean':
    raise ValueError(
      f"ratio='gspo' with agg='{cfg.agg}': the sequence ratio is defined with "
      "agg='seq-mean-token-mean'; set that"
    )
  if (cfg.agg_length is not None) != (cfg.agg == 'seq-mean-token-sum-norm'):
    raise ValueError(
      f"agg_length={cfg.agg_length} with agg='{cfg.agg}': the length belongs "
      "to 'seq-mean-token-sum-norm', which needs it; set both or neither"
    )
  if cfg.agg_length is not None and cfg.agg_length < 1:
    raise ValueError(f'agg_length={cfg.agg_length} must be at least 1 token')


def _check_terms(cfg) -> None:
  if cfg.tis == 'none':
    checks.idle(cfg, 'tis_cap', "set tis to 'token' or 'sequence'")
  elif cfg.old == 'rollout':
    raise ValueError(
      f"tis='{cfg.tis}' with old='rollout': the weight old / rollout would be "
      "1 everywhere; set old='rescored' or tis='none'"
    )
  if not cfg.tis_cap > 0:
    raise ValueError(f'tis_cap={cfg.tis_cap} must be above 0')
  if cfg.kl_to == 'none':
    checks.idle(cfg, 'kl_coef', "set kl_to to 'reference' or 'junior'")
    checks.idle(cfg, 'kl_estimator', "set kl_to to 'reference' or 'junior'")
  elif not cfg.kl_coef > 0:
    raise ValueError(
      f"kl_to='{cfg.kl_to}' with kl_coef={cfg.kl_coef}: the penalty needs a "
      "coefficient above 0 (0.001 is an example); or set kl_to='none'"
    )
  checks.between('entropy_coef', cfg.entropy_coef, 0.0, float('inf'))
  budget, buffer = cfg.overlong_max_tokens, cfg.overlong_buffer_tokens
  if (budget is None) != (buffer is None):
    raise ValueError(
      f'overlong_max_tokens={budget}, overlong_buffer_tokens={buffer}: set '
      'both, or neither for no punishment of length'
    )
  if budget is not None and not 0 < buffer <= budget:
    raise ValueError(
      f'overlong_buffer_tokens={buffer} must lie in [1, overlong_max_tokens='
      f'{budget}]'
    )


def base_credit(batch: types.StepBatch, cfg: Config, sampled: jax.Array):
  """The rows and metrics that GRPO's line shares.

  Args:
    batch: the whole step.
    cfg: Config.
    sampled: [N, T] bool; tokens that the policy itself drew.

  Returns:
    rows: advantage [N], old [N, T], weight [N, T] where tis is on, anchor
      [N, T] where kl_to is set.
    metrics: {name: scalar}.
  """
  groups = advantages.groups(batch)
  rewards, metrics = batch.rewards, {}
  if cfg.overlong_max_tokens is not None:
    penalty = advantages.overlong_penalty(
      jnp.sum(batch.valid, axis=1),
      max_tokens=cfg.overlong_max_tokens,
      buffer_tokens=cfg.overlong_buffer_tokens,
    )
    rewards = rewards + penalty
    metrics['reward/overlong'] = jnp.mean(penalty)
  advantage = advantages.group_advantages(
    rewards,
    **groups,
    scale_by_std=cfg.scale_by_std,
    eps=cfg.advantage_eps,
  )
  flat = advantages.degenerate(rewards, **groups)
  metrics['advantage/abs_mean'] = jnp.mean(jnp.abs(advantage))
  metrics['advantage/degenerate'] = jnp.mean(flat.astype(jnp.float32))
  source = 'old' if cfg.old == 'rescored' else 'rollout'
  rows = {'advantage': advantage, 'old': checks.score(batch, source)}
  if cfg.tis != 'none':
    rows['weight'] = ratios.tis_weight(
      rows['old'],
      checks.score(batch, 'rollout'),
      sampled,
      level=cfg.tis,
      cap=cfg.tis_cap,
    )
    metrics['tis/mean'] = masked.mean(rows['weight'], sampled)
    capped = (rows['weight'] >= cfg.tis_cap).astype(jnp.float32)
    metrics['tis/capped'] = masked.mean(capped, sampled)
  if cfg.kl_to != 'none':
    rows['anchor'] = checks.score(batch, cfg.kl_to)
    gap = kl.k1(
      masked.hide(rows['old'], sampled), masked.hide(rows['anchor'], sampled)
    )
    metrics[f'kl/{cfg.kl_to}'] = masked.mean(gap, sampled)
  return jax.lax.stop_gradient(rows), metrics


def credit(batch: types.StepBatch, state, cfg: Config):
  """Group advantages on every emitted token; see variant.Variant."""
  rows, metrics = base_credit(batch, cfg, batch.valid)
  rows['mask'] = batch.valid
  return types.Credit(rows=rows, scalars={}), state, metrics


def surrogate(
  logp: jax.Array,
  old: jax.Array,
  advantage: jax.Array,
  mask: jax.Array,
  cfg: Config,
) -> jax.Array:
  """The policy loss per token, [n, T]; 0 off the mask.

  Args:
    logp: [n, T] float, the current policy's.
    old: [n, T] float.
    advantage: [n, 1] or [n, T] float.
    mask: [n, T] bool or float weights; only whether it is 0 matters here.
    cfg: its eps_low, eps_high, dual_clip and ratio are read.
  """
  logp, old = masked.hide(logp, mask), masked.hide(old, mask)
  clips = {'eps_low': cfg.eps_low, 'eps_high': cfg.eps_high}
  if cfg.ratio == 'gspo':
    gap = ratios.gspo_log_ratio(logp, old, mask.astype(bool))
    return ratios.ppo_clip(gap, advantage, **clips)
  gap = ratios.log_ratio(logp, old)
  if cfg.ratio == 'cispo':
    return ratios.cispo(gap, logp, advantage, **clips)
  return ratios.ppo_clip(gap, advantage, dual_clip=cfg.dual_clip, **clips)


def terms(
  stats: dict[str, jax.Array],
  rows: dict[str, jax.Array],
  cfg: Config,
  *,
  mask: jax.Array,
  sampled: jax.Array,
  denom: jax.Array,
) -> variant.Terms:
  """Policy, KL and entropy terms of a micro-batch.

  Args:
    stats: logp [n, T]; entropy [n, T] where entropy_coef is not 0.
    rows: the micro-batch's slice of base_credit's rows; a variant that pays
      by token puts its own advantage [n, T] in the place of [n].
    cfg: Config.
    mask: [n, T] bool, or float weights of the policy term.
    sampled: [n, T] bool; tokens the policy drew. KL estimators are estimates
      only there, and the entropy bonus goes with them.
    denom: [n, T] bool or float; what every term is divided by.
  """
  reduce = {'length': cfg.agg_length, 'denom_mask': denom}
  advantage = rows['advantage']
  if advantage.ndim == 1:
    advantage = advantage[:, None]
  policy = surrogate(stats['logp'], rows['old'], advantage, mask, cfg)
  if cfg.tis != 'none':
    policy = policy * rows['weight']
  out = {'policy': masked.aggregate(policy, mask, cfg.agg, **reduce)}
  if cfg.kl_to != 'none':
    gap = kl.penalty(
      cfg.kl_estimator,
      masked.hide(stats['logp'], sampled),
      masked.hide(rows['anchor'], sampled),
    )
    total, count = masked.aggregate(gap, sampled, cfg.agg, **reduce)
    out['kl'] = cfg.kl_coef * total, count
  if cfg.entropy_coef:
    total, count = masked.aggregate(
      stats['entropy'], sampled, cfg.agg, **reduce
    )
    out['entropy'] = -cfg.entropy_coef * total, count
  return out


def objective(stats, credit: types.Credit, cfg: Config) -> variant.Terms:
  """The terms over every emitted token; see variant.Variant."""
  mask = credit.rows['mask']
  return terms(stats, credit.rows, cfg, mask=mask, sampled=mask, denom=mask)


def scorings(cfg: Config) -> tuple[str, ...]:
  """Frozen scorings that credit reads."""
  old = ('old',) if cfg.old == 'rescored' else ()
  return old + (() if cfg.kl_to == 'none' else (cfg.kl_to,))


def stats(cfg: Config) -> tuple[str, ...]:
  """Current-policy statistics that objective reads."""
  return ('logp', 'entropy') if cfg.entropy_coef else ('logp',)


def check(cfg: Config, mode: str, group: int) -> None:
  """Raises ValueError where GRPO does not fit the rollout."""
  del cfg
  checks.choice('rollout.mode', mode, ('solo', 'tandem'))
  checks.at_least('group', group, 1)
  if mode == 'tandem':
    raise ValueError(
      "loss variant 'grpo' on rollout.mode='tandem' would train the senior on "
      "the junior's tokens as if they were its own; use variant 'tandem' (its "
      'lambda_jun_policy=1.0 is this, said aloud), or rollout.mode=solo'
    )


VARIANT = variant.Variant(
  name='grpo',
  config=Config,
  credit=credit,
  objective=objective,
  scorings=scorings,
  stats=stats,
  check=check,
)

"""CRINGE: negative tokens lose to a contrast, bounded; three uses of it.

    CRINGE_t = softplus(s- - s+) = -log(e^{s+} / (e^{s+} + e^{s-}))

s- is the label's logit and s+ that of the likeliest other token (CRINGE's k =
1); their difference is the statistic `contrast`, differentiated through both.
`contrast='teacher'` takes logp - logp_teacher instead and needs no logits. The
slope is below 1 either way.

  cringe           rows by reward: Agg(-logp on right rows, cringe_coef CRINGE
                   on wrong ones), over the tokens of all rows as in ParlAI
  token_cringe     L_PG + KL + cringe_coef Agg_neg(CRINGE), a negative token one
                   that the privileged teacher likes less: Delta_t < 0
  adaptive_cringe  the same with CRAFT's controller on both coefficients, its
                   rho_gate the share of valid tokens where the term fires

Each is a variant of its own, so none of them meets CRAFT's credit in one loss.

What row-level CRINGE at its own weight of 1 does to sampled reasoning: right
and wrong rows share most of their tokens (format, steps that hold), and such a
token is pulled up by 1 - p in right rows and down by sigmoid(s- - s+), near p,
in wrong ones. Its p therefore settles where (1 - p) pos = cringe_coef p neg,
pos and neg being the shares of tokens in right and wrong rows:

    p = pos / (pos + cringe_coef neg)

At weight 1, the default, that is pos itself at every shared token, so whole
responses come apart (the weight is ParlAI's for labelled dialogue, where good
text is data of its own). The weight must be small against 1 / length. The
quickstart takes the token forms' .01, with which it learns, and less than on
its right rows alone: LOG.md.

Source: CRINGE (Adolphs et al. 2022) as METHODS §5 found it in ParlAI, whose
  weight is 1 and whose mean is over the tokens of both kinds; of the adaptive
  one CRAFT (arXiv 2606.29476) gives no formula: a reconstruction.
  We differ: s+ is the top other token (the same at ParlAI's default k = 1),
  never a sample from the top k.
"""

import dataclasses

import jax
import jax.numpy as jnp

from tandem import types
from tandem.losses import checks
from tandem.losses import controller
from tandem.losses import grpo
from tandem.losses import masked
from tandem.losses import privileged
from tandem.losses import variant

CONTRASTS = ('logit', 'teacher')


@dataclasses.dataclass(frozen=True)
class RowConfig:
  """Numbers of `cringe`, which has no policy term.

  Attributes:
    cringe_coef: weight of the negative rows' term, above 0.
    positive_reward: rows whose reward exceeds it are positive.
    contrast: 'logit' or 'teacher'.
    agg, agg_length: see masked.aggregate.
  """

  cringe_coef: float = 1.0
  positive_reward: float = 0.5
  contrast: str = 'logit'
  agg: str = 'token-mean'
  agg_length: int | None = None

  def __post_init__(self):
    checks.choice('agg', self.agg, masked.MODES)
    if (self.agg_length is not None) != (self.agg == 'seq-mean-token-sum-norm'):
      raise ValueError(
        f"agg_length={self.agg_length} with agg='{self.agg}': the length "
        "belongs to 'seq-mean-token-sum-norm', which needs it"
      )
    _check_term(self)


@dataclasses.dataclass(frozen=True)
class TokenConfig(privileged.Config):
  """The anchored GRPO's numbers, cringe_coef (above 0) and contrast."""

  cringe_coef: float = 0.01
  contrast: str = 'logit'

  def __post_init__(self):
    super().__post_init__()
    _check_term(self)


@dataclasses.dataclass(frozen=True)
class AdaptiveConfig(TokenConfig, controller.Fields):
  """TokenConfig's numbers and the controller's, which sets both weights."""

  def __post_init__(self):
    super().__post_init__()
    controller.check(self)
    checks.all_idle(self, ('cringe_coef', 'kl_coef'), 'the controller sets it')
    if self.kl_to == 'none':
      raise ValueError(
        "kl_to='none' with variant 'adaptive_cringe': its controller weighs "
        "the KL too; set kl_to='reference', or use variant 'token_cringe'"
      )


def _check_term(cfg) -> None:
  checks.choice('contrast', cfg.contrast, CONTRASTS)
  if not cfg.cringe_coef > 0:
    raise ValueError(f'cringe_coef={cfg.cringe_coef} must be above 0')


def penalty(stats, rows, mask: jax.Array, cfg) -> jax.Array:
  """CRINGE_t per token, [n, T], where mask [n, T] is True."""
  if cfg.contrast == 'logit':
    gap = masked.hide(stats['contrast'], mask)
  else:
    gap = masked.hide(stats['logp'], mask)
    gap = gap - masked.hide(rows['privileged'], mask)
  return jax.nn.softplus(gap)


def row_credit(batch: types.StepBatch, state, cfg: RowConfig):
  """Masks of positive and negative rows' tokens; see variant.Variant."""
  good = batch.rewards > cfg.positive_reward
  rows = {
    'mask': batch.valid,
    'positive': batch.valid & good[:, None],
    'negative': batch.valid & ~good[:, None],
  }
  if cfg.contrast == 'teacher':
    score = jax.lax.stop_gradient(checks.score(batch, 'privileged'))
    rows['negative'] = rows['negative'] & jnp.isfinite(score)
    rows['privileged'] = masked.hide(score, rows['negative'])
  metrics = {'cringe/positive_rows': jnp.mean(good.astype(jnp.float32))}
  return types.Credit(rows=rows, scalars={}), state, metrics


def row_objective(stats, credit: types.Credit, cfg: RowConfig) -> variant.Terms:
  """Likelihood of the good rows and CRINGE on the bad ones.

  Both are means over the tokens of all rows, so that they add to one.
  """
  rows = credit.rows
  positive, negative = rows['positive'], rows['negative']
  surprise = -masked.hide(stats['logp'], positive)
  per_token = penalty(stats, rows, negative, cfg)
  return {
    'likelihood': privileged.token_term(surprise, positive, rows, cfg, 1.0),
    'cringe': privileged.token_term(
      per_token, negative, rows, cfg, cfg.cringe_coef
    ),
  }


def _token_credit(batch, cfg):
  rows, gap, metrics = privileged.base_credit(batch, cfg)
  rows['negative'] = rows['informed'] & (gap < 0)
  share = masked.mean(rows['negative'].astype(jnp.float32), batch.valid)
  metrics['cringe/negative_share'] = share
  return rows, share, metrics


def token_credit(batch: types.StepBatch, state, cfg: TokenConfig):
  """GRPO's credit and the negative tokens; see variant.Variant."""
  rows, _, metrics = _token_credit(batch, cfg)
  return types.Credit(rows=rows, scalars={}), state, metrics


def adaptive_credit(batch: types.StepBatch, state, cfg: AdaptiveConfig):
  """token_credit with this step's weights; the share acts on the next's."""
  rows, share, metrics = _token_credit(batch, cfg)
  lam, mu = controller.coefficients(state['rho'], cfg)
  metrics |= {
    'cringe/rho': state['rho'],
    'cringe/lambda': lam,
    'cringe/mu': mu,
  }
  state = controller.update(state, share, cfg)
  return types.Credit(rows, {'lambda': lam, 'mu': mu}), state, metrics


def token_objective(
  stats, credit: types.Credit, cfg: TokenConfig
) -> variant.Terms:
  """GRPO's terms and CRINGE's; see variant.Variant."""
  terms = grpo.objective(stats, credit, cfg)
  terms['cringe'] = _negatives(stats, credit.rows, cfg, cfg.cringe_coef)
  return terms


def adaptive_objective(
  stats, credit: types.Credit, cfg: AdaptiveConfig
) -> variant.Terms:
  """token_objective under the controller's weights."""
  terms = grpo.objective(stats, credit, cfg)
  rows = credit.rows
  per_token = privileged.anchor_penalty(stats['logp'], rows, cfg)
  terms['kl'] = privileged.token_term(
    per_token, rows['mask'], rows, cfg, credit.scalars['mu']
  )
  terms['cringe'] = _negatives(stats, rows, cfg, credit.scalars['lambda'])
  return terms


def _negatives(stats, rows, cfg, coef):
  per_token = penalty(stats, rows, rows['negative'], cfg)
  return privileged.negative_term(per_token, rows['negative'], cfg, coef)


def _init_adaptive(cfg):
  del cfg
  return controller.init_state()


def _row_scorings(cfg: RowConfig) -> tuple[str, ...]:
  return ('privileged',) if cfg.contrast == 'teacher' else ()


def _row_stats(cfg: RowConfig) -> tuple[str, ...]:
  return ('logp', 'contrast') if cfg.contrast == 'logit' else ('logp',)


def _token_stats(cfg: TokenConfig) -> tuple[str, ...]:
  contrast = ('contrast',) if cfg.contrast == 'logit' else ()
  return (*grpo.stats(cfg), *contrast)


ROW = variant.Variant(
  name='cringe',
  config=RowConfig,
  credit=row_credit,
  objective=row_objective,
  scorings=_row_scorings,
  stats=_row_stats,
  check=checks.solo_only('cringe'),
)
TOKEN = variant.Variant(
  name='token_cringe',
  config=TokenConfig,
  credit=token_credit,
  objective=token_objective,
  scorings=privileged.scorings,
  stats=_token_stats,
  check=checks.solo_only('token_cringe'),
)
ADAPTIVE = variant.Variant(
  name='adaptive_cringe',
  config=AdaptiveConfig,
  credit=adaptive_credit,
  objective=adaptive_objective,
  scorings=privileged.scorings,
  stats=_token_stats,
  check=checks.solo_only('adaptive_cringe'),
  init_state=_init_adaptive,
)

"""CRAFT: a signed credit from siblings in the place of SDAR's gate.

    L = L_PG + mu L_KL + lambda L_CTI                                       (4)
    c_t = 2 sigmoid(beta+- |CTI_t|) - 1 with CTI's sign, detached      (8), (9)
    L_CTI = -Agg(c_t log pi(y_t))                                          (10)
    L_KL: k3 on every token; polarised, by c's sign                        (14)
        c > theta: logp - logp_ref;  c < -theta: its opposite;  else k3

Three switches, static in Python: `enable` (P1, the CTI term; off, the whole
loss is SDAR's: the same program text and the same bits), `phase_aware` (P2,
lambda and mu from `controller`, acting in the next step) and `polarized_kl`
(P3). METHODS §4.4 has all three off by default, as switches of a trainer that
would run SDAR without them; here `enable` is on, since whoever names the
variant `craft` asks for its credit and SDAR has a variant of its own. Ablations: A1 enable alone; A2 with phase_aware; A3 with polarized_kl; A4
beta_pos, beta_neg; A5 tau; A6 g_min=999; A7 kl_swap.

CTI and c are computed once on the whole step batch from old log-probs, since
siblings must be together; at the first update that is the paper's live form.

The negative branch, tokens with c < 0. As printed, (10) pushes them by |c| log
pi, which has no lower bound. Of the options O1 to O3 of the paper's B.10 METHODS
has the names and no formula, so `negative_branch` holds reconstructions of our
own (RECON): out, and by the bounded penalties of the paper's two baselines.

  paper            |c| log pi(y_t), slope |c| in log pi
  o1_drop          0: only c > 0 teaches
  o2_unlikelihood  -|c| log(1 - pi(y_t)), slope |c| p / (1 - p): fades as p
                   goes to 0, p taken as at most 1 - 1e-6 (`unlikelihood`)
  o3_cringe        |c| softplus(s- - s+), slope below |c| in the label's logit
                   less the likeliest other's (`cringe`)

A likely token's logit is moved by |c| (1 - p) as printed and by |c| p under the
last two: they push it harder (LOG.md). c itself stays: the controller, (14)'s
regions, the metrics and so F-a and F-b are the same under each, and the count is
of all valid tokens. By F-b the tokens with c < 0 are those of *good* rollouts
where rewards are binary.

What the printed equations do (METHODS §4.7, checked in tests/losses):

  F-a  Under a uniform gap CTI = -G/(G-1) A. With 3 successes of 8: CTI -1.38
       and +.83, c -.998 and +.969.
  F-b  With binary rewards sign(c) = -sign(A) or 0, always: (10) as printed
       pushes down the tokens of good rollouts and up those of bad ones,
       against L_PG, at weight .0125 to 1. `cti_variant='negated'` or
       'fallback' (A Delta) are for study; corr(c, A) is logged.
  F-c  The gate's activity is close to the share of tokens in groups of mixed
       outcome (|c| is .97 to 1 there), not a distillation signal.
  F-d  Net push on log pi(y_t), with the polarised term: lambda c - mu for c > 0
       and -lambda |c| + mu for c < 0. At rho = 1/2, lambda = mu = .0125, so
       P3 cancels or reverses P1: tokens of good rollouts get mu - lambda |c|
       >= 0, +2.5e-5 at c = -.998. A7's swap makes both oppose L_PG. The
       difference pulls towards the reference only where logp > logp_ref.
  F-e  Of the controller's law: see `controller` (W is .0125 at rho = 1/2
       against .020 at both ends, a minimum).
  F-f  The variance bound of proposition 2 needs (2 R_max)^2: |A - mu| reaches
       2 R_max under its own assumption.

Source: CRAFT (arXiv 2606.29476), equations 2 to 14, algorithms 1 and 2, table
  6; reconstructions as METHODS §4 lists them, each a field.
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
from tandem.losses import ranks
from tandem.losses import sdar
from tandem.losses import siblings
from tandem.losses import unlikelihood
from tandem.losses import variant

# What only an enabled CRAFT reads, the controller's fields aside.
CREDIT = (
  'cti_coef',
  'tau',
  'beta_pos',
  'beta_neg',
  'g_min',
  'theta_gate',
  'cti_variant',
  'fallback',
  'ended_sibling',
  'grouping',
  'negative_branch',
)
BRANCHES = ('paper', 'o1_drop', 'o2_unlikelihood', 'o3_cringe')
POLARITY = ('theta_kl', 'kl_swap')


@dataclasses.dataclass(frozen=True)
class Config(sdar.Config, controller.Fields):
  """SDAR's numbers, the controller's, and those of the credit.

  Attributes:
    enable: the CTI term instead of SDAR's. False makes this variant SDAR.
    phase_aware: lambda and mu from the controller; False keeps cti_coef and
      kl_coef.
    polarized_kl: (14); False is k3 on every token.
    cti_coef: lambda without the controller.
    tau, g_min, cti_variant, fallback, ended_sibling: see siblings.importance.
    beta_pos, beta_neg: sharpness of c on either side.
    theta_gate: |c| above it counts as active. A metric, and what the
      controller follows; c itself is never cut.
    theta_kl: |c| up to it is the neutral region of (14).
    kl_swap: exchanges the two outer regions (A7).
    grouping: 'group', the other episodes of the prompt; 'turn', their rows of
      the same turn, for episodes cut into a row per turn.
    negative_branch: what becomes of L_CTI where c < 0; see above.
  """

  enable: bool = True
  phase_aware: bool = False
  polarized_kl: bool = False
  cti_coef: float = 0.01
  tau: float = 1.0
  beta_pos: float = 5.0
  beta_neg: float = 5.0
  g_min: int = 2
  theta_gate: float = 0.1
  cti_variant: str = 'paper'
  fallback: str = 'product'
  ended_sibling: str = 'exclude'
  grouping: str = 'group'
  negative_branch: str = 'paper'
  theta_kl: float = 0.0
  kl_swap: bool = False

  def __post_init__(self):
    super().__post_init__()
    controller.check(self)
    siblings.check(
      self.tau,
      self.g_min,
      self.cti_variant,
      self.fallback,
      self.ended_sibling,
    )
    checks.choice('grouping', self.grouping, ('group', 'turn'))
    checks.choice('negative_branch', self.negative_branch, BRANCHES)
    for field in ('theta_gate', 'theta_kl'):
      checks.between(field, getattr(self, field), 0.0, 1.0)
    for field in ('cti_coef', 'beta_pos', 'beta_neg'):
      if not getattr(self, field) > 0:
        raise ValueError(f'{field}={getattr(self, field)} must be above 0')
    checks.between('cti_coef', self.cti_coef, 0.0, 1.0)
    _check_switches(self)


def _check_switches(cfg) -> None:
  if not cfg.enable:
    reason = 'enable=False is SDAR and has no credit; set enable=True'
    checks.all_idle(cfg, ('phase_aware', 'polarized_kl', *CREDIT), reason)
  else:
    checks.all_idle(
      cfg,
      ('sdar_coef', 'gate_beta'),
      "the CTI term takes SDAR's place with enable=True",
    )
  if cfg.phase_aware:
    reason = 'the controller sets it with phase_aware=True'
    checks.all_idle(cfg, ('cti_coef', 'kl_coef'), reason)
  else:
    checks.all_idle(cfg, controller.NAMES, 'set phase_aware=True')
  if not cfg.polarized_kl:
    checks.all_idle(cfg, POLARITY, 'set polarized_kl=True')
  if (cfg.phase_aware or cfg.polarized_kl) and cfg.kl_to == 'none':
    raise ValueError(
      f"kl_to='none' with phase_aware={cfg.phase_aware}, polarized_kl="
      f"{cfg.polarized_kl}: both act on the KL term; set kl_to='reference'"
    )
  if cfg.cti_variant == 'fallback':
    reason = "cti_variant='fallback' weighs no siblings"
    checks.all_idle(cfg, ('tau', 'g_min', 'ended_sibling', 'grouping'), reason)
    checks.idle(cfg, 'fallback', "all credit would be 0 with 'zero'")


def sibling_credit(
  delta,
  valid,
  advantages,
  *,
  group: int | None = None,
  tau: float = 1.0,
  beta_pos: float = 5.0,
  beta_neg: float = 5.0,
  g_min: int = 2,
  **options,
) -> tuple[jax.Array, jax.Array]:
  """CTI and the signed credit of every token.

  Args:
    delta: [N, T] float, numpy or jax; the teacher's gap.
    valid: [N, T] bool.
    advantages: [N] float.
    group: G, rows per prompt, adjacent; None with option `sibling`.
    tau, g_min, options: as siblings.importance.
    beta_pos, beta_neg: as siblings.signed_credit.

  Returns:
    cti [N, T], credit [N, T] in (-1, 1); both 0 off the mask. Stop-gradient is
    the caller's business.

  Raises:
    ValueError: see siblings.importance.
  """
  cti, _ = siblings.importance(
    delta, valid, advantages, group=group, tau=tau, g_min=g_min, **options
  )
  credit = siblings.signed_credit(cti, beta_pos=beta_pos, beta_neg=beta_neg)
  return cti, credit


def _importance(batch, gap, advantage, cfg):
  """siblings.importance with the batch's own groups."""
  by_turn = cfg.grouping == 'turn'
  if batch.group and not by_turn:
    who = {'group': batch.group}
  else:
    turn = batch.turn if by_turn else None
    who = {'sibling': siblings.peers(batch.group_id, batch.episode_id, turn)}
  return siblings.importance(
    gap,
    batch.valid,
    advantage,
    tau=cfg.tau,
    g_min=cfg.g_min,
    cti_variant=cfg.cti_variant,
    fallback=cfg.fallback,
    ended_sibling=cfg.ended_sibling,
    **who,
  )


def init_state(cfg: Config):
  """The controller's, where there is one."""
  return controller.init_state() if cfg.phase_aware else {}


def credit(batch: types.StepBatch, state, cfg: Config):
  """Advantages, c [N, T] and this step's coefficients; see variant.Variant."""
  if not cfg.enable:
    return sdar.credit(batch, state, cfg)
  rows, gap, metrics = privileged.base_credit(batch, cfg)
  cti, fell_back = _importance(batch, gap, rows['advantage'], cfg)
  c = siblings.signed_credit(cti, beta_pos=cfg.beta_pos, beta_neg=cfg.beta_neg)
  rows['credit'] = c
  share = lambda x: masked.mean(x.astype(jnp.float32), batch.valid)
  activity = share(jnp.abs(c) > cfg.theta_gate)
  spread = jnp.broadcast_to(rows['advantage'][:, None], c.shape)
  metrics |= {
    'craft/gate_activity': activity,
    'craft/cti_abs_mean': share(jnp.abs(cti)),
    'craft/credit_advantage_corr': ranks.pearson(c, spread, batch.valid),
    'craft/share_positive': share(c > cfg.theta_kl),
    'craft/share_negative': share(c < -cfg.theta_kl),
    'craft/share_neutral': share(jnp.abs(c) <= cfg.theta_kl),
    'craft/share_fallback': share(fell_back),
  }
  scalars = {}
  if cfg.phase_aware:
    lam, mu = controller.coefficients(state['rho'], cfg)
    scalars = {'lambda': lam, 'mu': mu}
    metrics['craft/rho'] = state['rho']
    state = controller.update(state, activity, cfg)
  lam, mu = _coefficients(scalars, cfg)
  as_metric = lambda x: jnp.asarray(x, jnp.float32)
  metrics |= {'craft/lambda': as_metric(lam), 'craft/mu': as_metric(mu)}
  rows, scalars = jax.lax.stop_gradient((rows, scalars))
  return types.Credit(rows=rows, scalars=scalars), state, metrics


def _coefficients(scalars, cfg):
  """(lambda, mu) of this step."""
  if cfg.phase_aware:
    return scalars['lambda'], scalars['mu']
  return cfg.cti_coef, cfg.kl_coef


def polarised(logp: jax.Array, rows, cfg: Config) -> jax.Array:
  """The KL term of equation 14 per token, [n, T]; by the sign of the credit.

  The outer regions are k1, whose mean gradient is zero on-policy (`kl.k1`);
  chosen by the credit they are a push of size mu, down where c > theta_kl and
  up where c < -theta_kl, the other way round with kl_swap.
  """
  mask = rows['mask']
  difference = masked.hide(logp, mask) - masked.hide(rows['anchor'], mask)
  above = rows['credit'] > cfg.theta_kl
  below = rows['credit'] < -cfg.theta_kl
  if cfg.kl_swap:
    above, below = below, above
  neutral = privileged.anchor_penalty(logp, rows, cfg)
  outer = jnp.where(above, difference, -difference)
  return jnp.where(above | below, outer, neutral)


def cti_loss(stats, rows, cfg: Config) -> jax.Array:
  """L_CTI per token, [n, T]: (10), or a negative branch of another kind."""
  mask, c = rows['mask'], rows['credit']
  printed = -c * masked.hide(stats['logp'], mask)
  if cfg.negative_branch == 'paper':
    return printed
  down = mask & (c < 0)
  if cfg.negative_branch == 'o1_drop':
    penalty = jnp.zeros_like(printed)
  elif cfg.negative_branch == 'o2_unlikelihood':
    penalty = unlikelihood.penalty(masked.hide(stats['logp'], down, -1.0))
  else:
    penalty = jax.nn.softplus(masked.hide(stats['contrast'], down))
  return jnp.where(down, -c * penalty, printed)


def objective(stats, credit: types.Credit, cfg: Config) -> variant.Terms:
  """The anchored GRPO's terms, the KL's replaced, and CTI's."""
  if not cfg.enable:
    return sdar.objective(stats, credit, cfg)
  terms = sdar.base_terms(stats, credit, cfg)
  rows, mask = credit.rows, credit.rows['mask']
  lam, mu = _coefficients(credit.scalars, cfg)
  if cfg.polarized_kl or cfg.phase_aware:
    penalty = polarised if cfg.polarized_kl else privileged.anchor_penalty
    per_token = penalty(stats['logp'], rows, cfg)
    terms['kl'] = privileged.token_term(per_token, mask, rows, cfg, mu)
  per_token = cti_loss(stats, rows, cfg)
  terms['cti'] = privileged.token_term(per_token, mask, rows, cfg, lam)
  return terms


def scorings(cfg: Config) -> tuple[str, ...]:
  """Frozen scorings that credit reads."""
  return (privileged if cfg.enable else sdar).scorings(cfg)


def stats(cfg: Config) -> tuple[str, ...]:
  """Current-policy statistics that objective reads."""
  contrast = cfg.negative_branch == 'o3_cringe'
  return (*grpo.stats(cfg), 'contrast') if contrast else grpo.stats(cfg)


def check(cfg: Config, mode: str, group: int) -> None:
  """Raises ValueError off solo rollouts, or with a group without siblings.

  A group that shrinks at run time falls back, position by position.
  """
  checks.solo('craft', mode, group, least=2 if cfg.enable else 1)


VARIANT = variant.Variant(
  name='craft',
  config=Config,
  credit=credit,
  objective=objective,
  scorings=scorings,
  stats=stats,
  check=check,
  init_state=init_state,
)

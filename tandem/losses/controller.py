"""The phase-aware controller of two coefficients, for CRAFT and CRINGE.

    rho(t+1) = ema rho(t) + (1 - ema) rho_gate(t)       after warmup_steps  (11)
    lambda   = lambda_min + (lambda_max - lambda_min) rho'                  (12)
    mu       = mu_min + (mu_max - mu_min) (1 - rho')                        (13)

rho_gate is the share of valid tokens whose credit is active, rho starts at 1/2,
and rho' is rho re-centred on rho_target (itself at the default of 1/2). A step's
coefficients come from the state that it found; what it measured acts on the
next. In warm-up both stay at the middle of their ranges, .0125.

The paper's welfare argument does not hold for its own law (METHODS §4.7 F-e):
with W(rho) = lambda rho + mu (1 - rho), equations (12), (13) make W convex with
its *minimum* at 1/2, .0125 against .020 at both ends. The concave story, with
its condition lambda_min = mu_min, belongs to the opposite law, lambda falling
and mu rising in rho: `controller_law='welfare'`. Equations, abstract, figure 1
and algorithm 2 all agree on (12), (13), so they are the default.

Source: CRAFT (arXiv 2606.29476), equations 11 to 13, algorithm 2, table 6. The
  paper's rho_target enters no printed equation: rho_map is a reconstruction.
"""

import dataclasses

import jax
import jax.numpy as jnp

from tandem.losses import checks

START = 0.5


@dataclasses.dataclass(frozen=True)
class Fields:
  """The controller's part of a variant's config.

  Attributes:
    lambda_min, lambda_max: range of the distillation weight.
    mu_min, mu_max: range of the KL's weight.
    ema: memory of the moving average, in [0, 1).
    warmup_steps: steps in which rho stays at its start.
    rho_target: the operating point that maps to 1/2.
    rho_map: 'shift' is clip(rho + 1/2 - rho_target, 0, 1); 'piecewise' is
      linear from 0 to rho_target and from there to 1.
    controller_law: 'paper', or 'welfare' for the opposite one.
  """

  lambda_min: float = 0.005
  lambda_max: float = 0.02
  mu_min: float = 0.005
  mu_max: float = 0.02
  ema: float = 0.95
  warmup_steps: int = 10
  rho_target: float = 0.5
  rho_map: str = 'shift'
  controller_law: str = 'paper'


NAMES = tuple(field.name for field in dataclasses.fields(Fields))


def check(cfg: Fields) -> None:
  """Raises ValueError on numbers that make no controller."""
  for name, low, high in (
    ('lambda', cfg.lambda_min, cfg.lambda_max),
    ('mu', cfg.mu_min, cfg.mu_max),
  ):
    if not 0 <= low <= high <= 1:
      raise ValueError(
        f'{name}_min={low}, {name}_max={high}: the range must be ordered and '
        'lie in [0, 1]'
      )
  if not 0 <= cfg.ema < 1:
    raise ValueError(f'ema={cfg.ema} must lie in [0, 1); 0.95 is usual')
  checks.at_least('warmup_steps', cfg.warmup_steps, 0)
  if not 0 < cfg.rho_target < 1:
    raise ValueError(
      f'rho_target={cfg.rho_target} must lie strictly between 0 and 1'
    )
  checks.choice('rho_map', cfg.rho_map, ('shift', 'piecewise'))
  checks.choice('controller_law', cfg.controller_law, ('paper', 'welfare'))


def init_state() -> dict[str, jax.Array]:
  """rho [] float32 and steps [] int32."""
  return {
    'rho': jnp.asarray(START, jnp.float32),
    'steps': jnp.zeros((), jnp.int32),
  }


def recentred(rho: jax.Array, cfg: Fields) -> jax.Array:
  """rho', in [0, 1]; 1/2 at rho_target, and rho itself where that is 1/2."""
  target = cfg.rho_target
  if cfg.rho_map == 'shift':
    return jnp.clip(rho + (0.5 - target), 0, 1)
  below = 0.5 * rho / target
  above = 0.5 + 0.5 * (rho - target) / (1 - target)
  return jnp.where(rho < target, below, above)


def coefficients(rho: jax.Array, cfg: Fields) -> tuple[jax.Array, jax.Array]:
  """(lambda, mu) at rho, equations (12) and (13) or their opposite."""
  share = recentred(rho, cfg)
  if cfg.controller_law == 'welfare':
    share = 1 - share
  lam = cfg.lambda_min + (cfg.lambda_max - cfg.lambda_min) * share
  mu = cfg.mu_min + (cfg.mu_max - cfg.mu_min) * (1 - share)
  return lam, mu


def update(state, rho_gate: jax.Array, cfg: Fields) -> dict[str, jax.Array]:
  """The state that the next step finds, equation (11)."""
  steps = state['steps'] + 1
  moved = cfg.ema * state['rho'] + (1 - cfg.ema) * rho_gate
  moved = moved.astype(jnp.float32)
  return {
    'rho': jnp.where(steps > cfg.warmup_steps, moved, state['rho']),
    'steps': steps,
  }

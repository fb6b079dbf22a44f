"""Refusals shared by the variants: each says what, got, allowed and the fix."""

import dataclasses
from typing import Any

import jax

from tandem import types


def choice(field: str, value: Any, allowed: tuple) -> None:
  """Raises ValueError unless `value` is one of `allowed`."""
  if value not in allowed:
    raise ValueError(f'{field}={value!r} is not allowed; use one of {allowed}')


def between(field: str, value: float, low: float, high: float) -> None:
  """Raises ValueError unless low <= value <= high (so never for NaN)."""
  if not low <= value <= high:
    raise ValueError(f'{field}={value!r} lies outside [{low}, {high}]')


def idle(cfg: Any, field: str, reason: str) -> None:
  """Raises ValueError where a field that would do nothing was set.

  Args:
    cfg: a variant's config.
    field: the field that nothing reads under the other settings.
    reason: what makes it idle, and how to wake it.
  """
  defaults = {f.name: f.default for f in dataclasses.fields(cfg)}
  value = getattr(cfg, field)
  if value != defaults[field]:
    raise ValueError(
      f'{field}={value!r} would have no effect: {reason}; or leave it at '
      f'{defaults[field]!r}'
    )


def all_idle(cfg: Any, fields: tuple[str, ...], reason: str) -> None:
  """`idle` for each of `fields`."""
  for field in fields:
    idle(cfg, field, reason)


def solo(name: str, mode: str, group: int, least: int = 1) -> None:
  """Raises ValueError where a loss for one speaker meets another rollout.

  Args:
    name: the variant's.
    mode: rollout.mode.
    group: G.
    least: the smallest group that the loss is defined for.
  """
  choice('rollout.mode', mode, ('solo', 'tandem'))
  if mode == 'tandem':
    raise ValueError(
      f"loss variant {name!r} on rollout.mode='tandem': it would credit the "
      "junior's tokens to the senior; set rollout.mode='solo', or "
      "loss.variant='tandem'"
    )
  if group < least:
    raise ValueError(
      f'group={group} with loss variant {name!r}, which needs at least {least} '
      'rows a prompt; raise the group'
    )


def solo_only(name: str):
  """`solo` as a variant's check, for one that refuses nothing else."""

  def check(cfg: Any, mode: str, group: int) -> None:
    del cfg
    solo(name, mode, group)

  return check


def score(batch: types.StepBatch, name: str) -> jax.Array:
  """batch.scores[name], [N, T]; a missing one is named, never replaced."""
  if name not in batch.scores:
    raise ValueError(
      f'the loss needs log-probs {name!r}, the batch has '
      f'{sorted(batch.scores)}; run every scoring that the variant declares'
    )
  return batch.scores[name]


def at_least(field: str, value: int, low: int) -> None:
  """Raises ValueError unless value >= low."""
  if value < low:
    raise ValueError(f'{field}={value!r} must be at least {low}')

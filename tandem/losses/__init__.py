"""The losses, by name. A config's `loss.variant` is a key of LOSSES."""

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp

from tandem import types
from tandem.losses import craft
from tandem.losses import cringe
from tandem.losses import feedback
from tandem.losses import gr_opd
from tandem.losses import grpo
from tandem.losses import opd
from tandem.losses import rlsd
from tandem.losses import sdar
from tandem.losses import skill_sd
from tandem.losses import tandem
from tandem.losses import unlikelihood
from tandem.losses import variant

LOSSES = {
  'grpo': grpo.VARIANT,
  'tandem': tandem.VARIANT,
  'opd': opd.VARIANT,
  'gr_opd': gr_opd.VARIANT,
  'craft': craft.VARIANT,
  'sdar': sdar.VARIANT,
  'rlsd': rlsd.VARIANT,
  'skill_sd': skill_sd.VARIANT,
  'cringe': cringe.ROW,
  'token_cringe': cringe.TOKEN,
  'adaptive_cringe': cringe.ADAPTIVE,
  'unlikelihood': unlikelihood.VARIANT,
}


def get(variant_name: str) -> variant.Variant:
  """The variant of that name; ValueError lists the names there are."""
  if variant_name not in LOSSES:
    raise ValueError(
      f'loss.variant={variant_name!r} is unknown; use one of {sorted(LOSSES)}'
    )
  return LOSSES[variant_name]


def make_config(variant_name: str, **fields: Any) -> Any:
  """The variant's frozen config from keyword fields.

  Raises:
    ValueError: unknown variant or field (the legal ones are listed), or
      settings that contradict each other.
  """
  config = get(variant_name).config
  legal = [field.name for field in dataclasses.fields(config)]
  unknown = sorted(set(fields) - set(legal))
  if unknown:
    owners = {field: _owners(field) for field in unknown}
    theirs = [
      f'{field} belongs to {", ".join(names)}'
      for field, names in owners.items()
      if names
    ]
    one = f' ({"; ".join(theirs)}; a run has one variant)' if theirs else ''
    raise ValueError(
      f'loss fields {unknown} are unknown to variant {variant_name!r}{one}; '
      f'legal are {legal}'
    )
  return config(**fields)


def _owners(field: str) -> list[str]:
  """The variants that have a field."""
  return [
    name
    for name, one in LOSSES.items()
    if field in {f.name for f in dataclasses.fields(one.config)}
  ]


def pays_by_group(cfg: Any) -> bool:
  """Whether equal rewards in a group take its advantage, and so its pay.

  Not where a teacher pays, nor where rows are told apart by reward alone.

  Args:
    cfg: a variant's config.
  """
  teacher_pays = isinstance(cfg, feedback.Config)
  paid = isinstance(cfg, grpo.Config) and not teacher_pays
  return paid and getattr(cfg, 'policy_coef', 1.0) != 0


def update_counts(
  objective: Any,
  credit: types.Credit,
  cfg: Any,
  stats_shapes: dict[str, Any],
) -> dict[str, jax.Array]:
  """Each term's count over a whole update, before the first backward.

  Counts do not depend on statistics, so zeros stand in for them; under jit
  the sums that go with them are dead code.

  Args:
    objective: the variant's.
    credit: of all rows of the update (N), not of a micro-batch.
    cfg: the variant's config.
    stats_shapes: {name: (N, T)} or anything with `.shape`, for the statistics
      the objective reads.

  Returns:
    {term: scalar float32}.
  """
  zeros = {
    name: jnp.zeros(getattr(shape, 'shape', shape), jnp.float32)
    for name, shape in stats_shapes.items()
  }
  terms = objective(zeros, credit, cfg)
  return {name: count for name, (_, count) in terms.items()}

"""The contract of a loss: two pure functions and what they ask for.

    credit(batch, state, cfg)  -> (Credit, state, metrics)     once per step
    objective(stats, credit, cfg) -> {term: (sum, count)}      per micro-batch

`credit` sees the whole step batch and carries no gradient. `objective` sees a
micro-batch: `stats` are per-token statistics of the current policy, each
[n, T] float32, and `credit` the matching slice. The loss is the sum over terms
of sum / count, where counts are added over the whole update first; so a count
must not depend on `stats`, and micro-batches, devices and hosts add exactly.
"""

from collections.abc import Callable
import dataclasses
from typing import Any

import jax

from tandem import types

Terms = dict[str, tuple[jax.Array, jax.Array]]


def _no_state(cfg):
  del cfg
  return {}


@dataclasses.dataclass(frozen=True)
class Variant:
  """One loss, by name in `tandem.losses.LOSSES`.

  Attributes:
    name: its key in LOSSES and in `config.loss.variant`.
    config: a frozen dataclass of its numbers; the fields of `config.loss`.
    credit: (StepBatch, state, cfg) -> (Credit, state, {name: scalar}).
    objective: (stats, Credit, cfg) -> {term: (sum, count)}.
    scorings: cfg -> names among old, reference, junior, teacher, privileged
      that `credit` reads from `batch.scores`.
    stats: cfg -> names of current-policy statistics that `objective` reads;
      `logp` always, then `entropy`, `kl_teacher`, `contrast`.
    init_state: cfg -> the variant's own state, checkpointed.
    check: (cfg, rollout mode, group size) -> None; raises ValueError on a
      contradictory setting.
  """

  name: str
  config: type
  credit: Callable[..., tuple[types.Credit, Any, dict[str, jax.Array]]]
  objective: Callable[..., Terms]
  scorings: Callable[[Any], tuple[str, ...]]
  stats: Callable[[Any], tuple[str, ...]]
  check: Callable[[Any, str, int], None]
  init_state: Callable[[Any], Any] = _no_state

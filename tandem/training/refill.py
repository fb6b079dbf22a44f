"""Dynamic sampling: groups that teach nothing give way to new prompts.

A group whose rewards are all equal has advantage 0. Such groups are dropped and
as many prompts as a step has are drawn again, under the next draw numbers, until
the step is full of groups that differ, or the refills are spent; then the last
of the dropped groups fill it, so that its shape never changes. Rewards are the
verifier's, before any punishment of length: DAPO's filter goes by accuracy.

Every draw has the step's own shape, so it is the same program. What a refill
brings beyond the step's need is left out too, as DAPO does: kept for the next
step, it would be another policy's. Which groups stay follows from rewards alone,
which all hosts share; the next step's first prompt is the cursor's, a number of
the checkpoint.

Source: DAPO (arXiv 2503.14476), section 3.2, algorithm 1.
"""

from collections.abc import Callable
from collections.abc import Sequence
import dataclasses

from absl import logging
import jax
import numpy as np

from tandem.losses import advantages
from tandem.training import collect


@dataclasses.dataclass(frozen=True)
class Filled:
  """A step's groups, and all that were drawn for it."""

  kept: collect.Collected  # B groups, to train on
  drawn: collect.Collected  # the kept, the dropped and the surplus
  counts: dict[str, float]  # metrics of the refills


def as_drawn(got: collect.Collected) -> Filled:
  """A step without dynamic sampling: all that was drawn."""
  return Filled(got, got, {})


def choose(flat: np.ndarray, count: int) -> np.ndarray:
  """Which groups to train on, in the order drawn.

  Args:
    flat: [M] bool; True where a group's rewards are all equal.
    count: B, at most M.

  Returns:
    [B] indices, ascending: the first that differ; where those are too few, all
    of them and the last flat ones.
  """
  differ, same = np.flatnonzero(~flat)[:count], np.flatnonzero(flat)
  missing = count - len(differ)
  return np.sort(np.concatenate([differ, same[len(same) - missing :]]))


def fill(
  draw: Callable[[int], collect.Collected], *, max_refills: int
) -> Filled:
  """Draws until as many groups differ as the first draw has.

  Args:
    draw: from the draw number of its first prompt to B graded groups of new
      prompts; B is the same in each call.
    max_refills: calls after the first, at most.

  Returns:
    Filled, with counts `rollout/refills`, `rollout/dropped_groups` (of equal
    rewards, not trained on), `rollout/flat_groups` (of equal rewards, trained
    on after all) and `reward/kept_mean`.
  """
  parts, flat = [], []
  while True:
    parts.append(draw(sum(len(part.prompts) for part in parts)))
    rows = advantages.degenerate(parts[-1].rewards, group=parts[-1].group)
    flat += np.asarray(rows)[:: parts[-1].group].tolist()
    count, refills = len(parts[0].prompts), len(parts) - 1
    full = flat.count(False) >= count
    if full or refills >= max_refills:
      break
  flat = np.asarray(flat)
  drawn = join(parts)
  index = choose(flat, count)
  trained = int(flat[index].sum())
  if trained:
    logging.warning(
      'dynamic sampling: %d of %d groups differ in their rewards after %d '
      'refills (rollout.max_refills); the step is filled with %d that do not. '
      'Problems are too hard or too easy for this policy.',
      count - trained,
      count,
      refills,
      trained,
    )
  kept = take(drawn, index)
  counts = {
    'rollout/refills': refills,
    'rollout/dropped_groups': int(flat.sum()) - trained,
    'rollout/flat_groups': trained,
    # Near 1/2 by selection; `reward/mean` is of all that was drawn.
    'reward/kept_mean': float(kept.rewards.mean()),
  }
  return Filled(kept, drawn, counts)


def join(parts: Sequence[collect.Collected]) -> collect.Collected:
  """One Collected of several from the same step, in their order.

  Prompts are padded to the widest; seconds add up.
  """
  width = max(part.ids.shape[1] for part in parts)
  wide = lambda ids: np.pad(ids, ((0, 0), (0, width - ids.shape[1])))
  rows = lambda *x: np.concatenate(x)
  joined = lambda name: rows(*(getattr(part, name) for part in parts))
  every = lambda name: [x for part in parts for x in getattr(part, name)]
  total = lambda name: sum(getattr(part, name) for part in parts)
  return dataclasses.replace(
    parts[0],
    prompts=tuple(every('prompts')),
    ids=rows(*(wide(part.ids) for part in parts)),
    lengths=joined('lengths'),
    draw=joined('draw'),
    sample=joined('sample'),
    rollout=jax.tree.map(rows, *(part.rollout for part in parts)),
    counts=jax.tree.map(rows, *(part.counts for part in parts)),
    texts=every('texts'),
    verdicts=every('verdicts'),
    rewards=joined('rewards'),
    slot_steps=total('slot_steps'),
    seconds_rollout=total('seconds_rollout'),
    seconds_reward=total('seconds_reward'),
  )


def take(got: collect.Collected, groups: np.ndarray) -> collect.Collected:
  """The groups of these indices, in that order; seconds stay the whole's."""
  sizes = np.arange(got.group)
  rows = (np.asarray(groups)[:, None] * got.group + sizes[None]).reshape(-1)
  return dataclasses.replace(
    got,
    prompts=tuple(got.prompts[i] for i in groups),
    ids=got.ids[groups],
    lengths=got.lengths[groups],
    draw=got.draw[rows],
    sample=got.sample[rows],
    rollout=jax.tree.map(lambda x: x[rows], got.rollout),
    counts=jax.tree.map(lambda x: x[rows], got.counts),
    texts=[got.texts[i] for i in rows],
    verdicts=[got.verdicts[i] for i in rows],
    rewards=got.rewards[rows],
  )

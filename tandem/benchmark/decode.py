"""Tokens per second of each way to decode, on one pair of models.

In parts:

  pairs      solo, lockstep, speculative at each k; each batch
  agreement  one k on pairs of other overlaps
  limits     what this machine's memory and arithmetic would allow
  prefix     a prompt prefilled and stored once for its group, or for each row
  slots      slots against a fixed batch, on a log-normal mix of lengths
  others     other people's samplers on the same weights

`decode/speculative/b{N}` is the k that `choose_k` takes from the acceptance and
the costs measured here; `decode/speculative_k{K}/b{N}` is each k by itself.
"""

from collections.abc import Iterator
from collections.abc import Sequence
import functools
import statistics
from typing import Any

import jax.numpy as jnp

from tandem import types
from tandem.benchmark import decode_case
from tandem.benchmark import decode_limits
from tandem.benchmark import decode_others
from tandem.benchmark import decode_prefix
from tandem.benchmark import decode_slots
from tandem.benchmark import timing
from tandem.rollout import draft_length
from tandem.rollout import lockstep
from tandem.rollout import resolve
from tandem.rollout import speculative

# By k, whether a draft that stands may earn a token more: passes of 2^n
# positions, see training.decoding.
DRAFTS = {3: True, 2: False, 4: False, 7: True, 8: False, 16: False}


def run(
  *,
  quick: bool = False,
  repeats: int = 5,
  batches: Sequence[int] = (1, 4, 16, 32),
  agreements: Sequence[float] = (0.97, 1.0, 0.99, 0.95, 0.9),
  parts: Sequence[str] = (),
  drafts: Sequence[int] = tuple(DRAFTS),
  response: int = 256,
) -> Iterator[dict[str, Any]]:
  """Yields one line per measurement.

  Args:
    quick: a toy model and few tokens, to see that it works.
    repeats: timed runs of each program.
    batches: rows decoded at once.
    agreements: overlaps of the pair; the first serves all programs, the others
      one k only.
    parts: of PARTS; empty for all.
    drafts: k of the drafted programs; a bonus as DRAFTS says, or with any other.
    response: tokens of each response. What a batch pays once (prompts, and the
      wait for its last row) weighs less in long ones.

  Raises:
    ValueError: an unknown part.
  """
  unknown = set(parts) - set(PARTS)
  if unknown:
    raise ValueError(
      f'parts={sorted(unknown)} are unknown; of {", ".join(PARTS)}.'
    )
  case = decode_case.make(quick, response)
  drafts = {k: DRAFTS.get(k, True) for k in ((3,) if quick else drafts)}
  for part in parts or PARTS:
    yield from PARTS[part](
      case,
      repeats=repeats,
      batches=batches,
      agreements=agreements,
      drafts=drafts,
    )


def _speculate(case, junior, rows, k, bonus):
  return functools.partial(
    speculative.counted,
    case.senior,
    junior,
    **case.arguments(rows),
    junior_cfg=case.cfg,
    draft_tokens=k,
    draft_bonus=bonus,
  )


def _pairs(case, *, repeats, batches, agreements, drafts):
  """Every program at every batch."""
  junior, overlap = case.junior(agreements[0])
  for rows in batches:
    common = case.arguments(rows)
    programs = {
      'solo': functools.partial(lockstep.lockstep, case.senior, None, **common),
      'lockstep': functools.partial(
        lockstep.lockstep, case.senior, junior, **common, junior_cfg=case.cfg
      ),
    }
    for k, bonus in drafts.items():
      programs[f'speculative_k{k}'] = _speculate(case, junior, rows, k, bonus)
    seconds = timing.interleaved(programs, repeats)
    median = {name: statistics.median(x) for name, x in seconds.items()}

    def line(name, seconds, seconds_of=seconds, rows=rows, **more):
      return timing.line(
        f'decode/{name}/b{rows}',
        seconds,
        'tokens/s',
        work=rows * case.response,
        of_solo=timing.ratio(seconds_of['solo'], seconds),
        of_lockstep=timing.ratio(seconds_of['lockstep'], seconds),
        response=case.response,
        **more,
      )

    plain = programs['lockstep']()
    told, costs = {}, {1: median['lockstep'] / case.response}
    for k in drafts:
      name = f'speculative_k{k}'
      out, counts = programs[name]()
      told[k] = _drafting(out, counts, overlap) | {
        'draft_tokens': k,
        'draft_bonus': drafts[k],
        'rows_equal_to_lockstep': int(
          (out.tokens == plain.tokens).all(1).sum()
        ),
      }
      costs[k] = median[name] / float(counts.rounds.mean())
    for name in ('solo', 'lockstep'):
      yield line(name, seconds[name])
    for k in drafts:
      yield line(f'speculative_k{k}', seconds[f'speculative_k{k}'], **told[k])
    acceptance = statistics.fmean(x['acceptance'] for x in told.values())
    chance = {k: bonus * common['turns'].p for k, bonus in drafts.items()}
    k = draft_length.choose_k(acceptance, costs, chance)
    chosen = seconds['lockstep' if k == 1 else f'speculative_k{k}']
    yield line('speculative', chosen, **told.get(k, {'draft_tokens': 1}))


def _agreement(case, *, repeats, batches, agreements, drafts):
  """One program, several pairs; told against lockstep and solo."""
  k, bonus = next(iter(drafts.items()))
  rows = batches[min(1, len(batches) - 1)]
  for target in agreements[1:]:
    junior, overlap = case.junior(target)
    common = case.arguments(rows)
    programs = {
      'speculative': _speculate(case, junior, rows, k, bonus),
      'lockstep': functools.partial(
        lockstep.lockstep, case.senior, junior, **common, junior_cfg=case.cfg
      ),
      'solo': functools.partial(lockstep.lockstep, case.senior, None, **common),
    }
    seconds = timing.interleaved(programs, repeats)
    yield timing.line(
      f'decode/speculative_k{k}_overlap{target:g}/b{rows}',
      seconds['speculative'],
      'tokens/s',
      work=rows * case.response,
      of_solo=timing.ratio(seconds['solo'], seconds['speculative']),
      of_lockstep=timing.ratio(seconds['lockstep'], seconds['speculative']),
      draft_tokens=k,
      **_drafting(*programs['speculative'](), overlap),
    )


def _drafting(out: types.Rollout, counts: resolve.Counts, overlap: float):
  """What a line says of the pair and of its drafts."""
  share = lambda a, b: float(a.sum() / jnp.maximum(b.sum(), 1))
  return {
    'overlap': overlap,
    'acceptance': share(counts.passed, counts.tested),
    'tokens_per_round': share(out.lengths, counts.rounds),
  }


def _only(lines):
  """A part that has no use for pairs."""
  return lambda case, *, agreements, drafts, **kwargs: lines(case, **kwargs)


PARTS = {
  'pairs': _pairs,
  'agreement': _agreement,
  'limits': _only(decode_limits.lines),
  'prefix': _only(decode_prefix.lines),
  'slots': _only(decode_slots.lines),
  'others': _only(decode_others.lines),
}

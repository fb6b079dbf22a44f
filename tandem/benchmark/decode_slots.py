"""Slots against a fixed batch, where lengths of responses differ much.

The lengths are log-normal. A row ends where it draws an id of a set of EOS, so
lengths of many rows are drawn first, and of those rows the ones are taken whose
lengths are nearest to wanted ones: a row depends on its key and prompt alone,
and so ends there again in whatever way it is decoded.
"""

from collections.abc import Iterator
from collections.abc import Sequence
import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from tandem import types
from tandem.benchmark import decode_case
from tandem.benchmark import timing
from tandem.rollout import lockstep
from tandem.rollout import speculative

SIGMA = 0.8


def pick(lengths: np.ndarray, wanted: np.ndarray) -> np.ndarray:
  """Index of a row for each wanted length, the nearest that is left.

  Args:
    lengths: [P] of the rows to choose from; P >= the number wanted.
    wanted: [N].
  """
  free, out = np.ones(len(lengths), bool), np.empty(len(wanted), int)
  # The rarest first: long ones have few rows to choose from.
  for i in np.argsort(-wanted, kind='stable'):
    gap = np.where(free, np.abs(lengths - wanted[i]), np.inf)
    out[i] = gap.argmin()
    free[out[i]] = False
  return out


def lines(
  case: decode_case.Case, *, repeats: int, batches: Sequence[int]
) -> Iterator[dict[str, Any]]:
  """Yields `decode/{fixed,slots}/m{M}`, the senior alone.

  `fixed` decodes M rows, and the next M when all of those have ended; both
  write the same tokens.
  """
  del batches
  slots, rows, median = (2, 8, 2) if case.quick else (8, 128, 12)
  vocab, pool = case.cfg.vocab, 3 * rows
  # At random weights each id is about as likely: geometric lengths.
  eos = np.random.default_rng(1).choice(
    vocab, max(vocab // (2 * median), 1), replace=False
  )
  common = case.arguments(pool) | {'eos_ids': tuple(eos.tolist())}
  refilled = functools.partial(
    speculative.counted, case.senior, None, draft_tokens=1, slots=slots
  )
  drawn = np.asarray(refilled(**common)[0].lengths)
  wanted = np.random.default_rng(2).lognormal(np.log(median), SIGMA, rows)
  index = pick(drawn, np.clip(wanted.round(), 1, case.response))
  take = lambda tree: jax.tree.map(lambda a: a[jnp.asarray(index)], tree)
  common |= {
    'prompts': take(common['prompts']),
    'row_keys': take(common['row_keys']),
  }

  def fixed():
    out = []
    for start in range(0, rows, slots):
      part = lambda tree, at=slice(start, start + slots): jax.tree.map(
        lambda a: a[at], tree
      )
      out.append(
        lockstep.lockstep(
          case.senior,
          None,
          **common
          | {
            'prompts': part(common['prompts']),
            'row_keys': part(common['row_keys']),
          },
        )
      )
    return jax.tree.map(lambda *parts: jnp.concatenate(parts), *out)

  programs = {'fixed': fixed, 'slots': functools.partial(refilled, **common)}
  seconds = timing.interleaved(programs, repeats)
  plain, (got, counts) = fixed(), programs['slots']()
  lengths = np.asarray(plain.lengths)
  longest = lengths.reshape(-1, slots).max(1).sum()
  idle = {
    'fixed': float(1 - lengths.sum() / (longest * slots)),
    'slots': float(counts.idle(slots)),
  }
  for name in programs:
    yield timing.line(
      f'decode/{name}/m{slots}',
      seconds[name],
      'tokens/s',
      work=int(lengths.sum()),
      idle=idle[name],
      of_fixed=timing.ratio(seconds['fixed'], seconds[name]),
      rows=rows,
      length_mean=float(lengths.mean()),
      length_max=int(lengths.max()),
      rows_equal_to_fixed=_equal(plain, got),
    )


def _equal(a: types.Rollout, b: types.Rollout) -> int:
  return int((a.tokens == b.tokens).all(1).sum())

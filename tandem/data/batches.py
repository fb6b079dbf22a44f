"""Which prompts a step reads, and their padded ids.

The order is a pure function of (seed, cursor), where the cursor counts prompts
drawn since the run began; so a run that is started again at a cursor reads
exactly what it would have read.
"""

from collections.abc import Sequence
import dataclasses
import functools

import numpy as np

from tandem.data import prompts as prompts_lib


@dataclasses.dataclass(frozen=True)
class PromptBatch:
  """The prompts of a step, one row each; rows are not repeated by group."""

  prompts: tuple[prompts_lib.Prompt, ...]  # B of them
  index: np.ndarray  # [B] int64; place of each in the list drawn from
  cursor: np.ndarray  # [B] int64; what the cursor was when it was drawn
  ids: np.ndarray  # [B, P] int32; right-padded with zeros
  lengths: np.ndarray  # [B] int32; at least 1


@functools.lru_cache(maxsize=4)
def _permutation(seed, epoch, num_problems):
  order = np.random.default_rng((seed, epoch)).permutation(num_problems)
  order.setflags(write=False)
  return order


def problem_index(seed: int, cursor: int, num_problems: int) -> int:
  """Which problem the `cursor`-th draw of a run reads.

  Every epoch is a permutation of all problems, another one each time.

  Args:
    seed: the run's data seed, not negative.
    cursor: prompts drawn before, not negative.
    num_problems: how many there are.

  Returns:
    An index below `num_problems`.

  Raises:
    ValueError: a negative argument, or no problems.
  """
  if seed < 0 or cursor < 0 or num_problems < 1:
    raise ValueError(
      f'seed={seed}, cursor={cursor}, num_problems={num_problems}; seed and '
      f'cursor must be at least 0 and num_problems at least 1.'
    )
  epoch, place = divmod(cursor, num_problems)
  return int(_permutation(seed, epoch, num_problems)[place])


def padded_length(longest: int, *, max_prompt: int, bucket: int) -> int:
  """P for prompts of up to `longest` tokens.

  Each P is a program to compile, so lengths are rounded up.

  Args:
    longest: tokens of the longest prompt.
    max_prompt: the greatest P.
    bucket: P is a multiple of it, or `max_prompt`; 0 always takes `max_prompt`.

  Raises:
    ValueError: `longest` is above `max_prompt`, or a negative bucket.
  """
  if bucket < 0:
    raise ValueError(f'bucket={bucket}; it must be at least 0.')
  if longest > max_prompt:
    raise ValueError(
      f'a row has {longest} tokens, more than the limit of {max_prompt}; raise '
      'rollout.max_prompt (of a prompt) or rollout.max_response (of a '
      "demonstration), or set data.overlong='drop'."
    )
  if not bucket:
    return max_prompt
  return min(max_prompt, -(-longest // bucket) * bucket)


def pad(
  rows: Sequence[Sequence[int]], *, max_prompt: int, bucket: int = 0
) -> tuple[np.ndarray, np.ndarray]:
  """Ids of ragged rows as one array, padded on the right with zeros.

  Returns:
    ids [B, P] int32 and lengths [B] int32.

  Raises:
    ValueError: no rows, an empty one, or one above `max_prompt`.
  """
  lengths = np.asarray([len(row) for row in rows], np.int32)
  if not lengths.size or not lengths.all():
    raise ValueError(f'prompts of {lengths.tolist()} tokens; each needs one.')
  size = padded_length(int(lengths.max()), max_prompt=max_prompt, bucket=bucket)
  ids = np.zeros((len(rows), size), np.int32)
  for row, out in zip(rows, ids):
    out[: len(row)] = row
  return ids, lengths


def draw(
  prompts: Sequence[prompts_lib.Prompt],
  *,
  seed: int,
  cursor: int,
  count: int,
  max_prompt: int,
  bucket: int = 0,
) -> PromptBatch:
  """The next `count` prompts from `cursor` on.

  Args:
    prompts: all that there are.
    seed: the run's data seed.
    cursor: prompts drawn before; the caller adds `count` for the next call.
    count: B.
    max_prompt: the greatest P.
    bucket: as in `padded_length`.

  Raises:
    ValueError: as `problem_index` and `pad`.
  """
  cursors = np.arange(cursor, cursor + count, dtype=np.int64)
  index = np.asarray(
    [problem_index(seed, int(c), len(prompts)) for c in cursors], np.int64
  )
  chosen = tuple(prompts[i] for i in index)
  ids, lengths = pad(
    [prompt.ids for prompt in chosen], max_prompt=max_prompt, bucket=bucket
  )
  return PromptBatch(chosen, index, cursors, ids, lengths)

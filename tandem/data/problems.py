"""Problems in, from files, the hub and reasoning-gym; and their split.

A row that cannot be used is skipped, counted and named in the log, never
silently; a source without one usable row is an error.
"""

import codecs
from collections.abc import Iterable
from collections.abc import Mapping
from collections.abc import Sequence
import json
import os
import pathlib

from absl import logging
import numpy as np

from tandem import types

FIELDS = {
  'id': 'id',
  'problem': 'problem',
  'answer': 'answer',
  'source': 'source',
  'solution': 'solution',
}
_NAMED = 5  # bad rows that the log names one by one


def _text(value) -> str:
  """A field as text; '' for whatever cannot be one."""
  if isinstance(value, bool) or not isinstance(value, str | int | float):
    return ''
  if isinstance(value, float) and not np.isfinite(value):
    return ''
  return str(value).strip()


def _problem(row, fields, answer_after, fallback_id, fallback_source):
  """One row as a Problem, or the reason why it is none."""
  if not isinstance(row, Mapping):
    return f'not an object but {type(row).__name__}'
  get = lambda name: _text(row.get(fields[name]))
  text, answer = get('problem'), get('answer')
  if answer_after and answer_after in answer:
    answer = answer.rpartition(answer_after)[2].strip()
  if not text:
    return f'no problem in field {fields["problem"]!r}'
  if not answer:
    return f'no answer in field {fields["answer"]!r}'
  return types.Problem(
    id=get('id') or fallback_id,
    text=text,
    answer=answer,
    source=get('source') or fallback_source,
    solution=get('solution') or None,
  )


def from_rows(
  rows: Iterable[tuple[str, object]],
  *,
  name: str,
  shown: str = '',
  fields: Mapping[str, str] | None = None,
  answer_after: str = '',
  exclude: Sequence[str] = (),
) -> list[types.Problem]:
  """Checks rows one by one and keeps those that are problems with answers.

  Args:
    rows: (where, row) pairs; `where` names the row in the log. A row that is a
      ValueError is one that could not be read.
    name: of the source, for ids and rows without a source.
    shown: what messages call the source, where not `name`.
    fields: what the source calls `id`, `problem`, `answer`, `source` and
      `solution`, where it differs.
    answer_after: keep what follows the last such mark in the answer; GSM8K's
      own files have '####' before it.
    exclude: names of fields; a row where one is set is left out and counted
      (`in_eval` marks problems that stand in an evaluation set).

  Returns:
    At least one problem, in order, with distinct ids.

  Raises:
    ValueError: an unknown name in `fields`, or no usable row.
  """
  shown = shown or name
  unknown = sorted(set(fields or {}) - set(FIELDS))
  if unknown:
    raise ValueError(
      f'unknown field names {unknown} for {shown}; allowed are {sorted(FIELDS)}.'
    )
  names = {**FIELDS, **(fields or {})}
  kept, bad, excluded = {}, [], 0
  for where, row in rows:
    if isinstance(row, ValueError):
      bad.append(f'{where}: {row}')
      continue
    if isinstance(row, Mapping) and any(row.get(field) for field in exclude):
      excluded += 1
      continue
    problem = _problem(row, names, answer_after, f'{name}:{where}', name)
    if isinstance(problem, types.Problem) and problem.id in kept:
      problem = f'id {problem.id!r} stands there twice'
    if isinstance(problem, types.Problem):
      kept[problem.id] = problem
    else:
      bad.append(f'{where}: {problem}')
  if bad:
    more = f'; and {len(bad) - _NAMED} more' if len(bad) > _NAMED else ''
    logging.warning(
      '%s: %d bad rows skipped, %d problems kept: %s%s',
      shown,
      len(bad),
      len(kept),
      '; '.join(bad[:_NAMED]),
      more,
    )
  if excluded:
    logging.info(
      '%s: %d rows left out, for one of %s', shown, excluded, list(exclude)
    )
  if not kept:
    reason = f'the first was {bad[0]}' if bad else 'it is empty'
    raise ValueError(
      f'{shown} holds no usable problem ({len(bad)} bad rows, {excluded} left '
      f'out; {reason}). Each row needs {names["problem"]!r} and '
      f'{names["answer"]!r}; other names: data.problem_field, '
      'data.answer_field.'
    )
  return list(kept.values())


def _json_lines(path):
  with open(path, 'rb') as file:
    for number, line in enumerate(file, start=1):
      line = line.removeprefix(codecs.BOM_UTF8)
      if not line.strip():
        continue
      try:  # bytes that are no UTF-8 are a ValueError too
        yield f'line {number}', json.loads(line)
      except ValueError as error:
        yield f'line {number}', ValueError(f'not JSON ({error})')


def read_jsonl(path: str | os.PathLike, **options) -> list[types.Problem]:
  """Problems of a JSONL file, one object a line.

  Args:
    path: the file, UTF-8.
    **options: `fields`, `answer_after`, `exclude` of `from_rows`.

  Raises:
    ValueError: no such file, an empty one, or no usable row.
  """
  path = pathlib.Path(path)
  if not path.is_file():
    raise ValueError(f'the data file {path} does not exist; check the path.')
  return from_rows(
    _json_lines(path), name=path.stem, shown=str(path), **options
  )


def read_hub(
  dataset: str, *, split: str, subset: str | None = None, **options
) -> list[types.Problem]:
  """Problems of a Hugging Face data set, with the extra `datasets`.

  Args:
    dataset: such as 'openai/gsm8k'.
    split: such as 'train'.
    subset: the data set's configuration name, where it has several.
    **options: `fields`, `answer_after`, `exclude` of `from_rows`.

  Raises:
    ValueError: the extra is missing, or no usable row.
  """
  try:
    import datasets
  except ImportError as error:
    raise ValueError(
      f'the data set {dataset} is on the hub and needs the extra datasets: '
      f"pip install 'tandem-rl[datasets]', or give a JSONL file."
    ) from error
  rows = datasets.load_dataset(dataset, subset, split=split)
  return from_rows(
    ((f'row {n}', row) for n, row in enumerate(rows)), name=dataset, **options
  )


def read_reasoning_gym(
  task: str, *, start: int, count: int, seed: int = 0, **settings
) -> list[types.Problem]:
  """Generated problems of reasoning-gym, with its extra.

  Items of neighbouring seeds overlap there (seed 42's item i + 1 is seed 43's
  item i for several tasks), so parts are told apart by index, never by seed.

  Args:
    task: such as 'chain_sum'.
    start: index of the first item.
    count: how many.
    seed: one seed for all parts of an experiment.
    **settings: the task's own.

  Raises:
    ValueError: the extra is missing, or no usable item.
  """
  try:
    import reasoning_gym
  except ImportError as error:
    raise ValueError(
      f'the task {task} comes from reasoning-gym and needs its extra: '
      f"pip install 'tandem-rl[reasoning-gym]', or give a JSONL file."
    ) from error
  items = reasoning_gym.create_dataset(
    task, size=start + count, seed=seed, **settings
  )
  rows = ((f'item {n}', items[n]) for n in range(start, start + count))
  return from_rows(
    rows, name=f'reasoning_gym/{task}', fields={'problem': 'question'}
  )


def _key(problem: types.Problem) -> str:
  """Equal for problems of one text."""
  return ' '.join(problem.text.split())


def without(
  problems: Sequence[types.Problem], held_out: Sequence[types.Problem]
) -> list[types.Problem]:
  """The problems whose text is none of the held-out ones; the log counts them.

  Raises:
    ValueError: nothing would be left to train on.
  """
  theirs = {_key(problem) for problem in held_out}
  kept = [problem for problem in problems if _key(problem) not in theirs]
  if not kept:
    raise ValueError(
      f'all {len(problems)} training problems are among the {len(held_out)} '
      'held-out ones; give data.eval_path a file of other problems.'
    )
  if len(kept) < len(problems):
    logging.warning(
      '%d of %d training problems are held out too; dropped',
      len(problems) - len(kept),
      len(problems),
    )
  return kept


def split_off(
  problems: Sequence[types.Problem], *, held_out: int, seed: int
) -> tuple[list[types.Problem], list[types.Problem]]:
  """Parts training problems from held-out ones, by seed alone.

  Problems of one text stay together, so that none stands on both sides.

  Args:
    problems: in any order; both parts keep theirs.
    held_out: how many to hold out. One fewer may be, where only problems that
      occur several times are left to fill the last places.
    seed: of the permutation.

  Returns:
    (training, held out).

  Raises:
    ValueError: nothing would be left to train on.

  Source: METHODS section 2.5 (1,000 held out with seed 0).
  """
  if not 0 <= held_out < len(problems):
    raise ValueError(
      f'held_out={held_out} of {len(problems)} problems; it must lie in '
      f'[0, {len(problems) - 1}], so that some are left to train on.'
    )
  groups: dict[str, list[int]] = {}
  for index, problem in enumerate(problems):
    groups.setdefault(_key(problem), []).append(index)
  members = list(groups.values())
  chosen: set[int] = set()
  for group in np.random.default_rng(seed).permutation(len(members)):
    if len(chosen) + len(members[group]) <= held_out:
      chosen.update(members[group])
    if len(chosen) == held_out:
      break
  parts = ([], [])
  for index, problem in enumerate(problems):
    parts[index in chosen].append(problem)
  return parts

"""rollouts/step_000012.jsonl: one response per line, schema tandem.rollout/1.

The schema is the one thing that the trace page, evaluation and notebooks read,
of our runs or of anyone's. Oldest steps go first when the disk budget is spent,
and the log says which.
"""

from collections.abc import Iterable
from collections.abc import Iterator
from collections.abc import Mapping
from collections.abc import Sequence
import filecmp
import itertools
import json
import math
import os
import pathlib
import re

from absl import logging
import jax
import numpy as np

SCHEMA = 'tandem.rollout/1'
PURPOSES = ('train', 'eval')
MODES = ('tandem', 'solo')
FINISHES = ('eos', 'length', 'env')
_FILE = re.compile(r'step_(\d+)(_\w+)?\.jsonl')


def _numbers(values, count: int, name: str) -> list:
  values = np.asarray(values)
  if values.shape[:1] != (count,):
    raise ValueError(
      f'array {name!r} has shape {values.shape}, and the response {count} '
      'tokens; cut it to the length of the response.'
    )
  return [
    float(f'{x:.6g}') if math.isfinite(x) else None
    for x in values.astype(np.float64)
  ]


def make_row(
  *,
  step: int,
  purpose: str,
  mode: str,
  prompt_id: str,
  group: int,
  sample: int,
  draw: int,
  prompt: str,
  prompt_ids: Sequence[int],
  problem: str,
  gold: str,
  ids: Sequence[int],
  text: str,
  offsets: Sequence[tuple[int, int]],
  author: Sequence[bool] | None,
  arrays: Mapping[str, Sequence[float] | None],
  verdict: Mapping,
  finish: str,
  keys: Mapping,
  turns: Sequence[Mapping] | None = None,
) -> dict:
  """One line of the file, checked.

  Args:
    step: steps done before this rollout.
    purpose: 'train' or 'eval'.
    mode: 'tandem' or 'solo'.
    prompt_id: the problem's id.
    group: index of the group in the step.
    sample: index of the row in its group.
    draw: the prompt's draw number in the step.
    prompt: the text as given to the model.
    prompt_ids: its ids, without padding.
    problem, gold: the problem's own text and right answer.
    ids: the response's ids, cut to its length.
    text: the response, decoded.
    offsets: [start, end) in `text` of each id, in characters.
    author: 1 senior, 0 junior per id; None in solo mode.
    arrays: named per-token numbers, each as long as `ids`; None where the run
      has no such record. What is not finite is written as null.
    verdict: {'reward', 'reason', 'answer'}.
    finish: 'eos', 'length' or 'env'.
    keys: {'seed', 'purpose', 'step', 'draw', 'sample'} that made the noise.
    turns: [{'role', 'start', 'end'}] in token positions; None for one turn of
      the assistant.

  Raises:
    ValueError: an unknown purpose, mode or finish, or a length that is not
      the response's.
  """
  for name, value, legal in (
    ('purpose', purpose, PURPOSES),
    ('mode', mode, MODES),
    ('finish', finish, FINISHES),
  ):
    if value not in legal:
      raise ValueError(f'{name}={value!r} is not one of {legal}.')
  if (author is None) != (mode == 'solo'):
    raise ValueError(f'mode={mode!r} with author {author}; solo has none.')
  count = len(ids)
  if len(offsets) != count or (author is not None and len(author) != count):
    raise ValueError(
      f'{count} ids, {len(offsets)} offsets and '
      f'{None if author is None else len(author)} authors; one each per id.'
    )
  ints = lambda values: [int(x) for x in values]
  if turns is None:
    turns = [{'role': 'assistant', 'start': 0, 'end': count}]
  return {
    'schema': SCHEMA,
    'step': int(step),
    'purpose': purpose,
    'mode': mode,
    'prompt_id': prompt_id,
    'group': int(group),
    'sample': int(sample),
    'draw': int(draw),
    'prompt': prompt,
    'prompt_ids': ints(prompt_ids),
    'problem': problem,
    'gold': gold,
    'ids': ints(ids),
    'text': text,
    'offsets': [ints(pair) for pair in offsets],
    'author': None if author is None else ints(author),
    'arrays': {
      name: None if values is None else _numbers(values, count, name)
      for name, values in arrays.items()
    },
    'turns': [dict(turn) for turn in turns],
    'verdict': {
      'reward': float(verdict['reward']),
      'reason': verdict['reason'],
      'answer': verdict['answer'],
    },
    'finish': finish,
    'keys': dict(keys),
  }


def read_rows(path) -> list[dict]:
  """The rows of one file; ValueError on another schema."""
  # Never splitlines: a response may hold U+2028, which ends a line there.
  lines = pathlib.Path(path).read_text(encoding='utf-8').split('\n')
  rows = [json.loads(line) for line in lines if line]
  for row in rows:
    if row.get('schema') != SCHEMA:
      raise ValueError(
        f'{path} has schema {row.get("schema")!r}; this code reads {SCHEMA!r}.'
      )
  return rows


class RolloutLog:
  """Writes DIR/rollouts within a budget; only process 0 writes."""

  def __init__(self, workdir, *, budget_mb: float | None = 1000.0):
    """Opens DIR/rollouts.

    Args:
      workdir: the run's directory.
      budget_mb: the most that all files may take; None for no limit, 0 writes
        nothing.

    Raises:
      ValueError: a negative budget.
    """
    if budget_mb is not None and budget_mb < 0:
      raise ValueError(f'rollouts budget_mb={budget_mb} must not be negative.')
    self.directory = pathlib.Path(workdir) / 'rollouts'
    self._lost = self.directory / 'lost'
    self._budget = None if budget_mb is None else budget_mb * 1e6
    self._active = jax.process_index() == 0 and budget_mb != 0

  def write(
    self,
    step: int,
    rows: Iterable[Mapping],
    suffix: str = '',
    *,
    replace: bool = True,
  ):
    """Writes step_NNNNNN[_suffix].jsonl, whole or not at all.

    Args:
      step: names the file.
      rows: from `make_row`.
      suffix: parts an evaluation's file from the training step's.
      replace: one that is there already; False: it stays, and this one, unless
        it is the same, becomes step_NNNNNN_suffix_2.jsonl, or _3 and so on.

    Returns:
      The path, or None where nothing is written.
    """
    if not self._active:
      return None
    self.directory.mkdir(parents=True, exist_ok=True)
    name = f'step_{step:06d}' + (f'_{suffix}' if suffix else '')
    path = self.directory / f'{name}.jsonl'
    new = path.with_suffix('.new')
    with open(new, 'w', encoding='utf-8') as file:
      for row in rows:
        file.write(json.dumps(row, ensure_ascii=False, allow_nan=False) + '\n')
    for number in itertools.count(2):
      if replace or not path.exists() or filecmp.cmp(path, new, shallow=False):
        break
      path = self.directory / f'{name}_{number}.jsonl'
    os.replace(new, path)
    if self._lost.exists():
      (self._lost / path.name).unlink(missing_ok=True)
      if not any(self._lost.iterdir()):
        self._lost.rmdir()
    self._keep_budget()
    return path if path.exists() else None

  def cut_back(self, step: int) -> None:
    """Puts files of later steps aside: a resumed run makes them anew.

    They lie in rollouts/lost/ until then, since their verdicts are history.

    Args:
      step: the restored one; -1 where the run begins anew: nothing is kept.
    """
    if not self._active:
      return
    for number, path in self._files(self._lost):
      if number <= step or step < 0:
        path.unlink()
    for number, path in self._files():
      if step < 0:
        path.unlink()
      elif number > step:
        self._lost.mkdir(exist_ok=True)
        os.replace(path, self._lost / path.name)

  def lost(self) -> Iterator[dict]:
    """Rows of the files that were put aside, step by step."""
    for _, path in self._files(self._lost) if self._active else ():
      yield from read_rows(path)

  def _files(self, directory=None) -> list[tuple[int, pathlib.Path]]:
    paths = (directory or self.directory).glob('*')
    found = ((_FILE.fullmatch(path.name), path) for path in paths)
    return sorted((int(match[1]), path) for match, path in found if match)

  def _keep_budget(self) -> None:
    if self._budget is None:
      return
    files = [(path, path.stat().st_size) for _, path in self._files()]
    total = sum(size for _, size in files)
    for path, size in files:
      if total <= self._budget:
        return
      path.unlink()
      total -= size
      logging.warning(
        '%s was deleted: rollouts/ is over its budget of %g MB.',
        path,
        self._budget / 1e6,
      )

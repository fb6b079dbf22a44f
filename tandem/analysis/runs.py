"""Reads the files of a run: metrics.jsonl and rollouts/step_*.jsonl.

A process killed while it writes leaves a torn last line: it is left out. A
torn line anywhere else is an error that names it. The schema of a rollout
file is in responses.py.
"""

import json
import pathlib
import re

import numpy as np

from tandem.analysis import responses


def _found(folder):
  """Names what a folder holds, for an error."""
  if not folder.is_dir():
    return f'{folder} is not a folder'
  names = sorted(path.name for path in folder.iterdir())
  return f'{folder} holds {", ".join(names[:8]) or "nothing"}'


def _missing(wanted, folder, workdir):
  return FileNotFoundError(
    f'no {wanted}: {_found(folder)}; wanted the workdir of a run; make one '
    'with `python -m launch.train --config=configs/quickstart.py '
    f'--workdir={workdir}`.'
  )


def _json_lines(path):
  """Yields (line number, object) of a JSONL file, without a torn last line."""
  with open(path, 'rb') as file:
    previous = None
    for number, line in enumerate(file, start=1):
      if previous is not None:
        yield _parsed(path, *previous)
      previous = (number, line) if line.strip() else None
    if previous is not None:
      try:
        record = _parsed(path, *previous)
      except ValueError:
        return
      yield record


def _parsed(path, number, line):
  try:
    record = json.loads(line.decode('utf-8'))
  except (UnicodeDecodeError, json.JSONDecodeError) as error:
    raise ValueError(
      f'{path}:{number} is not JSON ({error}); wanted one object per line '
      '(only the last may be torn); delete that line.'
    ) from error
  if not isinstance(record, dict):
    raise ValueError(
      f'{path}:{number} holds a {type(record).__name__}; wanted an object; '
      'delete that line.'
    )
  return number, record


def read_metrics(workdir):
  """Reads metrics.jsonl into columns.

  Args:
    workdir: folder of a run, or the path of the file itself.

  Returns:
    {key: [S] float64}, one entry per line, NaN where a line lacks the key or
    holds null. A key with anything but numbers is an [S] array of objects,
    None where missing. `series` gives one key without its gaps.

  Raises:
    FileNotFoundError: no such file; says what was found and how to make it.
    ValueError: a line other than the last is torn, or no line is whole.
  """
  path = pathlib.Path(workdir)
  if path.is_dir() or path.suffix != '.jsonl':
    path = path / 'metrics.jsonl'
  if not path.is_file():
    raise _missing('metrics.jsonl', path.parent, path.parent)
  records = [record for _, record in _json_lines(path)]
  if not records:
    raise ValueError(
      f'{path} holds no complete line; wanted one object per step; the run '
      'was stopped before its first step ended: start it again.'
    )
  columns = {}
  for key in dict.fromkeys(key for record in records for key in record):
    numbers = [responses.as_number(record.get(key)) for record in records]
    if None in numbers:
      columns[key] = np.empty(len(records), dtype=object)
      columns[key][:] = [record.get(key) for record in records]
    else:
      columns[key] = np.array(numbers, dtype=np.float64)
  return columns


def cut_short(workdir):
  """Whether a run that left by itself did so before its last step.

  Args:
    workdir: folder of a run; one without config.json was not cut short.
  """
  config = pathlib.Path(workdir) / 'config.json'
  if not config.exists():
    return False
  try:
    last = read_metrics(workdir)['step'][-1]
  except (FileNotFoundError, ValueError):  # not one step
    return True
  return last < json.loads(config.read_text())['num_steps']


def series(columns, key):
  """One metric against the step, gaps left out.

  Args:
    columns: as `read_metrics` returns.
    key: such as 'reward/mean'.

  Returns:
    (steps [M] float64, values [M] float64), in the order of the file.

  Raises:
    ValueError: the run never logged the key; lists the keys it has.
  """
  if key not in columns:
    raise ValueError(
      f'no metric {key!r}; this run has {", ".join(sorted(columns))}.'
    )
  values = columns[key]
  if values.dtype == object:
    raise ValueError(
      f'metric {key!r} holds {values[values != None][0]!r}; wanted numbers.'  # noqa: E711
    )
  # Without a step the line number stands in, so that anyone's file plots.
  steps = columns.get('step', np.arange(len(values), dtype=np.float64))
  keep = ~np.isnan(values) & ~np.isnan(steps)
  return steps[keep], values[keep]


def rollout_files(workdir):
  """Returns [(step, path)] of a run's rollout files, in order of the step.

  A step may have several: evaluations' (step_000020_eval_pair.jsonl) come
  before its training rollout's.

  Raises:
    FileNotFoundError: there are none; says what was found and how to make it.
  """
  folder = pathlib.Path(workdir) / 'rollouts'
  files = []
  for path in folder.glob('step_*.jsonl'):
    match = re.fullmatch(r'step_(\d+)(_eval\w*)?\.jsonl', path.name)
    if match:
      files.append((int(match[1]), not match[2], path))
  if not files:
    raise _missing(
      'rollouts/step_*.jsonl',
      folder if folder.is_dir() else pathlib.Path(workdir),
      workdir,
    )
  return [(step, path) for step, _, path in sorted(files)]


def read_file(path, *, purpose=None, limit=None):
  """Reads the first `limit` responses of one rollout file.

  Args:
    path: a .jsonl file of the schema.
    purpose: 'train' or 'eval' keeps only those; None keeps all.
    limit: at most so many; None for all.

  Returns:
    A list of Response.

  Raises:
    ValueError: as `responses.parse_response`, or a torn line before the last.
  """
  found = []
  for number, record in _json_lines(path):
    if limit is not None and len(found) >= limit:
      break
    if purpose is None or record.get('purpose') == purpose:
      found.append(
        responses.parse_response(
          record, where=f'{pathlib.Path(path).name}:{number}'
        )
      )
  return found


def read_rollouts(workdir, *, steps=None, purpose=None, limit=None):
  """Reads responses of a run, spread evenly over its steps.

  Args:
    workdir: folder of a run.
    steps: the steps to read; None for all that have a file.
    purpose: 'train' or 'eval' keeps only those; None keeps all.
    limit: at most so many responses in all: of evenly spaced files, first
      and last among them, the first few of each. None for all.

  Returns:
    A list of Response, in order of the step.

  Raises:
    FileNotFoundError: no rollout file, or none of a step that was asked for.
    ValueError: a limit below 1, another schema, or a malformed line.
  """
  files = rollout_files(workdir)
  if steps is not None:
    there = list(dict.fromkeys(step for step, _ in files))
    absent = [step for step in steps if step not in there]
    if absent:
      raise FileNotFoundError(
        f'no rollouts of step {absent[0]} in {workdir}/rollouts; it has steps '
        f'{", ".join(map(str, there[:12]))}{", ..." * (len(there) > 12)}.'
      )
    files = [(step, path) for step, path in files if step in steps]
  if limit is None:
    return [
      response
      for _, path in files
      for response in read_file(path, purpose=purpose)
    ]
  if limit < 1:
    raise ValueError(
      f'limit={limit} shows nothing; wanted at least 1; leave it out for the '
      'default.'
    )
  paths = [path for _, path in files]
  if purpose is not None:  # evaluated steps are few: space them among theirs
    paths = [p for p in paths if read_file(p, purpose=purpose, limit=1)]
    if not paths:
      return []
  spaced = np.linspace(0, len(paths) - 1, min(limit, len(paths)))
  # The last step matters most when only one can be shown.
  chosen = [paths[-1]] if limit == 1 else [paths[round(i)] for i in spaced]
  shares = np.diff(np.linspace(0, limit, len(chosen) + 1).round().astype(int))
  return [
    response
    for path, share in zip(chosen, shares)
    for response in read_file(path, purpose=purpose, limit=int(share))
  ]

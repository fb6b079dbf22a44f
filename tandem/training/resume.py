"""May this run go on under this config? What decides its numbers must not move.

Each start writes its config into the workdir; the next one there is held
against it, key by key, before any other work.
"""

from collections.abc import Iterator
from collections.abc import Mapping
import contextlib
import fcntl
import json
import os
import pathlib
from typing import Any

from absl import logging

# Keys and sections that a resumed run may change: how long, how often, where.
FREE = (
  'num_steps',
  'log',
  'eval',
  'checkpoint',
  'reward.workers',
  'mesh',
  'warm_start.from_workdir',  # read once; the weights are then the run's own
)
_ABSENT = object()


def opened(workdir) -> pathlib.Path:
  """The directory of a run, made if absent.

  Raises:
    ValueError: it cannot be made.
  """
  path = pathlib.Path(workdir)
  try:
    path.mkdir(parents=True, exist_ok=True)
  except OSError as error:
    raise ValueError(
      f'--workdir={workdir} is no directory and cannot be made one ({error}); '
      'give another.'
    ) from error
  return path


@contextlib.contextmanager
def held(workdir) -> Iterator[None]:
  """Keeps other processes from training in a workdir; a kill lets go, too.

  Two would drop each other's saves in flight, as half written, and both write
  each step's lines.

  Raises:
    ValueError: another one trains there.
  """
  with open(pathlib.Path(workdir) / 'lock', 'w') as file:
    try:
      fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
      raise ValueError(
        f'another process trains in --workdir={workdir}; end it, or give '
        'another.'
      ) from error
    except OSError:  # a file system without locks
      pass
    yield


def settings(config: Mapping) -> dict[str, Any]:
  """{'a.b': value} of what decides a run's numbers, as JSON holds it.

  Args:
    config: nested, as `ConfigDict.to_dict()`.

  Returns:
    All keys but those of FREE. `num_steps` is among them where a learning-rate
    schedule ends at it.
  """
  flat = {}

  def walk(node, path):
    for name, value in node.items():
      key = f'{path}{name}'
      if key in FREE:
        continue
      if isinstance(value, Mapping):
        walk(value, f'{key}.')
      else:
        flat[key] = list(value) if isinstance(value, tuple) else value

  walk(config, '')
  if config['optimizer']['schedule'] != 'constant':
    flat['num_steps'] = config['num_steps']
  return flat


def check(config: Mapping, workdir) -> None:
  """Holds a config against that of the run in `workdir`, if it saved weights.

  Keys that the run did not have are those of a newer release, and may stand: at
  their defaults they leave a run as it was. The log names them and their values.

  Args:
    config: nested, as `ConfigDict.to_dict()`.
    workdir: of a run, or of none yet.

  Raises:
    ValueError: keys differ; each with its old and new value.
  """
  workdir = pathlib.Path(workdir)
  path = workdir / 'config.json'
  saved = [
    step
    for name in ('initial', 'checkpoints')
    for step in (workdir / name).glob('*')
    if step.name.isdigit()
  ]
  if not saved or not path.exists():
    return
  old = settings(json.loads(path.read_text()))
  new = settings(config)
  show = lambda value: 'absent' if value is _ABSENT else repr(value)
  changed = [
    f'{key} was {show(was)} and is {show(now)}'
    for key, was in sorted(old.items())
    if was != (now := new.get(key, _ABSENT))
  ]
  if changed:
    raise ValueError(
      f'{workdir} holds a run of another config: {"; ".join(changed)}. A run '
      f'that goes on may change only {", ".join(FREE)} (num_steps only under '
      'a constant learning rate). Set the old values, or take another '
      '--workdir.'
    )
  if added := sorted(set(new) - set(old)):
    logging.warning(
      'The run in %s was begun without %s; it goes on with %s.',
      workdir,
      ', '.join(added),
      ', '.join(f'{key}={new[key]!r}' for key in added),
    )


def write(config: Mapping, workdir) -> None:
  """Writes config.json, whole or not at all."""
  new = pathlib.Path(workdir) / 'config.json.new'
  new.write_text(json.dumps(config, indent=2) + '\n')
  os.replace(new, pathlib.Path(workdir) / 'config.json')

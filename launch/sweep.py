r"""Runs a sweep of configs/sweeps.py: one training process per point.

  python -m launch.sweep --sweep=NAME --workdir=DIR [--config=configs/X.py:ARG]
    [--set=a.b=value ...] [--at_once=1] [--dry_run]

Point `tau=0.5` trains in DIR/tau=0.5. Started again, points that ended well
under the same command are skipped and others go on from their checkpoints.
"""

import concurrent.futures
import pathlib
import shlex
import sys

from absl import flags

from configs import sweeps
from launch import children
from launch import command
from tandem.analysis import runs

_SWEEP = flags.DEFINE_enum('sweep', None, sorted(sweeps.SWEEPS), 'Its name.')
_WORKDIR = flags.DEFINE_string('workdir', None, 'Holds one folder a point.')
_CONFIG = flags.DEFINE_string('config', '', "The sweep's own where left empty.")
_SET = flags.DEFINE_multi_string('set', [], 'a.b=value, in all points.')
_AT_ONCE = flags.DEFINE_integer('at_once', 1, 'Processes.', lower_bound=1)
_DRY_RUN = flags.DEFINE_bool('dry_run', False, 'Prints the commands only.')
_DONE = 'sweep_point'  # the command that a point ended well under


def label(point: dict) -> str:
  """A folder's name: the last word of each key, and its value."""
  words = [f'{key.split(".")[-1]}={value}' for key, value in point.items()]
  return ','.join(words) or 'as_is'


def commands() -> dict[pathlib.Path, list[str]]:
  """{workdir of a point: its command}."""
  config, points = sweeps.SWEEPS[_SWEEP.value]
  found = {}
  for point in points():
    workdir = pathlib.Path(_WORKDIR.value) / label(point)
    overrides = [f'{key}={value}' for key, value in point.items()]
    found[workdir] = [
      *(sys.executable, '-m', 'launch.train'),
      *(f'--config={_CONFIG.value or config}', f'--workdir={workdir}'),
      *(f'--config.{one}' for one in [*overrides, *_SET.value]),
    ]
  return found


def run(workdir: pathlib.Path, words: list[str]) -> bool:
  """Runs a point, unless it ended well before; False where it did not."""
  done, line = workdir / _DONE, shlex.join(words[1:])
  if done.exists() and done.read_text() == line:
    print(f'{workdir}: done before', flush=True)
    return True
  print(shlex.join(words), flush=True)
  if children.run(words) or runs.cut_short(workdir):
    return False
  done.write_text(line)
  return True


def main():
  points = commands()
  if _DRY_RUN.value:
    print(*(shlex.join(words) for words in points.values()), sep='\n')
    return
  children.pass_on_sigterm()
  with concurrent.futures.ThreadPoolExecutor(_AT_ONCE.value) as pool:
    ended = list(pool.map(run, points, points.values()))
  failed = [str(path) for path, well in zip(points, ended) if not well]
  if failed:
    raise ValueError(f'{len(failed)} points failed: {", ".join(failed)}')


if __name__ == '__main__':
  command.run(main, 'sweep', 'workdir')

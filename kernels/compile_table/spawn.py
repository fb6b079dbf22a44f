"""Finds an interpreter that has a target's compiler, and asks it.

    python -m tandem.kernels.compile_table.spawn

says which compilers are here, and how to get those that are not.

The compilers (libtpu; jax's CUDA plugin) stay out of the default install. In an
environment each, which `INSTALL` makes, they are found by TANDEM_TPU_PYTHON and
TANDEM_GPU_PYTHON, the paths of those environments' python; or here, where the
running interpreter has them itself.
"""

from collections.abc import Iterator
import importlib.util
import json
import os
import pathlib
import subprocess
import sys
import tempfile

import tandem
from tandem.kernels.compile_table import targets

VARIABLE = {'tpu': 'TANDEM_TPU_PYTHON', 'gpu': 'TANDEM_GPU_PYTHON'}
PLUGIN = {'tpu': 'libtpu', 'gpu': 'jax_cuda13_plugin'}
INSTALL = {
  'tpu': "pip install 'jax==0.10.2' 'libtpu==0.0.42.*' chex",
  'gpu': "pip install 'jax[cuda13]==0.10.2' chex",
}


def home() -> pathlib.Path:
  """The folder that holds `tandem`, where the compiling process starts.

  Not the package itself: there `types.py` would hide Python's own.
  """
  return pathlib.Path(tandem.__file__).resolve().parents[1]


def interpreter(platform: str) -> str | None:
  """The python that can compile for 'tpu' or 'gpu', or None: not installed."""
  if VARIABLE[platform] in os.environ:
    return os.environ[VARIABLE[platform]]
  return sys.executable if importlib.util.find_spec(PLUGIN[platform]) else None


def missing(platform: str) -> str:
  """How to get the compiler."""
  return (
    f'no {PLUGIN[platform]} here; in a virtual environment: '
    f'{INSTALL[platform]}; then {VARIABLE[platform]}=<its python>'
  )


def commit() -> str:
  """The last commit of the kernels, and whether they have changed since."""

  def git(*command):
    done = subprocess.run(
      ['git', *command, '--', 'kernels'],
      cwd=home(),
      capture_output=True,
      text=True,
      check=False,
    )
    return done.stdout.strip()

  found = git('log', '-1', '--format=%h') or 'unknown'
  return f'{found}, changed' if git('status', '--porcelain') else found


def answers(
  target: str, *, full: bool = False, prefix: str = ''
) -> Iterator[dict]:
  """The worker's answers for one target, from a fresh process, as they come.

  Raises:
    ValueError: no interpreter has the compiler.
    RuntimeError: the process died; its last words.
  """
  platform = targets.platform(target)
  python = interpreter(platform)
  if python is None:
    raise ValueError(missing(platform))
  module = 'tandem.kernels.compile_table.worker'
  arguments = [target, 'full' if full else 'small', prefix]
  with tempfile.TemporaryFile('w+') as said:
    process = subprocess.Popen(
      [python, '-m', module, *arguments],
      cwd=home(),
      env=targets.environment(target),
      stdout=subprocess.PIPE,
      stderr=said,
      text=True,
    )
    count = 0
    with process:
      for line in process.stdout:
        count += 1
        yield json.loads(line)
    if process.returncode:
      said.seek(0)
      raise RuntimeError(
        f'{target}: the compiling process ended with {process.returncode}, '
        f'after {count} cases: {said.read()[-3000:]}'
      )


if __name__ == '__main__':
  for name in VARIABLE:
    print(f'{name}: {interpreter(name) or missing(name)}')

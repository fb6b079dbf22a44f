"""Every method trains the quickstart: a finite loss, and its promise kept.

By hand, some 15 minutes on two free cores:
  pytest -n 0 -m slow tests/quickstart_methods_test.py -s
"""

import json
import math
import os
import subprocess
import sys

import pytest

from configs import common
from configs import quickstart
from tests import small_run

METHODS = (
  quickstart.TAUGHT
  + quickstart.PRIVILEGED
  + quickstart.PLAIN
  + common.GRPO_LINE
)


def steps(method, workdir, **values):
  """metrics.jsonl's steps of the command that a user gives."""
  values = {
    'seed': 1,
    'eval.every_steps': 0,
    'checkpoint.best_metric': '',
    'checkpoint.every_steps': 0,
    **values,
  }
  # Without the tests' flags: these runs are long, and compile little.
  kept = {k: v for k, v in os.environ.items() if k != 'XLA_FLAGS'}
  done = subprocess.run(
    [
      *(sys.executable, '-m', 'launch.train', f'--workdir={workdir}'),
      f'--config=configs/quickstart.py:{method}',
      *(f'--config.{key}={value}' for key, value in values.items()),
    ],
    cwd=small_run.ROOT,
    env=kept | {'PYTHONPATH': str(small_run.ROOT)},
    stdout=subprocess.PIPE,
    stderr=subprocess.STDOUT,
    text=True,
    check=False,
  )
  assert done.returncode == 0, done.stdout[-3000:]
  lines = (workdir / 'metrics.jsonl').read_text().splitlines()
  return [x for x in map(json.loads, lines) if 'reward/mean' in x]


@pytest.fixture(scope='module')
def started(tmp_path_factory):
  """A workdir with the policy and the teacher that every run starts from."""
  workdir = tmp_path_factory.mktemp('started')
  steps('opd', workdir, num_steps=1)
  return workdir


def ends(found, name):
  """Mean over the first three steps, and over the last three."""
  values = [step[name] for step in found]
  return sum(values[:3]) / 3, sum(values[-3:]) / 3


@pytest.mark.slow
@pytest.mark.parametrize('method', METHODS)
def test_twenty_steps_keep_the_promise(method, started, tmp_path):
  source = {'warm_start.from_workdir': str(started)}
  found = steps(method, tmp_path, num_steps=20, **source)
  assert len(found) == 20
  assert all(math.isfinite(step['loss']) for step in found)
  reward = ends(found, 'reward/mean')
  print(f'{method}: reward {reward[0]:.3f} -> {reward[1]:.3f}')
  assert reward[1] > reward[0] + 0.03
  if method in quickstart.TAUGHT:
    # Of the student's own tokens: less an estimate of its KL to the teacher.
    feedback = ends(found, 'feedback/mean')
    print(f'  feedback {feedback[0]:.3f} -> {feedback[1]:.3f}')
    assert feedback[1] > feedback[0]

"""--step of evaluate, generate and convert: a number, or best."""

import subprocess
import sys

from absl import flags
import jax
import numpy as np
import pytest

from tandem import evaluate
from tandem import generate
from tandem.models import decoder
from tandem.training import build
from tandem.training import checkpoint
from tandem.training import export
from tandem.training import mesh as mesh_lib
from tandem.training import models
from tandem.training import resume
from tandem.training import setup
from tests import small_run

METRIC = 'eval/pass_at_1/pair'


@pytest.fixture
def run(tmp_path):
  """(config, workdir, weights by step) of a run that was best at step 1."""
  config = small_run.config(**{'mesh.data': 1, 'mesh.tensor': 8})
  resume.write(config.to_dict(), tmp_path)
  cfg = models.model_config(config, build.text(config).tokenizer)
  by_step = {}
  with checkpoint.Checkpoints(
    tmp_path / 'checkpoints', best_metric=METRIC
  ) as checkpoints:
    for step, value in ((1, 0.9), (2, 0.2), (3, 0.1)):
      params = decoder.init_params(jax.random.key(step), cfg)
      make, _ = setup.state_maker(config, params, mesh_lib.make_mesh())
      checkpoints.save(step, make(params), {'junior': {}}, {METRIC: value})
      by_step[step] = jax.device_get(params)
  return config, tmp_path, by_step


def test_best_is_read_by_all_three(run):
  config, workdir, by_step = run
  params, _, _ = export.trained(workdir, 'best')
  jax.tree.map(np.testing.assert_array_equal, params, by_step[1])
  (row,) = generate.run(config, 'What?', workdir=workdir, step='best')
  assert row['step'] == 1
  with config.unlocked():
    config.eval.models = ('senior',)
  assert evaluate.run(config, workdir, step='best')['step'] == 1
  assert evaluate.run(config, workdir)['step'] == 3


def test_without_a_best_step_it_is_told(run):
  config, workdir, _ = run
  with config.unlocked():
    config.checkpoint.best_metric = 'reward/mean'
  resume.write(config.to_dict(), workdir)
  with pytest.raises(ValueError, match=r"of \[1, 2, 3\] .*'reward/mean'"):
    export.trained(workdir, 'best')


@pytest.mark.parametrize('name', ['evaluate', 'generate', 'convert'])
def test_the_flag(name):
  done = subprocess.run(
    [sys.executable, '-m', f'launch.{name}', '--step=beast', '--help'],
    cwd=small_run.ROOT,
    capture_output=True,
    text=True,
    check=False,
  )
  assert done.returncode == 1
  assert '--step=beast: a number of steps, or best' in done.stderr


def test_numbers():
  from launch import saved_step

  parse = flags.FLAGS['step'].parser.parse
  assert saved_step.STEP.name == 'step'
  assert [parse('best'), parse('12'), parse(3)] == ['best', 12, 3]

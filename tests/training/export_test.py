"""A run's checkpoint as a model that anyone opens."""

import jax
import numpy as np
import pytest

from tandem.models import decoder
from tandem.models import weights
from tandem.training import build
from tandem.training import checkpoint
from tandem.training import export
from tandem.training import mesh as mesh_lib
from tandem.training import models
from tandem.training import resume
from tandem.training import setup
from tests import small_run


@pytest.fixture
def run(tmp_path):
  """A workdir with checkpoints of steps 1 and 2; weights by step."""
  config = small_run.config(**{'loss.kl_to': 'reference', 'loss.kl_coef': 0.1})
  workdir = tmp_path / 'run'
  workdir.mkdir()
  resume.write(config.to_dict(), workdir)
  cfg = models.model_config(config, build.text(config).tokenizer)
  by_step = {}
  with checkpoint.Checkpoints(workdir / 'checkpoints') as checkpoints:
    for step in (1, 2):
      params = decoder.init_params(jax.random.key(step), cfg)
      make, _ = setup.state_maker(config, params, mesh_lib.make_mesh())
      checkpoints.save(step, make(params), {})
      by_step[step] = jax.device_get(params)
  return workdir, by_step


def test_the_senior_of_a_run(run, tmp_path):
  workdir, by_step = run
  assert export.is_run(workdir) and not export.is_run(tmp_path)
  before = sorted(workdir.rglob('*'))
  for step, which in ((None, 2), (1, 1)):
    params, cfg, tokenizer = export.trained(workdir, step)
    jax.tree.map(np.testing.assert_array_equal, params, by_step[which])
    target = tmp_path / f'out{which}'
    weights.save_params(target, params, cfg, tokenizer, dtype='float32')
    again = weights.load_params(target)
    jax.tree.map(np.testing.assert_array_equal, again, by_step[which])
    assert (target / 'tokenizer.json').exists()
  assert sorted(workdir.rglob('*')) == before


def test_a_run_without_checkpoints_is_told(run):
  workdir, _ = run
  with pytest.raises(ValueError, match=r'no step 5; it has \[1, 2\]'):
    export.trained(workdir, 5)
  for step in (1, 2):
    (workdir / 'checkpoints' / str(step)).rename(workdir / f'gone{step}')
  with pytest.raises(ValueError, match='no checkpoint yet'):
    export.trained(workdir)

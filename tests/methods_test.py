"""Teachers reach the losses: a run of each kind, and what its numbers say.

Case 19: a distillation may be wired to nothing and still train. So the gap
between the two scorings is looked at, not only that the loss is finite.
"""

import math

import numpy as np
import orbax.checkpoint as ocp
import pytest

from configs import quickstart
from tandem import train
from tandem.training import build
from tandem.training import setup
from tests import small_run


def one_config(method, **values):
  config = quickstart.get_config(f'tiny,{method}').lock()
  values = {'num_steps': 1, 'warm_start.rows': 8, **values}
  enable = method in quickstart.TAUGHT  # the teacher is made by a warm start
  small = small_run.SMALL | {'warm_start.enable': enable}
  config.update_from_flattened_dict({**small, **values})
  return config


def one_step(workdir, method, **values):
  return train.run(one_config(method, **values), workdir)


def test_privileged_teacher_reads_more_than_the_student(tmp_path):
  got = one_step(tmp_path, 'sdar')
  assert abs(got['privileged/gap_mean']) > 1e-6
  assert got['loss/sdar'] != 0 and math.isfinite(got['loss'])


TAUGHT = {
  'loss.feedback': 'full',
  'rollout.max_response': 40,
  'eval.prompts': 8,
  'teacher.dim': 16,
  'teacher.num_layers': 1,
  'teacher.num_heads': 2,
  'teacher.num_kv_heads': 1,
  'teacher.head_dim': 8,
  'teacher.hidden': 16,
}


@pytest.fixture(scope='module')
def taught(tmp_path_factory):
  """(workdir, metrics) of a run that made its start and its teacher."""
  workdir = tmp_path_factory.mktemp('taught')
  return workdir, one_step(workdir, 'opd', **TAUGHT)


def test_full_kl_to_the_teacher_is_the_loss(taught):
  workdir, got = taught
  assert got['loss'] == pytest.approx(got['loss/kl_teacher'])
  assert got['loss'] > 1e-4 and got['grad_norm'] > 0
  assert (workdir / 'teacher').is_dir()


@pytest.mark.parametrize(
  'method,values,message',
  [
    ('gr_opd', {'teacher.source': ''}, 'needs a teacher'),
    ('craft', {'privileged.kind': 'none'}, 'needs a privileged teacher'),
    ('grpo', {'teacher.source': 'warm_start'}, 'the loss asks no teacher'),
    ('grpo', {'privileged.kind': 'solution'}, 'asks no privileged teacher'),
    ('sdar', {'privileged.kind': 'hint'}, "'hint' is unknown; one of none"),
  ],
)
def test_teachers_that_do_not_fit_are_refused(
  tmp_path, method, values, message
):
  with pytest.raises(ValueError, match=message):
    one_step(tmp_path, method, **values)


def stored(directory):
  """The arrays of a warm start, by name."""
  path = directory / '0' / 'state'
  with ocp.StandardCheckpointer() as checkpointer:
    held = checkpointer.metadata(path).item_metadata.tree
    whole = {k: np.zeros(v.shape, v.dtype) for k, v in held.items()}
    return checkpointer.restore(path, whole)


def test_a_warm_start_is_taken_from_another_run(taught, tmp_path):
  maker, _ = taught

  def started(name, source):
    # Of another seed, so that a start of its own would be another one.
    values = {'seed': 1, 'warm_start.from_workdir': str(source)}
    config = one_config('opd', **TAUGHT, **values)
    build.check(config)
    # It decodes nothing, so no grader is needed.
    setup.setup(config, tmp_path / name, None, evaluates=False)
    return tmp_path / name

  stamps = {path: path.stat().st_mtime_ns for path in maker.rglob('*')}
  taker = started('taker', maker)
  assert {p: p.stat().st_mtime_ns for p in maker.rglob('*')} == stamps
  for name in ('initial', 'teacher'):
    mine, theirs = stored(taker / name), stored(maker / name)
    assert mine.keys() == theirs.keys() and len(mine) > 8
    for key, array in mine.items():
      assert array.tobytes() == theirs[key].tobytes(), key
  with pytest.raises(ValueError, match='holds no initial/'):
    started('none', tmp_path)

"""Teachers reach the losses: a run of each kind, and what its numbers say.

Case 19: a distillation may be wired to nothing and still train. So the gap
between the two scorings is looked at, not only that the loss is finite.
"""

import math

import pytest

from tandem import train
from tests import small_run


def one_step(workdir, method, **values):
  from configs import quickstart

  config = quickstart.get_config(f'tiny,{method}').lock()
  values = {'num_steps': 1, 'warm_start.rows': 8, **values}
  enable = method in quickstart.TAUGHT  # the teacher is made by a warm start
  small = small_run.SMALL | {'warm_start.enable': enable}
  config.update_from_flattened_dict({**small, **values})
  return train.run(config, workdir)


def test_privileged_teacher_reads_more_than_the_student(tmp_path):
  got = one_step(tmp_path, 'sdar')
  assert abs(got['privileged/gap_mean']) > 1e-6
  assert got['loss/sdar'] != 0 and math.isfinite(got['loss'])


def test_full_kl_to_the_teacher_is_the_loss(tmp_path):
  got = one_step(
    tmp_path,
    'opd',
    **{
      'loss.feedback': 'full',
      'rollout.max_response': 40,
      'eval.prompts': 8,
      'teacher.dim': 16,
      'teacher.num_layers': 1,
      'teacher.num_heads': 2,
      'teacher.num_kv_heads': 1,
      'teacher.head_dim': 8,
      'teacher.hidden': 16,
    },
  )
  assert got['loss'] == pytest.approx(got['loss/kl_teacher'])
  assert got['loss'] > 1e-4 and got['grad_norm'] > 0
  assert (tmp_path / 'teacher').is_dir()


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

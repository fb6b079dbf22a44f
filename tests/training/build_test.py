"""From a config to problems and losses."""

import json

import pytest

from configs import common
from tandem import types
from tandem.data import problems as problems_lib
from tandem.training import build


def test_eval_path_is_a_file_whatever_the_training_data(tmp_path, monkeypatch):
  file = tmp_path / 'suite.jsonl'
  file.write_text(json.dumps({'question': '2 + 2?', 'answer': '4'}) + '\n')
  rows = [types.Problem(str(n), f'{n} + 2?', str(n + 2)) for n in range(4)]
  monkeypatch.setattr(problems_lib, 'read_hub', lambda path, **options: rows)
  config = common.base()
  config.data.kind, config.data.path = 'hub', 'owner/name'
  config.data.eval_path = str(file)
  config.data.problem_field = 'question'
  train, held_out = build.problems(config)
  assert [p.text for p in held_out] == ['2 + 2?']
  assert [p.id for p in train] == ['0', '1', '3']


@pytest.mark.parametrize(
  'variant,field',
  [('grpo', 'dual_clip'), ('gr_opd', 'feedback_clip'), ('gr_opd', 'adv_clip')],
)
def test_zero_turns_a_bound_off(variant, field):
  config = common.base()
  config.rollout.mode, config.loss.variant = 'solo', variant
  config.loss[field] = 0.0
  _, loss = build.loss(config)
  assert getattr(loss, field) is None


def test_bounds_that_zero_turns_off_say_so():
  text = common.__loader__.get_source('configs.common')
  off = [line.split("'")[1] for line in text.splitlines() if '# 0: off' in line]
  assert set(off) == {'dual_clip', 'feedback_clip', 'adv_clip'}


def anchored(**values):
  config = common.base()
  config.rollout.mode = 'solo'
  values = {'loss.kl_to': 'reference', 'loss.kl_coef': 0.01} | values
  config.update_from_flattened_dict(values)
  return config


@pytest.mark.parametrize('anchor', ['reference', 'junior'])
def test_a_rounded_anchor_of_a_float32_policy_is_told(anchor, caplog):
  rounded = {'rollout.dtype': 'bfloat16', 'loss.kl_to': anchor}
  build.check(anchored(**rounded))
  (record,) = caplog.records
  assert f'reads as {anchor} are' in record.getMessage()
  assert 'Set rollout.dtype=float32' in record.getMessage()


def test_an_anchor_rounded_like_the_policy_is_fine(caplog):
  rounded = {'rollout.dtype': 'bfloat16'}
  build.check(anchored())
  build.check(anchored(**rounded, **{'model.dtype': 'bfloat16'}))
  off = {'loss.kl_to': 'none', 'loss.kl_coef': 0.0}
  build.check(anchored(**rounded, **off))
  other = {'loss.kl_to': 'junior', 'junior.source': 'another/model'}
  build.check(anchored(**rounded, **other))  # never 0 to begin with
  assert not caplog.records

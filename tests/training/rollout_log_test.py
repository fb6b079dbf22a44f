"""The rollout files: the schema, and the budget."""

import json

import jax.numpy as jnp
import numpy as np
import pytest

from tandem.training import rollout_log


def row(**change):
  given = dict(
    step=12,
    purpose='train',
    mode='tandem',
    prompt_id='p7',
    group=3,
    sample=0,
    draw=3,
    prompt='Q: 1+1?',
    prompt_ids=np.array([5, 6], np.int32),
    problem='1+1?',
    gold='2',
    ids=jnp.array([9, 8, 1]),
    text='é 2',
    offsets=[(0, 1), (1, 3), (3, 3)],
    author=np.array([True, False, True]),
    arrays={
      'logp_senior': np.array([-0.1, -np.inf, -2.0], np.float32),
      'logp_junior': None,
    },
    verdict={'reward': 1.0, 'reason': 'equal', 'answer': '2'},
    finish='eos',
    keys={'seed': 0, 'purpose': 'train', 'step': 12, 'draw': 3, 'sample': 0},
  )
  return rollout_log.make_row(**(given | change))


def test_the_row_by_hand():
  assert row() == {
    'schema': 'tandem.rollout/1',
    'step': 12,
    'purpose': 'train',
    'mode': 'tandem',
    'prompt_id': 'p7',
    'group': 3,
    'sample': 0,
    'draw': 3,
    'prompt': 'Q: 1+1?',
    'prompt_ids': [5, 6],
    'problem': '1+1?',
    'gold': '2',
    'ids': [9, 8, 1],
    'text': 'é 2',
    'offsets': [[0, 1], [1, 3], [3, 3]],
    'author': [1, 0, 1],
    'arrays': {'logp_senior': [-0.1, None, -2.0], 'logp_junior': None},
    'turns': [{'role': 'assistant', 'start': 0, 'end': 3}],
    'verdict': {'reward': 1.0, 'reason': 'equal', 'answer': '2'},
    'finish': 'eos',
    'keys': {'seed': 0, 'purpose': 'train', 'step': 12, 'draw': 3, 'sample': 0},
  }


def test_there_and_back(tmp_path):
  log = rollout_log.RolloutLog(tmp_path)
  path = log.write(12, [row(), row(mode='solo', author=None)])
  assert path == tmp_path / 'rollouts' / 'step_000012.jsonl'
  assert rollout_log.read_rows(path) == [row(), row(mode='solo', author=None)]
  assert log.write(12, [row()], 'eval').name == 'step_000012_eval.jsonl'
  path.write_text(json.dumps(row() | {'schema': 'tandem.rollout/9'}) + '\n')
  with pytest.raises(ValueError, match='tandem.rollout/9'):
    rollout_log.read_rows(path)


@pytest.mark.parametrize(
  'change, words',
  [
    ({'purpose': 'test'}, "purpose='test'"),
    ({'mode': 'solo'}, "mode='solo'"),
    ({'author': None}, "mode='tandem'"),
    ({'finish': 'running'}, 'length'),
    ({'offsets': [(0, 1)]}, '3 ids, 1 offsets'),
    ({'arrays': {'adv': np.zeros(4)}}, "'adv'"),
  ],
)
def test_what_does_not_fit_is_refused(change, words):
  with pytest.raises(ValueError, match=words):
    row(**change)


def test_oldest_go_first_and_it_is_said(tmp_path, monkeypatch):
  said = []
  monkeypatch.setattr(
    rollout_log.logging, 'warning', lambda f, *a: said.append(f % a)
  )
  size = len(json.dumps(row(), ensure_ascii=False).encode()) + 1
  log = rollout_log.RolloutLog(tmp_path, budget_mb=2.5 * size / 1e6)
  for step in (9, 10, 1000000, 11):
    log.write(step, [row()])
  names = sorted(path.name for path in log.directory.iterdir())
  # By number, not by name or age: 9 and 10 are the oldest steps.
  assert names == ['step_000011.jsonl', 'step_1000000.jsonl']
  assert len(said) == 2 and 'step_000009' in said[0]
  free = rollout_log.RolloutLog(tmp_path, budget_mb=None)
  for step in range(3):
    free.write(step, [row()])
  assert len(list(log.directory.iterdir())) == 5


def test_no_budget_writes_nothing(tmp_path):
  none = rollout_log.RolloutLog(tmp_path / 'none', budget_mb=0)
  assert none.write(1, [row()]) is None and not none.directory.exists()
  with pytest.raises(ValueError, match='budget_mb=-1'):
    rollout_log.RolloutLog(tmp_path, budget_mb=-1)


def test_resume_puts_later_steps_aside_until_they_are_made_anew(tmp_path):
  log = rollout_log.RolloutLog(tmp_path)
  there = lambda: sorted(
    str(path.relative_to(log.directory))
    for path in log.directory.rglob('*.jsonl')
  )
  name = 'step_00000{}.jsonl'.format
  for step in (1, 2, 3, 4):
    log.write(step, [row(step=step)])
  log.cut_back(2)
  aside = ['lost/' + name(3), 'lost/' + name(4)]
  assert there() == [*aside, name(1), name(2)]
  log.write(3, [row(step=3, finish='length')])
  assert there() == [aside[1], name(1), name(2), name(3)]
  log.cut_back(2)  # killed again: the newer record of 3, the older of 4
  assert [(x['step'], x['finish']) for x in log.lost()] == [
    (3, 'length'),
    (4, 'eos'),
  ]
  log.cut_back(3)  # what is done need not be remembered
  assert [x['step'] for x in log.lost()] == [4]
  log.write(4, [row(step=4)])
  assert there() == [name(1), name(2), name(4)]
  assert not (log.directory / 'lost').exists()
  log.cut_back(1)
  log.cut_back(-1)  # a run that begins anew, perhaps with another grader
  assert not there()


def test_an_evaluation_of_its_own_replaces_no_other(tmp_path):
  log = rollout_log.RolloutLog(tmp_path)
  write = lambda text, **options: log.write(
    6, [row(text=text)], suffix='eval_pair', **options
  )
  own = write('aa2')
  assert write('aa2', replace=False) == own  # the same again
  second = write('bb2', replace=False)
  assert second.name == 'step_000006_eval_pair_2.jsonl'
  assert write('bb2', replace=False) == second
  assert write('cc2', replace=False).name == 'step_000006_eval_pair_3.jsonl'
  assert rollout_log.read_rows(own) == [row(text='aa2')]
  assert not list(log.directory.glob('*.new'))
  write('dd2')  # the run's own step, made again
  assert rollout_log.read_rows(own) == [row(text='dd2')]


def test_any_text_comes_back(tmp_path):
  text = 'a\u2028b\x85c\x0bd\r\n'
  path = rollout_log.RolloutLog(tmp_path).write(1, [row(text=text)])
  assert [x['text'] for x in rollout_log.read_rows(path)] == [text]

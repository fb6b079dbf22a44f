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


def test_no_budget_writes_nothing_and_resume_cuts_back(tmp_path):
  none = rollout_log.RolloutLog(tmp_path / 'none', budget_mb=0)
  assert none.write(1, [row()]) is None and not none.directory.exists()
  log = rollout_log.RolloutLog(tmp_path)
  for step in (1, 2, 3):
    log.write(step, [row()])
  log.cut_back(2)
  assert [path.name for path in sorted(log.directory.iterdir())] == [
    'step_000001.jsonl',
    'step_000002.jsonl',
  ]
  with pytest.raises(ValueError, match='budget_mb=-1'):
    rollout_log.RolloutLog(tmp_path, budget_mb=-1)

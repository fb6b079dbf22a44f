"""Files of a run: torn, partial, foreign and missing ones."""

import json

import numpy as np
import pytest

from tandem.analysis import runs
from tests.analysis import fake_run


def test_metrics_become_columns(tmp_path):
  fake_run.write(tmp_path, num_steps=5)
  columns = runs.read_metrics(tmp_path)
  np.testing.assert_array_equal(columns['step'], range(5))
  assert all(len(column) == 5 for column in columns.values())
  # Evaluated at steps 0, 2, 4 only: gaps are NaN, and `series` drops them.
  assert np.isnan(columns['eval/pass_at_1/pair']).tolist() == [
    False,
    True,
  ] * 2 + [False]
  steps, values = runs.series(columns, 'eval/pass_at_1/pair')
  assert steps.tolist() == [0, 2, 4]
  np.testing.assert_allclose(values, [0.37, 0.43, 0.49])
  again = runs.read_metrics(tmp_path / 'metrics.jsonl')
  np.testing.assert_equal(again, columns)


@pytest.mark.parametrize(
  'tail', [b'{"step": 2, "reward/me', b'{"step": 2}garbage', b'{"s\xc3', b'\n']
)
def test_a_torn_last_line_is_left_out(tmp_path, tail):
  path = tmp_path / 'metrics.jsonl'
  path.write_bytes(b'{"step": 0}\n{"step": 1}\n' + tail)
  assert runs.read_metrics(tmp_path)['step'].tolist() == [0, 1]


def test_a_whole_last_line_without_newline_counts(tmp_path):
  (tmp_path / 'metrics.jsonl').write_text('{"step": 0}\n{"step": 1}')
  assert runs.read_metrics(tmp_path)['step'].tolist() == [0, 1]


def test_a_torn_line_in_the_middle_is_an_error(tmp_path):
  (tmp_path / 'metrics.jsonl').write_text('{"step": 0}\n{"st\n{"step": 1}\n')
  with pytest.raises(ValueError, match=r'metrics\.jsonl:2 is not JSON'):
    runs.read_metrics(tmp_path)
  (tmp_path / 'metrics.jsonl').write_text('{"step": 0}\n[1]\n{"step": 1}\n')
  with pytest.raises(ValueError, match=r'metrics\.jsonl:2 holds a list'):
    runs.read_metrics(tmp_path)


def test_null_nan_bool_and_text(tmp_path):
  lines = '{"a": null, "b": true, "c": "x"}\n{"a": NaN, "b": 0}\n'
  (tmp_path / 'metrics.jsonl').write_text(lines)
  columns = runs.read_metrics(tmp_path)
  assert np.isnan(columns['a']).all()
  assert columns['b'].tolist() == [1, 0]
  assert columns['c'].tolist() == ['x', None]
  with pytest.raises(ValueError, match="metric 'c' holds 'x'"):
    runs.series(columns, 'c')
  with pytest.raises(ValueError, match="no metric 'd'; this run has a, b, c"):
    runs.series(columns, 'd')
  assert runs.series(columns, 'b')[0].tolist() == [0, 1]  # no step: line number


def test_missing_files_say_what_was_found(tmp_path):
  with pytest.raises(FileNotFoundError, match=r'holds nothing.*launch\.train'):
    runs.read_metrics(tmp_path)
  with pytest.raises(FileNotFoundError, match='is not a folder'):
    runs.read_metrics(tmp_path / 'absent')
  (tmp_path / 'config.json').write_text('{}')
  with pytest.raises(FileNotFoundError, match=r'rollouts/step_.*config\.json'):
    runs.read_rollouts(tmp_path)
  (tmp_path / 'metrics.jsonl').write_text('{"st')
  with pytest.raises(ValueError, match='no complete line'):
    runs.read_metrics(tmp_path)


def test_rollouts_in_order_of_the_step(tmp_path):
  for step in (2, 1_000_000, 10):
    fake_run.write_rollouts(tmp_path, step, [fake_run.record(step)])
  (tmp_path / 'rollouts' / 'step_notes.jsonl').write_text('hello')
  assert [r.step for r in runs.read_rollouts(tmp_path)] == [2, 10, 1_000_000]


def test_limit_spreads_over_steps(tmp_path):
  fake_run.write(tmp_path, num_steps=20, rows=4)  # steps 0, 2, ..., 18
  shown = runs.read_rollouts(tmp_path, limit=3)
  assert [r.step for r in shown] == [0, 8, 18]
  assert [r.step for r in runs.read_rollouts(tmp_path, limit=1)] == [18]
  shown = runs.read_rollouts(tmp_path, limit=25)
  assert len(shown) == 25
  assert {r.step for r in shown} == set(range(0, 20, 2))
  assert len(runs.read_rollouts(tmp_path)) == 40
  with pytest.raises(ValueError, match='limit=0'):
    runs.read_rollouts(tmp_path, limit=0)


def test_steps_and_purpose(tmp_path):
  records = [
    fake_run.record(4, i, purpose=('train', 'eval')[i % 2]) for i in range(4)
  ]
  fake_run.write_rollouts(tmp_path, 4, records)
  fake_run.write_rollouts(tmp_path, 6, [fake_run.record(6)])
  assert [r.sample for r in runs.read_rollouts(tmp_path, purpose='eval')] == [
    1,
    3,
  ]
  # Step 6 was not evaluated, so the one response comes from step 4.
  shown = runs.read_rollouts(tmp_path, purpose='eval', limit=1)
  assert [(r.step, r.sample) for r in shown] == [(4, 1)]
  assert runs.read_rollouts(tmp_path, steps=[6], purpose='eval', limit=1) == []
  with pytest.raises(FileNotFoundError, match='step 5 .* has steps 4, 6'):
    runs.read_rollouts(tmp_path, steps=[5])


def test_files_of_evaluations_are_the_run_s_too(tmp_path):
  """As training names them: the steps alone, and what was evaluated there."""
  folder = tmp_path / 'rollouts'
  for step, suffix in ((0, '_eval_pair'), (1, ''), (1, '_eval_pair_2')):
    purpose = 'eval' if suffix else 'train'
    record = fake_run.record(step, purpose=purpose)
    path = fake_run.write_rollouts(tmp_path, step, [record])
    path.rename(folder / f'step_{step:06d}{suffix}.jsonl.kept')
  for path in folder.iterdir():
    path.rename(path.with_suffix(''))
  told = lambda **options: [
    (r.step, r.purpose) for r in runs.read_rollouts(tmp_path, **options)
  ]
  both = [(0, 'eval'), (1, 'eval'), (1, 'train')]
  assert told() == told(limit=9) == both
  assert told(purpose='eval') == told(purpose='eval', limit=9) == both[:2]
  assert told(steps=[0]) == both[:1]
  assert told(limit=1) == both[2:]


def test_torn_rollout_and_other_schema(tmp_path):
  path = fake_run.write_rollouts(tmp_path, 0, [fake_run.record()] * 2)
  whole = path.read_text()
  path.write_text(whole[:-40])
  assert len(runs.read_rollouts(tmp_path)) == 1
  newer = json.dumps(fake_run.record(schema='tandem.rollout/2'))
  path.write_text(whole + newer + '\n')
  with pytest.raises(ValueError, match=r'step_000000\.jsonl:3: .*rollout/2'):
    runs.read_rollouts(tmp_path)

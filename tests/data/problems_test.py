"""Bad rows are skipped, counted and named; a split keeps texts apart."""

import json
import sys

import pytest

from tandem import types
from tandem.data import problems


def write(path, *lines):
  path.write_text(
    '\n'.join(x if isinstance(x, str) else json.dumps(x) for x in lines)
  )
  return path


def row(n, **more):
  return {'id': f'r{n}', 'problem': f'{n} + 1?', 'answer': str(n + 1), **more}


def some(count, text='{n} + 1?'):
  return [
    types.Problem(id=str(n), text=text.format(n=n), answer='1')
    for n in range(count)
  ]


def test_rows_become_problems(tmp_path):
  path = write(
    tmp_path / 'sums.jsonl',
    row(0, source='book', solution='so 1'),
    '',  # a blank line is no row
    {'problem': ' What? ', 'answer': 28},
  )
  first, second = problems.read_jsonl(path)
  assert first == types.Problem('r0', '0 + 1?', '1', 'book', 'so 1')
  assert second == types.Problem('sums:line 3', 'What?', '28', 'sums', None)


def test_bad_rows_are_skipped_counted_and_named(tmp_path, caplog):
  bad = (
    '{"id": "x", "problem": ',
    {'id': 'a', 'answer': '1'},
    {'id': 'b', 'problem': 'x', 'answer': ' '},
    {'id': 'c', 'problem': 'x', 'answer': None},
    {'id': 'd', 'problem': 'x', 'answer': True},
    '{"id": "e", "problem": "x", "answer": NaN}',
    '[1, 2]',
    row(0),  # a second time
  )
  path = write(tmp_path / 'data.jsonl', row(0), *bad, row(1))
  path.write_bytes(path.read_bytes() + b'\n{"problem": "\xff", "answer": "1"}')
  with caplog.at_level('WARNING'):
    kept = problems.read_jsonl(path)
  assert [p.id for p in kept] == ['r0', 'r1']
  assert '9 bad rows skipped, 2 problems kept' in caplog.text
  assert 'line 2: not JSON' in caplog.text
  assert "line 3: no problem in field 'problem'" in caplog.text
  assert "line 4: no answer in field 'answer'" in caplog.text
  assert 'and 4 more' in caplog.text


def test_a_clean_file_warns_of_nothing(tmp_path, caplog):
  problems.read_jsonl(write(tmp_path / 'data.jsonl', row(0), row(1)))
  assert not caplog.records


@pytest.mark.parametrize(
  'lines, told',
  [
    ((), 'it is empty'),
    (('', ' '), 'it is empty'),
    (('no json',), 'line 1: not JSON'),
    (({'question': 'x', 'answer': '1'},), "needs 'problem' and 'answer'"),
  ],
)
def test_no_usable_row_is_an_error(tmp_path, lines, told):
  path = write(tmp_path / 'data.jsonl', *lines)
  with pytest.raises(
    ValueError, match=f'{path} holds no usable problem'
  ) as error:
    problems.read_jsonl(path)
  assert told in str(error.value)


def test_a_missing_file_is_an_error(tmp_path):
  with pytest.raises(ValueError, match='does not exist'):
    problems.read_jsonl(tmp_path / 'none.jsonl')


def test_other_field_names_and_marked_answers(tmp_path):
  path = write(
    tmp_path / 'gsm8k.jsonl',
    {'question': 'How many?', 'answer': '48/2 = 24.\n#### 72', 'n': 3},
  )
  fields = {'problem': 'question', 'id': 'n'}
  (problem,) = problems.read_jsonl(path, fields=fields, answer_after='####')
  assert (problem.id, problem.text, problem.answer) == ('3', 'How many?', '72')
  with pytest.raises(ValueError, match=r"unknown field names \['prompt'\]"):
    problems.read_jsonl(path, fields={'prompt': 'question'})


def test_marked_rows_are_left_out_and_counted(tmp_path, caplog):
  path = write(
    tmp_path / 'data.jsonl', row(0), row(1, in_eval='math500'), row(2)
  )
  with caplog.at_level('INFO'):
    kept = problems.read_jsonl(path, exclude=['in_eval'])
  assert [p.id for p in kept] == ['r0', 'r2']
  assert '1 rows left out' in caplog.text


@pytest.mark.parametrize(
  'package, call',
  [
    ('datasets', lambda: problems.read_hub('openai/gsm8k', split='train')),
    (
      'reasoning_gym',
      lambda: problems.read_reasoning_gym('chain_sum', start=0, count=2),
    ),
  ],
)
def test_a_missing_extra_is_named(monkeypatch, package, call):
  monkeypatch.setitem(sys.modules, package, None)  # import fails
  with pytest.raises(ValueError, match='tandem-rl.' + package[:8]):
    call()


def test_hub_rows_are_checked_like_any_other(monkeypatch):
  class Hub:
    @staticmethod
    def load_dataset(name, subset, split):
      assert (name, subset, split) == ('org/set', 'main', 'train')
      return [{'question': 'x?', 'answer': '1'}, {'question': '', 'answer': ''}]

  monkeypatch.setitem(sys.modules, 'datasets', Hub)
  (problem,) = problems.read_hub(
    'org/set', split='train', subset='main', fields={'problem': 'question'}
  )
  assert (problem.id, problem.source) == ('org/set:row 0', 'org/set')


def test_reasoning_gym_parts_are_index_ranges_of_one_seed(monkeypatch):
  class Gym:
    @staticmethod
    def create_dataset(task, size, seed, **settings):
      assert (task, seed, settings) == ('chain_sum', 7, {'min_terms': 2})
      return [{'question': f'{n}?', 'answer': str(n)} for n in range(size)]

  monkeypatch.setitem(sys.modules, 'reasoning_gym', Gym)
  ask = lambda start: problems.read_reasoning_gym(
    'chain_sum', start=start, count=3, seed=7, min_terms=2
  )
  assert [p.text for p in ask(0)] == ['0?', '1?', '2?']
  assert [p.text for p in ask(3)] == ['3?', '4?', '5?']


def test_split_is_disjoint_complete_and_by_seed():
  everything = some(300)
  train, held = problems.split_off(everything, held_out=100, seed=0)
  assert len(held) == 100 and len(train) == 200
  assert {p.id for p in train}.isdisjoint(p.id for p in held)
  assert sorted(train + held, key=lambda p: int(p.id)) == everything
  assert [int(p.id) for p in train] == sorted(int(p.id) for p in train)
  again = problems.split_off(everything, held_out=100, seed=0)
  assert again == (train, held)
  other = problems.split_off(everything, held_out=100, seed=1)[1]
  assert other != held
  assert 10 < len(set(other) & set(held)) < 60  # 33 expected


def test_one_text_is_never_on_both_sides():
  twice = [
    types.Problem(id=f'{n}{copy}', text=f'{n}  +\n1?', answer='1')
    for n in range(50)
    for copy in 'ab'
  ]
  spaced = [
    types.Problem(id=f'{n}c', text=f'{n} + 1?', answer='1') for n in range(50)
  ]
  train, held = problems.split_off(twice + spaced, held_out=60, seed=0)
  assert len(held) == 60
  numbers = [{p.text.split()[0] for p in part} for part in (train, held)]
  assert numbers[0].isdisjoint(numbers[1])


def test_what_is_held_out_is_not_trained_on(caplog):
  train = [
    types.Problem(id=f't{n}', text=f'{n} +\n1?', answer='1') for n in 'abc'
  ]
  held = [types.Problem(id='h', text='b  + 1?', answer='1')]
  assert [p.id for p in problems.without(train, held)] == ['ta', 'tc']
  assert '1 of 3 training problems are held out too' in caplog.text
  with pytest.raises(ValueError, match='all 1 training problems are among'):
    problems.without(train[1:2], held)


@pytest.mark.parametrize('held_out', [-1, 5, 6])
def test_a_split_that_leaves_nothing_is_refused(held_out):
  with pytest.raises(ValueError, match=f'held_out={held_out} of 5'):
    problems.split_off(some(5), held_out=held_out, seed=0)

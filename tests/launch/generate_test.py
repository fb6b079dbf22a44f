"""launch.generate: one prompt, with and without a run."""

import numpy as np
import pytest

from configs import quickstart
from tandem import generate


def config(arg='tiny', **values):
  out = quickstart.get_config(arg)
  with out.unlocked():
    out.update_from_flattened_dict(
      {'rollout.max_response': 8, 'mesh.data': 1, 'mesh.tensor': 8, **values}
    )
  return out


def test_the_pair_answers():
  """Random weights, two samples; the second run says the same."""
  records = generate.run(config(), 'What is 3 + 4?', samples=2)
  assert [row['sample'] for row in records] == [0, 1]
  for row in records:
    assert row['mode'] == 'tandem' and row['purpose'] == 'generate'
    assert row['verdict'] is None
    assert row['problem'] == 'What is 3 + 4?'
    assert 1 <= len(row['ids']) <= 8
    assert len(row['author']) == len(row['ids'])
  again = generate.run(config(), 'What is 3 + 4?', samples=2)
  assert [row['ids'] for row in again] == [row['ids'] for row in records]


def test_greedy_alone_and_graded():
  """All samples of a greedy law are one; a gold answer brings a verdict."""
  records = generate.run(
    config(),
    'What is 3 + 4?',
    model='senior',
    samples=2,
    sampling={'temperature': 0.0},
    gold='7',
  )
  first, second = records
  assert first['ids'] == second['ids']
  assert first['author'] is None and first['mode'] == 'solo'
  assert first['verdict']['reward'] in (0.0, 1.0)
  assert np.isfinite(first['arrays']['raw_senior']).all()


@pytest.mark.parametrize(
  'prompt, change, message',
  [
    ('  ', {}, 'empty'),
    ('x ' * 200, {}, 'max_prompt'),
    ('What?', {'rollout.prompts': 0}, 'prompts'),
  ],
)
def test_bad_input_is_named(prompt, change, message):
  with pytest.raises(ValueError, match=message):
    generate.run(config(**change), prompt)


def test_a_folder_that_is_no_run(tmp_path):
  with pytest.raises(ValueError, match='initial/'):
    generate.run(config(), 'What?', workdir=tmp_path)
  with pytest.raises(ValueError, match='does not exist'):
    generate.run(config(), 'What?', workdir=tmp_path / 'none')
  with pytest.raises(ValueError, match='--step=3 is of a run'):
    generate.run(config(), 'What?', step=3)

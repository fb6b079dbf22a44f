"""A resumed run does not grade again what is on record."""

import collections
import dataclasses
import shutil

import pytest

from tandem import train
from tandem import types
from tandem.rewards import verifier
from tandem.training import rollout_log
from tandem.training import verdicts
from tests import small_run


def row(sample, text, reason, step=4, purpose='train'):
  return {
    'keys': {'purpose': purpose, 'step': step, 'sample': sample},
    'problem': '1+1?',
    'gold': '2',
    'text': text,
    'verdict': {
      'reward': float(reason == 'equal'),
      'reason': reason,
      'answer': text,
    },
  }


@dataclasses.dataclass(frozen=True)
class Collector:
  """What `Recorded.collector` knows of one."""

  verifier: object


class Strict:
  """Remembers what it was asked, and finds all of it different."""

  def __init__(self):
    self.asked = []

  def grade(self, golds, responses, questions):
    self.asked += zip(questions, golds, responses, strict=True)
    return [types.Verdict(0.0, 'different', text) for text in responses]


def test_on_record_or_graded():
  recorded = verdicts.Recorded(
    [
      row(0, 'a', 'equal'),
      row(1, 'b', 'timeout'),
      row(2, 'a', 'timeout'),  # the same text, and it took longer
      row(0, 'c', 'equal', purpose='eval_pair'),
      row(0, 'd', 'equal', step=5),
    ]
  )
  strict = Strict()
  grade = lambda texts, *key: [
    verdict.reason
    for verdict in recorded.collector(Collector(strict), *key).verifier.grade(
      ['2'] * len(texts), list(texts), ['1+1?'] * len(texts)
    )
  ]
  assert grade('abacd', 'train', 4) == [
    *('equal', 'timeout', 'timeout', 'different', 'different')
  ]
  assert strict.asked == [('1+1?', '2', 'c'), ('1+1?', '2', 'd')]
  assert grade('ab', 'train', 4) == ['different'] * 2  # each once
  assert grade('dc', 'eval_pair', 4) == ['different', 'equal']
  assert grade('dc', 'train', 5) == ['equal', 'different']
  own = Collector(strict)
  assert recorded.collector(own, 'train', 6) is own


@pytest.fixture
def grader(monkeypatch):
  """Sets the verdicts of a run."""

  def install(grade):
    monkeypatch.setattr(verifier.Verifier, 'grade', grade)

  return install


def test_a_killed_run_s_verdicts_are_history(tmp_path, grader):
  """Its second grader runs out of time always, and changes nothing."""
  values = {
    'num_steps': 3,
    'checkpoint.every_steps': 1,
    'checkpoint.keep': 9,
    'eval.every_steps': 3,
    'eval.models': ['pair'],
  }
  config = small_run.config(**values)
  grader(small_run._graded_by_length)
  train.run(config, tmp_path)
  lines, log = small_run.metrics(tmp_path), rollout_log.RolloutLog(tmp_path)
  files = lambda: {
    path.name: path.read_text() for path in log.directory.iterdir()
  }
  before = files()
  assert [line['step'] for line in lines] == [0, 1, 2, 3]
  reasons = collections.Counter(
    row['verdict']['reason']
    for name in before
    for row in rollout_log.read_rows(log.directory / name)
  )
  assert min(reasons['equal'], reasons['no_box']) > 3

  # As if killed in step 4, before steps 2 and 3 were committed.
  for step in (2, 3):
    shutil.rmtree(tmp_path / 'checkpoints' / str(step))
  asked = []

  def late(_, golds, responses, questions):
    asked.extend(responses)
    return [types.Verdict(0.0, 'timeout') for _ in responses]

  grader(late)
  train.run(config, tmp_path)
  assert not asked
  # One line and one file a step, and all as they were.
  assert small_run.metrics(tmp_path) == lines
  assert files() == before

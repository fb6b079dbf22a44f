"""The rollout schema: what is filled in, what is refused and how."""

import dataclasses

import pytest

from tandem.analysis import responses
from tests.analysis import fake_run


def test_a_full_record():
  response = responses.parse_response(fake_run.record(step=12, sample=1))
  assert response.step == 12
  assert response.author == (1, 1, 0, 0, 1, 0)
  assert response.senior_share == 0.5
  assert response.num_tokens == 6
  assert response.reward == 1.0
  assert response.arrays['logp_junior'][3] is None
  assert response.turns == (('assistant', 0, 6),)


def test_anyones_record_needs_schema_and_text():
  response = responses.parse_response(
    {'schema': responses.SCHEMA, 'text': 'hello'}
  )
  assert response == responses.Response(text='hello')
  assert response.senior_share is None
  assert response.num_tokens == 0


def test_null_means_missing():
  record = fake_run.record(author=None, verdict=None, turns=None, keys=None)
  record['arrays']['logp_junior'] = None  # solo mode has no junior
  response = responses.parse_response(record)
  assert response.author is None
  assert response.reward is None
  assert set(response.arrays) == {'logp_senior'}
  empty = responses.parse_response(fake_run.record(author=[]))
  assert empty.author is None  # and not an index error on the page


def test_environment_tokens_have_no_author():
  record = fake_run.record(author=[1, 1, None, None, 0, 0])
  assert responses.parse_response(record).senior_share == 0.5


@pytest.mark.parametrize(
  ('changes', 'message'),
  [
    ({'schema': 'tandem.rollout/2'}, "'tandem.rollout/2'; wanted 'tandem.rol"),
    ({'schema': None}, 'schema is None'),
    ({'text': None}, 'text is None'),
    ({'author': [1, 0]}, 'author 2'),
    ({'author': ['senior'] * 6}, "author holds 'senior'"),
    ({'author': [2] * 6}, 'author holds 2'),
    ({'arrays': {'logp': [0.0]}}, 'logp 1'),
    ({'arrays': {'logp': ['x'] * 6}}, r'arrays\.logp holds a string'),
    ({'offsets': [[0, 99]] * 6}, r'offsets\[0\] is \[0, 99\]'),
    ({'offsets': [[3, 1]] * 6}, r'offsets\[0\] is \[3, 1\]'),
    ({'offsets': [[0]] * 6}, r'offsets\[0\] is \[0\]'),
    ({'step': 'last'}, "step is 'last'"),
    ({'turns': [{'role': 'user'}]}, 'a turn is'),
    ({'turns': ['user']}, 'a turn is'),
    ({'ids': '123456'}, "ids is '123456'; wanted a list"),
    ({'arrays': [1.0]}, r'arrays is \[1\.0\]; wanted an object'),
    ({'arrays': {'logp': 1.0}}, r'arrays\.logp is 1\.0; wanted a list'),
    ({'verdict': 'right'}, "verdict is 'right'"),
    ({'verdict': {'reward': 'yes'}}, "reward is 'yes'"),
  ],
)
def test_refuses(changes, message):
  with pytest.raises(ValueError, match='here:3: .*' + message):
    responses.parse_response(fake_run.record(**changes), where='here:3')


def test_response_passes_through():
  response = responses.parse_response(fake_run.record())
  assert responses.as_response(response) is response
  assert responses.as_response(fake_run.record()) == response
  assert dataclasses.is_dataclass(response)

"""The controller's arithmetic."""

import pytest

from tandem.rollout import draft_length
from tandem.rollout import drafters
from tandem.rollout import turns as turns_lib


def test_expected_tokens():
  assert draft_length.expected_tokens(0.5, 3) == 1 + 0.5 + 0.25
  assert draft_length.expected_tokens(0.0, 8) == 1
  assert draft_length.expected_tokens(1.0, 8) == 8
  # Classic speculation: a whole draft that stands earns one more.
  assert draft_length.expected_tokens(1.0, 4, bonus=1.0) == 5
  assert draft_length.expected_tokens(0.5, 2, bonus=0.5) == 1 + 0.5 + 0.125
  assert draft_length.expected_tokens(0.9, 1, bonus=0.5) == 1


@pytest.mark.parametrize(
  'acceptance,costs,k',
  [
    # A pass costs 1 whatever it reads: k drafts and one check.
    (0.97, {1: 2, 4: 5, 8: 9, 16: 17}, 8),  # 3.82/5, 7.21/9, 12.85/17
    (0.5, {1: 2, 4: 5, 8: 9}, 1),  # 1/2, 1.875/5, 1.992/9
    (1.0, {4: 5, 16: 17}, 16),
    (0.9, {1: 2, 4: 8}, 1),  # where operations bind, a check is not one pass
    (0.9, {4: 5}, 4),
    (1.0, {1: 1, 2: 2}, 1),  # equals
    (0.0, {2: 1, 8: 1}, 2),
  ],
)
def test_choose_k(acceptance, costs, k):
  assert draft_length.choose_k(acceptance, costs) == k


def test_a_bonus_counts_for_its_k_alone():
  costs = {1: 1.0, 4: 4.0, 8: 8.0}  # equals, at acceptance 1
  choose = lambda bonus: draft_length.choose_k(1.0, costs, bonus)
  assert choose({}) == 1 and choose({4: 0.5}) == 4 and choose({8: 0.5}) == 8
  assert choose({4: 0.5, 8: 0.5}) == 4  # 4.5/4, 8.5/8


@pytest.mark.parametrize(
  'acceptance,costs,message',
  [
    (0.5, {}, 'costs is empty'),
    (0.5, {0: 1.0}, r'costs\[0\]=1.0'),
    (0.5, {4: 0.0}, r'costs\[4\]=0.0'),
    (0.5, {4: float('nan')}, r'costs\[4\]=nan'),
    (1.5, {4: 1.0}, 'acceptance=1.5'),
  ],
)
def test_bad_input_is_named(acceptance, costs, message):
  with pytest.raises(ValueError, match=message):
    draft_length.choose_k(acceptance, costs)


def test_controller_measures_first():
  controller, cost = (
    draft_length.Controller(dict.fromkeys((1, 4, 8), 0.0)),
    {1: 2, 4: 5, 8: 9},
  )
  asked = []
  for run in range(9):
    k = controller.next()
    asked.append(k)
    # The first run of each compiles, which must not count.
    compiling = asked.count(k) == 1
    tested = 0 if k == 1 else 100
    controller.record(k, 100 if compiling else cost[k], tested, 97)
    if run == 7:  # a slow hour for k=8: another k is better from here on
      cost[8] = 90
  assert asked == [1, 1, 4, 4, 8, 8, 8, 8, 8]
  assert controller.next() == 4


def test_the_chance_of_a_bonus_is_the_verifiers():
  word = turns_lib.Turns(p=0.3)
  chance = drafters.bonus_chance
  assert chance('junior', True, word) == 0.3
  assert chance('senior', True, word) == 0.7
  assert chance('junior', False, word) == 1
  assert chance('lookup', True, word) == chance('holder', True, word) == 0
  assert chance('junior', True, turns_lib.Turns(schedule='strict_word')) == 0

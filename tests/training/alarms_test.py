"""Alarms: each on its side of its limit."""

import pytest

from tandem.training import alarms

WELL = {
  'rollout/senior_share': 0.5,
  'advantage/degenerate': 0.99,
  'reward/mean': 0.3,
  'rollout/entropy': 0.8,
  'reward/timeout': 0.01,
  'update/skipped': 0,
}
EARLY = [{'rollout/entropy': 1.0}] * alarms.EARLY_STEPS


@pytest.mark.parametrize(
  'change, word',
  [
    ({'rollout/senior_share': 0.29}, 'rollout.p'),
    ({'rollout/senior_share': 0.71}, 'rollout.p'),
    ({'advantage/degenerate': 1.0, 'reward/mean': 0.0}, 'easier'),
    ({'advantage/degenerate': 1.0, 'reward/mean': 1.0}, 'harder'),
    ({'rollout/entropy': 0.09}, 'collapses'),
    ({'reward/timeout': 0.011}, 'reward.limit_s'),
    ({'update/skipped': 1}, 'not finite'),
  ],
)
def test_each_alarm(change, word):
  assert alarms.check(WELL, EARLY, mode='tandem') == []
  found = alarms.check(WELL | change, EARLY, mode='tandem')
  assert len(found) == 1 and word in found[0]


def test_on_the_limit_is_well():
  for share in (0.3, 0.7):
    limit = WELL | {'rollout/senior_share': share}
    assert alarms.check(limit, EARLY, mode='tandem') == []


def test_solo_has_no_share_and_a_young_run_no_collapse():
  one_voice = WELL | {'rollout/senior_share': 1.0, 'rollout/entropy': 1e-4}
  assert alarms.check(one_voice, EARLY[:-1], mode='solo') == []
  assert alarms.check({}, EARLY, mode='tandem') == []


def test_floor_of_entropy_is_absolute_too():
  early = [{'rollout/entropy': 0.1}] * alarms.EARLY_STEPS
  low = WELL | {'rollout/entropy': 0.019}
  assert len(alarms.check(low, early, mode='tandem')) == 1


def test_out_of_memory_names_the_knobs_of_its_phase():
  error = RuntimeError('RESOURCE_EXHAUSTED: Out of memory allocating 9 bytes')
  settings = {'learner.micro_rows': 16, 'rollout.max_response': 512}
  update = alarms.explain_oom(error, 'update', settings)
  assert update.index('learner.micro_rows=16') < update.index(
    'max_response=512'
  )
  rollout = alarms.explain_oom(MemoryError(), 'rollout', settings)
  assert rollout.index('max_response=512') < rollout.index('micro_rows=16')
  assert 'mesh.fsdp' in update  # named though its value is not known
  assert alarms.explain_oom(ValueError('shapes differ'), 'update', {}) == ''

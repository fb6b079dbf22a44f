"""Responses as the trainer's batch and numbers, without a model."""

import dataclasses

import numpy as np
import pytest

from tandem import types
from tandem.data import prompts as prompts_lib
from tandem.rollout import resolve
from tandem.training import collect
from tandem.training import mesh as mesh_lib

EOS = 0  # the same id as the padding's
PROMPTS = ((0, 3), (4,), (5, 6, 0), (7, 0))
LENGTHS = np.array([3, 1, 4, 4, 2, 4, 1, 4])  # two rows a prompt; T = 4
AUTHOR = np.arange(32).reshape(8, 4) % 3 == 0


@pytest.fixture
def got():
  """Rows end with EOS, but those of 4 tokens by their length."""
  past = np.arange(4)[None] >= LENGTHS[:, None]
  tokens = np.arange(1, 33, dtype=np.int32).reshape(8, 4)
  short = LENGTHS < 4
  tokens[short, LENGTHS[short] - 1] = EOS
  record = lambda scale: np.where(past, 0, -scale * tokens).astype(np.float32)
  reasons = ['equal', 'different', 'no_box', 'no_box', 'timeout']
  reasons += ['refused', 'unparsed', 'crashed']
  return collect.Collected(
    prompts=tuple(
      prompts_lib.Prompt(types.Problem(str(i), 'text', '1'), 'text', ids)
      for i, ids in enumerate(PROMPTS)
    ),
    ids=np.array([[*ids, 0, 0][:3] for ids in PROMPTS], np.int32),
    lengths=np.array([2, 1, 3, 2], np.int32),
    group=2,
    purpose='train',
    step=0,
    draw=np.repeat(np.arange(4, dtype=np.int32), 2),
    sample=np.tile(np.arange(2, dtype=np.int32), 4),
    rollout=types.Rollout(
      tokens=np.where(past, 0, tokens),
      lengths=LENGTHS,
      author=AUTHOR & ~past,
      logp_senior=record(0.1),
      logp_junior=record(0.3),
      raw_senior=record(0.2),
      raw_junior=record(0.4),
      finish=np.where(short, 1, 2).astype(np.int8),
    ),
    texts=[''] * 8,
    verdicts=[types.Verdict(float(r == 'equal'), r) for r in reasons],
    rewards=np.array([1, 0, 0, 0, 0, 0, 0, 0], np.float32),
    slot_steps=8 * 4,
    seconds_rollout=2.0,
    seconds_reward=1.0,
  )


def test_lengths_tell_what_is_real(got):
  # Case 12: with pad = EOS the ending EOS counts, and so does that id within a
  # prompt; the padding after either does not.
  batch = collect.step_batch(got, mesh_lib.make_mesh(), width=4)
  np.testing.assert_array_equal(np.sum(batch.valid, axis=1), LENGTHS)
  tokens, last = np.asarray(batch.tokens), LENGTHS - 1
  ends = tokens[np.arange(8), last] == EOS
  np.testing.assert_array_equal(ends, LENGTHS < 4)
  assert np.asarray(batch.valid)[np.arange(8), last].all()
  np.testing.assert_array_equal(batch.truncated, LENGTHS == 4)
  policy = batch.contexts['policy']
  np.testing.assert_array_equal(policy.lengths, [2, 2, 1, 1, 3, 3, 2, 2])
  np.testing.assert_array_equal(policy.ids[::2], got.ids)
  np.testing.assert_array_equal(policy.ids[1::2], got.ids)
  np.testing.assert_array_equal(batch.group_id, [0, 0, 1, 1, 2, 2, 3, 3])


def test_numbers_of_a_step(got):
  told = collect.metrics(got)
  senior = AUTHOR & (np.arange(4)[None] < LENGTHS[:, None])
  logp = got.rollout.logp_senior[senior]
  want = {
    'reward/mean': 1 / 8,
    'rollout/senior_share': senior.sum() / 23,
    'rollout/length_mean': 23 / 8,
    'rollout/truncated': 4 / 8,
    'rollout/tokens_per_second': 23 / 2,
    'rollout/idle_slots': 9 / 32,
    'rollout/entropy': -logp.mean(),
    'kl/junior': (logp - got.rollout.logp_junior[senior]).mean(),
    'time/rollout': 2.0,
    'time/reward': 1.0,
  }
  for name, value in want.items():
    assert told[name] == pytest.approx(value, rel=1e-5), name
  reasons = {name: told[f'reward/{name}'] for name in collect.REASONS}
  assert reasons.pop('no_box') == 2 / 8
  assert set(reasons.values()) == {1 / 8} and len(reasons) == 6


def test_numbers_of_drafting(got):
  assert 'rollout/tokens_per_round' not in collect.metrics(got)
  counts = resolve.Counts(
    rounds=np.array([2, 1, 2, 1, 1, 2, 1, 1]),  # 11 for 23 tokens
    tested=np.array([2, 0, 3, 3, 1, 2, 0, 3]),
    passed=np.array([1, 0, 2, 3, 1, 1, 0, 3]),
    last=np.array([2, 1, 2, 1, 3, 2, 3, 1]),
  )
  told = collect.metrics(
    dataclasses.replace(got, counts=counts, slot_steps=5 * 3)
  )
  assert told['rollout/tokens_per_round'] == pytest.approx(23 / 11)
  # Five slots and three rounds, in which 11 row-rounds were decoded.
  assert told['rollout/idle_slots'] == pytest.approx(4 / 15)
  assert counts.idle(5) == pytest.approx(4 / 15)
  assert told['rollout/draft_acceptance'] == pytest.approx(11 / 14)

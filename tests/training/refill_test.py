"""Dynamic sampling: who is dropped, refilled and counted; and after a resume."""

import json
import shutil
import zlib

import numpy as np
import pytest

from tandem import train
from tandem import types
from tandem.data import prompts as prompts_lib
from tandem.rewards import verifier
from tandem.training import collect
from tandem.training import refill
from tests import small_run

GROUP = 4


def collected(rewards, first_draw, width=3):
  """A draw of len(rewards) / GROUP prompts, each number in it its own."""
  n = len(rewards)
  draw = first_draw + np.arange(n) // GROUP
  rows = np.arange(first_draw * GROUP, first_draw * GROUP + n)
  rollout = types.Rollout(
    tokens=np.repeat(rows[:, None], 5, axis=1),
    lengths=rows % 5 + 1,
    author=None,
    logp_senior=rows[:, None] * np.ones(5),
    logp_junior=None,
    raw_senior=rows[:, None] * np.ones(5),
    raw_junior=None,
    finish=np.ones(n, np.int8),
  )
  prompts = tuple(
    prompts_lib.Prompt(types.Problem(str(d), 'text', '1'), 'text', (1, 2))
    for d in draw[::GROUP]
  )
  return collect.Collected(
    prompts=prompts,
    ids=np.full((len(prompts), width), 7, np.int32) + draw[::GROUP, None],
    lengths=np.full(len(prompts), 2, np.int32),
    group=GROUP,
    purpose='train',
    step=0,
    draw=draw.astype(np.int32),
    sample=np.tile(np.arange(GROUP, dtype=np.int32), len(prompts)),
    rollout=rollout,
    texts=[str(row) for row in rows],
    verdicts=[types.Verdict(r, 'equal' if r else 'different') for r in rewards],
    rewards=np.asarray(rewards, np.float32),
    slot_steps=2 * n,
    seconds_rollout=1.0,
    seconds_reward=0.5,
  )


RIGHT, WRONG, MIXED = [1.0] * 4, [0.0] * 4, [1.0, 0.0, 0.0, 1.0]


def scripted(*draws):
  """fill over these draws, each a list of groups; and the numbers asked for."""
  asked = []

  def draw(first_draw):
    asked.append(first_draw)
    groups = draws[len(asked) - 1]
    # Of another width each time, as prompt_bucket makes them.
    return collected(sum(groups, []), first_draw, width=2 + len(asked))

  return draw, asked


def test_a_full_step_is_left_alone():
  draw, asked = scripted([MIXED, MIXED])
  filled = refill.fill(draw, max_refills=3)
  assert asked == [0] and filled.counts['rollout/refills'] == 0
  whole = collected(MIXED + MIXED, 0)
  assert filled.kept.prompts == whole.prompts
  np.testing.assert_array_equal(
    filled.kept.rollout.tokens, whole.rollout.tokens
  )
  assert filled.kept.texts == whole.texts


def test_groups_that_do_not_differ_are_refilled_and_counted():
  """CASES 20."""
  draw, asked = scripted([RIGHT, MIXED], [WRONG, WRONG], [MIXED, MIXED])
  filled = refill.fill(draw, max_refills=3)
  assert asked == [0, 2, 4]  # draw numbers go on, so no noise comes twice
  assert filled.counts == {
    'rollout/refills': 2,
    'rollout/dropped_groups': 3,
    'rollout/flat_groups': 0,
    'reward/kept_mean': 0.5,
  }
  kept = filled.kept
  assert [p.problem.id for p in kept.prompts] == ['1', '4']
  assert kept.draw.tolist() == [1] * 4 + [4] * 4
  assert kept.sample.tolist() == [0, 1, 2, 3] * 2
  rows = [4, 5, 6, 7, 16, 17, 18, 19]
  assert kept.texts == [str(row) for row in rows]
  assert kept.rollout.tokens[:, 0].tolist() == rows
  assert kept.rollout.lengths.tolist() == [row % 5 + 1 for row in rows]
  assert kept.rewards.tolist() == MIXED + MIXED
  assert [v.reward for v in kept.verdicts] == MIXED + MIXED
  # Of one width, padded on the right with zeros.
  assert kept.ids.tolist() == [[8, 8, 8, 0, 0], [11, 11, 11, 11, 11]]
  # What the policy is worth is told of all, not of the selection.
  told = collect.metrics(filled.drawn)
  assert told['reward/mean'] == pytest.approx(10 / 24)
  assert told['time/rollout'] == 3.0 and told['time/reward'] == 1.5


def test_gives_up_with_a_warning_and_the_last_of_the_flat(caplog):
  draw, asked = scripted([RIGHT, RIGHT], [WRONG, MIXED], [WRONG, WRONG])
  with caplog.at_level('WARNING'):
    filled = refill.fill(draw, max_refills=2)
  assert asked == [0, 2, 4]
  assert filled.counts['rollout/flat_groups'] == 1
  assert filled.counts['rollout/dropped_groups'] == 4
  assert [p.problem.id for p in filled.kept.prompts] == ['3', '5']
  assert '1 of 2 groups differ' in caplog.text


@pytest.mark.parametrize(
  'flat,want',
  [
    ('.x.x', [0, 2]),
    ('xx..', [2, 3]),
    ('....', [0, 1]),
    ('xxxx', [2, 3]),
    ('xx.x', [2, 3]),
    ('.xxx', [0, 3]),
  ],
)
def test_choice(flat, want):
  flat = np.asarray([mark == 'x' for mark in flat])
  assert refill.choose(flat, 2).tolist() == want


# ---- Whole runs --------------------------------------------------------------


def kind_of(question):
  """0: all wrong, 1: all right, 2: every second one right."""
  return zlib.crc32(question.encode()) % 3


def graded(self, golds, responses, questions=None):
  del self, golds
  right = [
    {0: 0, 1: 1, 2: row % 2}[kind_of(question)]
    for row, question in enumerate(questions)
  ]
  assert len(right) == len(responses)
  return [types.Verdict(float(r), 'equal' if r else 'no_box') for r in right]


def run(workdir, **values):
  options = {
    'rollout.dynamic_sampling': True,
    'rollout.max_refills': 10,
    'rollout.mode': 'solo',
    'rollout.max_response': 4,
    'data.size': 12,
    'checkpoint.every_steps': 1,
    'checkpoint.keep': 3,
    **values,
  }
  train.run(small_run.config(**options), workdir)
  lines = {line['step']: line for line in small_run.metrics(workdir)}
  path = workdir / 'checkpoints' / str(max(lines)) / 'host' / 'metadata'
  return lines, json.loads(path.read_text())['host_state']


def rows_of(workdir, step):
  path = workdir / 'rollouts' / f'step_{step:06d}.jsonl'
  return [json.loads(line) for line in path.read_text().splitlines()]


def test_a_run_refills_and_goes_on_after_a_stop(tmp_path, monkeypatch):
  monkeypatch.setattr(verifier.Verifier, 'grade', graded)
  whole, host = run(tmp_path / 'whole', num_steps=3)
  # By hand: from the prompts of each step to those that it dropped.
  seen = 0
  for step in (1, 2, 3):
    line, rows = whole[step], rows_of(tmp_path / 'whole', step)
    assert line['rollout/flat_groups'] == 0
    assert line['advantage/degenerate'] == 0
    kept = {row['problem']: row['draw'] for row in rows}
    assert {kind_of(problem) for problem in kept} == {2}
    assert all(row['keys']['draw'] == row['draw'] for row in rows)
    drawn = 2 * (1 + line['rollout/refills'])
    assert line['rollout/dropped_groups'] in (drawn - 2, drawn - 3)
    assert drawn - 2 <= max(kept.values()) < drawn
    seen += drawn
  assert host['cursor'] == seen > 12  # so that prompts came twice
  assert whole[3]['grad_norm'] > 0

  shutil.copytree(tmp_path / 'whole', tmp_path / 'parts')
  for step in (2, 3):  # as it was when step 1 had been saved
    shutil.rmtree(tmp_path / 'parts' / 'checkpoints' / str(step))
  again, same = run(tmp_path / 'parts', num_steps=3)
  assert again == whole and same == host
  for step in (1, 2, 3):
    assert rows_of(tmp_path / 'parts', step) == rows_of(
      tmp_path / 'whole', step
    )

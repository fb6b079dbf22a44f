"""Whole runs: killed and started again, on other devices, in two processes."""

import itertools
import json
import shutil
import socket

import numpy as np
import orbax.checkpoint as ocp
import pytest

from tandem.training import rollout_log
from tests import small_run

# Six steps on two devices, a checkpoint each, evaluated at 0, 3 and 6.
SIX = {
  'num_steps': 6,
  'checkpoint.every_steps': 1,
  'checkpoint.keep': 10,
  'eval.every_steps': 3,
  'eval.models': ['pair', 'junior'],
}


@pytest.fixture(scope='module')
def cache(tmp_path_factory):
  """What one child has compiled, the next need not."""
  return tmp_path_factory.mktemp('compiled')


@pytest.fixture(scope='module')
def whole(tmp_path_factory, cache):
  """The run that nothing happened to."""
  workdir = tmp_path_factory.mktemp('whole')
  status, output = small_run.run(workdir, cache, SIX, devices=2)
  assert status == 0, output
  return workdir


def state(workdir, step) -> dict[str, np.ndarray]:
  """Every array of a checkpoint, by path."""
  path = workdir / 'checkpoints' / str(step) / 'state'
  with ocp.StandardCheckpointer() as checkpointer:
    held = checkpointer.metadata(path).item_metadata.tree
    whole = {k: np.zeros(v.shape, v.dtype) for k, v in held.items()}
    return checkpointer.restore(path, whole)


def host(workdir, step) -> dict:
  path = workdir / 'checkpoints' / str(step) / 'host' / 'metadata'
  return json.loads(path.read_text())['host_state']


def copy_at(workdir, step, target):
  """The run as it was when a step had just been saved."""
  shutil.copytree(workdir, target)
  for path in (target / 'checkpoints').iterdir():
    if path.name.isdigit() and int(path.name) > step:
      shutil.rmtree(path)
  return target


def test_killed_thrice_equals_never(whole, cache, tmp_path):
  # Case 26. In the rollout of step 4, in the save of step 5, and asked to
  # leave in step 6 of which nothing may be lost.
  ended = lambda *end: small_run.run(tmp_path, cache, SIX, end, devices=2)
  status, output = ended('kill_in_rollout', 3)
  assert status == -9, output
  assert [line['step'] for line in small_run.metrics(tmp_path)] == [0, 1, 2, 3]

  status, output = ended('kill_in_save', 5)
  assert status == -9 and 'resumed from step 3' in output, output
  assert list((tmp_path / 'checkpoints').glob('5.*tmp*'))
  assert 'saved step 5' not in output

  status, output = ended('terminate', 4)
  assert status == 0, output
  assert 'checkpoint of step 5 was half written' in output
  assert 'resumed from step 4' in output
  assert 'leaving after step 5' in output and 'saved step 5' in output
  assert small_run.metrics(tmp_path)[-1]['step'] == 5

  status, output = small_run.run(tmp_path, cache, SIX, devices=2)
  assert status == 0 and 'resumed from step 5' in output, output
  assert small_run.metrics(tmp_path) == small_run.metrics(whole)
  for step in range(3, 7):
    mine, theirs = state(tmp_path, step), state(whole, step)
    assert mine.keys() == theirs.keys() and len(mine) > 30
    for name, array in mine.items():
      assert array.tobytes() == theirs[name].tobytes(), (step, name)
    assert host(tmp_path, step) == host(whole, step)
  assert host(whole, 6)['cursor'] == 12  # so the next prompts are the same
  files = lambda path: {
    file.name: file.read_text() for file in (path / 'rollouts').iterdir()
  }
  assert len(files(whole)) == 6 + 1 + 3  # steps, the junior once, the pair
  assert files(tmp_path) == files(whole)


def test_the_run_teaches(whole):
  # Or equality above would be of runs in which nothing moves.
  lines = small_run.metrics(whole)
  assert all(line['grad_norm'] > 0.1 for line in lines[1:])
  # Cases 9 and 13: each step decodes with the weights that it then rescores.
  assert all(0 < line['mismatch/logp_max'] < 1e-5 for line in lines[1:])
  before, after = state(whole, 1), state(whole, 6)
  moved = [name for name in after if (before[name] != after[name]).any()]
  assert {name for name in after if name.startswith('params')} <= set(moved)
  rows = [
    row
    for step in range(1, 7)
    for row in rollout_log.read_rows(
      whole / 'rollouts' / f'step_{step:06d}.jsonl'
    )
  ]
  # Case 1: no noise twice, neither in a group nor in the next step.
  assert len({tuple(row['ids']) for row in rows}) == len(rows) == 6 * 8
  assert len({row['prompt_id'] for row in rows}) == 12


def test_drafts_and_slots_change_nothing(whole, cache, tmp_path):
  values = {'rollout.decoder': 'speculative', 'rollout.draft_tokens': 3}
  values['rollout.slots'] = 4  # of 8 rows
  status, output = small_run.run(tmp_path, cache, SIX | values, devices=2)
  assert status == 0, output
  read = lambda path: {
    file.name: rollout_log.read_rows(file)
    for file in (path / 'rollouts').iterdir()
  }
  mine, theirs = read(tmp_path), read(whole)
  assert mine.keys() == theirs.keys()
  for name, rows in mine.items():
    for row, other in zip(rows, theirs[name], strict=True):
      for key in ('ids', 'author', 'finish', 'verdict'):
        assert row[key] == other[key], (name, key)
  # The record's last bits are another program's; nothing else is.
  lines = zip(
    small_run.metrics(tmp_path), small_run.metrics(whole), strict=True
  )
  for line, other in lines:
    drafting = {'rollout/tokens_per_round', 'rollout/draft_acceptance'}
    assert line.keys() - drafting == other.keys()
    if line['step']:
      assert line['rollout/tokens_per_round'] > 1
      assert 0 < line['rollout/draft_acceptance'] <= 1
    for name, value in line.items():
      if name.startswith('mismatch/'):
        assert value < 1e-5
      elif name not in drafting | {'rollout/idle_slots'}:
        assert value == pytest.approx(other[name], rel=1e-4, abs=1e-6), name


def test_evaluation_of_a_run_is_the_run_s_own(whole, cache, tmp_path):
  workdir = tmp_path / 'run'
  shutil.copytree(whole, workdir)
  log = workdir / 'rollouts' / 'step_000006_eval_pair.jsonl'
  own = log.read_text()
  log.unlink()
  values = {**SIX, 'eval.models': ['pair', 'senior']}
  status, output = small_run.run(
    workdir, cache, values, ['evaluate'], devices=2
  )
  assert status == 0, output
  assert log.read_text() == own
  told = json.loads((workdir / 'eval.json').read_text())
  last = small_run.metrics(whole)[-1]
  for name in ('step', 'eval/problems', 'eval/pass_at_1/pair'):
    assert told[name] == last[name]
  # pass@k of n=4 by counting the subsets that hold a right answer.
  right = {}
  for row in rollout_log.read_rows(log):
    right.setdefault(row['prompt_id'], []).append(row['verdict']['reward'])
  for k in (1, 2, 4):
    shares = [
      np.mean([any(chosen) for chosen in itertools.combinations(n, k)])
      for n in right.values()
    ]
    value = told['models']['pair'][f'pass_at_{k}']['value']
    assert value == pytest.approx(np.mean(shares))
  senior = workdir / 'rollouts' / 'step_000006_eval_senior.jsonl'
  assert {r['mode'] for r in rollout_log.read_rows(senior)} == {'solo'}


def gradient(workdir, step) -> np.ndarray:
  """What the step's gradient was, from Adam's first moments around it."""
  old, new = state(workdir, step - 1), state(workdir, step)
  names = sorted(name for name in new if '.mu.' in name)
  assert names
  return np.concatenate(
    [(new[name] - 0.9 * old[name]).ravel() / 0.1 for name in names]
  )


def assert_close(one, other):
  """To 1e-6 of the norm."""
  gap = np.linalg.norm(one - other) / np.linalg.norm(other)
  print(f'gap of the gradients: {gap:.1e} of the norm')
  assert gap < 1e-6


def test_goes_on_with_other_devices(whole, cache, tmp_path):
  workdir = copy_at(whole, 3, tmp_path / 'four')
  # Evaluated otherwise, too: what the junior had scored is not that any more.
  other = {
    'eval.every_steps': 4,
    'eval.models': ['junior'],
    'eval.samples': 6,
    'checkpoint.best_metric': '',
  }
  values = {**SIX, **other, 'num_steps': 4}
  status, output = small_run.run(workdir, cache, values, devices=4)
  assert status == 0 and 'resumed from step 3' in output, output
  assert small_run.metrics(workdir)[-1]['step'] == 4
  assert_close(gradient(workdir, 4), gradient(whole, 4))
  again = workdir / 'rollouts' / 'step_000004_eval_junior.jsonl'
  assert len(rollout_log.read_rows(again)) == 2 * 6


def test_two_processes_equal_one(whole, cache, tmp_path):
  # Case 27. One device each, against one process with two.
  with socket.socket() as probe:
    probe.bind(('127.0.0.1', 0))
    address = f'127.0.0.1:{probe.getsockname()[1]}'
  values = {**SIX, 'num_steps': 2, 'eval.every_steps': 0}
  children = [
    small_run.start(tmp_path, cache, values, arguments=(address, str(index)))
    for index in range(2)
  ]
  outputs = [child.communicate(timeout=300)[0] for child in children]
  assert [child.returncode for child in children] == [0, 0], outputs
  assert 'saved step 2' in outputs[0] and 'saved' not in outputs[1]
  one, two = small_run.metrics(whole)[1:3], small_run.metrics(tmp_path)
  for a, b in zip(one, two, strict=True):
    for name in a:
      assert a[name] == pytest.approx(b[name], rel=1e-5, abs=1e-6), name
  for step in (1, 2):
    name = f'rollouts/step_{step:06d}.jsonl'
    ids = lambda path: [r['ids'] for r in rollout_log.read_rows(path)]
    assert ids(whole / name) == ids(tmp_path / name)
  assert_close(gradient(tmp_path, 2), gradient(whole, 2))

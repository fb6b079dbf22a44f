"""The commands as they are typed: bad flags, a solo run, its evaluation."""

import json
import subprocess
import sys

import pytest

from tests import small_run

TINY = '--config=configs/quickstart.py:tiny'


def command(name, *flags, environment=None):
  """(exit status, stdout, stderr) of python -m launch.<name>."""
  done = subprocess.run(
    [sys.executable, '-m', f'launch.{name}', *flags],
    cwd=small_run.ROOT,
    env=environment,
    capture_output=True,
    text=True,
    timeout=300,
    check=False,
  )
  return done.returncode, done.stdout, done.stderr


@pytest.mark.parametrize(
  'flags, words',
  [
    (
      (TINY, '--workdir=DIR', '--config.rollout.grup=3'),
      ('--config.rollout.grup is no key', 'config.rollout', 'group, max_'),
    ),
    (
      (TINY, '--workdir=DIR', '--config.rolout.group=3'),
      ("no 'rolout' in config", 'rollout'),
    ),
    (
      (TINY, '--workdir=DIR', '--config.seed.x=3'),
      ("no 'x' in config.seed, which is one value",),
    ),
    (
      (TINY, '--workdir=DIR', '--config.rollout.group=two'),
      ('--config.rollout.group=two',),
    ),
    (
      ('--config=configs/quickstart.py:tny', '--workdir=DIR'),
      ("'tny' is unknown", "'tiny'"),
    ),
    (
      ('--config=configs/none.py', '--workdir=DIR'),
      ("no file 'configs/none.py'", 'quickstart.py'),
    ),
    (
      ('--config', 'configs/none.py', '--workdir=DIR'),
      ("no file 'configs/none.py'", 'quickstart.py'),
    ),
    (
      (*TINY.split('='), '--workdir', 'DIR', '--config.rollout.grup', '3'),
      ('--config.rollout.grup is no key', 'group, max_'),
    ),
    (
      (*TINY.split('='), '--workdir', 'DIR', '--config.seed', '-1'),
      ('seed=-1 must be in',),
    ),
    ((TINY,), ('--workdir', 'must have a value')),
    ((TINY, '--workdir=DIR', 'seed=3'), ("unexpected arguments ['seed=3']",)),
    (
      (TINY, '--workdir=DIR', '--num_processes=2'),
      ('--coordinator=None', '--coordinator=auto', 'JAX_PROCESS_ID'),
    ),
    (
      (
        *(TINY, '--workdir=DIR', '--coordinator=localhost:1'),
        *('--num_processes=2', '--process_id=2'),
      ),
      ('--process_id=2 must be below --num_processes=2',),
    ),
  ],
  ids=lambda x: x[-1] if x[0].startswith('--') else '',
)
def test_bad_flags_are_told_in_a_paragraph(flags, words):
  status, out, error = command('train', *flags)
  assert status == 1 and not out
  assert error.startswith('error: ') and error.count('\n') == 1
  for word in words:
    assert word in error


def test_bad_settings_too(tmp_path):
  flags = (TINY, f'--workdir={tmp_path / "run"}', '--config.loss.variant=grop')
  status, _, error = command('train', *flags)
  assert status == 1
  assert error.splitlines()[-1].startswith("error: loss.variant='grop' is")
  assert 'Traceback' not in error
  assert not (tmp_path / 'run').exists()


def test_solo_run_and_its_evaluation(tmp_path_factory, tmp_path):
  """`rollout.mode=solo` alone turns the quickstart into GRPO."""
  environment = small_run.environment(tmp_path_factory.mktemp('compiled'))
  flags = [
    TINY,
    f'--workdir={tmp_path}',
    *(f'--config.{name}={value}' for name, value in small_run.SMALL.items()),
    '--config.warm_start.enable=True',
    '--config.rollout.max_response=48',
    '--config.rollout.mode=solo',
  ]
  status, out, error = command('train', *flags, environment=environment)
  assert status == 0, error
  assert 'step 2 | reward' in out and 'saved step 2' in out
  steps = small_run.metrics(tmp_path)
  assert [line['step'] for line in steps] == [1, 2]
  assert all(line['rollout/senior_share'] == 1 for line in steps)
  assert 'tandem/senior_share' not in steps[0]
  assert (tmp_path / 'initial' / '0').is_dir()  # the warm start's weights
  held = json.loads((tmp_path / 'config.json').read_text())
  assert held['rollout']['mode'] == 'solo'

  # On four devices: one problem is filled up to rows that they divide.
  environment['JAX_NUM_CPU_DEVICES'] = '4'
  flags += ['--config.eval.samples=2', '--config.eval.problems=1']
  status, out, error = command('evaluate', *flags, environment=environment)
  assert status == 0, error
  told = json.loads((tmp_path / 'eval.json').read_text())
  assert json.loads(out) == told
  assert told['step'] == 2 and told['eval/problems'] == 1
  for model in ('pair', 'senior', 'junior'):
    assert told['models'][model].keys() == {'pass_at_1', 'pass_at_2'}
    assert 0 <= told[f'eval/pass_at_1/{model}'] <= 1

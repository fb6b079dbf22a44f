"""Sweeps: every point is a legal run, and a sweep goes on where it ended."""

import pathlib
import subprocess
import sys

from absl import flags
from ml_collections import config_flags
import pytest

from configs import sweeps
from launch import sweep
from tandem.training import build

ROOT = pathlib.Path(__file__).parents[2]


def as_launched(config, point):
  """The config that launch.train makes of a command line."""
  values = flags.FlagValues()
  overrides = [f'--config.{key}={value}' for key, value in point.items()]
  argv = ['train', f'--config={ROOT / config}', *overrides]
  config_flags.DEFINE_config_file(
    'config', lock_config=True, flag_values=values, sys_argv=argv
  )
  values(argv)
  return values.config


@pytest.mark.parametrize('name', sweeps.SWEEPS)
def test_every_point_is_a_legal_run_of_its_own(name):
  config, points = sweeps.SWEEPS[name]
  points = list(points())
  made = [as_launched(config, point) for point in points]
  for point, one in zip(points, made):
    build.check(one)
    for key, value in point.items():
      section, _, field = key.rpartition('.')
      held = one[section][field] if section else one[field]
      assert held == value and type(held) is type(value)
  assert len(points) > 1
  assert len({str(one) for one in made}) == len(points)
  assert len({sweep.label(point) for point in points}) == len(points)


def test_ablations_are_the_paper_s():
  _, points = sweeps.SWEEPS['craft_ablations']
  points = list(points())
  assert {'loss.g_min': 999} in points and {'loss.kl_swap': True} in points
  switches = [
    (point['loss.phase_aware'], point['loss.polarized_kl'])
    for point in points
    if 'loss.phase_aware' in point
  ]
  assert switches == [(False, False), (True, False), (False, True)]
  _, points = sweeps.SWEEPS['gr_opd_lambda']
  shares = [point['loss.lambda_retain'] for point in points()]
  assert shares == [0.0, 0.05, 0.15, 0.2, 0.25, 0.5, 1.0]


def test_dry_run_prints_the_commands_and_trains_nothing(tmp_path):
  out = subprocess.run(
    [
      *(sys.executable, '-m', 'launch.sweep', '--sweep=kl_reg', '--dry_run'),
      *(f'--workdir={tmp_path / "out"}', '--set=num_steps=3', '--set=seed=1'),
    ],
    cwd=ROOT,
    capture_output=True,
    text=True,
    check=True,
  )
  lines = out.stdout.splitlines()
  assert len(lines) == 5 and not (tmp_path / 'out').exists()
  assert all(
    'launch.train --config=configs/grpo_qwen3_4b.py' in x for x in lines
  )
  assert '--config.loss.kl_coef=0.001' in lines[2]
  assert 'kl_coef=0.001' in lines[2].split('--workdir=')[1].split()[0]
  assert lines[0].endswith('--config.num_steps=3 --config.seed=1')


def test_done_points_are_skipped_and_failed_ones_are_not(tmp_path, capfd):
  workdir = tmp_path / 'point'
  workdir.mkdir()
  script = 'import sys; print("ran"); sys.exit(int(sys.argv[1]))'
  words = lambda status: [sys.executable, '-c', script, str(status)]
  assert not sweep.run(workdir, words(1))
  assert not sweep.run(workdir, words(1))
  assert sweep.run(workdir, words(0))
  assert capfd.readouterr().out.count('\nran') == 3
  assert sweep.run(workdir, words(0))
  told = capfd.readouterr().out
  assert 'done before' in told and 'ran\n' not in told
  # Under another command it is another point.
  assert sweep.run(workdir, [*words(0), 'more'])
  assert '\nran' in capfd.readouterr().out


@pytest.mark.parametrize('last, well', [(4, True), (3, False), (None, False)])
def test_a_point_that_sigterm_cut_short_is_not_done(tmp_path, last, well):
  """It ends with status 0, having saved; the sweep goes on with it later."""
  (tmp_path / 'config.json').write_text('{"num_steps": 4}')
  if last:
    (tmp_path / 'metrics.jsonl').write_text(f'{{"step": {last}}}\n')
  assert sweep.run(tmp_path, [sys.executable, '-c', '']) == well
  assert (tmp_path / 'sweep_point').exists() == well

"""launch.view and launch.curves as commands."""

import os
import pathlib
import subprocess
import sys

import pytest

from tests.analysis import fake_run

ROOT = pathlib.Path(__file__).parents[2]


def run(module, *arguments, **environment):
  return subprocess.run(
    [sys.executable, '-m', module, *arguments],
    cwd=ROOT,
    env=os.environ | {'NO_COLOR': ''} | environment,
    capture_output=True,
    text=True,
    check=False,
  )


def test_view_writes_the_page_and_prints(tmp_path):
  fake_run.write(tmp_path)
  result = run('launch.view', f'--workdir={tmp_path}', '--step=2,4')
  assert result.returncode == 0, result.stderr
  page = (tmp_path / 'trace.html').read_text(encoding='utf-8')
  assert page.count('<article') == 8
  assert result.stdout.count('step 4') == 3
  assert '\x1b[38;5;32msix plus' in result.stdout
  result = run(
    'launch.view', f'--workdir={tmp_path}', '--limit=2', NO_COLOR='1'
  )
  assert '\x1b' not in result.stdout
  assert '2 responses in' in result.stdout


def test_view_without_rollouts(tmp_path):
  result = run('launch.view', f'--workdir={tmp_path}')
  assert result.returncode == 1
  assert result.stderr.startswith('view: no rollouts/step_*.jsonl')
  assert 'launch.train' in result.stderr
  assert not (tmp_path / 'trace.html').exists()


def test_curves(tmp_path):
  for seed in range(2):
    fake_run.write(tmp_path / str(seed), seed=seed)
  out = tmp_path / 'docs' / 'curves.png'
  workdirs = f'{tmp_path}/0,{tmp_path}/1'
  result = run('launch.curves', f'--workdir={workdirs}', f'--out={out}')
  assert result.returncode == 0, result.stderr
  assert out.read_bytes().startswith(b'\x89PNG')
  assert result.stdout.count('senior: 0.370') == 2
  result = run('launch.curves', f'--workdir={tmp_path}/2')
  assert result.returncode == 1
  assert result.stderr.startswith('curves: no metrics.jsonl')


@pytest.mark.parametrize('module', ['launch.view', 'launch.curves'])
def test_help(module):
  result = run(module, '--help')
  assert f'python -m {module} --workdir=' in result.stdout
  assert '--workdir:' in result.stdout


def test_reading_needs_neither_jax_nor_matplotlib():
  code = (
    'import sys; from tandem.analysis import passk, plots, runs, stats, trace;'
    "sys.exit(bool({'jax', 'matplotlib', 'torch'} & set(sys.modules)))"
  )
  assert subprocess.run([sys.executable, '-c', code], cwd=ROOT).returncode == 0

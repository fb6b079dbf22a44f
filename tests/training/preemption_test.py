"""SIGTERM: a flag for the loop; before it the run leaves, and nothing is lost."""

import os
import signal

import jax
import jax.numpy as jnp
import pytest

from tandem import evaluate
from tandem import train
from tandem.training import checkpoint
from tandem.training import preemption
from tandem.training import setup
from tests import small_run


def terminate():
  os.kill(os.getpid(), signal.SIGTERM)


@pytest.fixture
def warnings_said(monkeypatch):
  said = []
  monkeypatch.setattr(
    preemption.logging, 'warning', lambda f, *a: said.append(f % a)
  )
  return said


def test_in_the_loop_it_sets_a_flag_and_the_handler_comes_back():
  before = signal.getsignal(signal.SIGTERM)
  with preemption.PreemptionGuard() as guard:
    guard.wait_for_steps()
    assert not guard.should_leave()
    terminate()
    assert guard.should_leave()
  assert signal.getsignal(signal.SIGTERM) == before


def test_set_up_ends_at_once_and_its_save_is_committed(tmp_path, warnings_said):
  before = signal.getsignal(signal.SIGTERM)
  x = {'x': jnp.arange(3.0)}
  with preemption.PreemptionGuard() as guard:
    with checkpoint.Checkpoints(tmp_path) as saved:
      saved.save(7, x, {})
      try:
        terminate()
      except Exception:  # noqa: BLE001
        pytest.fail('a handler on the way took it')
    pytest.fail('the rest was run')
  assert guard.requested and signal.getsignal(signal.SIGTERM) == before
  assert 'SIGTERM: the run leaves before its first step' in warnings_said[0]
  with checkpoint.Checkpoints(tmp_path) as again:
    assert again.restore_latest(jax.eval_shape(lambda: x))[2] == 7


def test_a_request_that_python_ignored_is_not_forgotten():
  with preemption.PreemptionGuard() as guard:
    guard.requested = True
    guard.wait_for_steps()
    pytest.fail('the loop began')


def test_other_errors_pass():
  with pytest.raises(KeyError), preemption.PreemptionGuard():
    raise KeyError


def test_a_run_asked_in_its_set_up(tmp_path, monkeypatch, warnings_said):
  monkeypatch.setattr(setup, 'setup', lambda *_, **__: terminate())
  kept = tmp_path / 'checkpoints' / '3'
  kept.mkdir(parents=True)
  (tmp_path / 'metrics.jsonl').write_text('{"step": 3}\n{"step": 4}\n')
  assert train.run(small_run.config(), tmp_path) == {}
  assert 'goes on from there' in warnings_said[0]
  assert kept.is_dir()
  assert len((tmp_path / 'metrics.jsonl').read_text().splitlines()) == 2


def test_a_run_asked_in_evaluation_0(tmp_path, monkeypatch, warnings_said):
  monkeypatch.setattr(evaluate, 'run_model', lambda *_, **__: terminate())
  values = {'eval.every_steps': 1, 'mesh.data': 1, 'mesh.tensor': 8}
  assert train.run(small_run.config(**values), tmp_path) == {}
  assert 'leaves before its first step' in warnings_said[-1]
  assert not (tmp_path / 'metrics.jsonl').read_text()

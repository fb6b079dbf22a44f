"""metrics.jsonl: valid JSON always, cut back on resume, torn lines."""

import json
import sys
import types

import jax.numpy as jnp
import numpy as np
import pytest

from tandem.training import metrics


def writer(path, **kwargs):
  kwargs = {'tensorboard': False, 'stdout': False} | kwargs
  return metrics.MetricWriter(path, **kwargs)


def test_lines_are_flat_numbers(tmp_path):
  with writer(tmp_path) as out:
    out.write(0, {'loss': jnp.bfloat16(0.5), 'n': np.int64(3), 'ok': True})
    # Flushed at once: a kill loses nothing that was written.
    line = json.loads(out.path.read_text())
  assert line == {'step': 0, 'loss': 0.5, 'n': 3, 'ok': True}


def test_no_nan_in_the_file(tmp_path):
  with writer(tmp_path) as out:
    out.write(1, {'loss': np.nan, 'kl': -np.inf, 'x': 1.0, 'old': None})
  text = out.path.read_text()
  assert 'NaN' not in text and 'Infinity' not in text
  assert metrics.read_metrics(out.path) == [
    {
      'step': 1,
      'loss': None,
      'kl': None,
      'x': 1.0,
      'nonfinite': ['loss', 'kl'],
      'old': None,
    }
  ]


def test_cut_back_drops_later_steps_and_a_torn_line(tmp_path):
  with writer(tmp_path) as out:
    for step in range(1, 6):
      out.write(step, {'loss': step})
  with open(out.path, 'a') as file:
    file.write('{"step": 6, "lo')
  with writer(tmp_path) as again:
    assert len(metrics.read_metrics(again.path)) == 5
    assert again.cut_back(3) == 2
    again.write(4, {'loss': 40})
  got = [(m['step'], m['loss']) for m in metrics.read_metrics(out.path)]
  assert got == [(1, 1), (2, 2), (3, 3), (4, 40)]


def test_what_is_not_one_number_is_refused(tmp_path):
  with writer(tmp_path) as out:
    with pytest.raises(ValueError, match=r"'loss'.*shape \(2,\)"):
      out.write(0, {'loss': np.zeros(2)})
    with pytest.raises(ValueError, match="'why'"):
      out.write(0, {'why': 'because'})
    with pytest.raises(ValueError, match="'step'"):
      out.write(0, {'step': 3})


def test_line_on_stdout(tmp_path, capsys):
  with writer(tmp_path, stdout=True) as out:
    out.write(12, {'loss': 0.25, 'reward/mean': 0.5, 'obscure': 1.0})
  assert capsys.readouterr().out == 'step 12 | reward 0.5 | loss 0.25\n'


def test_tensorboard_events_are_written(tmp_path):
  with writer(tmp_path, tensorboard=True) as out:
    out.write(1, {'loss': 0.5})
  assert list(tmp_path.glob('events.out.tfevents*'))


def test_a_resumed_run_goes_on_in_its_own_wandb_run(tmp_path, monkeypatch):
  begun = []

  def init(**settings):
    begun.append(settings)
    name = settings.get('id', f'run{len(begun)}')
    return types.SimpleNamespace(
      id=name, log=lambda *_, **__: None, finish=lambda: None
    )

  monkeypatch.setitem(sys.modules, 'wandb', types.SimpleNamespace(init=init))
  for resumed in (True, True, False, True):
    with writer(tmp_path, wandb={'project': 'x'}, resumed=resumed) as out:
      out.write(1, {'loss': 0.5})
  asked = [settings.get('id') for settings in begun]
  # A workdir's first run, and one that begins anew there, are new ones.
  assert asked == [None, 'run1', None, 'run3']
  assert begun[1]['resume'] == 'allow' and 'resume' not in begun[2]
  assert all(settings['project'] == 'x' for settings in begun)


def test_without_the_extras(tmp_path, monkeypatch, caplog):
  monkeypatch.setitem(sys.modules, 'tensorboardX', None)
  monkeypatch.setitem(sys.modules, 'wandb', None)
  said = []
  monkeypatch.setattr(
    metrics.logging, 'warning', lambda f, *a: said.append(f % a)
  )
  with writer(tmp_path, tensorboard=True) as out:
    out.write(1, {'loss': 0.5})
    out.write(2, {'loss': 0.5})
  assert len(said) == 1 and 'tandem-rl[tensorboard]' in said[0]
  with pytest.raises(ValueError, match=r'tandem-rl\[wandb\]'):
    writer(tmp_path, wandb={'project': 'x'})

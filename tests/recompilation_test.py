"""After its first steps a run compiles nothing, however long its texts are."""

import dataclasses

import jax
import pytest

from tests import small_run

# So many ids end a response that lengths differ from step to step.
EOS = tuple(range(0, 398, 2))


@pytest.fixture
def compiled():
  """A list that grows by the name of every program compiled."""
  from jax._src import monitoring

  names = []

  def listen(event, seconds, **more):
    del seconds
    if event == '/jax/core/compile/backend_compile_duration':
      names.append(more.get('fun_name', '?'))

  jax.monitoring.register_event_duration_secs_listener(listen)
  yield names
  monitoring.unregister_event_duration_listener(listen)


def steps(monkeypatch, tmp_path, names, num_steps, **values):
  """Per step of a run: programs compiled, prompt and response lengths."""
  from tandem import train
  from tandem.rewards import verifier
  from tandem.training import collect

  rolled_out = collect.Collector.__call__
  marks, lengths = [], []

  def call(collector, *args, **kwargs):
    marks.append(len(names))
    collector = dataclasses.replace(collector, eos_ids=EOS)
    got = rolled_out(collector, *args, **kwargs)
    lengths.append((got.lengths.max(), got.rollout.lengths.max()))
    return got

  monkeypatch.setattr(collect.Collector, '__call__', call)
  monkeypatch.setattr(verifier.Verifier, 'grade', small_run._graded_by_length)
  train.run(small_run.config(num_steps=num_steps, **values), tmp_path)
  marks.append(len(names))
  found = [names[a:b] for a, b in zip(marks, marks[1:])]
  assert len(found) == num_steps
  return found, lengths


@pytest.mark.parametrize(
  'decoder', ['lockstep', pytest.param('speculative', marks=pytest.mark.slow)]
)
def test_no_step_but_the_first_compiles(
  monkeypatch, tmp_path, compiled, decoder
):
  found, lengths = steps(
    monkeypatch, tmp_path, compiled, 5, **{'rollout.decoder': decoder}
  )
  for longest in zip(*lengths):  # of prompts, of responses
    assert len(set(longest)) > 1, lengths
  assert found[0] and not any(found[1:]), found


def test_another_shape_would_be_seen(monkeypatch, tmp_path, compiled):
  found, lengths = steps(
    monkeypatch, tmp_path, compiled, 2, **{'rollout.prompt_bucket': 1}
  )
  (first, _), (second, _) = lengths
  assert first != second
  assert {'jit(lockstep)', 'jit(update)'} <= set(found[1])

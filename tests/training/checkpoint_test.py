"""Checkpoints: resume, other meshes, damage, and a real kill -9 (CASES 26)."""

import os
import pathlib
import signal
import subprocess
import sys
import threading

import jax
import jax.numpy as jnp
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P
import numpy as np
import pytest

from tandem import types
from tandem.training import checkpoint
from tandem.training import integrity
from tandem.training import mesh as meshes
from tandem.training import optimizer
from tandem.training import sharding


def make_state(scale=1.0):
  params = {
    'embed': scale * jnp.arange(64, dtype=jnp.float32).reshape(16, 4),
    'layers': {'gate': jnp.ones((2, 4, 8)) * scale},
  }
  tx = optimizer.make_optimizer(0.1, mu_dtype='bfloat16')
  return types.TrainState(
    params=params,
    opt_state=tx.init(params),
    # A controller's, as CRAFT has it.
    loss_state={'rho': jnp.float32(0.25 * scale), 'steps': jnp.int32(scale)},
    skipped=jnp.int32(scale),
  )


def on_mesh(mesh):
  shapes = jax.eval_shape(make_state)
  return sharding.with_shardings(shapes, sharding.shardings_for(shapes, mesh))


def assert_same(got, want):
  assert jax.tree.structure(got) == jax.tree.structure(want)
  jax.tree.map(np.testing.assert_array_equal, got, want)
  dtypes = lambda tree: [x.dtype for x in jax.tree.leaves(tree)]
  assert dtypes(got) == dtypes(want)


@pytest.fixture
def warnings_said(monkeypatch):
  said = []
  monkeypatch.setattr(
    checkpoint.logging, 'warning', lambda f, *a: said.append(f % a)
  )
  return said


def test_from_two_devices_to_other_meshes(tmp_path):
  two = meshes.make_mesh(1, 2, 1, devices=jax.devices()[:2])
  want = make_state(3.0)
  state = jax.device_put(want, sharding.shardings_for(want, two))
  host = {'seed': 7, 'cursor': 3, 'draws': [1, 2], 'digest': 'abc'}
  with checkpoint.Checkpoints(tmp_path) as saved:
    assert saved.save(3, state, host)
  for mesh in (
    meshes.make_mesh(2, 2, 1, devices=jax.devices()[:4]),
    meshes.make_mesh(2, 2, 2),
    two,
  ):
    with checkpoint.Checkpoints(tmp_path) as again:
      got, got_host, step = again.restore_latest(on_mesh(mesh))
    assert step == 3 and got_host == host
    assert_same(got, want)
    assert got.params['embed'].sharding.mesh.shape == mesh.shape
    assert got.params['embed'].sharding.spec == P('tensor', 'fsdp')


def test_saved_means_committed_and_donation_is_safe(
  tmp_path, capsys, monkeypatch
):
  bump = jax.jit(lambda s: jax.tree.map(lambda x: x + 1, s), donate_argnums=0)
  go_on = threading.Event()
  write = integrity.write_checksums
  monkeypatch.setattr(
    integrity, 'write_checksums', lambda path: go_on.wait(20) and write(path)
  )
  state = {'x': jnp.zeros(1 << 16)}
  with checkpoint.Checkpoints(tmp_path) as saved:
    saved.save(1, state, {})
    for _ in range(3):
      state = bump(state)
    saved.poll()
    assert saved.steps() == [] and not (tmp_path / '1').exists()
    assert 'saved' not in capsys.readouterr().out
    go_on.set()
    saved.wait()
    assert saved.steps() == [1]
    assert f'saved step 1 in {tmp_path}' in capsys.readouterr().out
    assert not saved.save(1, state, {})  # there already
    got, _, _ = saved.restore_latest(jax.eval_shape(lambda: state))
  np.testing.assert_array_equal(got['x'], np.zeros(1 << 16))


def test_nothing_there_is_none(tmp_path):
  with checkpoint.Checkpoints(tmp_path / 'new') as empty:
    assert empty.restore_latest(on_mesh(meshes.make_mesh())) is None


def test_keeps_the_last_and_the_best(tmp_path):
  kwargs = dict(keep=2, best_metric='eval/x', best_mode='max')
  x = {'x': jnp.zeros(3)}
  with checkpoint.Checkpoints(tmp_path, **kwargs) as saved:
    for step, value in ((1, 0.1), (2, 0.9), (3, np.nan), (4, 0.5)):
      saved.save(step, x, {}, {'eval/x': value})
  with checkpoint.Checkpoints(tmp_path, **kwargs) as saved:
    assert saved.steps() == [2, 3, 4]
    assert saved.best_step() == 2  # remembered across a restart
    assert saved.named('best') == 2 and saved.named(4) == 4
    saved.save(5, x, {}, {'eval/x': 0.95})
    saved.save(6, x, {})
    saved.wait()
    assert saved.steps() == [5, 6] and saved.best_step() == 5
    assert saved.restore(5, jax.eval_shape(lambda: x))[1] == {}
    with pytest.raises(ValueError, match=r'no step 2; it has \[5, 6\]'):
      saved.restore(2, x)
  with (
    checkpoint.Checkpoints(tmp_path, best_metric='eval/y') as other,
    pytest.raises(ValueError, match=r"none of \[5, 6\] .*='eval/y'"),
  ):
    other.named('best')


def damage_flip(step):
  path = max(
    (p for p in step.rglob('*') if p.is_file()), key=lambda p: p.stat().st_size
  )
  content = bytearray(path.read_bytes())
  content[len(content) // 2] ^= 1  # one bit
  path.write_bytes(content)


def damage_truncate(step):
  path = next((step / 'state').rglob('d/*'))
  path.write_bytes(path.read_bytes()[:-1])


def damage_remove(step):
  (step / 'host' / 'metadata').unlink()


def damage_sums(step):
  (step / integrity.CHECKSUMS).write_text('{"state')


@pytest.mark.parametrize(
  'harm', [damage_flip, damage_truncate, damage_remove, damage_sums]
)
def test_a_broken_one_is_named_and_skipped(tmp_path, warnings_said, harm):
  x = {'x': jnp.arange(1000.0)}
  kwargs = dict(keep=3, best_metric='m')
  with checkpoint.Checkpoints(tmp_path, **kwargs) as saved:
    for step in (1, 2, 3):
      saved.save(step, {'x': x['x'] + step}, {'cursor': step}, {'m': step})
  harm(tmp_path / '3')
  with checkpoint.Checkpoints(tmp_path, **kwargs) as again:
    state, host, step = again.restore_latest(jax.eval_shape(lambda: x))
    assert (step, host) == (2, {'cursor': 2})
    np.testing.assert_array_equal(state['x'], x['x'] + 2)
    assert any('step 3 is broken' in line for line in warnings_said)
    assert again.best_step() == 2
    # History goes on over the broken step.
    assert again.save(3, x, {'cursor': 33})
    again.wait()
    assert again.best_step() == 2  # the lost step's number went with it
    assert again.restore_latest(jax.eval_shape(lambda: x))[1:] == (
      {'cursor': 33},
      3,
    )


def test_who_only_reads_changes_nothing(tmp_path, warnings_said):
  """An evaluation beside a run that is in the middle of a save."""
  x = {'x': jnp.zeros(3)}
  with checkpoint.Checkpoints(tmp_path, keep=2) as saved:
    for step in (1, 2):
      saved.save(step, x, {'cursor': step})
  damage_flip(tmp_path / '2')
  (tmp_path / f'3{checkpoint._TMP}').mkdir()  # the run's save in flight
  before = sorted(tmp_path.rglob('*'))
  with checkpoint.Checkpoints(tmp_path, read_only=True) as beside:
    got = beside.restore_latest(jax.eval_shape(lambda: x))
  assert got[1:] == ({'cursor': 1}, 1)
  assert sorted(tmp_path.rglob('*')) == before
  assert len(warnings_said) == 1 and 'step 2 is broken' in warnings_said[0]


def test_none_intact_is_an_error_not_a_fresh_start(tmp_path):
  x = {'x': jnp.zeros(3)}
  with checkpoint.Checkpoints(tmp_path) as saved:
    saved.save(1, x, {})
  damage_flip(tmp_path / '1')
  with (
    checkpoint.Checkpoints(tmp_path) as again,
    pytest.raises(ValueError, match=r'steps \[1\] and none is intact'),
  ):
    again.restore_latest(jax.eval_shape(lambda: x))


@pytest.mark.parametrize(
  'other, words',
  [
    ({'x': jnp.zeros(4)}, r'holds \(3,\) float32 as x, .*wants \(4,\)'),
    ({'x': jnp.zeros(3, jnp.bfloat16)}, 'wants .* bfloat16'),
    ({'x': jnp.zeros(3), 'y': jnp.zeros(1)}, 'holds nothing as y'),
    ({'z': jnp.zeros(3)}, r'as x, this run wants nothing'),
  ],
)
def test_another_config_is_an_error_not_a_broken_step(tmp_path, other, words):
  with checkpoint.Checkpoints(tmp_path) as saved:
    saved.save(1, {'x': jnp.zeros(3)}, {})
    with pytest.raises(ValueError, match=words):
      saved.restore_latest(jax.eval_shape(lambda: other))
    assert saved.steps() == [1]


def test_host_state_must_survive_json(tmp_path):
  with checkpoint.Checkpoints(tmp_path) as saved:
    for wrong in ({'a': (1, 2)}, {'a': {1: 2}}, {'a': np.int32(1)}):
      with pytest.raises(ValueError, match='host_state'):
        saved.save(1, {'x': jnp.zeros(3)}, wrong)


def test_typed_keys_survive(tmp_path):
  state = {'key': jax.random.key(3), 'x': jnp.zeros(2)}
  with checkpoint.Checkpoints(tmp_path) as saved:
    saved.save(1, state, {})
    got, _, _ = saved.restore_latest(state)
  assert got['key'].dtype == state['key'].dtype
  np.testing.assert_array_equal(
    jax.random.key_data(got['key']), jax.random.key_data(state['key'])
  )


CHILD = """
import time
import jax.numpy as jnp
from tandem.training import checkpoint
from tandem.training import integrity

saved = checkpoint.Checkpoints({directory!r})
saved.save(3, {{'x': jnp.arange(8.0)}}, {{'cursor': 3}})
saved.wait()

def stall(directory):
  print('writing', directory.name, flush=True)
  time.sleep(600)

integrity.write_checksums = stall  # all is written, the rename is not done
saved.save(6, {{'x': jnp.ones(8)}}, {{'cursor': 6}})
saved.wait()
"""


def test_kill_during_a_save(tmp_path, warnings_said):
  child = subprocess.Popen(
    [sys.executable, '-c', CHILD.format(directory=str(tmp_path))],
    stdout=subprocess.PIPE,
    text=True,
    cwd=pathlib.Path(checkpoint.__file__).parents[2],
    env={**os.environ, 'JAX_PLATFORMS': 'cpu'},
  )
  said = []
  for line in child.stdout:
    said.append(line)
    if line.startswith('writing 6'):
      break
  child.send_signal(signal.SIGKILL)
  child.wait()
  child.stdout.close()
  assert any(line.startswith('saved step 3') for line in said)
  assert not any(line.startswith('saved step 6') for line in said)
  shape = {'x': jax.ShapeDtypeStruct((8,), jnp.float32)}
  with checkpoint.Checkpoints(tmp_path) as again:
    state, host, step = again.restore_latest(shape)
  assert (step, host) == (3, {'cursor': 3})
  np.testing.assert_array_equal(state['x'], np.arange(8.0))
  dropped = [line for line in warnings_said if 'half written' in line]
  assert len(dropped) == 1 and 'step 6' in dropped[0]
  assert not list(tmp_path.glob('*tmp*'))


def test_frozen_weights_are_stored_once(tmp_path):
  params = {'embed': jnp.arange(6.0)}
  abstract = jax.eval_shape(lambda: params)
  assert checkpoint.load_frozen(tmp_path / 'junior', abstract) is None
  assert checkpoint.save_frozen(tmp_path / 'junior', params, {'from': 'x'})
  assert not checkpoint.save_frozen(tmp_path / 'junior', {'embed': jnp.ones(6)})
  mesh = meshes.make_mesh(8, 1, 1)
  place = {'embed': NamedSharding(mesh, P())}
  got, host = checkpoint.load_frozen(
    tmp_path / 'junior', sharding.with_shardings(abstract, place)
  )
  np.testing.assert_array_equal(got['embed'], params['embed'])
  assert host == {'from': 'x'}


def test_reading_frozen_weights_disturbs_no_save_of_them(
  tmp_path, warnings_said
):
  params = {'embed': jnp.arange(6.0)}
  abstract = jax.eval_shape(lambda: params)
  half = tmp_path / f'0{checkpoint._TMP}'
  half.mkdir()
  assert checkpoint.load_frozen(tmp_path, abstract) is None
  assert half.exists() and not warnings_said
  assert checkpoint.save_frozen(tmp_path, params)  # whose own remains go
  assert not half.exists()
  damage_flip(tmp_path / '0')
  # Damaged ones are an error each time: others made anew would be another
  # junior in the middle of a run.
  for _ in range(2):
    with pytest.raises(ValueError, match=r'steps \[0\] and none is intact'):
      checkpoint.load_frozen(tmp_path, abstract)

"""Checkpoints: atomic, asynchronous, and only the intact ones are believed.

A step is a directory that appears by one rename when everything in it is
written, checksums of all its files included; before that it has a temporary
name. So whatever the moment of a kill, the newest directory with a plain name
is whole, and a file damaged afterwards is noticed and its step passed over
(Orbax alone restores flipped bytes without a word).

Trees are stored flat, leaf by path, so that neither optax's tuples nor empty
nodes matter to the format, and restored into the shape and the shardings of
whoever asks: another number of devices, another mesh.
"""

from collections.abc import Mapping
import json
import math
import pathlib
import shutil

from absl import logging
import jax
from jax.experimental import multihost_utils
import numpy as np
import orbax.checkpoint as ocp

from tandem.training import flat_state
from tandem.training import integrity

_TMP = '.orbax-checkpoint-tmp'


class _Keep:
  """Orbax's retention rule: the last `keep`, and the best one by metric."""

  def __init__(self, keep: int, sign: int):
    self.keep = keep
    self.sign = sign
    self.values: dict[int, float] = {}

  def best(self, steps) -> int | None:
    known = [step for step in steps if step in self.values]
    key = lambda step: (self.sign * self.values[step], step)
    return max(known, key=key, default=None)

  def should_preserve(self, checkpoints, *, context):
    del context
    steps = [info.step for info in checkpoints]
    kept = {*sorted(steps)[-self.keep :], self.best(steps)}
    return [step in kept for step in steps]


class Checkpoints:
  """The checkpoints of one run, in one directory.

  Use as a context: leaving it waits for the save in flight. `poll` is to be
  called once a step: it prints 'saved' for a save that has been committed
  since, and raises what went wrong in the background.
  """

  def __init__(
    self,
    directory,
    *,
    keep: int = 2,
    best_metric: str | None = None,
    best_mode: str = 'max',
    read_only: bool = False,
  ):
    """Opens the directory; half-written steps are named in the log and removed.

    Args:
      directory: made if absent.
      keep: how many of the newest steps stay.
      best_metric: name in `metrics` of `save`; the best step by it stays too.
      best_mode: 'max' or 'min'.
      read_only: leaves everything there as it is, for whoever looks on while a
        run saves into the directory: what is half written is that run's.

    Raises:
      ValueError: keep is not positive, or an unknown best_mode.
    """
    if keep < 1:
      raise ValueError(f'checkpoint.keep={keep} must be at least 1.')
    if best_mode not in ('max', 'min'):
      raise ValueError(f"best_mode={best_mode!r}; the legal: 'max', 'min'.")
    self.directory = pathlib.Path(directory).absolute()
    self._best_metric = best_metric
    self._lead = jax.process_index() == 0
    self._read_only = read_only
    self._pending: int | None = None
    self._policy = _Keep(keep, 1 if best_mode == 'max' else -1)
    if self._lead:
      self.directory.mkdir(parents=True, exist_ok=True)
      if not read_only:
        self._drop_half_written()
    if jax.process_count() > 1:
      multihost_utils.sync_global_devices('checkpoints opened')
    self._manager = ocp.CheckpointManager(
      self.directory,
      options=ocp.CheckpointManagerOptions(
        preservation_policy=self._policy,
        async_options=ocp.options.AsyncOptions(
          post_finalization_callback=self._before_commit
        ),
      ),
      item_handlers={
        'state': ocp.StandardCheckpointHandler(),
        'host': ocp.JsonCheckpointHandler(),
      },
    )
    for step in self.steps() if best_metric else ():
      value = self._metric(self._read_host(step).get('metrics', {}))
      if value is not None:
        self._policy.values[step] = value

  def steps(self) -> list[int]:
    """Committed steps, oldest first."""
    self.poll()
    # Orbax lists a step from the moment its save begins.
    return sorted({*self._manager.all_steps()} - {self._pending})

  def best_step(self) -> int | None:
    """The committed step with the best metric, if any has one."""
    return self._policy.best(self.steps())

  def named(self, step: int | str) -> int:
    """A step as commands name it: its number, or 'best' by the metric.

    Raises:
      ValueError: 'best' where no committed step has the metric.
    """
    if step != 'best':
      return int(step)
    best = self.best_step()
    if best is None:
      raise ValueError(
        f'no best step in {self.directory}: none of {self.steps()} was saved '
        f'with checkpoint.best_metric={self._best_metric!r}, which only steps '
        'have that are evaluated and saved; give a number, or leave --step out '
        'for the newest.'
      )
    return best

  def save(
    self,
    step: int,
    state,
    host_state: Mapping,
    metrics: Mapping | None = None,
  ) -> bool:
    """Starts a save and returns once the arrays may be donated.

    Args:
      step: steps done; a step that is saved already is left alone.
      state: tree of arrays. Better no typed keys in it (seed and counters in
        host_state say the same), but they survive.
      host_state: what JSON holds exactly: data position, draw counters.
      metrics: numbers of this step, of which `best_metric` is read.

    Returns:
      False if the step was there already.

    Raises:
      ValueError: host_state is not the same after a turn through JSON.
    """
    host = {'host_state': dict(host_state), 'metrics': {}}
    try:
      same = json.loads(json.dumps(host, allow_nan=False)) == host
    except (TypeError, ValueError) as error:
      raise ValueError(f'host_state is not JSON: {error}.') from error
    if not same:
      raise ValueError(
        'host_state changes on its way through JSON; use lists, not tuples, '
        f'and string keys. Got {dict(host_state)}.'
      )
    self.wait()
    if step in self.steps():
      return False
    value = self._metric(metrics or {})
    if value is not None:
      host['metrics'] = {self._best_metric: value}
      self._policy.values[step] = value
    self._pending = step
    self._manager.save(
      step,
      args=ocp.args.Composite(
        state=ocp.args.StandardSave(flat_state.stored(state)),
        host=ocp.args.JsonSave(host),
      ),
      force=True,
    )
    return True

  def poll(self) -> None:
    """Prints 'saved' if the save in flight has been committed by now."""
    if self._pending is None or self._manager.is_saving_in_progress():
      return
    self._manager.check_for_errors()
    step, self._pending = self._pending, None
    if self._lead:
      print(f'saved step {step} in {self.directory / str(step)}', flush=True)

  def wait(self) -> None:
    """Blocks until nothing is in flight; raises what went wrong."""
    self._manager.wait_until_finished()
    self.poll()

  def close(self) -> None:
    """Waits, then frees the threads."""
    self.wait()
    self._manager.close()

  def __enter__(self):
    return self

  def __exit__(self, *_):
    self.close()

  def restore_latest(self, abstract):
    """The newest intact step; broken ones are named in the log and set aside.

    Args:
      abstract: tree of arrays or ShapeDtypeStructs with shardings, as
        `sharding.with_shardings` makes; any mesh.

    Returns:
      (state, host_state, step), or None if no step was ever committed.

    Raises:
      ValueError: the checkpoint is of another shape than asked for, or steps
        are there and not one is intact.
    """
    self.wait()
    steps = self.steps()
    for step in reversed(steps):
      why = self._damage(step)
      if not why:
        state, host = self._restore(step, abstract)
        return state, host['host_state'], step
      self._set_aside(step, why)
    if steps:
      raise ValueError(
        f'{self.directory} has checkpoints of steps {steps} and none is '
        'intact; see the log. Restore the directory, or start in a new one.'
      )
    return None

  def restore(self, step: int, abstract):
    """One named step: (state, host_state).

    Raises:
      ValueError: no such step, it is damaged, or of another shape.
    """
    self.wait()
    if step not in self.steps():
      raise ValueError(
        f'{self.directory} has no step {step}; it has {self.steps()}.'
      )
    why = self._damage(step)
    if why:
      raise ValueError(f'checkpoint of step {step} is broken: {why}.')
    state, host = self._restore(step, abstract)
    return state, host['host_state']

  def _before_commit(self) -> None:
    if self._lead:
      integrity.write_checksums(self.directory / f'{self._pending}{_TMP}')

  def _metric(self, metrics: Mapping) -> float | None:
    value = metrics.get(self._best_metric)
    return None if value is None or not math.isfinite(value) else float(value)

  def _read_host(self, step: int) -> dict:
    path = self.directory / str(step) / 'host' / 'metadata'
    try:
      return json.loads(path.read_text())
    except (OSError, ValueError):
      return {}  # restore_latest says what is wrong, if it comes to that

  def _damage(self, step: int) -> str:
    why = integrity.damage(self.directory / str(step)) if self._lead else ''
    if jax.process_count() > 1:
      bad = multihost_utils.broadcast_one_to_all(np.int32(bool(why)))
      why = why or ('process 0 found it damaged' if bad else '')
    return why

  def _set_aside(self, step: int, why: str) -> None:
    if self._read_only:
      logging.warning(
        'checkpoint of step %d is broken (%s): skipped.', step, why
      )
      return
    name = f'broken-{step}'
    logging.warning(
      'checkpoint of step %d is broken (%s): skipped, now %s.',
      step,
      why,
      self.directory / name,
    )
    if self._lead:
      shutil.rmtree(self.directory / name, ignore_errors=True)
      (self.directory / str(step)).rename(self.directory / name)
    if jax.process_count() > 1:
      multihost_utils.sync_global_devices(name)
    self._policy.values.pop(step, None)
    self._manager.reload()

  def _restore(self, step: int, abstract):
    wanted = flat_state.wanted(abstract)
    held = self._manager.item_metadata(step)['state'].tree
    for name in sorted({*wanted, *held}):
      show = lambda x: f'{tuple(x.shape)} {np.dtype(x.dtype).name}'
      want = show(wanted[name]) if name in wanted else 'nothing'
      have = show(held[name]) if name in held else 'nothing'
      if want != have:
        raise ValueError(
          f'checkpoint of step {step} in {self.directory} holds {have} as '
          f'{name}, this run wants {want}; it was written under another '
          'config. Use that config, or another workdir.'
        )
    got = self._manager.restore(
      step,
      args=ocp.args.Composite(
        state=ocp.args.StandardRestore(wanted), host=ocp.args.JsonRestore()
      ),
    )
    return flat_state.unflatten(abstract, got['state']), got['host']

  def _drop_half_written(self) -> None:
    for path in sorted(self.directory.glob(f'*{_TMP}*')):
      logging.warning(
        'checkpoint of step %s was half written when the run ended: dropped.',
        path.name.split('.')[0],
      )
      shutil.rmtree(path)


def save_frozen(directory, params, host_state: Mapping | None = None) -> bool:
  """Stores weights that never change, once; False if they are there already."""
  with Checkpoints(directory, keep=1) as checkpoints:
    return checkpoints.save(0, params, host_state or {})


def load_frozen(directory, abstract):
  """(params, host_state) as `save_frozen` stored them, or None.

  Only looks on: an evaluation may start while the run stores them.

  Raises:
    ValueError: they are damaged, or of another shape.
  """
  if not pathlib.Path(directory).exists():
    return None
  with Checkpoints(directory, keep=1, read_only=True) as checkpoints:
    found = checkpoints.restore_latest(abstract)
  return found and found[:2]

"""Where numbers go: metrics.jsonl, one line on stdout, TensorBoard, W&B.

metrics.jsonl holds one object per step with flat keys, is flushed line by line
and is cut back to the restored step on resume. JSON has no NaN: a number that
is not finite is written as null and its name is listed under `nonfinite`.
"""

from collections.abc import Mapping
import json
import math
import os
import pathlib

from absl import logging
import jax
import numpy as np

# What the line on stdout shows, in this order, where a step has it.
SHOWN = {
  'reward/mean': 'reward',
  'loss': 'loss',
  'grad_norm': 'grad',
  'rollout/senior_share': 'senior',
  'rollout/length_mean': 'length',
  'rollout/truncated': 'truncated',
  'kl/reference': 'kl',
  'rollout/tokens_per_second': 'tok/s',
  'time/rollout': 't_roll',
  'time/reward': 't_rew',
  'time/update': 't_upd',
  'eval/pass_at_1/pair': 'pair',
  'eval/pass_at_1/senior': 'senior@1',
  'eval/pass_at_1/junior': 'junior@1',
}


def _plain(name: str, value):
  """One metric as a JSON number; ValueError names what is not one."""
  array = np.asarray(value)
  # Kind V is bfloat16's.
  if array.size != 1 or array.dtype.kind not in 'biufV':
    raise ValueError(
      f'metric {name!r} must be one number, got shape {array.shape} of '
      f'{array.dtype}; reduce it first.'
    )
  if array.dtype.kind == 'b':
    return bool(array.reshape(())[()])
  if array.dtype.kind in 'iu':
    return int(array.reshape(())[()])
  return float(array.reshape(())[()])


def to_json(step: int, metrics: Mapping) -> dict:
  """The object of one line: `step` first, non-finite as null and listed.

  Raises:
    ValueError: a metric that is not one number, or one named `step` or
      `nonfinite`.
  """
  line = {'step': int(step)}
  bad = []
  for name, value in metrics.items():
    if name in ('step', 'nonfinite'):
      raise ValueError(f'{name!r} is written by the writer; rename the metric.')
    value = _plain(name, value)
    if isinstance(value, float) and not math.isfinite(value):
      bad.append(name)
      value = None
    line[name] = value
  if bad:
    line['nonfinite'] = bad
  return line


def to_line(step: int, metrics: Mapping) -> str:
  """The line on stdout: the SHOWN metrics that this step has."""
  parts = [f'step {int(step)}']
  for name, label in SHOWN.items():
    if name in metrics and metrics[name] is not None:
      parts.append(f'{label} {float(metrics[name]):.4g}')
  return ' | '.join(parts)


def read_metrics(path) -> list[dict]:
  """Objects of a metrics.jsonl; a torn last line is left out."""
  lines = pathlib.Path(path).read_bytes().split(b'\n')
  return [json.loads(line) for line in lines[:-1] if line]


class MetricWriter:
  """Writes a run's numbers; only process 0 writes.

  Attributes:
    path: metrics.jsonl.
  """

  def __init__(
    self,
    workdir,
    *,
    tensorboard=True,
    wandb=None,
    stdout=True,
    resumed=False,
  ):
    """Opens DIR/metrics.jsonl to append.

    Args:
      workdir: the run's directory; made if absent.
      tensorboard: also write events, where tensorboardX is installed.
      wandb: keyword arguments of `wandb.init`, or None for no W&B.
      stdout: print one line per step.
      resumed: go on with the W&B run that the workdir had, if it had one.

    Raises:
      ValueError: W&B was asked for and is not installed.
    """
    self.path = pathlib.Path(workdir) / 'metrics.jsonl'
    self._active = jax.process_index() == 0
    self._stdout = stdout
    self._file = self._events = self._wandb = None
    self._events_class = None
    self._purge = None
    if not self._active:
      return
    if wandb is not None:
      self._wandb = _start_wandb(self.path.parent, wandb, resumed)
    if tensorboard:
      self._events_class = _find_tensorboard()
    self.path.parent.mkdir(parents=True, exist_ok=True)
    self.cut_back(None)

  def cut_back(self, step: int | None) -> int:
    """Drops lines after `step` (None: only a torn last line), atomically.

    Returns:
      How many lines were dropped.
    """
    if not self._active:
      return 0
    if self._file:
      self._file.close()
    content = self.path.read_bytes() if self.path.exists() else b''
    *whole, torn = content.split(b'\n')
    kept = [
      line
      for line in whole
      if line and (step is None or json.loads(line)['step'] <= step)
    ]
    dropped = len([line for line in whole if line]) - len(kept)
    if torn:
      dropped += 1
      logging.warning('%s: the torn last line was dropped.', self.path)
    if dropped:
      new = self.path.with_suffix('.jsonl.new')
      new.write_bytes(b''.join(line + b'\n' for line in kept))
      os.replace(new, self.path)
      logging.info('%s: %d lines dropped on resume.', self.path, dropped)
    self._file = open(self.path, 'a', encoding='utf-8')  # noqa: SIM115
    if step is not None:
      self._purge = step + 1  # events after the restored step are void
    return dropped

  def write(self, step: int, metrics: Mapping) -> None:
    """Appends one step: flat names to single numbers (None: no number)."""
    if not self._active:
      return
    given = {name: v for name, v in metrics.items() if v is not None}
    line = to_json(step, given)
    line.update({name: None for name in metrics if name not in given})
    self._file.write(json.dumps(line, allow_nan=False) + '\n')
    self._file.flush()
    if self._stdout:
      print(to_line(step, line), flush=True)
    numbers = {
      name: value
      for name, value in line.items()
      if value is not None and name not in ('step', 'nonfinite')
    }
    if self._events_class is not None:
      if self._events is None:
        self._events = self._events_class(
          str(self.path.parent), purge_step=self._purge
        )
      for name, value in numbers.items():
        self._events.add_scalar(name, value, int(step))
    if self._wandb is not None:
      self._wandb.log(numbers, step=int(step))

  def close(self) -> None:
    """Flushes and closes everything."""
    for part in (self._file, self._events):
      if part is not None:
        part.close()
    if self._wandb is not None:
      self._wandb.finish()
    self._file = self._events = self._wandb = None

  def __enter__(self):
    return self

  def __exit__(self, *_):
    self.close()


def _find_tensorboard():
  try:
    import tensorboardX
  except ImportError:
    logging.warning(
      "TensorBoard events are off: pip install 'tandem-rl[tensorboard]'."
    )
    return None
  return tensorboardX.SummaryWriter


def _start_wandb(workdir: pathlib.Path, settings: Mapping, resumed: bool):
  """A W&B run; the workdir remembers which.

  Steps that were logged there and lost here are made again and equal; W&B
  keeps the first and drops what is logged for a step twice.
  """
  try:
    import wandb
  except ImportError as error:
    raise ValueError(
      'W&B was asked for and is not installed; pip install '
      "'tandem-rl[wandb]', or set log.wandb_project=''."
    ) from error
  told = workdir / 'wandb_run.txt'
  if resumed and told.exists():
    settings = {'id': told.read_text(), 'resume': 'allow', **settings}
  workdir.mkdir(parents=True, exist_ok=True)
  run = wandb.init(dir=str(workdir), **settings)
  told.write_text(run.id)
  return run

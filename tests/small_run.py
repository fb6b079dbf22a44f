"""A whole run in seconds, in a process of its own, ended as a test says.

  python -m tests.small_run WORKDIR '{"num_steps": 6}' '["kill_in_rollout", 3]'

The third argument is one of kill_in_rollout, kill_in_save, terminate with a
step; ["evaluate"] evaluates the run instead; null lets it run to its end.

Everything is the trainer's own but the grading: a model this small never
answers, so that rewards follow from the text's length, or no gradient would
flow.
"""

import json
import os
import pathlib
import signal
import subprocess
import sys

ROOT = pathlib.Path(__file__).parents[1]

# On top of quickstart:tiny. Evaluation has the shapes of training, so that
# one program serves both.
SMALL = {
  'warm_start.enable': False,
  'model.dim': 16,
  'model.num_heads': 2,
  'model.num_kv_heads': 1,
  'model.hidden': 16,
  'rollout.max_response': 8,
  'optimizer.learning_rate': 1e-2,
  'eval.every_steps': 0,
  'eval.prompts': 2,
  'eval.samples': 4,
  'data.held_out': 2,
  'reward.workers': 1,
  'log.tensorboard': False,
}
# Numbers that two equal runs differ in.
CLOCK = ('time/', 'rollout/tokens_per_second')


def config(**values):
  """The small config, with further values by dotted key."""
  from configs import quickstart

  out = quickstart.get_config('tiny').lock()
  out.update_from_flattened_dict({**SMALL, **values})
  return out


def environment(cache, devices=1) -> dict[str, str]:
  """For a child: this process's, a compilation cache, so many devices."""
  return {
    **os.environ,
    'PYTHONPATH': str(ROOT),
    'JAX_NUM_CPU_DEVICES': str(devices),
    'JAX_COMPILATION_CACHE_DIR': str(cache),
    'JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS': '0',
    'JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES': '-1',
  }


def start(workdir, cache, values, end=None, *, devices=1, arguments=()):
  """The child process, its output piped."""
  return subprocess.Popen(
    [
      *(sys.executable, '-m', 'tests.small_run', str(workdir)),
      *(json.dumps(values), json.dumps(end), *arguments),
    ],
    cwd=ROOT,
    env=environment(cache, devices),
    stdout=subprocess.PIPE,
    stderr=subprocess.STDOUT,
    text=True,
  )


def run(workdir, cache, values, end=None, **options) -> tuple[int, str]:
  """(exit status, output) of a child."""
  child = start(workdir, cache, values, end, **options)
  output, _ = child.communicate(timeout=300)
  return child.returncode, output


def metrics(workdir) -> list[dict]:
  """Lines of metrics.jsonl without the clock's."""
  lines = (pathlib.Path(workdir) / 'metrics.jsonl').read_text().splitlines()
  return [
    {k: v for k, v in json.loads(line).items() if not k.startswith(CLOCK)}
    for line in lines
  ]


def _graded_by_length(verifier, golds, responses, questions=None):
  from tandem import types

  del verifier, golds, questions
  return [
    types.Verdict(float(len(text) % 2), 'equal' if len(text) % 2 else 'no_box')
    for text in responses
  ]


def _end_at(kind: str, when: int) -> None:
  """Arranges for the process to be killed, or asked to leave, at a point."""
  from tandem.training import checkpoint
  from tandem.training import collect

  opened = []
  own = checkpoint.Checkpoints

  class Watched(own):
    def __init__(self, *args, **kwargs):
      super().__init__(*args, **kwargs)
      opened.append(self)

    def _before_commit(self):
      if kind == 'kill_in_save' and self._pending == when:
        os.kill(os.getpid(), signal.SIGKILL)
      super()._before_commit()

  checkpoint.Checkpoints = Watched
  rolled_out = collect.Collector.__call__

  def call(collector, *args, purpose, step, **kwargs):
    if purpose == 'train' and step == when:
      if kind == 'kill_in_rollout':
        opened[-1].wait()  # what was saved before is committed
        os.kill(os.getpid(), signal.SIGKILL)
      elif kind == 'terminate':
        os.kill(os.getpid(), signal.SIGTERM)
    return rolled_out(collector, *args, purpose=purpose, step=step, **kwargs)

  collect.Collector.__call__ = call


def main(workdir, values, end='null', coordinator='', process_id='0'):
  import jax

  if coordinator:
    jax.distributed.initialize(
      coordinator, 2, int(process_id), cluster_detection_method='deactivate'
    )
  from absl import logging

  from tandem import evaluate
  from tandem import train
  from tandem.rewards import verifier
  from tandem.training import console

  logging.use_absl_handler()
  console.quiet_libraries()
  verifier.Verifier.grade = _graded_by_length
  end, settings = json.loads(end), config(**json.loads(values))
  if end == ['evaluate']:
    evaluate.run(settings, workdir)
    return
  if end:
    _end_at(*end)
  train.run(settings, workdir)


if __name__ == '__main__':
  main(*sys.argv[1:])

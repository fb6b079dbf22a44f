r"""Evaluates a run: pass@k of the pair, the senior alone, the junior alone.

  python -m launch.evaluate --config=configs/X.py --workdir=DIR

Writes DIR/eval.json. Without a checkpoint it evaluates the initial weights.
"""

import json

from absl import app
from absl import flags
from absl import logging
from ml_collections import config_flags

from launch import multihost

_CONFIG = config_flags.DEFINE_config_file(
  'config', None, 'configs/NAME.py, or configs/NAME.py:ARG', lock_config=True
)
_WORKDIR = flags.DEFINE_string('workdir', None, 'Directory of the run.')
_STEP = flags.DEFINE_integer('step', None, 'A saved step; the newest if unset.')


def main(argv):
  if len(argv) > 1:
    raise app.UsageError(f'unexpected arguments {argv[1:]}; use --flags.')
  from tandem import evaluate
  from tandem.training import console

  console.quiet_libraries()
  try:
    multihost.join()
    out = evaluate.run(_CONFIG.value, _WORKDIR.value, step=_STEP.value)
  except ValueError as error:
    if logging.vlog_is_on(1):
      raise
    raise SystemExit(f'error: {error}') from error
  print(json.dumps(out, indent=2))


if __name__ == '__main__':
  flags.mark_flags_as_required(['config', 'workdir'])
  app.run(main)

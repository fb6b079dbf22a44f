r"""Evaluates a run: pass@k of the pair, the senior alone, the junior alone.

  python -m launch.evaluate --config=configs/X.py --workdir=DIR

Writes DIR/eval.json. Without a checkpoint it evaluates the initial weights.
"""

import json

from absl import flags
from ml_collections import config_flags

from launch import command
from launch import multihost
from launch import saved_step

_CONFIG = config_flags.DEFINE_config_file(
  'config', None, 'configs/NAME.py, or configs/NAME.py:ARG', lock_config=True
)
_WORKDIR = flags.DEFINE_string('workdir', None, 'Directory of the run.')
flags.adopt_module_key_flags(multihost)
flags.adopt_module_key_flags(saved_step)


def main():
  multihost.join()
  from tandem import evaluate
  from tandem.training import console

  console.quiet_libraries()
  out = evaluate.run(_CONFIG.value, _WORKDIR.value, step=saved_step.STEP.value)
  print(json.dumps(out, indent=2))


if __name__ == '__main__':
  command.run(main, 'config', 'workdir')

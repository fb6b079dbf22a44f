"""Any checkpoint to a Hugging Face directory.

  python -m launch.convert --source=PATH_OR_ID --target=DIR

The source is the workdir of a run (its newest checkpoint, or --step), a
directory of safetensors, a .gguf file (needs the extra `gguf`), a hub id or a
preset's name. The target, which must be empty, is read by transformers and by
every command here.
"""

import os
import pathlib
import sys
import time

# Weights only pass through: an accelerator has no part in it.
os.environ.setdefault('JAX_PLATFORMS', 'cpu')

from absl import app
from absl import flags
from absl import logging

from launch import saved_step
from tandem.models import weights
from tandem.text import tokenizer as tokenizer_lib
from tandem.training import console
from tandem.training import export

_SOURCE = flags.DEFINE_string(
  'source', None, 'Run, directory, .gguf file, hub id or preset.', required=True
)
_TARGET = flags.DEFINE_string(
  'target', None, 'New or empty directory.', required=True
)
_DTYPE = flags.DEFINE_enum(
  'dtype', 'bfloat16', weights.DTYPES, 'Of the weights in the target.'
)
flags.adopt_module_key_flags(saved_step)


def read():
  """(params, their config, the tokenizer) of --source."""
  if export.is_run(_SOURCE.value):
    return export.trained(_SOURCE.value, saved_step.STEP.value)
  if saved_step.STEP.value is not None:
    raise ValueError('--step belongs to the workdir of a run; leave it out.')
  source = weights.resolve(_SOURCE.value)
  cfg = weights.load_config(source)
  # A directory's tokenizer files are copied as they are; a GGUF has none.
  tokenizer = source if source.is_dir() else tokenizer_lib.load(source)
  params = weights.load_params(source, cfg, dtype=_DTYPE.value, progress=True)
  return params, cfg, tokenizer


def main(argv):
  if len(argv) > 1:
    raise app.UsageError(f'unknown arguments {argv[1:]}; flags start with --.')
  target = pathlib.Path(_TARGET.value)
  if target.exists() and (not target.is_dir() or any(target.iterdir())):
    sys.exit(
      f'--target={target} exists and is not an empty directory; nothing is '
      'overwritten, so give another one.'
    )
  start = time.time()
  try:
    params, cfg, tokenizer = read()
    logging.info('writing %s: %s', target, cfg)
    weights.save_params(
      target, params, cfg, tokenizer, _DTYPE.value, progress=True
    )
  except (ValueError, ImportError) as error:
    sys.exit(str(error))
  if not (target / 'tokenizer.json').exists():
    logging.warning('the source has no tokenizer.json, so the target has none')
  logging.info('done in %.0f s', time.time() - start)


if __name__ == '__main__':
  app.call_after_init(console.quiet_libraries)
  app.run(main)

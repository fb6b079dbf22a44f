r"""Trains: python -m launch.train --config=configs/X.py[:arg] --workdir=DIR.

Any key of the config can be set: --config.rollout.group=16. Started again with
the same workdir, a run goes on from its newest intact checkpoint.
"""

from absl import app
from absl import flags
from absl import logging
from ml_collections import config_flags

from launch import multihost

_CONFIG = config_flags.DEFINE_config_file(
  'config', None, 'configs/NAME.py, or configs/NAME.py:ARG', lock_config=True
)
_WORKDIR = flags.DEFINE_string('workdir', None, 'Directory of the run.')
_PROFILE = flags.DEFINE_string(
  'profile_steps', '', 'Steps to profile, as 10-12; into WORKDIR/profile.'
)


def main(argv):
  if len(argv) > 1:
    raise app.UsageError(f'unexpected arguments {argv[1:]}; use --flags.')
  from tandem import train
  from tandem.training import console

  config = _CONFIG.value
  if _PROFILE.value:
    config.log.profile_steps = _PROFILE.value
  console.quiet_libraries()
  try:
    multihost.join()
    train.run(config, _WORKDIR.value)
  except ValueError as error:
    # Bad input is told in a paragraph; the trace helps whoever debugs.
    if logging.vlog_is_on(1):
      raise
    raise SystemExit(f'error: {error}') from error


if __name__ == '__main__':
  flags.mark_flags_as_required(['config', 'workdir'])
  app.run(main)

r"""Trains: python -m launch.train --config=configs/X.py[:arg] --workdir=DIR.

Any key of the config can be set: --config.rollout.group=16. Started again with
the same workdir, a run goes on from its newest intact checkpoint.
"""

from absl import flags
from ml_collections import config_flags

from launch import command
from launch import multihost

_CONFIG = config_flags.DEFINE_config_file(
  'config', None, 'configs/NAME.py, or configs/NAME.py:ARG', lock_config=True
)
_WORKDIR = flags.DEFINE_string('workdir', None, 'Directory of the run.')
_PROFILE = flags.DEFINE_string(
  'profile_steps', '', 'Steps to profile, as 10-12; into WORKDIR/profile.'
)
flags.adopt_module_key_flags(multihost)


def main():
  multihost.join()
  from tandem import train
  from tandem.training import console

  config = _CONFIG.value
  if _PROFILE.value:
    config.log.profile_steps = _PROFILE.value
  console.quiet_libraries()
  train.run(config, _WORKDIR.value)


if __name__ == '__main__':
  command.run(main, 'config', 'workdir')

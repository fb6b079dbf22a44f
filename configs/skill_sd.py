r"""Skill-SD: GRPO with an importance-weighted k3 to the privileged teacher.

  python -m launch.train --config=configs/skill_sd.py --workdir=runs/skill_sd

Weight .001, as SDAR's release launches it (its class has .1:
--config.loss.skill_coef=0.1).

Task, data, hardware: as configs/sdar.py.
Time and numbers: not run here; the papers' are of their environments.
`:tiny` runs two steps of a random model of this family, with no download.
"""

from configs import common
from configs import sdar


def get_config(arg=None):
  args = common.parse_arg(arg, tiny=False)
  config = sdar.ground(tiny=args.tiny)
  config.loss.variant, config.loss.skill_coef = 'skill_sd', 0.001
  return config

r"""RLSD: the privileged gap re-weights GRPO's advantage, less and less.

  python -m launch.train --config=configs/rlsd.py --workdir=runs/rlsd

Weights clipped to 1 +- .2, mixed in by half at first and not at all from step
100 on, as SDAR's release launches it (its class has 50:
--config.loss.mix_steps=50).

Task, data, hardware: as configs/sdar.py.
Time and numbers: not run here; the papers' are of their environments.
`:tiny` runs two steps of a random model of this family, with no download.
"""

from configs import common
from configs import sdar


def get_config(arg=None):
  args = common.parse_arg(arg, tiny=False)
  config = sdar.ground(tiny=args.tiny)
  loss = config.loss
  loss.variant = 'rlsd'
  loss.weight_clip, loss.mix_start, loss.mix_steps = 0.2, 0.5, 100
  return config

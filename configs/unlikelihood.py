r"""Unlikelihood: GRPO, and -log(1 - p) on negative tokens.

  python -m launch.train --config=configs/unlikelihood.py --workdir=runs/unlike

Negative are the tokens that the privileged teacher likes less, at weight .01.

  :row    the tokens of wrong rows instead; no teacher

Task, data, hardware: as configs/sdar.py.
Time and numbers: not run here; the weight is ours, no paper gives one here.
`:tiny` runs two steps of a random model of this family, with no download.
"""

from configs import common
from configs import sdar


def get_config(arg=None):
  args = common.parse_arg(arg, tiny=False, row=False)
  config = sdar.ground(tiny=args.tiny)
  loss = config.loss
  loss.variant, loss.unlikelihood_coef = 'unlikelihood', 0.01
  if args.row:
    loss.negatives, loss.positive_reward = 'row', 0.5
    config.privileged.kind, config.privileged.max_tokens = 'none', 0
  return config

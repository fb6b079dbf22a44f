r"""CRINGE: negative tokens lose to a contrast; three baselines.

  python -m launch.train --config=configs/cringe.py --workdir=runs/cringe

  (none)       whole rows, told apart by reward: likelihood of the right ones,
               CRINGE on the wrong ones; no policy term, no teacher. At ParlAI's
               weight of 1, which unlearns the quickstart's task: see
               tandem/losses/cringe.py and set --config.loss.cringe_coef
  :token       GRPO, and CRINGE on the tokens that the privileged teacher likes
               less, at .01
  :adaptive    the same under CRAFT's controller (a reconstruction: CRAFT's
               paper compares with it and gives no formula)

--config.loss.contrast=teacher takes log-probs for the logits.

Task, data, hardware: as configs/sdar.py.
Time and numbers: not run here; the papers' are of their environments.
`:tiny` runs two steps of a random model of this family, with no download.
"""

from configs import common
from configs import sdar


def get_config(arg=None):
  args = common.parse_arg(arg, tiny=False, token=False, adaptive=False)
  kind = common.chosen(args, ('token', 'adaptive'))
  config = sdar.ground(tiny=args.tiny)
  loss = config.loss
  if kind:
    loss.variant = f'{kind}_cringe'
    return config
  loss.variant, loss.cringe_coef, loss.positive_reward = 'cringe', 1.0, 0.5
  loss.eps_low = loss.eps_high = None  # of a policy term, which it has not
  config.privileged.kind, config.privileged.max_tokens = 'none', 0
  return config

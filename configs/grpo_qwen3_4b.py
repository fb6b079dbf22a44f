r"""GRPO of Qwen3-4B-Instruct-2507 alone: the baselines of tandem RL.

  python -m launch.train --config=configs/grpo_qwen3_4b.py --workdir=runs/grpo

All else as in trl_qwen3_4b.py (data, hardware, what to change on GPUs), so that
a difference between the two runs is the pair's. Variants:

  :g16               16 responses a prompt: the rollout compute of the pair
  :kl_reg,beta=0.001 a k3 penalty to the initial weights. The paper does not
                     say which beta it used, so there is no default.
  :dr_grpo           no division by the deviation, sums over a constant length
  :dapo              clip-higher, punished length, dynamic sampling
  :gspo              one ratio per response
  :cispo             clipped weights, no minimum

The last four are settings of the same loss (configs/common.py: grpo_line), put
on this run's model and data; their papers' were others.

Hardware: a TPU v5p-8, as trl_qwen3_4b.py says.
Time and numbers: not run here. The paper takes the checkpoint of step 200 (7.8
hours on 2 x A100-80GB).
`:tiny` runs two steps of a random model of this family, with no download; it
joins the others, as in :kl_reg,beta=0.001,tiny.
"""

from configs import common
from configs import trl_qwen3_4b


def get_config(arg=None):
  args = common.parse_arg(
    arg,
    tiny=False,
    g16=False,
    kl_reg=False,
    beta=0.0,
    **dict.fromkeys(common.GRPO_LINE, False),
  )
  if args.kl_reg != (args.beta > 0):
    raise ValueError(
      f'kl_reg={args.kl_reg} with beta={args.beta}: the penalty needs its '
      'coefficient and the coefficient its penalty; write :kl_reg,beta=0.001.'
    )
  config = trl_qwen3_4b.get_config()
  config.rollout.mode = 'solo'
  config.loss.variant = 'grpo'
  config.eval.models = ('senior',)
  config.checkpoint.best_metric = 'eval/pass_at_1/senior'
  if args.kl_reg:
    config.loss.kl_to = 'reference'
    config.loss.kl_coef = args.beta
    config.loss.kl_estimator = 'k3'
  if args.tiny:
    common.shrink(config)
  if args.g16:
    config.rollout.group = 16
  member = common.chosen(args, common.GRPO_LINE)
  if member:
    common.grpo_line(config, member)
  return config

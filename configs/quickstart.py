"""Tandem RL on a laptop, from nothing, in minutes.

  python -m launch.train --config=configs/quickstart.py --workdir=runs/quickstart

A Qwen3-shaped model of 0.4 M parameters on a generated task (six kinds of
problem in words, two-digit answers). It first learns from an expert that slips
in a quarter of its steps; then senior and junior, both that model, write each
response together, and GRPO updates the senior.

Solo GRPO instead: --config.rollout.mode=solo.
`:tiny` runs two steps of a smaller model in seconds.
"""

from configs import common


def get_config(arg=None):
  args = common.parse_arg(arg, tiny=False)
  config = common.base()
  config.num_steps = 60
  config.model.tokenizer = 'quickstart'
  config.data.kind = 'quickstart'
  config.data.size, config.data.held_out = 4096, 512
  config.data.instruction = ''
  rollout = config.rollout
  rollout.prompts, rollout.group = 16, 8
  rollout.max_prompt, rollout.max_response = 48, 64
  config.optimizer.learning_rate = 2e-4
  config.eval.every_steps = 20
  config.eval.prompts = 128
  config.warm_start.max_steps = 1000
  config.warm_start.stop_accuracy = 0.35
  config.warm_start.band = (0.25, 0.55)
  if args.tiny:
    common.shrink(config)
    config.warm_start.max_steps = 2
    config.warm_start.rows, config.warm_start.warmup_steps = 8, 0
    config.warm_start.check_problems = 8
    config.warm_start.stop_accuracy = 0.0
    config.warm_start.band = (0.0, 1.0)
  return config

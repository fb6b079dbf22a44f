r"""Tandem RL on a laptop, from nothing, in minutes.

  python -m launch.train --config=configs/quickstart.py --workdir=runs/quickstart

A Qwen3-shaped model of 0.4 M parameters on a generated task (six kinds of
problem in words, two-digit answers). It first learns from an expert that slips
in a quarter of its steps; then senior and junior, both that model, write each
response together, and GRPO updates the senior.

Solo GRPO instead: --config.rollout.mode=solo, or `:grpo`. Other methods by name
on the same task: `:gr_opd`, `:craft`, `:sdar`, `:dapo` ... (the tuples below).
All start from the same weights, which one run makes and others take:
  python -m launch.train --config=configs/quickstart.py:craft \
    --workdir=runs/craft --config.warm_start.from_workdir=runs/quickstart
`:tiny` runs two steps of a smaller model in seconds.
"""

from configs import common

# Losses on solo rollouts, by what they ask beside the rewards.
TAUGHT = ('opd', 'gr_opd')  # a larger model, started on clean demonstrations
PRIVILEGED = (  # the policy itself, shown the worked solution
  'craft',
  'sdar',
  'rlsd',
  'skill_sd',
  'token_cringe',
  'adaptive_cringe',
  'unlikelihood',
)
PLAIN = ('grpo', 'cringe')  # the rewards alone


def get_config(arg=None):
  methods = TAUGHT + PRIVILEGED + PLAIN + common.GRPO_LINE
  args = common.parse_arg(arg, tiny=False, **dict.fromkeys(methods, False))
  config = common.base()
  config.num_steps = 100
  config.model.tokenizer = 'quickstart'
  config.data.kind = 'quickstart'
  config.data.size, config.data.held_out = 4096, 512
  config.data.instruction = ''
  rollout = config.rollout
  rollout.prompts, rollout.group = 16, 8
  rollout.max_prompt, rollout.max_response = 28, 36
  config.optimizer.learning_rate = 3e-4
  config.eval.every_steps = 20
  config.eval.prompts = 128
  warm = config.warm_start
  warm.enable = True
  warm.learning_rate = 2e-3
  warm.error_rate = 0.25
  warm.slip_accuracy = 0.4
  warm.band = (0.15, 0.45)
  if args.tiny:
    common.shrink(config)
  method = common.chosen(args, methods)
  if method:
    config.loss.variant, rollout.mode = method, 'solo'
  if method in TAUGHT:
    config.teacher.source = 'warm_start'
  if method in PRIVILEGED:
    config.privileged.kind, config.privileged.max_tokens = 'solution', 48
  if method == 'craft':
    config.loss.enable = config.loss.phase_aware = True
    config.loss.polarized_kl = True
  if method == 'cringe':
    config.loss.cringe_coef = 0.01  # at 1 it unlearns: see losses/cringe.py
  if method in common.GRPO_LINE:
    config.loss.variant = 'grpo'
    common.grpo_line(config, method)
  return config

r"""SDAR: GRPO with a gated pull towards the policy that reads the solution.

  python -m launch.train --config=configs/sdar.py --workdir=runs/sdar

Settings: SDAR's launchers (16 prompts x 8, temperature 1, k3 to the initial
weights at .01, gate 5 at .01), which CRAFT's experiments keep: learning rate
1e-6, 150 steps, one update a step. This file is also the ground of craft, rlsd,
skill_sd, cringe and unlikelihood, which differ from it in the loss alone.

  :opsd         the distillation term alone, no policy term
  :grpo_opsd    the gate held at 1/2: uniform self-imitation, as that release
                runs the baseline of this name

Task: ours, not theirs. They train in environments (ALFWorld, Search-QA,
WebShop), whose teacher reads skill texts; here it is mathematics, and the
teacher reads the worked solution before the prompt. Theirs follow with the
environments.

Data: DeepScaleR-Preview from the hub (extra `datasets`); problems without a
solution are dropped and counted. Or GSM8K, whose answers are solutions:
  --config.data.path=openai/gsm8k --config.data.subset=main \
  --config.data.problem_field=question --config.data.solution_field=answer \
  --config.data.answer_after='####'

Hardware: a TPU v5p-8 (4 chips), the 1.7 B model split over mesh.tensor=4; on
GPUs (extra `cuda13`) tensor a divisor of the 8 kv heads.
Time and numbers: not run here. The papers' are of their environments and say
nothing of this task.
`:tiny` runs two steps of a random model of this family, with no download.
"""

from configs import common


def get_config(arg=None):
  args = common.parse_arg(arg, tiny=False, opsd=False, grpo_opsd=False)
  kind = common.chosen(args, ('opsd', 'grpo_opsd'))
  config = ground(tiny=args.tiny)
  loss = config.loss
  loss.variant, loss.sdar_coef, loss.gate_beta = 'sdar', 0.01, 5.0
  if kind == 'opsd':
    loss.policy_coef = 0.0
  if kind == 'grpo_opsd':
    loss.gate_beta = 0.0
  return config


def ground(*, tiny: bool):
  """All but the loss of SDAR and of those that are compared with it."""
  config = common.base()
  config.num_steps = 150
  config.model.source = 'Qwen/Qwen3-1.7B'
  config.model.dtype = 'bfloat16'
  config.model.remat = 'block'
  config.model.attention = 'auto'
  config.mesh.tensor = 4

  config.data.kind = 'hub'
  config.data.path = 'agentica-org/DeepScaleR-Preview-Dataset'
  config.data.held_out = 1000
  config.privileged.kind, config.privileged.max_tokens = 'solution', 1024

  rollout = config.rollout
  rollout.mode = 'solo'
  rollout.prompts, rollout.group = 16, 8
  rollout.max_prompt, rollout.max_response = 1024, 3000
  rollout.prompt_bucket = 256
  rollout.dtype = 'bfloat16'

  config.loss.eps_low = config.loss.eps_high = 0.2
  config.loss.agg = 'token-mean'

  config.optimizer.learning_rate = 1e-6
  config.learner.micro_rows = 8
  config.learner.response_bucket = 1000

  config.eval.every_steps = 25
  config.eval.models = ('senior',)
  config.eval.problems, config.eval.prompts = 256, 128
  config.eval.temperature = 0.4
  config.checkpoint.every_steps = 25
  config.checkpoint.best_metric = 'eval/pass_at_1/senior'
  if tiny:
    common.shrink(config)
  return config

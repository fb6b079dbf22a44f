r"""GR-OPD: a larger teacher pays a student's responses, ranked in the group.

  python -m launch.train --config=configs/gr_opd.py --workdir=runs/gr_opd

Qwen3 throughout; `:pair=NAME` chooses student, teacher and lambda:

  b4           4B-Base    ->  1.7B-Base                        0
  i4           4B         ->  1.7B, neither thinking           .25
  i32          32B        ->  1.7B, neither thinking           .25
  i4_think     4B, reading in its think mode  ->  1.7B-Base    0
  i32_think    32B, likewise                  ->  1.7B-Base    0

A teacher that thinks reads the response under its own prompt; only the
response's tokens are aligned. gamma .99, feedback and advantage clipped at 5,
64 prompts x 8, eight updates of 64 rows a step, 221 steps: one pass. The paper's
table of optimizer settings is lost to us: 1e-6, temperature 1 and ratio bounds
of .2 are ours. Sweeps of lambda and gamma: configs/sweeps.py.

Data: open-r1/DAPO-Math-17k-Processed, its English part (14,116 prompts), from
the hub (extra `datasets`). The paper adds a system turn whose text we do not
have; here the instruction ends the user's turn. No problem is held out: the
best checkpoint is that of the greatest mean reward of a step, beside the last
one, as the paper compares them. Its evaluation is launch.evaluate with
  --config.data.kind=jsonl --config.data.path=TRAIN --config.data.eval_path=SUITE \
  --config.eval.temperature=0.6 --config.eval.top_p=0.9

Hardware: the caches of 512 responses of 28,672 tokens alone are 1.7 TB, so 32
chips of a TPU v5p (95 GB each) with mesh.data=4, mesh.tensor=8; or fewer rows
at once, by the compilers for pair=i32 (GB of a device, of what it has):
  a v5e-16 (14.5 of 16.9)   --config.rollout.slots=32 --config.mesh.tensor=8 \
                  --config.mesh.fsdp=2 --config.learner.micro_rows=2 \
                  --config.rollout.attention=pallas_tpu
  8 H200 (74 of 127)   --config.rollout.slots=128 --config.mesh.tensor=8 \
                  --config.learner.micro_rows=1
Time and numbers: not run here. The paper's macro Avg@K over six suites, plain
OPD -> GR-OPD: b4 23.3 -> 27.8, i4 34.1 -> 45.1, i32 30.3 -> 41.8, i4_think
8.5 -> 29.6, i32_think 10.1 -> 24.5.
`:tiny` runs two steps of a random pair of this family, with no download.
"""

from configs import common

# student, teacher, whether the teacher thinks, lambda
PAIRS = {
  'b4': ('Qwen/Qwen3-1.7B-Base', 'Qwen/Qwen3-4B-Base', False, 0.0),
  'i4': ('Qwen/Qwen3-1.7B', 'Qwen/Qwen3-4B', False, 0.25),
  'i32': ('Qwen/Qwen3-1.7B', 'Qwen/Qwen3-32B', False, 0.25),
  'i4_think': ('Qwen/Qwen3-1.7B-Base', 'Qwen/Qwen3-4B', True, 0.0),
  'i32_think': ('Qwen/Qwen3-1.7B-Base', 'Qwen/Qwen3-32B', True, 0.0),
}


def get_config(arg=None):
  args = common.parse_arg(arg, tiny=False, pair='b4')
  config = ground(args.pair, tiny=args.tiny)
  loss = config.loss
  loss.variant, loss.gamma, loss.adv_clip = 'gr_opd', 0.99, 5.0
  loss.lambda_retain = PAIRS[args.pair][-1]
  return config


def ground(pair: str, *, tiny: bool):
  """All but the credit: what OPD and GR-OPD share."""
  if pair not in PAIRS:
    raise ValueError(f'pair={pair!r} is unknown; one of {", ".join(PAIRS)}.')
  config = common.base()
  config.num_steps = 221
  student, teacher, thinking, _ = PAIRS[pair]
  config.model.source, config.teacher.source = student, teacher
  config.teacher.thinking = thinking
  config.model.dtype = 'bfloat16'
  config.model.remat = 'block'
  config.model.attention = 'auto'
  config.mesh.tensor = 8

  config.data.kind = 'hub'
  config.data.path = 'open-r1/DAPO-Math-17k-Processed'
  config.data.subset = 'en'
  config.data.problem_field, config.data.answer_field = 'prompt', 'solution'

  rollout = config.rollout
  rollout.mode = 'solo'
  rollout.prompts, rollout.group = 64, 8
  rollout.max_prompt, rollout.max_response = 4096, 28_672
  rollout.prompt_bucket = 512
  rollout.dtype = 'bfloat16'
  config.reward.mode = 'roll'

  config.optimizer.learning_rate = 1e-6
  config.learner.mini_prompts = 8
  config.learner.micro_rows = 8
  config.learner.response_bucket = 4096

  config.eval.every_steps = 0
  config.eval.models = ('senior',)
  config.checkpoint.every_steps = 10
  config.checkpoint.best_metric = 'reward/mean'
  if tiny:
    common.shrink(config)
  config.loss.feedback_clip = 5.0
  config.loss.collapse_max_tokens = rollout.max_response
  return config

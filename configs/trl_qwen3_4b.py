r"""Tandem RL of Qwen3-4B-Instruct-2507 on DeepScaleR, at the paper's settings.

  python -m launch.train --config=configs/trl_qwen3_4b.py --workdir=runs/trl

arXiv 2606.28166, Table 4, and the released training script. Senior and junior
start from the same weights; only the senior's tokens are paid.

Data: DeepScaleR-Preview from the hub (extra `datasets`), 40,309 problems with
an answer, of which 1,000 are held out with seed 0; or a JSONL of the same:
  --config.data.kind=jsonl --config.data.path=deepscaler.jsonl

Hardware: a TPU v5p-8 (4 chips, 95 GB each), the model split over
mesh.tensor=4: 46 GB a chip, by the compiler. A v5e-16 holds it, too (12.6 of
16.9 GB):
  --config.mesh.tensor=8 --config.mesh.fsdp=2 --config.learner.micro_rows=2 \
  --config.rollout.attention=pallas_tpu
On GPUs (extra `cuda13`) keep mesh.tensor * mesh.fsdp at the number of GPUs and
tensor a divisor of the 8 kv heads: 8 x 80 GB, --config.mesh.tensor=8; or, where
the update is what does not fit, --config.mesh.fsdp=4 --config.mesh.tensor=2,
with learner.micro_rows a multiple of fsdp. The authors had 2 x A100-80GB, the
junior in a process of its own; here one program decodes both.

Rollouts bound by the cache (LOG.md, bytes a token): on a TPU
  --config.rollout.decoder=speculative --config.rollout.draft_tokens=8 \
  --config.rollout.draft_context=256 --config.rollout.attention=pallas_tpu

Time and numbers: not run here. The paper takes the checkpoint of step 120 (9.4
hours on its machine) and reports that the run degrades later.

Validation: the pair and the senior alone, on the held-out problems, once each;
the best checkpoint by the pair is kept, as the paper chose (on AMC, AIME and
Minerva with 4 samples: --config.data.eval_path=FILE --config.eval.samples=4).
The released script validates the senior alone:
  --config.eval.models="('senior',)" \
  --config.checkpoint.best_metric=eval/pass_at_1/senior
`:tiny` runs two steps of a random model of this family, with no download.
"""

from configs import common

EPOCHS = 2
TRAIN_PROBLEMS = 39_309


def get_config(arg=None):
  args = common.parse_arg(arg, tiny=False)
  config = common.base()
  config.model.source = 'Qwen/Qwen3-4B-Instruct-2507'
  config.model.dtype = 'bfloat16'
  config.model.remat = 'block'
  config.model.attention = 'auto'
  config.mesh.tensor = 4

  config.data.kind = 'hub'
  config.data.path = 'agentica-org/DeepScaleR-Preview-Dataset'
  config.data.held_out, config.data.held_out_seed = 1000, 0

  rollout = config.rollout
  rollout.mode = 'tandem'
  rollout.prompts, rollout.group = 16, 8
  rollout.max_prompt, rollout.max_response = 1024, 3000
  rollout.prompt_bucket = 256
  rollout.dtype = 'bfloat16'
  rollout.temperature, rollout.top_p, rollout.top_k = 0.6, 1.0, 0
  rollout.schedule, rollout.p, rollout.cap = 'word', 0.5, 32
  config.num_steps = EPOCHS * TRAIN_PROBLEMS // rollout.prompts

  config.loss.variant = 'tandem'
  config.loss.eps_low = config.loss.eps_high = 0.2
  config.loss.dual_clip = 3.0
  config.loss.agg = 'token-mean'

  config.optimizer.learning_rate = 1e-6
  config.optimizer.schedule = 'constant'
  config.optimizer.weight_decay = 0.01
  config.optimizer.clip_norm = 1.0

  config.learner.mini_prompts = 8
  config.learner.epochs = 1
  config.learner.micro_rows = 8
  config.learner.response_bucket = 1000

  config.eval.every_steps = 20
  config.eval.models = ('pair', 'senior')
  config.eval.prompts = 128
  config.eval.temperature, config.eval.top_p = 0.6, 0.95
  config.checkpoint.every_steps = 20
  config.checkpoint.best_metric = 'eval/pass_at_1/pair'
  if args.tiny:
    common.shrink(config)
  return config

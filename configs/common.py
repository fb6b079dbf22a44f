"""Keys that every run has, each with what it means. No jax, no tandem here.

`base()` holds defaults; a config file changes what it needs and says at its
top the command, the hardware, the time and the numbers to expect. A loss field
that is left unset (None) takes the default of the variant that reads it.
"""

from ml_collections import config_dict

ConfigDict = config_dict.ConfigDict
placeholder = config_dict.placeholder

# Every field of every loss variant, with its type; tests hold this against
# tandem.losses. What a field means is told where it is read: the dataclass of
# its variant in tandem/losses.
LOSS_FIELDS = {
  'scale_by_std': bool,
  'advantage_eps': float,
  'eps_low': float,
  'eps_high': float,
  'dual_clip': float,  # 0: off
  'agg': str,
  'agg_length': int,
  'ratio': str,
  'old': str,
  'tis': str,
  'tis_cap': float,
  'kl_to': str,
  'kl_coef': float,
  'kl_estimator': str,
  'entropy_coef': float,
  'overlong_max_tokens': int,
  'overlong_buffer_tokens': int,
  'denom': str,
  'lambda_jun_policy': float,
  'lambda_jun_imitation': float,
  'feedback': str,
  'feedback_clip': float,  # 0: off
  'discount': float,
  'top_k': int,
  'collapse_max_tokens': int,
  'collapse_length': float,
  'collapse_reward': float,
  'collapse_steps': int,
  'gamma': float,
  'lambda_retain': float,
  'adv_clip': float,  # 0: off
  'std_ddof': int,
  'zero_std': str,
  'lambda_min': float,
  'lambda_max': float,
  'mu_min': float,
  'mu_max': float,
  'ema': float,
  'warmup_steps': int,
  'rho_target': float,
  'rho_map': str,
  'controller_law': str,
  'sdar_coef': float,
  'gate_beta': float,
  'policy_coef': float,
  'enable': bool,
  'phase_aware': bool,
  'polarized_kl': bool,
  'cti_coef': float,
  'tau': float,
  'beta_pos': float,
  'beta_neg': float,
  'g_min': int,
  'theta_gate': float,
  'cti_variant': str,
  'fallback': str,
  'ended_sibling': str,
  'grouping': str,
  'negative_branch': str,
  'theta_kl': float,
  'kl_swap': bool,
  'weight_clip': float,
  'mix_start': float,
  'mix_steps': int,
  'skill_coef': float,
  'cringe_coef': float,
  'positive_reward': float,
  'contrast': str,
  'unlikelihood_coef': float,
  'negatives': str,
}


def parse_arg(arg, **options):
  """Reads the part after the colon of --config=file.py:arg.

  `tiny` sets tiny=True, `steps=3` sets steps=3; several are joined by commas.

  Args:
    arg: the text, or None.
    **options: the names allowed, with their defaults; a value is read as its
      default's type.

  Returns:
    A ConfigDict of the options.

  Raises:
    ValueError: an unknown name, or a value of another type.
  """
  given = ConfigDict(dict(options))
  for item in filter(None, (arg or '').split(',')):
    name, _, text = item.partition('=')
    if name not in options:
      raise ValueError(
        f'config argument {name!r} is unknown; this file knows '
        f'{sorted(options)}, joined by commas, as in config.py:tiny.'
      )
    kind = type(options[name])
    if kind is bool:
      given[name] = text.lower() not in ('0', 'false', 'no')
      continue
    try:
      given[name] = kind(text)
    except ValueError as error:
      raise ValueError(
        f'config argument {item!r}: {text!r} is no {kind.__name__}.'
      ) from error
  return given


# Members of GRPO's line that are settings of it (tandem/losses/grpo.py).
GRPO_LINE = ('dr_grpo', 'dapo', 'gspo', 'cispo')


def grpo_line(config: ConfigDict, name: str) -> None:
  """Sets what makes a member of GRPO_LINE, as its paper has it.

  Lengths follow rollout.max_response, so set that first. DAPO's buffer is the
  fifth of the budget that 4,096 of 20,480 tokens are.
  """
  loss, budget = config.loss, config.rollout.max_response
  if name == 'dr_grpo':
    loss.scale_by_std = False
    loss.agg, loss.agg_length = 'seq-mean-token-sum-norm', budget
  elif name == 'dapo':
    loss.eps_low, loss.eps_high, loss.agg = 0.2, 0.28, 'token-mean'
    loss.overlong_max_tokens = budget
    loss.overlong_buffer_tokens = budget // 5
    config.rollout.dynamic_sampling = True
  elif name == 'gspo':
    loss.ratio, loss.agg, loss.dual_clip = 'gspo', 'seq-mean-token-mean', 0.0
    loss.eps_low, loss.eps_high = 3e-4, 4e-4
  elif name == 'cispo':
    loss.ratio, loss.dual_clip = 'cispo', 0.0
  else:
    raise ValueError(f'{name!r} is none of {", ".join(GRPO_LINE)}.')


def chosen(args: ConfigDict, names) -> str:
  """The one of these arguments that is set, or ''; two are refused."""
  found = [name for name in names if args[name]]
  if len(found) > 1:
    raise ValueError(f'one method at a time; got {", ".join(found)}.')
  return ''.join(found)


def base() -> ConfigDict:
  """The defaults."""
  config = ConfigDict()
  config.seed = 0  # of everything random in the run
  config.num_steps = 100

  # The senior. Weights: a Hugging Face id, a directory with safetensors, a
  # .gguf file, or `random` for fresh ones of the shape below.
  config.model = model = ConfigDict()
  model.source = 'random'
  model.tokenizer = 'same'  # as source; or a path, an id, `quickstart`
  model.dtype = 'float32'  # of the training forward; master weights: float32
  # Of updates, scorings and prompts; auto: splash on a TPU, cuDNN on a GPU.
  model.attention = 'xla'
  model.log_probs = 'xla'  # pallas_tpu, pallas_gpu: logits stay on the chip
  model.remat = 'none'  # none, block, dots: recompute in the backward pass
  model.preset = ''  # with `random`: a name of tandem.models.presets, or
  model.dim = 96  # ... its own shape (vocabulary: the tokenizer's)
  model.family = 'qwen3'  # ... qwen2 (biases), llama (Llama 3, SmolLM2)
  model.num_layers = 3
  model.num_heads = 4
  model.num_kv_heads = 2
  model.head_dim = 24
  model.hidden = 288

  # The junior: `same` for the senior's initial weights, else a source.
  config.junior = ConfigDict({'source': 'same'})

  # The teacher of opd and gr_opd: empty, a source, or `warm_start` for one of
  # this shape that the quickstart's clean demonstrations train.
  config.teacher = teacher = ConfigDict()
  teacher.source = ''
  teacher.thinking = False  # reads its prompt in the template's think mode
  teacher.dim = 128
  teacher.num_layers = 3
  teacher.num_heads = 4
  teacher.num_kv_heads = 2
  teacher.head_dim = 32
  teacher.hidden = 384

  # What the policy is shown when it is its own teacher (craft, sdar, ...).
  config.privileged = privileged = ConfigDict()
  privileged.kind = 'none'  # or solution: the worked one
  privileged.max_tokens = 0  # of it; the rest is cut from its end

  config.mesh = ConfigDict({'data': -1, 'fsdp': 1, 'tensor': 1})

  # Problems. kind: quickstart, jsonl (path), hub (path = id; extra
  # `datasets`), reasoning_gym (path = task; extra `reasoning-gym`).
  config.data = data = ConfigDict()
  data.kind = 'quickstart'
  data.path = ''
  data.split = 'train'  # of a hub data set
  data.subset = ''  # of a hub data set that has several
  data.problem_field = 'problem'
  data.answer_field = 'answer'
  data.solution_field = 'solution'  # worked solutions, for privileged.kind
  data.answer_after = ''  # the answer is what follows the last such mark
  data.size = 100_000  # of a generated set
  data.held_out = 0  # problems kept from training, for evaluation
  data.held_out_seed = 0
  data.eval_path = ''  # a file of its own for evaluation, instead
  data.chat = True  # one user turn of the chat template; False: plain text
  data.thinking = False  # for templates with a think mode
  data.instruction = 'default'  # appended to a problem; '' for none
  data.overlong = 'drop'  # prompts above max_prompt: error, drop (counted)

  config.rollout = rollout = ConfigDict()
  rollout.mode = 'tandem'  # or solo
  rollout.prompts = 16  # B, per step
  rollout.group = 8  # G, rows per prompt
  # Groups of equal rewards give way to new prompts (DAPO).
  rollout.dynamic_sampling = False
  rollout.max_refills = 9  # of dynamic sampling; each draws `prompts` again
  rollout.max_prompt = 1024  # P, tokens
  rollout.max_response = 3000  # T, tokens
  rollout.prompt_bucket = 0  # P is rounded up to it; 0: always max_prompt
  rollout.dtype = 'float32'  # of the decode copies
  rollout.temperature = 1.0
  rollout.top_k = 0  # training needs the full law: 0 and 1.0
  rollout.top_p = 1.0
  rollout.schedule = 'word'  # strict_word, token, chunk, alternating, step
  rollout.p = 0.5  # P(next author = senior)
  rollout.cap = 32  # K: `word` redraws after so many tokens at the latest
  rollout.cap_rule = 'code'  # or paper: one token later
  rollout.first = 'coin'  # author of the first token: coin, senior, junior
  rollout.chunk = 16  # of schedule `chunk`
  rollout.step_mode = 'strict'  # of schedule `step`; or stochastic
  # speculative: a drafter writes draft_tokens alone, one pass of the other
  # model checks them; tokens and authors are lockstep's.
  rollout.decoder = 'lockstep'
  # k; with the token that may be added, a pass of 8. 0: chosen by what drafts
  # gain and cost here.
  rollout.draft_tokens = 7
  # A draft that stands may earn one token more; not where operations bind.
  rollout.draft_bonus = True
  # The drafter reads the prompt and so many of its row's last tokens, and both
  # models check the draft: pays where a cache outweighs the weights. 0: all.
  rollout.draft_context = 0
  # senior; holder: of most turns; lookup: repeats the row's own text. In solo
  # mode the junior may draft too, and with draft_context the senior.
  rollout.drafter = 'junior'
  # Rows decoded at once, while the others wait for one to end; 0: all.
  rollout.slots = 0
  # Cache slots of the first decode loop; later ones double, so that short
  # responses do not pay for long ones; each is compiled. 0: one loop over all.
  rollout.window = 0
  rollout.cache_dtype = ''  # float32, bfloat16; '' for rollout.dtype
  rollout.attention = 'xla'  # pallas_tpu, pallas_gpu: rows read to their length
  # pallas_tpu, pallas_gpu: a pair's logits in one pass, in lockstep alone.
  rollout.sampler = 'xla'

  config.reward = ConfigDict()
  config.reward.mode = 'strict'  # trl_release, roll, tolerant
  config.reward.workers = 2
  config.reward.limit_s = 2.0  # per item; an overrun is killed and counted

  # variant `auto`: tandem on tandem rollouts, grpo on solo ones.
  config.loss = ConfigDict({'variant': 'auto'})
  for name, kind in LOSS_FIELDS.items():
    config.loss[name] = placeholder(kind)

  config.optimizer = optimizer = ConfigDict()
  optimizer.learning_rate = 1e-6
  optimizer.schedule = 'constant'  # linear, cosine
  optimizer.warmup_steps = 0
  optimizer.b1 = 0.9
  optimizer.b2 = 0.999
  optimizer.eps = 1e-8
  optimizer.weight_decay = 0.01
  optimizer.decay = 'all'  # or matrices
  optimizer.clip_norm = 1.0
  optimizer.mu_dtype = 'float32'  # bfloat16 halves the first moment

  config.learner = learner = ConfigDict()
  learner.mini_prompts = 0  # prompts per optimizer update; 0: all of the step
  learner.epochs = 1
  learner.micro_rows = 0  # rows per backward pass; 0: all of the update
  learner.response_bucket = 0  # T is cut to it; 0: always max_response

  config.eval = evaluation = ConfigDict()
  evaluation.every_steps = 20  # 0: never; step 0 is before the first update
  evaluation.models = ('pair', 'senior', 'junior')
  evaluation.problems = 0  # of the held-out ones; 0: all
  evaluation.samples = 1  # n, per problem
  evaluation.prompts = 64  # problems decoded at once
  evaluation.temperature = 1.0
  evaluation.top_k = 0
  evaluation.top_p = 1.0

  config.checkpoint = ConfigDict()
  config.checkpoint.every_steps = 20  # 0: at the end only
  config.checkpoint.keep = 2
  config.checkpoint.best_metric = 'eval/pass_at_1/pair'

  config.log = ConfigDict()
  config.log.rollout_every_steps = 1  # 0: never
  config.log.rollouts_mb = 500.0  # disk budget of rollouts/; oldest go first
  config.log.tensorboard = True
  config.log.wandb_project = ''  # '' for none
  config.log.profile_steps = ''  # `10-12` writes a profile of those steps

  # A supervised start on the quickstart's demonstrations: clean ones until
  # clean_accuracy, then an expert's that slips until slip_accuracy.
  config.warm_start = warm = ConfigDict()
  warm.enable = False
  warm.from_workdir = ''  # takes another run's `initial/` and `teacher/`
  warm.rows = 64
  warm.learning_rate = 1e-3
  warm.warmup_steps = 30
  warm.clean_accuracy = 0.9
  warm.clean_max_steps = 800
  warm.error_rate = 0.25  # share of the expert's steps that slip
  warm.slip_accuracy = 0.4
  warm.slip_min_steps = 75  # before its first measurement
  warm.slip_max_steps = 300
  warm.check_every_steps = 25
  warm.check_problems = 256
  warm.band = (0.0, 1.0)  # the run refuses to go on outside it
  return config


def shrink(config: ConfigDict) -> None:
  """`:tiny` of every config: two steps in seconds on a CPU, no download.

  A random model of config.model.family, the quickstart's tokenizer and
  problems; a teacher is one of that kind after one step of a warm start.
  Dtypes, remat, loss and schedules stay, so that they are tried.
  """
  config.num_steps = 2
  config.model.source, config.model.tokenizer = 'random', 'quickstart'
  config.model.dim, config.model.hidden = 32, 64
  config.model.num_layers, config.model.head_dim = 1, 8
  teacher, warm = config.teacher, config.warm_start
  teacher.source = 'warm_start' if teacher.source else ''
  teacher.dim, teacher.hidden, teacher.num_layers = 32, 64, 1
  teacher.head_dim = 8
  warm.rows, warm.warmup_steps, warm.check_problems = 8, 0, 8
  warm.clean_accuracy, warm.clean_max_steps = 0.0, 1
  warm.slip_accuracy, warm.slip_max_steps = 1.0, 1
  warm.band = (0.0, 1.0)
  if config.privileged.kind != 'none':
    config.privileged.max_tokens = 48
  config.mesh.data, config.mesh.fsdp, config.mesh.tensor = -1, 1, 1
  config.data.kind, config.data.path = 'quickstart', ''
  config.data.size, config.data.held_out = 64, 8
  config.data.instruction = ''
  rollout, learner = config.rollout, config.learner
  rollout.prompts, rollout.group = 2, 4
  rollout.max_prompt, rollout.max_response = 48, 64
  rollout.prompt_bucket = learner.response_bucket = 0
  learner.mini_prompts = 1 if learner.mini_prompts else 0
  learner.micro_rows = 2 if learner.micro_rows else 0
  rollout.max_refills = 1
  config.eval.prompts, config.eval.problems = 8, 0
  config.eval.every_steps = 2
  config.checkpoint.every_steps = 1

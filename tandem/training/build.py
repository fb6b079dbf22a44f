"""From a config to the parts of a run; what is wrong is said before any work.

This and `train.py`, `evaluate.py` are where config objects end.
"""

from collections.abc import Sequence
import dataclasses
from typing import Any

from absl import logging
import numpy as np

from tandem import losses
from tandem import types
from tandem.data import problems as problems_lib
from tandem.data import prompts as prompts_lib
from tandem.data import quickstart
from tandem.rollout import sampling as sampling_lib
from tandem.rollout import turns as turns_lib
from tandem.text import boundaries
from tandem.text import tokenizer as tokenizer_lib
from tandem.training import contexts as contexts_lib
from tandem.training import limits
from tandem.training import optimizer as optimizer_lib
from tandem.training import profile as profile_lib

MODES = ('tandem', 'solo')
EVAL_MODELS = ('pair', 'senior', 'junior')
FAMILIES = ('qwen3', 'qwen2', 'llama')
DATA_KINDS = ('quickstart', 'jsonl', 'hub', 'reasoning_gym')


def _known(name: str, value, allowed) -> None:
  if value not in allowed:
    raise ValueError(
      f'{name}={value!r} is unknown; one of {", ".join(allowed)}.'
    )


def turns(config) -> turns_lib.Turns:
  """The schedule of `config.rollout`."""
  names = [field.name for field in dataclasses.fields(turns_lib.Turns)]
  return turns_lib.Turns(**{name: config.rollout[name] for name in names})


def sampling(section) -> sampling_lib.Sampling:
  """The law of `config.rollout` or `config.eval`."""
  names = [field.name for field in dataclasses.fields(sampling_lib.Sampling)]
  return sampling_lib.Sampling(**{name: section[name] for name in names})


def loss(config) -> tuple[Any, Any]:
  """(variant, its frozen config) of `config.loss`.

  Raises:
    ValueError: an unknown variant, a field that it does not have, or settings
      that contradict each other or the rollout.
  """
  mode, group = config.rollout.mode, config.rollout.group
  name = config.loss.variant
  if name == 'auto':
    name = 'tandem' if mode == 'tandem' else 'grpo'
  variant = losses.get(name)
  fields = {
    key: value
    for key, value in config.loss.items()
    if key != 'variant' and value is not None
  }
  # None cannot be typed in a flag, where it is a field left unset.
  for key in ('dual_clip', 'feedback_clip', 'adv_clip'):
    if fields.get(key) == 0:
      fields[key] = None
  loss_cfg = losses.make_config(name, **fields)
  variant.check(loss_cfg, mode, group)
  return variant, loss_cfg


def check(config) -> None:
  """All that can be refused without a device or a file.

  Raises:
    ValueError: naming the value, the legal ones and the fix.
  """
  rollout = config.rollout
  limits.check(config)
  _known('rollout.mode', rollout.mode, MODES)
  _known('data.kind', config.data.kind, DATA_KINDS)
  _known('model.family', config.model.family, FAMILIES)
  for name in config.eval.models:
    _known('eval.models', name, EVAL_MODELS)
  turns(config)
  sampling(config.eval)
  if not sampling(rollout).full_law:
    raise ValueError(
      f'rollout.temperature={rollout.temperature}, top_k={rollout.top_k}, '
      f'top_p={rollout.top_p}: training draws from the full law only, since '
      'log-probs are those of the untruncated law. Set temperature above 0, '
      'top_k=0 and top_p=1; filters are for config.eval.'
    )
  loss(config)
  _warn_rounded_anchor(config)
  _check_teacher(config)
  _check_privileged(config)
  _check_from_workdir(config)
  if rollout.dynamic_sampling:
    _check_dynamic_sampling(config)
  tx(config)
  profile_lib.steps(config.log.profile_steps)


def _warn_rounded_anchor(config) -> None:
  """Says so where a KL to the initial weights will not begin at 0.

  Frozen models are kept in rollout.dtype, the trained one in float32. In a
  bfloat16 forward both are rounded alike; in a float32 one the frozen copy
  stays another model, and the KL pulls towards its rounding. At 2e-5 nats a
  token on a small random model that is nothing to refuse a run for.
  """
  variant, loss_cfg = loss(config)
  anchors = {'reference'}
  if config.junior.source == 'same':
    anchors.add('junior')
  read = anchors & {*variant.scorings(loss_cfg)}
  dtypes = config.rollout.dtype, config.model.dtype
  if read and dtypes == ('bfloat16', 'float32'):
    logging.warning(
      'rollout.dtype=bfloat16 with model.dtype=float32: the initial weights '
      'that the loss reads as %s are kept in bfloat16, so their KL to the '
      'policy is not 0 at step 0. Set rollout.dtype=float32 for an exact '
      'anchor, or model.dtype=bfloat16 to round both alike.',
      ' and '.join(sorted(read)),
    )


def _check_teacher(config) -> None:
  source, wanted = config.teacher.source, declares(config, 'teacher')
  if source and not wanted:
    raise ValueError(
      f'teacher.source={source!r} is set, but the loss asks no teacher; choose '
      'a variant that does (opd, gr_opd), or leave it empty.'
    )
  if wanted and not source:
    raise ValueError(
      f'loss.variant={config.loss.variant!r} needs a teacher; set '
      'teacher.source to a Hugging Face id, a directory, a .gguf file, or '
      '`warm_start` for one that the quickstart trains.'
    )


def _check_privileged(config) -> None:
  kind = config.privileged.kind
  _known('privileged.kind', kind, contexts_lib.PRIVILEGED)
  wanted = declares(config, 'privileged')
  if wanted and kind == 'none':
    raise ValueError(
      f'loss.variant={config.loss.variant!r} needs a privileged teacher; set '
      "privileged.kind='solution' and data that has worked solutions."
    )
  if wanted and config.privileged.max_tokens < 1:
    raise ValueError(
      'privileged.max_tokens=0 shows nothing of the solution; give the tokens '
      'that it may have.'
    )
  if not wanted and kind != 'none':
    raise ValueError(
      f'privileged.kind={kind!r} is set, but the loss asks no privileged '
      "teacher; set it to 'none', or choose a variant that does."
    )


def _check_from_workdir(config) -> None:
  other = config.warm_start.from_workdir
  starts = config.warm_start.enable or config.teacher.source == 'warm_start'
  if other and not starts:
    raise ValueError(
      f'warm_start.from_workdir={other!r} with warm_start.enable=False: this '
      'run has no warm start to take from there; set warm_start.enable=True, '
      'or leave it empty.'
    )


def _check_dynamic_sampling(config) -> None:
  """Equal rewards must mean that a group teaches nothing."""
  if config.rollout.group < 2:
    raise ValueError(
      f'rollout.dynamic_sampling with rollout.group={config.rollout.group}: the '
      'one row of a prompt has no sibling to differ from; set rollout.group to '
      'at least 2, or rollout.dynamic_sampling=False.'
    )
  variant, loss_cfg = loss(config)
  if not losses.pays_by_group(loss_cfg):
    raise ValueError(
      f'rollout.dynamic_sampling with loss.variant={variant.name!r}: it takes '
      'no advantage from the rewards of a group, so that a group of equal '
      'rewards teaches as much as any other; set '
      'rollout.dynamic_sampling=False.'
    )


@dataclasses.dataclass(frozen=True)
class Text:
  """The tokenizer and what the decode loop needs of it."""

  tokenizer: Any
  eos_ids: tuple[int, ...]
  source: str


def text(config) -> Text:
  """Opens the senior's tokenizer; holds junior's and teacher's against it.

  Raises:
    ValueError: none found, or vocabularies differ.
  """

  def opened(source):
    if source == 'quickstart':
      return quickstart.tokenizer()
    return tokenizer_lib.load(source)

  source = config.model.tokenizer
  if source == 'same':
    source = config.model.source
    if source == 'random':
      raise ValueError(
        "model.source='random' brings no tokenizer; set model.tokenizer to a "
        'path, a Hugging Face id, or quickstart.'
      )
  tokenizer = opened(source)
  if config.junior.source != 'same':
    boundaries.check_same_vocab(tokenizer, opened(config.junior.source))
  if config.teacher.source not in ('', 'warm_start'):
    boundaries.check_same_vocab(
      tokenizer, opened(config.teacher.source), other='teacher'
    )
  eos = tokenizer_lib.stop_ids(tokenizer, source)
  return Text(tokenizer, tuple(int(i) for i in eos), source)


def boundary(config, tokenizer, vocab: int) -> np.ndarray:
  """[vocab] bool; the boundaries that the schedule reads."""
  kind = turns(config).boundaries
  if kind == 'step':
    return boundaries.step_table(tokenizer, vocab)
  if kind == 'word':
    return boundaries.boundary_table(tokenizer, vocab)
  return np.zeros(vocab, bool)


def _columns(data) -> dict[str, Any]:
  """How rows of a file or of the hub are read."""
  fields = {
    'problem': data.problem_field,
    'answer': data.answer_field,
    'solution': data.solution_field,
  }
  return {'fields': fields, 'answer_after': data.answer_after}


def _read(data) -> Sequence[types.Problem]:
  path, options = data.path, _columns(data)
  if data.kind == 'hub':
    return problems_lib.read_hub(
      path, split=data.split, subset=data.subset or None, **options
    )
  if data.kind == 'reasoning_gym':
    return problems_lib.read_reasoning_gym(
      path, start=0, count=data.size, seed=0
    )
  if not path:
    raise ValueError(
      "data.path is empty; with data.kind='jsonl' it names a file of lines "
      '{"problem": ..., "answer": ...}: --config.data.path=FILE.'
    )
  return problems_lib.read_jsonl(path, **options)


def problems(config) -> tuple[Sequence[types.Problem], Sequence[types.Problem]]:
  """(training, evaluation) problems; never one in both.

  Raises:
    ValueError: an unreadable or empty source, or nothing left to train on.
  """
  data, count = config.data, config.eval.problems
  if data.kind == 'quickstart':
    held_out = quickstart.problems(
      data.held_out_seed, 0, data.held_out, held_out=True
    )
    train = quickstart.problems(config.seed, 0, data.size)
  else:
    train = _read(data)
    if data.eval_path:
      held_out = problems_lib.read_jsonl(data.eval_path, **_columns(data))
      train = problems_lib.without(train, held_out)
    else:
      train, held_out = problems_lib.split_off(
        train, held_out=data.held_out, seed=data.held_out_seed
      )
  if config.eval.every_steps and not held_out:
    raise ValueError(
      'eval.every_steps is set but no problem is held out; set data.held_out '
      'or data.eval_path, or eval.every_steps=0.'
    )
  if config.privileged.kind == 'solution':
    train = _solved(train)
  return train, held_out[: count or None]


def _solved(train: Sequence[types.Problem]) -> list[types.Problem]:
  """Those with a worked solution; the others are counted in the log."""
  kept = [problem for problem in train if problem.solution]
  missing = len(train) - len(kept)
  if not kept:
    raise ValueError(
      f'none of the {len(train)} problems has a worked solution, which '
      "privileged.kind='solution' shows to the teacher; name their field with "
      'data.solution_field.'
    )
  if missing:
    logging.warning(
      '%d of %d problems have no worked solution; dropped', missing, len(train)
    )
  return kept


def prompts(config, tokenizer, problems) -> list[prompts_lib.Prompt]:
  """Problems as token ids; overlong ones refused or dropped and counted."""
  options = {}
  if config.data.instruction != 'default':
    options['instruction'] = config.data.instruction
  kept, _ = prompts_lib.build(
    problems,
    tokenizer,
    max_prompt=config.rollout.max_prompt,
    overlong=config.data.overlong,
    chat=config.data.chat,
    thinking=config.data.thinking,
    **options,
  )
  return kept


def declares(config, scorer: str) -> bool:
  """Whether the loss reads a scorer, as a scoring or in a statistic."""
  variant, loss_cfg = loss(config)
  in_stats = any(f'_{scorer}' in name for name in variant.stats(loss_cfg))
  return scorer in variant.scorings(loss_cfg) or in_stats


def contexts(config, tokenizer) -> contexts_lib.Contexts:
  """What other scorers read, as the loss declares them."""
  instruction = config.data.instruction
  if instruction == 'default':
    instruction = prompts_lib.INSTRUCTION
  return contexts_lib.Contexts(
    tokenizer=tokenizer,
    instruction=instruction,
    chat=config.data.chat,
    teacher=declares(config, 'teacher'),
    teacher_thinking=config.teacher.thinking,
    privileged=config.privileged.kind,
    max_prompt=config.rollout.max_prompt,
    max_extra=config.privileged.max_tokens,
  )


def tx(config):
  """The optimizer of `config.optimizer`."""
  section = config.optimizer
  minis = 1
  if config.learner.mini_prompts:
    minis = config.rollout.prompts // config.learner.mini_prompts
  per_step = minis * config.learner.epochs
  schedule = optimizer_lib.make_schedule(
    section.schedule,
    section.learning_rate,
    total_steps=max(config.num_steps * per_step, 1),
    warmup_steps=section.warmup_steps * per_step,
  )
  return optimizer_lib.make_optimizer(
    schedule,
    b1=section.b1,
    b2=section.b2,
    eps=section.eps,
    weight_decay=section.weight_decay,
    decay=section.decay,
    clip_norm=section.clip_norm or None,
    mu_dtype=section.mu_dtype,
  )

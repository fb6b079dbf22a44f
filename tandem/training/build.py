"""From a config to the parts of a run; what is wrong is said before any work.

This and `train.py`, `evaluate.py` are where config objects end.
"""

from collections.abc import Sequence
import dataclasses
import functools
from typing import Any

from absl import logging
import jax
import jax.numpy as jnp
import numpy as np

from tandem import losses
from tandem import types
from tandem.data import problems as problems_lib
from tandem.data import prompts as prompts_lib
from tandem.data import quickstart
from tandem.models import decoder
from tandem.models import presets
from tandem.models import weights
from tandem.rollout import sampling as sampling_lib
from tandem.rollout import turns as turns_lib
from tandem.text import boundaries
from tandem.text import tokenizer as tokenizer_lib
from tandem.training import keys
from tandem.training import optimizer as optimizer_lib
from tandem.training import sharding

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
  for key in ('dual_clip', 'feedback_clip'):  # None cannot be typed in a flag
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
  rollout, learner = config.rollout, config.learner
  _known('rollout.mode', rollout.mode, MODES)
  _known('data.kind', config.data.kind, DATA_KINDS)
  _known('model.family', config.model.family, FAMILIES)
  for name in config.eval.models:
    _known('eval.models', name, EVAL_MODELS)
  for section, names in {
    'rollout': ('prompts', 'group', 'max_prompt', 'max_response'),
    'eval': ('samples', 'prompts'),
    'reward': ('workers',),
    'learner': ('epochs',),
  }.items():
    for name in names:
      value = config[section][name]
      if value < 1:
        raise ValueError(f'{section}.{name}={value} must be at least 1.')
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
  mini = learner.mini_prompts or rollout.prompts
  if rollout.prompts % mini:
    raise ValueError(
      f'learner.mini_prompts={mini} does not divide rollout.prompts='
      f'{rollout.prompts}; set it to a divisor, or 0 for one update a step.'
    )
  rows = mini * rollout.group
  if learner.micro_rows and rows % learner.micro_rows:
    raise ValueError(
      f'learner.micro_rows={learner.micro_rows} does not divide the {rows} rows '
      f'({mini} prompts x group {rollout.group}) of an update; set it to a '
      'divisor, or to 0 for no split.'
    )


def check_mesh(config, mesh) -> None:
  """Every number of rows must split over the mesh's row shards."""
  shards = mesh.shape['data'] * mesh.shape['fsdp']
  micro = config.learner.micro_rows
  mini = config.learner.mini_prompts or config.rollout.prompts
  rows = {
    'rollout.prompts * rollout.group': (
      config.rollout.prompts * config.rollout.group
    ),
    'eval.prompts * eval.samples': config.eval.prompts * config.eval.samples,
    'learner.micro_rows': micro or mini * config.rollout.group,
  }
  for name, count in rows.items():
    if count % shards:
      raise ValueError(
        f'{name}={count} does not split over mesh.data={mesh.shape["data"]} x '
        f'mesh.fsdp={mesh.shape["fsdp"]} ({shards} row shards); make it a '
        'multiple, or move devices to mesh.tensor.'
      )


@dataclasses.dataclass(frozen=True)
class Text:
  """The tokenizer and what the decode loop needs of it."""

  tokenizer: Any
  eos_ids: tuple[int, ...]
  source: str


def text(config) -> Text:
  """Opens the senior's tokenizer; holds the junior's against it.

  Raises:
    ValueError: none found, or the pair's vocabularies differ.
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


def _read(config, path: str) -> Sequence[types.Problem]:
  data = config.data
  options = {
    'fields': {'problem': data.problem_field, 'answer': data.answer_field},
    'answer_after': data.answer_after,
  }
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
    train = _read(config, data.path)
    if data.eval_path:
      held_out = _read(config, data.eval_path)
    else:
      train, held_out = problems_lib.split_off(
        train, held_out=data.held_out, seed=data.held_out_seed
      )
  if config.eval.every_steps and not held_out:
    raise ValueError(
      'eval.every_steps is set but no problem is held out; set data.held_out '
      'or data.eval_path, or eval.every_steps=0.'
    )
  return train, held_out[: count or None]


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


def model_config(config, tokenizer) -> types.ModelConfig:
  """The senior's shapes."""
  model = config.model
  if model.source != 'random':
    return weights.load_config(model.source)
  if model.preset:
    return presets.preset(model.preset)
  return types.ModelConfig(
    vocab=len(tokenizer),
    dim=model.dim,
    num_layers=model.num_layers,
    num_heads=model.num_heads,
    num_kv_heads=model.num_kv_heads,
    head_dim=model.head_dim,
    hidden=model.hidden,
    qk_norm=model.family == 'qwen3',
    qkv_bias=model.family == 'qwen2',
    family=model.family,
    max_position=config.rollout.max_prompt + config.rollout.max_response,
  )


def check_lengths(config, cfg: types.ModelConfig) -> None:
  """A response must fit the model's positions."""
  rollout = config.rollout
  total = rollout.max_prompt + rollout.max_response
  if total > cfg.max_position:
    raise ValueError(
      f'rollout.max_prompt={rollout.max_prompt} and rollout.max_response='
      f'{rollout.max_response} come to {total} positions, more than the '
      f"model's {cfg.max_position}; lower one of them."
    )


def initial_params(config, source: str, cfg: types.ModelConfig, mesh):
  """Float32 weights of a source on their shards; layers stacked."""
  if source == 'random':
    init = functools.partial(decoder.init_params, cfg=cfg)
    return sharding.init_sharded(init, mesh, keys.root_key(config.seed, 'init'))
  shapes = jax.eval_shape(lambda k: decoder.init_params(k, cfg), keys_shape())
  return weights.load_params(
    source,
    cfg,
    dtype=np.float32,
    shardings=sharding.shardings_for(shapes, mesh),
    progress=True,
  )


def keys_shape():
  """The shape of a key, for eval_shape."""
  return jax.eval_shape(lambda: keys.root_key(0, 'init'))


def decode_copy(cfg: types.ModelConfig, mesh, dtype: str):
  """A jitted stacked params -> decode_params on the decode sharding."""
  make = lambda params: decoder.decode_params(params, cfg, jnp.dtype(dtype))
  shapes = jax.eval_shape(
    lambda key: make(decoder.init_params(key, cfg)), keys_shape()
  )
  table = sharding.shardings_for(shapes, mesh, sharding.DECODE)
  return jax.jit(make, out_shardings=table)


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


def describe(cfg: types.ModelConfig, params) -> None:
  """One line on the model, to the log."""
  count = sum(x.size for x in jax.tree.leaves(params))
  logging.info(
    'model: %s, %d layers, width %d, vocabulary %d: %.2f M parameters',
    cfg.family,
    cfg.num_layers,
    cfg.dim,
    cfg.vocab,
    count / 1e6,
  )

"""Which numbers of a config are refused, before there is a device or a file."""

from absl import logging

from tandem.models import decoder
from tandem.rollout import drafters
from tandem.training import decoding
from tandem.training import mesh as mesh_lib

DTYPES = ('float32', 'bfloat16')
_LEAST = {
  'num_steps': 1,
  'rollout.prompts': 1,
  'rollout.group': 1,
  'rollout.max_refills': 1,
  'rollout.max_prompt': 1,
  'rollout.max_response': 1,
  'rollout.prompt_bucket': 0,
  'rollout.draft_tokens': 0,
  'rollout.draft_context': 0,
  'rollout.slots': 0,
  'rollout.window': 0,
  'learner.epochs': 1,
  'learner.mini_prompts': 0,
  'learner.micro_rows': 0,
  'learner.response_bucket': 0,
  'optimizer.learning_rate': 0,
  'optimizer.warmup_steps': 0,
  'optimizer.weight_decay': 0,
  'optimizer.clip_norm': 0,
  'privileged.max_tokens': 0,
  'eval.every_steps': 0,
  'eval.problems': 0,
  'eval.samples': 1,
  'eval.prompts': 1,
  'data.size': 1,
  'data.held_out': 0,
  'reward.workers': 1,
  'checkpoint.every_steps': 0,
  'checkpoint.keep': 1,
  'log.rollout_every_steps': 0,
  'log.rollouts_mb': 0,
}
_KERNELS = ('xla', 'pallas_tpu', 'pallas_gpu')
_NAMED = {
  'model.dtype': DTYPES,
  'model.log_probs': _KERNELS,
  'model.remat': decoder.REMAT,
  'rollout.dtype': DTYPES,
  'rollout.decoder': decoding.DECODERS,
  'rollout.drafter': drafters.DRAFTERS,
  # int8 is .03 off on real weights, where .01 was asked (LOG.md).
  'rollout.cache_dtype': ('', *DTYPES),
  'rollout.attention': _KERNELS,
  'rollout.sampler': _KERNELS,
  'model.attention': ('xla', 'auto'),
  'optimizer.mu_dtype': DTYPES,
}


def _value(config, name: str):
  for part in name.split('.'):
    config = config[part]
  return config


def check(config) -> None:
  """Numbers out of range, names of no dtype, rows that do not divide.

  Raises:
    ValueError: naming the value, the legal ones and the fix.
  """
  for name, least in _LEAST.items():
    value = _value(config, name)
    if not value >= least:  # so that NaN is refused, too
      raise ValueError(f'{name}={value} must be at least {least}.')
  for name, legal in _NAMED.items():
    value = _value(config, name)
    if value not in legal:
      legal = ', '.join(x or "''" for x in legal)
      raise ValueError(f'{name}={value!r} is not one of {legal}.')
  if not 0 <= config.seed < 2**32:
    raise ValueError(f'seed={config.seed} must be in [0, 2**32).')
  _check_drafter(config.rollout)
  _check_sampler(config.rollout)
  _check_heads(config.model)
  _check_rows(config.rollout, config.learner)


def _check_drafter(rollout) -> None:
  if rollout.decoder != 'speculative':
    return
  near = rollout.draft_context > 0
  if near and rollout.drafter not in ('junior', 'senior'):
    raise ValueError(
      f'rollout.draft_context={rollout.draft_context} with '
      f'rollout.drafter={rollout.drafter}: it is for the drafts of one model; '
      'set it to 0, or rollout.drafter to junior or senior.'
    )
  alone = rollout.mode == 'solo' and rollout.drafter in ('senior', 'holder')
  if alone and not (near and rollout.drafter == 'senior'):
    raise ValueError(
      f'rollout.drafter={rollout.drafter!r} with rollout.mode=solo: the senior '
      'writes alone and cannot draft for itself; set rollout.drafter=junior '
      '(which then only drafts) or lookup, or senior with '
      'rollout.draft_context, or rollout.decoder=lockstep.'
    )


def _check_sampler(rollout) -> None:
  lockstep = rollout.decoder == 'lockstep' and not rollout.slots
  if rollout.sampler != 'xla' and not lockstep:
    raise ValueError(
      f'rollout.sampler={rollout.sampler!r} serves lockstep alone, with '
      f'slots=0; got decoder={rollout.decoder!r}, slots={rollout.slots}. '
      "Take sampler='xla'."
    )


def _check_heads(model) -> None:
  shaped = model.source == 'random' and not model.preset
  if shaped and (
    model.num_kv_heads < 1 or model.num_heads % model.num_kv_heads
  ):
    raise ValueError(
      f'model.num_heads={model.num_heads} is no multiple of '
      f'model.num_kv_heads={model.num_kv_heads}; each key/value head serves '
      'the same number of query heads.'
    )


def _check_rows(rollout, learner) -> None:
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
  """Raises ValueError where rows do not split over the mesh's row shards."""
  shards = mesh_lib.row_shards(mesh)
  mini = config.learner.mini_prompts or config.rollout.prompts
  rows = {
    'rollout.prompts * rollout.group': (
      config.rollout.prompts * config.rollout.group
    ),
    'eval.prompts * eval.samples': config.eval.prompts * config.eval.samples,
    'learner.micro_rows': (
      config.learner.micro_rows or mini * config.rollout.group
    ),
  }
  for name, count in rows.items():
    if count % shards:
      raise ValueError(
        f'{name}={count} does not split over mesh.data={mesh.shape["data"]} x '
        f'mesh.fsdp={mesh.shape["fsdp"]} ({shards} row shards); make it a '
        'multiple, or move devices to mesh.tensor.'
      )


def warn_best_metric(config) -> None:
  """Says so where checkpoint.best_metric can never be measured."""
  name, known = config.checkpoint.best_metric, config.eval.models
  prefix = 'eval/pass_at_1/'
  if not config.eval.every_steps or not name.startswith(prefix):
    return
  if name.removeprefix(prefix) not in known:
    logging.warning(
      'checkpoint.best_metric=%r is measured by none of eval.models=%s, so no '
      'best step is kept; take one of %s, or any other key of metrics.jsonl.',
      name,
      tuple(known),
      [prefix + model for model in known],
    )

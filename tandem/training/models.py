"""Shapes and weights of the senior, the junior and the teacher, from a config."""

import functools

from absl import logging
import jax
import jax.numpy as jnp
import numpy as np

from tandem import types
from tandem.models import decoder
from tandem.models import presets
from tandem.models import weights
from tandem.training import keys
from tandem.training import sharding


def model_config(config, tokenizer) -> types.ModelConfig:
  """The senior's shapes."""
  model = config.model
  if model.source != 'random':
    return weights.load_config(model.source)
  if model.preset:
    return presets.preset(model.preset)
  return _shape(config, model, tokenizer)


def _shape(config, section, tokenizer) -> types.ModelConfig:
  family = config.model.family
  return types.ModelConfig(
    vocab=len(tokenizer),
    dim=section.dim,
    num_layers=section.num_layers,
    num_heads=section.num_heads,
    num_kv_heads=section.num_kv_heads,
    head_dim=section.head_dim,
    hidden=section.hidden,
    qk_norm=family == 'qwen3',
    qkv_bias=family == 'qwen2',
    family=family,
    max_position=2 * (config.rollout.max_prompt + config.rollout.max_response),
  )


def teacher_config(config, tokenizer) -> types.ModelConfig:
  """Shapes of a teacher that a warm start makes."""
  return _shape(config, config.teacher, tokenizer)


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


def check_vocab(tokenizer, cfg: types.ModelConfig, key: str) -> None:
  """Raises ValueError where the tokenizer has ids that the model lacks."""
  if len(tokenizer) > cfg.vocab:
    raise ValueError(
      f'the tokenizer has {len(tokenizer)} ids, more than the {cfg.vocab} of '
      f'the model that {key} names; give the tokenizer that belongs to it.'
    )


def initial_params(
  config, source: str, cfg: types.ModelConfig, mesh, dtype=np.float32
):
  """Weights of a source on their shards; layers stacked."""
  if source == 'random':
    init = functools.partial(decoder.init_params, cfg=cfg)
    return sharding.init_sharded(init, mesh, keys.root_key(config.seed, 'init'))
  shapes = jax.eval_shape(lambda k: decoder.init_params(k, cfg), keys_shape())
  return weights.load_params(
    source,
    cfg,
    dtype=dtype,
    shardings=sharding.shardings_for(shapes, mesh),
    progress=True,
  )


def keys_shape():
  """The shape of a key, for eval_shape."""
  return jax.eval_shape(lambda: keys.root_key(0, 'init'))


def decode_copy(cfg: types.ModelConfig, mesh, dtype: str):
  """A jitted stacked params -> decode_params on the decode sharding."""
  flip = mesh.size == 1 and jax.default_backend() == 'cpu'
  make = functools.partial(
    decoder.decode_params, cfg=cfg, dtype=jnp.dtype(dtype), flip=flip
  )
  shapes = jax.eval_shape(
    lambda key: make(decoder.init_params(key, cfg)), keys_shape()
  )
  if flip:
    table = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec())
  else:
    table = sharding.shardings_for(shapes, mesh, sharding.DECODE)
  return jax.jit(make, out_shardings=table)


def scoring_copy(params, dtype: str):
  """Weights that nobody decodes with: stacked, on the sharding of the update.

  A scorer gathers what lies over `fsdp` once a pass, not for every token; held
  whole there, a teacher would be the largest thing on a device.

  Args:
    params: on their shards; they may be donated afterwards.
    dtype: of the copy.
  """
  shardings = jax.tree.map(lambda x: x.sharding, params)
  cast = lambda params: jax.tree.map(lambda x: x.astype(dtype), params)
  return jax.jit(cast, out_shardings=shardings)(params)


def frozen_params(
  config, source: str, cfg: types.ModelConfig, mesh, *, decodes: bool
):
  """A model that is never trained: decode_params, or as `scoring_copy`.

  Read in the decode dtype: float32 copies of a junior or a teacher would be
  the largest things on the device while they last.
  """
  dtype = jnp.dtype(config.rollout.dtype)
  params = initial_params(config, source, cfg, mesh, dtype)
  if not decodes:
    return params
  return decode_copy(cfg, mesh, config.rollout.dtype)(params)


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

"""Small stand-ins shared by tests: models, prompts, keys."""

import functools

import jax
import jax.numpy as jnp
import numpy as np

from tandem import types
from tandem.models import decoder

VOCAB = 17
EOS = 1
TINY = types.ModelConfig(
  vocab=VOCAB,
  dim=16,
  num_layers=2,
  num_heads=4,
  num_kv_heads=2,
  head_dim=8,
  hidden=24,
  qk_norm=True,
  tied=False,
)
SMALLER = types.ModelConfig(
  vocab=VOCAB,
  dim=8,
  num_layers=1,
  num_heads=2,
  num_kv_heads=1,
  head_dim=8,
  hidden=16,
  qkv_bias=True,
)
# About a third of the ids begin a word.
BOUNDARY = np.arange(VOCAB) % 3 == 2


def params(cfg=TINY, seed=0, sharpness=2.0):
  """Random weights whose next-token laws are neither flat nor certain."""
  tree = decoder.init_params(jax.random.key(seed), cfg)
  name = 'embed' if cfg.tied else 'head'
  return tree | {name: tree[name] * sharpness}


@functools.cache
def _next_logits(cfg, size):
  @jax.jit
  def run(tree, ids, last):
    return decoder.apply(tree, cfg, ids)[0, last]

  return run


def next_logits(tree, cfg, size=48):
  """The naive loop's view of a model: a sequence in, logits [V] out."""

  def model(ids):
    padded = np.zeros((1, size), np.int32)
    padded[0, : len(ids)] = ids
    return np.asarray(_next_logits(cfg, size)(tree, padded, len(ids) - 1))

  return model


def prompts(lengths, width=None, seed=0):
  """Random ragged prompts, padded on the right with ids that could be real."""
  rng = np.random.default_rng(seed)
  width = width or max(lengths)
  ids = rng.integers(0, VOCAB, (len(lengths), width))
  return types.Context(
    ids=jnp.asarray(ids, jnp.int32), lengths=jnp.asarray(lengths, jnp.int32)
  )


def row_keys(count, seed=0):
  root = jax.random.key(seed)
  return jax.vmap(lambda i: jax.random.fold_in(root, i))(jnp.arange(count))

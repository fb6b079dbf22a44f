"""Small stand-ins shared by tests: models, prompts, keys."""

import functools
import zlib

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


@functools.cache
def _weights(cfg, seed):
  """Numpy draws of init_params' own spread: nothing to compile.

  Norm gains and biases are random too, so that none can be left out unseen.
  """
  shapes = jax.eval_shape(lambda: decoder.init_params(jax.random.key(0), cfg))

  def draw(path, leaf):
    name, shape = path[-1].key, leaf.shape
    words = jax.tree_util.keystr(path).encode()
    x = np.random.default_rng((seed, zlib.crc32(words))).normal(size=shape)
    if name.endswith('norm'):
      x = 1 + 0.2 * x
    elif name in ('embed', 'head'):
      x = x * cfg.dim**-0.5
    elif name in ('o', 'down'):  # smaller, as ends of residual branches
      x = x * (2 * cfg.num_layers * np.prod(shape[1:-1])) ** -0.5
    elif name.endswith('bias'):
      x = 0.2 * x
    else:
      x = x * shape[1] ** -0.5
    return x.astype(np.float32)

  return jax.tree_util.tree_map_with_path(draw, shapes)


def params(cfg=TINY, seed=0, sharpness=2.0):
  """Random weights whose next-token laws are neither flat nor certain."""
  tree = dict(_weights(cfg, seed))
  name = 'embed' if cfg.tied else 'head'
  tree[name] = tree[name] * np.float32(sharpness)
  return jax.tree.map(jnp.array, tree)  # copies: a caller may donate


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

"""Models to measure: real shapes, random weights, a pair that nearly agrees."""

import jax
import jax.numpy as jnp

from tandem import types
from tandem.models import decoder
from tandem.models import presets

TINY = types.ModelConfig(
  vocab=64,
  dim=16,
  num_layers=1,
  num_heads=2,
  num_kv_heads=1,
  head_dim=8,
  hidden=32,
  family='llama',
)


def config(quick: bool) -> types.ModelConfig:
  """SmolLM2-135M's shapes; a toy's in a trial."""
  return TINY if quick else presets.preset('smollm2-135m')


def overlap(cfg: types.ModelConfig, senior, junior) -> float:
  """Mean over positions of sum_v min(p_senior, p_junior), on random text."""
  ids = jax.random.randint(jax.random.key(9), (4, 16), 0, cfg.vocab)

  @jax.jit
  def measure(*pair):
    laws = (jax.nn.softmax(decoder.apply(tree, cfg, ids)) for tree in pair)
    return jnp.minimum(*laws).sum(-1).mean()

  return float(measure(senior, junior))


def perturbed(cfg: types.ModelConfig, senior, target: float):
  """(junior, its overlap): the senior and noise, near a wanted overlap."""
  if target == 1:
    return senior, 1.0
  noise = decoder.init_params(jax.random.key(1), cfg)
  scale = 0.02
  for _ in range(3):  # the gap is nearly linear in the noise
    junior = jax.tree.map(lambda a, b: a + scale * b, senior, noise)  # noqa: B023
    got = overlap(cfg, senior, junior)
    scale *= (1 - target) / (1 - got)
  return junior, got

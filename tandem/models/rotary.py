"""Rotary positions: pairs (i, i + H/2) of a head, turned by the position.

Hugging Face's "rotate half" convention.
"""

import jax
import jax.numpy as jnp
import numpy as np

from tandem import types


def frequencies(cfg: types.ModelConfig) -> np.ndarray:
  """Inverse wavelengths [H/2] float32, rescaled as Llama 3 where configured.

  Source: transformers' `llama3` rope type: low frequencies are divided by
  `factor`, high ones kept, and those between mixed linearly in the number of
  rotations over the original context.
  """
  half = cfg.head_dim // 2
  exponent = np.arange(half, dtype=np.float32) / np.float32(half)
  # The power in float64, rounded once, and float32 from there on: one unit in
  # the last place is 5e-4 radians at position 8191, and torch has it so.
  wavelength = (cfg.rope_theta ** exponent.astype(np.float64)).astype(
    np.float32
  )
  freq = np.float32(1) / wavelength
  scaling = cfg.rope_scaling
  if scaling is None:
    return freq
  turns = scaling.original_max_position / (np.float32(2 * np.pi) / freq)
  low, high = scaling.low_freq_factor, scaling.high_freq_factor
  keep = np.clip((turns - low) / (high - low), 0.0, 1.0)
  return ((1 - keep) * freq / scaling.factor + keep * freq).astype(np.float32)


def table(
  cfg: types.ModelConfig, positions: jax.Array
) -> tuple[jax.Array, jax.Array]:
  """Cosine and sine, each [N, S, 1, H/2] float32, of positions [N, S]."""
  # Float32 throughout: bfloat16 cannot tell position 257 from 256.
  angle = positions[:, :, None].astype(jnp.float32)
  angle = angle * frequencies(cfg)[None, None]
  return jnp.cos(angle)[:, :, None], jnp.sin(angle)[:, :, None]


def rotate(x: jax.Array, rotary: tuple[jax.Array, jax.Array]) -> jax.Array:
  """Rotates pairs (i, i + H/2) of x [N, S, heads, H]."""
  cos, sin = rotary
  a, b = jnp.split(x.astype(jnp.float32), 2, -1)
  turned = jnp.concatenate([a * cos - b * sin, b * cos + a * sin], -1)
  return turned.astype(x.dtype)

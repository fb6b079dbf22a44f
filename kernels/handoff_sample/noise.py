"""Gumbel noise of a key's i-th entry, from its bits, in plain operations.

What `rollout.sampling.token_noise` is, bit for bit, for a tile of a row: the
bits of jax.random.bits(key, (V,)) are a function of key and entry alone (the
partitionable layout, jax's default since 0.5), so a kernel makes those of its
tile in registers.

Source: Threefry-2x32, 20 rounds (Salmon et al. 2011, "Parallel random numbers:
as easy as 1, 2, 3").
"""

import jax
import jax.numpy as jnp

_ROTATIONS = ((13, 15, 26, 6), (17, 29, 16, 24))
_PARITY = 0x1BD11BDA


def bits(key0: jax.Array, key1: jax.Array, entry: jax.Array) -> jax.Array:
  """The random bits of entries of rows.

  Args:
    key0, key1: uint32, the two words of each row's key.
    entry: uint32; all three broadcast.

  Returns:
    uint32.
  """
  keys = (key0, key1, key0 ^ key1 ^ jnp.uint32(_PARITY))
  # The counter's high word is 0: a row has less than 2^32 entries.
  a, b = keys[0], entry + keys[1]
  a = jnp.broadcast_to(a, b.shape)
  for group in range(5):
    for turn in _ROTATIONS[group % 2]:
      a = a + b
      b = a ^ ((b << jnp.uint32(turn)) | (b >> jnp.uint32(32 - turn)))
    a = a + keys[(group + 1) % 3]
    b = b + (keys[(group + 2) % 3] + jnp.uint32(group + 1))
  return a ^ b


def gumbel(random: jax.Array) -> jax.Array:
  """-log(-log(1 - (bits + 1/2) / 2^32)), as `token_noise` has it."""
  # By halves: exact up to the one rounding of the sum, and a TPU's vector unit
  # converts signed integers only.
  half = lambda x: x.astype(jnp.int32).astype(jnp.float32)
  whole = half(random >> jnp.uint32(16)) * 65536.0
  whole = whole + half(random & jnp.uint32(0xFFFF))
  uniform = jnp.minimum((whole + 0.5) * 2.0**-32, 1 - 2.0**-24)
  return -jnp.log(-jnp.log1p(-uniform))

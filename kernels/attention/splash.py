"""jax's splash attention (TPU) for rows padded on the right.

It wants heads before positions, scaled queries and lengths in multiples of
128. Rows that are not are padded at their end, which a causal mask hides.
"""

import jax
from jax.experimental.pallas.ops.tpu.splash_attention import (
  splash_attention_kernel as kernel_lib,
)
from jax.experimental.pallas.ops.tpu.splash_attention import (
  splash_attention_mask as mask_lib,
)
import jax.numpy as jnp

LANES = 128
BLOCKS = (512, 384, 256, 128)  # the first that divides


def attention(
  q: jax.Array, k: jax.Array, v: jax.Array, *, interpret: bool = False
) -> jax.Array:
  """As reference.attention, in q's dtype."""
  size, heads, h = q.shape[1:]
  padded = -(-size // LANES) * LANES
  block = next(b for b in BLOCKS if padded % b == 0)
  # The fused backward kernel, which leaves one partial gradient of q per block
  # of keys in memory, is not used.
  sizes = kernel_lib.BlockSizes(
    block_q=block,
    block_kv=block,
    block_q_dkv=block,
    block_kv_dkv=block,
    block_q_dq=block,
    block_kv_dq=block,
  )
  one = mask_lib.CausalMask((padded, padded))
  kernel = kernel_lib.make_splash_mha(
    mask_lib.MultiHeadMask([one] * heads),
    block_sizes=sizes,
    head_shards=1,
    q_seq_shards=1,
    interpret=interpret,
  )

  def heads_first(x):
    x = jnp.pad(x, ((0, 0), (0, padded - size), (0, 0), (0, 0)))
    return jnp.swapaxes(x, 1, 2)

  # jax's kernel mixes dtypes and ranks inside; what goes in and out does not.
  with jax.numpy_dtype_promotion('standard'), jax.numpy_rank_promotion('allow'):
    out = jax.vmap(kernel)(heads_first(q * h**-0.5), *map(heads_first, (k, v)))
  return jnp.swapaxes(out, 1, 2)[:, :size].astype(q.dtype)

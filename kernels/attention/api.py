"""One causal attention, by whichever library has the kernel.

No kernel of our own: splash attention on TPU and cuDNN's on GPU know causal
masks, grouped heads and both directions. XLA serves where they do not.
"""

import jax

from tandem.kernels.attention import reference
from tandem.kernels.attention import splash
from tandem.kernels.placement import cuts as cuts_lib

Array = jax.Array

IMPLEMENTATIONS = ('xla', 'splash', 'splash_interpret', 'cudnn', 'reference')


def attention(
  q: Array,
  k: Array,
  v: Array,
  *,
  implementation: str | None = None,
  mesh: jax.sharding.Mesh | None = None,
  head_axis: str = 'tensor',
) -> Array:
  """Causal attention, each row starting at its first position.

  Rows are padded on the right, so a causal mask hides the padding too.
  Differentiable in all three.

  Under a mesh (active, or `mesh`) splash attention runs on each device's part:
  heads cut over `head_axis`, rows over all other axes. The others need no
  telling.

  Args:
    q: [N, S, Q, H], rotated; heads of one key head adjacent.
    k, v: [N, S, K, H].
    implementation: one of IMPLEMENTATIONS, or None: the platform's own where it
      takes these arrays, else XLA's.
    mesh: the mesh, where none is active.
    head_axis: the mesh axis over which heads are cut.

  Returns:
    [N, S, Q, H] in q's dtype.

  Raises:
    ValueError: shapes disagree, or an unknown implementation.
    NotImplementedError: the implementation named cannot run here.
  """
  n, size, heads, h = q.shape
  if k.shape != v.shape or k.shape[:2] != (n, size) or heads % k.shape[2]:
    raise ValueError(
      f'q {q.shape} [N, S, Q, H], k {k.shape} and v {v.shape} [N, S, K, H] do '
      'not fit each other; Q must be a multiple of K.'
    )
  if implementation not in (None, *IMPLEMENTATIONS):
    raise ValueError(
      f'implementation={implementation!r} is unknown; it may be None, '
      f'{", ".join(map(repr, IMPLEMENTATIONS))}.'
    )
  cuts = cuts_lib.of_mesh(mesh, head_axis)
  if implementation is None:
    choice = {'tpu': 'splash', 'gpu': 'cudnn'}.get(cuts.platform, 'xla')
    implementation = 'xla' if _unsupported(choice, q, k, cuts) else choice
  reason = _unsupported(implementation, q, k, cuts)
  if reason:
    raise NotImplementedError(
      f'implementation={implementation!r} cannot run: {reason}; leave it at '
      "None, or take 'xla'."
    )
  if implementation == 'reference':
    return reference.attention(q, k, v).astype(q.dtype)
  if implementation.startswith('splash'):
    return _on_shards(q, k, v, implementation, cuts, head_axis)
  # jax's own attention mixes dtypes inside; what goes in and out does not.
  with jax.numpy_dtype_promotion('standard'):
    if implementation == 'cudnn':
      return jax.nn.dot_product_attention(
        q, k, v, is_causal=True, implementation='cudnn'
      )
    return jax.nn.dot_product_attention(q, k, v, is_causal=True)


def _unsupported(implementation, q, k, cuts) -> str | None:
  """Why it cannot run on these arrays, or None."""
  (kv, h), platform = k.shape[2:], cuts.platform
  if implementation == 'cudnn':
    if platform != 'gpu':
      return f'it is for NVIDIA GPUs, and the arrays are on {platform}'
    if q.dtype.itemsize != 2:
      return f'it takes bfloat16 or float16, not {q.dtype}'
    if h > 128 or h % 8:
      return f'H={h} must be a multiple of 8 and at most 128, to train'
  if implementation == 'splash' and platform != 'tpu':
    return f'it is for TPUs, and the arrays are on {platform}'
  if implementation.startswith('splash'):
    if h % 64:
      return f'H={h} must be a multiple of 64'
    if kv % cuts.inner:
      return f'K={kv} heads do not divide over {cuts.inner} devices'
    if q.shape[0] % cuts.rows:
      return f'N={q.shape[0]} rows do not divide over {cuts.row_axes}'
  return None


def _on_shards(q, k, v, implementation, cuts, head_axis):
  """Splash attention, a Pallas call, which the partitioner cannot cut."""

  def local(q, k, v):
    interpret = implementation == 'splash_interpret'
    return splash.attention(q, k, v, interpret=interpret)

  if cuts.whole:
    return local(q, k, v)
  heads = head_axis if cuts.inner > 1 else None
  spec = jax.P(cuts.row_axes or None, None, heads)
  return cuts.shard_map(local, (spec,) * 3, spec)(q, k, v)

"""Log-prob of given tokens, and entropy, from hidden states and head.

No [M, V] array exists, forward or backward. See `reference` for the formulas.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp

from tandem.kernels.token_logprob import reference
from tandem.kernels.token_logprob import xla

Array = jax.Array

IMPLEMENTATIONS = ('xla', 'reference')


class TokenStats(NamedTuple):
  """Per-row statistics of softmax(hidden head / temperature)."""

  logp: Array  # [M] float32; log-prob of the target
  entropy: Array | None  # [M] float32; None unless asked for


def token_logprob(
  hidden: Array,
  head: Array,
  targets: Array,
  *,
  temperature: float = 1.0,
  entropy: bool = False,
  implementation: str | None = None,
  chunk: int | None = None,
  mesh: jax.sharding.Mesh | None = None,
  vocab_axis: str = 'tensor',
) -> TokenStats:
  """Log-prob of each row's target, differentiable in `hidden` and `head`.

  Sums are float32 whatever the inputs' dtype; gradients come in the inputs'.
  Where a mesh is active (`jax.set_mesh`, or `mesh`) and has `vocab_axis`, the
  head is taken to be cut over it along V, and each device reads only its part.

  Args:
    hidden: [M, D] float; hidden states after the final norm.
    head: [D, V] float, same dtype as `hidden`; a tied head is `embed.T`.
    targets: [M] int32 in [0, V). A target outside makes its row NaN.
    temperature: divides the logits, before everything else.
    entropy: also return the entropy of each row, differentiable too.
    implementation: 'xla', 'reference', or None for the best that fits.
    chunk: columns of the head (of one shard) at a time; None chooses.
    mesh: the mesh, where none is active.
    vocab_axis: the mesh axis over which V is cut.

  Returns:
    TokenStats, float32.

  Raises:
    ValueError: shapes disagree, the temperature is not positive, the
      implementation is unknown, or V is not a multiple of the axis' size.
    NotImplementedError: the implementation named cannot run here.
  """
  _check(hidden, head, temperature, implementation)
  if targets.shape != hidden.shape[:1]:
    raise ValueError(
      f'targets {targets.shape} must be [M] with hidden {hidden.shape} [M, D]; '
      'flatten rows and positions first.'
    )
  targets = jnp.asarray(targets)
  rows, vocab = hidden.shape[0], head.shape[1]
  if implementation == 'reference':
    logp, h = reference.forward(hidden, head, targets, temperature=temperature)
    h = h if entropy else None
  else:
    plan = _plan(rows, vocab, temperature, entropy, chunk, mesh, vocab_axis)
    logp, h = xla.stats(plan, hidden, head, targets)
  inside = (targets >= 0) & (targets < vocab)
  return TokenStats(jnp.where(inside, logp, jnp.nan), h)


def _check(hidden, head, temperature, implementation):
  if hidden.ndim != 2 or head.ndim != 2 or hidden.shape[1] != head.shape[0]:
    raise ValueError(
      f'hidden {hidden.shape} and head {head.shape} must be [M, D] and [D, V]; '
      'a tied head is embed.T.'
    )
  if hidden.dtype != head.dtype:
    raise ValueError(
      f'hidden is {hidden.dtype} and head {head.dtype}; cast one, so that the '
      'product runs in the dtype that was meant.'
    )
  if not temperature > 0:
    raise ValueError(
      f'temperature={temperature} must be positive; the log-probs of greedy '
      'decoding are those at temperature 1.'
    )
  if implementation not in (None, *IMPLEMENTATIONS):
    raise ValueError(
      f'implementation={implementation!r} is unknown; it may be None, '
      f'{", ".join(map(repr, IMPLEMENTATIONS))}.'
    )


def _plan(rows, vocab, temperature, entropy, chunk, mesh, vocab_axis):
  """The static part; finds over how many devices rows and V are cut."""
  mesh = mesh or jax.sharding.get_abstract_mesh()
  axis, rows_shards, shards = None, 1, 1
  if vocab_axis in mesh.axis_names:
    types = dict(zip(mesh.axis_names, mesh.axis_types))
    if types[vocab_axis] != jax.sharding.AxisType.Manual:
      shards = mesh.shape[vocab_axis]
      rows_shards = max(mesh.size // shards, 1)
      axis = vocab_axis if shards > 1 else None
  if vocab % shards:
    raise ValueError(
      f'V={vocab} is not a multiple of mesh axis {vocab_axis!r} = {shards}; '
      'choose an axis size that divides it.'
    )
  local = vocab // shards
  if chunk is None:
    chunk = xla.chunk_size(-(-rows // rows_shards), local)
  return xla.Plan(
    inverse_temperature=1.0 / temperature,
    entropy=entropy,
    chunk=min(chunk, local),
    axis=axis,
    mesh=mesh if axis else None,
  )

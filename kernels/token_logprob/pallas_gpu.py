"""The GPU kernels, through Triton: no logits in memory, a tile at a time.

Forward, grid (rows, parts of the vocabulary): each program keeps the running
sums of `xla` for its rows over its part, and a few operations on [parts, M] put
the parts together. Row blocks alone would leave most of a card idle (8,192 rows
are 64 programs on 132 cores); neighbours in the grid share a part of the head,
which the L2 cache then serves.

Backward, over chunks of the vocabulary as `xla`: the kernel makes a chunk's
logits and leaves only its dz [M, chunk], in the inputs' dtype; the two products
with dz are cuBLAS's. A [rows, D] sum fits no core's registers, so that a single
kernel would need atomics on the whole hidden gradient for every tile.

Nothing is masked in memory: the last tile is moved back to end where the
vocabulary does, and what an earlier tile has counted is left out (forward) or
written twice with the same numbers (backward). Rows are padded before the call.

tokamax's linear_softmax_cross_entropy_loss is not used here either (see
pallas_tpu): its Triton kernel also returns one scalar, and its backward copies
the head to float32.
"""

import functools

import jax
from jax.experimental import pallas as pl
from jax.experimental.pallas import triton
import jax.numpy as jnp

from tandem.kernels.token_logprob import chunks
from tandem.kernels.token_logprob import xla

Array = jax.Array

ROWS, ENTRIES, DEPTH = 128, 256, 64  # a tile, in bfloat16
STAGES = 3  # tiles on their way: 3 * (ROWS + ENTRIES) * DEPTH * 2 = 144 KiB
WARPS = 8
PROGRAMS = 1024  # of forward: several for each core of today's cards
MAX_ELEMENTS = 2**31  # Triton's offsets are 32 bits wide


def tile(
  dim: int, rows: int, vocab: int, itemsize: int
) -> tuple[int, int, int]:
  """(rows, vocabulary entries, depth) of a tile: powers of two, all.

  Raises:
    NotImplementedError: the sizes do not fit the kernel.
  """
  depth = next((d for d in (DEPTH, 32, 16) if dim % d == 0), None)
  large = dim * max(vocab, rows) >= MAX_ELEMENTS
  if depth is None or vocab < 16 or large:
    raise NotImplementedError(
      f'pallas_gpu: D={dim} must be a multiple of 16, V={vocab} at least 16, '
      f'D * V and D * M (M={rows}) below 2**31; take fewer rows, or '
      "implementation='xla'."
    )
  wide = itemsize == 2
  entries = min(
    ENTRIES if wide else ENTRIES // 2, 2 ** (vocab.bit_length() - 1)
  )
  most = ROWS if wide else ROWS // 2
  return min(most, max(16, pl.next_power_of_2(rows))), entries, depth


def supported(platform: str) -> str | None:
  """Why the kernels cannot run on `platform`, or None."""
  if platform == 'gpu':
    return None
  return f'it is compiled for NVIDIA GPUs, and the arrays are on {platform}'


def _pad(x, rows):
  return jnp.pad(x, [(0, rows - x.shape[0])] + [(0, 0)] * (x.ndim - 1))


def _call(plan, kernel, **kwargs):
  return pl.pallas_call(
    kernel,
    interpret=plan.implementation == 'pallas_gpu_interpret',
    compiler_params=triton.CompilerParams(num_warps=WARPS, num_stages=STAGES),
    **kwargs,
  )


def _logits(plan, shape, hidden, head, row, entry):
  """[rows, entries] float32 tempered logits of a tile of `shape`."""
  rows, entries, depth = shape
  here = pl.ds(entry, entries)

  def step(k, z):
    deep = pl.ds(k * depth, depth)
    w = head[here, deep] if plan.vocab_first else head[deep, here]
    return z + chunks.product(plan, hidden[pl.ds(row, rows), deep], w)

  z = jnp.zeros((rows, entries), jnp.float32)
  z = jax.lax.fori_loop(0, hidden.shape[1] // depth, step, z)
  return z * plan.inverse_temperature


def _entries(shape, start):
  """[1, entries] int32: the vocabulary entry of each column."""
  return start + jax.lax.broadcasted_iota(jnp.int32, (1, shape[1]), 1)


# Forward.


def partial_sums(plan: chunks.Plan, hidden, head, targets):
  """As xla.partial_sums."""
  (m, dim), vocab = hidden.shape, head.shape[plan.vocab_dim]
  shape = tile(dim, m, vocab, hidden.dtype.itemsize)
  row_blocks, tiles = pl.cdiv(m, shape[0]), pl.cdiv(vocab, shape[1])
  parts = min(pl.cdiv(PROGRAMS, row_blocks), tiles)
  each = pl.cdiv(tiles, parts)
  rows = row_blocks * shape[0]
  out = _call(
    plan,
    functools.partial(_forward_kernel, plan, shape, tiles, each),
    grid=(row_blocks, parts),
    out_specs=[pl.BlockSpec((None, shape[0]), lambda i, s: (s, i))] * 4,
    out_shape=[jax.ShapeDtypeStruct((parts, rows), jnp.float32)] * 4,
    name='token_logprob_forward',
  )(_pad(hidden, rows), head, _pad(targets, rows))
  tops, mass, spread, taken = (x[:, :m] for x in out)
  top = jnp.max(tops, axis=0)
  shift = tops - top[None]
  scale = jnp.exp(shift)
  spread = jnp.sum(scale * (spread + shift * mass), axis=0)
  return top, jnp.sum(scale * mass, axis=0), spread, jnp.sum(taken, axis=0)


def _forward_kernel(plan, shape, tiles, each, hidden, head, targets, *out):
  i, part = pl.program_id(0), pl.program_id(1)
  row, last = i * shape[0], head.shape[plan.vocab_dim] - shape[1]
  target = targets[pl.ds(row, shape[0])]

  def step(j, carry):
    top, mass, spread, taken = carry
    start = jnp.minimum(j * shape[1], last)
    z = _logits(plan, shape, hidden, head, row, start)
    entry = _entries(shape, start)
    fresh = entry >= j * shape[1]
    z = jnp.where(fresh, z, xla.LOWEST)
    new_top = jnp.maximum(top, jnp.max(z, axis=1))
    shift = top - new_top
    hit = (entry == target[:, None]) & fresh
    taken += jnp.sum(jnp.where(hit, z, 0.0), axis=1)
    z = z - new_top[:, None]
    e = jnp.exp(z)
    if plan.entropy:
      spread = jnp.exp(shift) * (spread + shift * mass)
      spread += jnp.sum(e * z, axis=1)
    mass = jnp.exp(shift) * mass + jnp.sum(e, axis=1)
    return new_top, mass, spread, taken

  zero = jnp.zeros(shape[:1], jnp.float32)
  carry = (jnp.full(shape[:1], xla.LOWEST, jnp.float32), zero, zero, zero)
  first = part * each
  end = jnp.minimum(first + each, tiles)
  for ref, x in zip(out, jax.lax.fori_loop(first, end, step, carry)):
    ref[...] = x


# Backward.


def gradients(
  plan: chunks.Plan,
  hidden,
  head,
  targets,
  log_norm,
  entropy,
  g_logp,
  g_entropy,
):
  """As xla.gradients."""
  columns = [log_norm, g_logp]
  if plan.entropy:
    columns += [entropy, g_entropy]

  def dz(start, w):
    return _dz(plan, hidden, w, targets - start, columns)

  return chunks.sum_gradients(plan, hidden, head, dz)


def _dz(plan, hidden, w, targets, columns):
  """[M, C] in the dtype of `hidden`, of the vocabulary entries `w`."""
  (m, dim), width = hidden.shape, w.shape[plan.vocab_dim]
  shape = tile(dim, m, width, hidden.dtype.itemsize)
  row_blocks = pl.cdiv(m, shape[0])
  rows = row_blocks * shape[0]
  dz = _call(
    plan,
    functools.partial(_backward_kernel, plan, shape),
    grid=(row_blocks, pl.cdiv(width, shape[1])),
    out_shape=jax.ShapeDtypeStruct((rows, width), hidden.dtype),
    name='token_logprob_backward',
  )(_pad(hidden, rows), w, *(_pad(x, rows) for x in (targets, *columns)))
  return dz[:m]


def _backward_kernel(plan, shape, hidden, w, *refs):
  *columns, dz = refs
  i, j = pl.program_id(0), pl.program_id(1)
  row = i * shape[0]
  here = pl.ds(row, shape[0])
  start = jnp.minimum(j * shape[1], w.shape[plan.vocab_dim] - shape[1])
  target, log_norm, g_logp, *for_entropy = (x[here][:, None] for x in columns)
  logp = _logits(plan, shape, hidden, w, row, start) - log_norm
  weight = g_logp
  if plan.entropy:
    entropy, g_entropy = for_entropy
    weight = weight + g_entropy * (logp + entropy)
  hit = _entries(shape, start) == target
  out = jnp.where(hit, g_logp, 0.0) - weight * jnp.exp(logp)
  dz[here, pl.ds(start, shape[1])] = out.astype(dz.dtype)

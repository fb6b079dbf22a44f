"""The TPU kernels: logits live in VMEM only, a block at a time.

Forward, grid (rows, vocabulary): the running sums of `xla` in scratch, written
when a row block has seen the last vocabulary block.

Backward, grid (vocabulary, rows): a vocabulary block stays in VMEM while all
row blocks pass, so its head gradient gathers in scratch and is written once.
The hidden gradient, revisited by every vocabulary block, is a float32 array in
HBM that the kernel itself reads, adds to and writes back, the copies hidden
behind the products. One recomputation serves both gradients: four products in
all, where two separate kernels would do five.

The last vocabulary block may hang over the end (V = 151,936 = 128 * 1187): its
body is compiled a second time with masks. Rows are padded before the call.

Facts looked up about tokamax's linear_softmax_cross_entropy_loss, which
is not used: it returns one scalar, the sum or mean of the loss, where a policy
gradient needs every token's log-prob; it knows no temperature and no entropy.
"""

import functools

import jax
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu
import jax.numpy as jnp

from tandem.kernels.token_logprob import chunks
from tandem.kernels.token_logprob import xla

Array = jax.Array

# Of 64 MiB (v5p, tpu7x) or 128 (v5e, v6e).
VMEM_BYTES = 56 * 2**20

# (rows, vocabulary entries) of a block, best first. What streams past is read
# again for each block that stays: in forward the head, per block of rows; in
# backward the hidden states and their gradient, per block of the vocabulary.
FORWARD_BLOCKS = ((1024, 512), (1024, 256), (512, 256), (256, 256), (128, 128))
BACKWARD_BLOCKS = (
  (512, 1024),
  (256, 1024),
  (256, 512),
  (128, 512),
  (128, 256),
  (128, 128),
)


def blocks(
  dim: int, rows: int, vocab: int, itemsize: int, *, backward: bool
) -> tuple[int, int]:
  """The best block that fits in VMEM and is not larger than the arrays.

  Raises:
    NotImplementedError: none fits, the model is too wide.
  """
  for m, v in BACKWARD_BLOCKS if backward else FORWARD_BLOCKS:
    needed = 6 * m * v * 4  # logits and what is made of them
    needed += 2 * (m + v) * dim * itemsize  # inputs, double-buffered
    if backward:
      needed += 2 * (m + v) * dim * 4  # float32 sums, and what they gain
      needed += 2 * v * dim * itemsize  # the head's gradient on its way out
    if needed <= VMEM_BYTES:
      # bfloat16 tiles are 16 rows high; a whole axis may have any length.
      return min(m, -(-rows // 16) * 16), min(v, vocab)
  raise NotImplementedError(
    f'pallas_tpu: no block of D={dim} fits in {VMEM_BYTES} bytes of VMEM; '
    "take implementation='xla'."
  )


def supported(platform: str) -> str | None:
  """Why the kernels cannot run on `platform`, or None."""
  if platform == 'tpu':
    return None
  return f'it is compiled for TPU, and the arrays are on {platform}'


def _pad(x, rows):
  return jnp.pad(x, [(0, rows - x.shape[0])] + [(0, 0)] * (x.ndim - 1))


def _column(x, rows):
  """[M] as [rows, 1]: a row's scalar beside its row of logits."""
  return _pad(x, rows)[:, None]


def _head_block(plan, dim, block_vocab, index):
  """BlockSpec of the head; `index` picks the vocabulary block of a step."""
  if plan.vocab_first:
    return pl.BlockSpec((block_vocab, dim), lambda *s: (index(*s), 0))
  return pl.BlockSpec((dim, block_vocab), lambda *s: (0, index(*s)))


def _call(plan, kernel, **kwargs):
  interpret = plan.implementation == 'pallas_tpu_interpret'
  return pl.pallas_call(
    kernel,
    interpret=pltpu.InterpretParams() if interpret else False,
    compiler_params=pltpu.CompilerParams(
      dimension_semantics=('arbitrary', 'arbitrary'),
      vmem_limit_bytes=VMEM_BYTES,
    ),
    **kwargs,
  )


def _with_tail(vocab, block_vocab, j, body):
  """Runs body(tail): tail is True in a block that hangs over the end."""
  last = pl.cdiv(vocab, block_vocab) - 1
  if vocab % block_vocab == 0:
    body(False)
    return
  pl.when(j < last)(lambda: body(False))
  pl.when(j == last)(lambda: body(True))


def _entries(shape, start):
  """[M, C] int32: the vocabulary entry of each column."""
  return start + jax.lax.broadcasted_iota(jnp.int32, shape, 1)


# Forward.


def partial_sums(plan: chunks.Plan, hidden, head, targets):
  """As xla.partial_sums."""
  (m, dim), vocab = hidden.shape, head.shape[plan.vocab_dim]
  block_rows, block_vocab = blocks(
    dim, m, vocab, hidden.dtype.itemsize, backward=False
  )
  rows = -(-m // block_rows) * block_rows
  column = pl.BlockSpec((block_rows, 1), lambda i, j: (i, 0))
  out = _call(
    plan,
    functools.partial(_forward_kernel, plan, vocab, block_vocab),
    grid=(rows // block_rows, pl.cdiv(vocab, block_vocab)),
    in_specs=[
      pl.BlockSpec((block_rows, dim), lambda i, j: (i, 0)),
      _head_block(plan, dim, block_vocab, lambda i, j: j),
      column,
    ],
    out_specs=[column] * 4,
    out_shape=[jax.ShapeDtypeStruct((rows, 1), jnp.float32)] * 4,
    name='token_logprob_forward',
  )(_pad(hidden, rows), head, _column(targets, rows))
  return tuple(x[:m, 0] for x in out)


def _forward_kernel(plan, vocab, block_vocab, h, w, targets, *sums):
  top, mass, spread, taken = sums  # resident while a row block lasts
  j = pl.program_id(1)

  @pl.when(j == 0)
  def _():
    top[...] = jnp.full(top.shape, xla.LOWEST, jnp.float32)
    for x in (mass, spread, taken):
      x[...] = jnp.zeros(x.shape, jnp.float32)

  def body(tail):
    z = chunks.logits(plan, h[...], w[...])
    entry = _entries(z.shape, j * block_vocab)
    hit = entry == targets[...]
    if tail:
      inside = entry < vocab
      z = jnp.where(inside, z, xla.LOWEST)
      hit &= inside  # beyond the end lies the next shard's target
    new_top = jnp.maximum(top[...], jnp.max(z, axis=-1, keepdims=True))
    shift = top[...] - new_top
    taken[...] += jnp.sum(jnp.where(hit, z, 0.0), axis=-1, keepdims=True)
    z = z - new_top
    e = jnp.exp(z)
    if plan.entropy:
      moved = jnp.exp(shift) * (spread[...] + shift * mass[...])
      spread[...] = moved + jnp.sum(e * z, axis=-1, keepdims=True)
    total = jnp.sum(e, axis=-1, keepdims=True)
    mass[...] = jnp.exp(shift) * mass[...] + total
    top[...] = new_top

  _with_tail(vocab, block_vocab, j, body)


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
  (m, dim), vocab = hidden.shape, head.shape[plan.vocab_dim]
  block_rows, block_vocab = blocks(
    dim, m, vocab, hidden.dtype.itemsize, backward=True
  )
  rows = -(-m // block_rows) * block_rows
  columns = [targets, log_norm, g_logp]
  if plan.entropy:
    columns += [entropy, g_entropy]
  column = pl.BlockSpec((block_rows, 1), lambda j, i: (i, 0))
  head_block = _head_block(plan, dim, block_vocab, lambda j, i: j)
  d_hidden, d_head = _call(
    plan,
    functools.partial(_backward_kernel, plan, vocab, block_vocab),
    grid=(pl.cdiv(vocab, block_vocab), rows // block_rows),
    in_specs=[
      pl.BlockSpec((block_rows, dim), lambda j, i: (i, 0)),
      head_block,
      *[column] * len(columns),
    ],
    out_specs=[pl.BlockSpec(memory_space=pl.ANY), head_block],
    out_shape=[
      jax.ShapeDtypeStruct((rows, dim), jnp.float32),
      jax.ShapeDtypeStruct(head.shape, head.dtype),
    ],
    scratch_shapes=[
      pltpu.VMEM((block_rows, dim), jnp.float32),
      pltpu.VMEM(head_block.block_shape, jnp.float32),
      pltpu.SemaphoreType.DMA,
    ],
    name='token_logprob_backward',
  )(_pad(hidden, rows), head, *(_column(x, rows) for x in columns))
  return d_hidden[:m], d_head


def _backward_kernel(plan, vocab, block_vocab, h, w, *refs):
  *columns, d_hidden, d_head, d_h, d_w, semaphore = refs
  targets, log_norm, g_logp, *for_entropy = (x[...] for x in columns)
  j, i = pl.program_id(0), pl.program_id(1)
  here = d_hidden.at[pl.ds(i * h.shape[0], h.shape[0]), :]
  fetch = pltpu.make_async_copy(here, d_h, semaphore)
  store = pltpu.make_async_copy(d_h, here, semaphore)

  pl.when(j > 0)(fetch.start)

  @pl.when(i == 0)
  def _():
    d_w[...] = jnp.zeros(d_w.shape, jnp.float32)

  def body(tail):
    weights = w[...]
    logp = chunks.logits(plan, h[...], weights) - log_norm
    entry = _entries(logp.shape, j * block_vocab)
    weight = g_logp
    if plan.entropy:
      entropy, g_entropy = for_entropy
      weight = weight + g_entropy * (logp + entropy)
    dz = jnp.where(entry == targets, g_logp, 0.0) - weight * jnp.exp(logp)
    if tail:
      # Beyond the end `weights` is whatever was there, and 0 * nan is nan.
      dz = jnp.where(entry < vocab, dz, 0.0)
      axis = plan.vocab_dim
      entry = jax.lax.broadcasted_iota(jnp.int32, weights.shape, axis)
      inside = entry < vocab % block_vocab
      weights = jnp.where(inside, weights, jnp.zeros_like(weights))
    to_hidden, to_head = chunks.gradients(plan, dz, h[...], weights)

    @pl.when(j == 0)
    def _():
      d_h[...] = to_hidden

    @pl.when(j > 0)
    def _():
      fetch.wait()
      d_h[...] += to_hidden

    store.start()
    d_w[...] += to_head
    # Before the next step, which may want this very block.
    store.wait()

  _with_tail(vocab, block_vocab, j, body)

  @pl.when(i == pl.num_programs(1) - 1)
  def _():
    d_head[...] = d_w[...].astype(d_head.dtype)

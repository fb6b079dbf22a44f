"""Statistics of softmax(hidden head / temperature) without its [M, V] logits.

`token_logprob` gives the log-prob of given tokens and the entropy; `pair_stats`
also the KL to, and the overlap with, a second law. See `reference` for the
formulas, `xla` and `pair` for how.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp

from tandem.kernels.placement import cuts
from tandem.kernels.token_logprob import chunks
from tandem.kernels.token_logprob import pair
from tandem.kernels.token_logprob import pallas_gpu
from tandem.kernels.token_logprob import pallas_tpu
from tandem.kernels.token_logprob import reference
from tandem.kernels.token_logprob import vjp

Array = jax.Array

IMPLEMENTATIONS = (
  'xla',
  'pallas_tpu',
  'pallas_tpu_interpret',
  'pallas_gpu',
  'pallas_gpu_interpret',
  'reference',
)
COMPILED = {'pallas_tpu': pallas_tpu, 'pallas_gpu': pallas_gpu}


class TokenStats(NamedTuple):
  """Per-row statistics of the policy's law."""

  logp: Array  # [M] float32; log-prob of the target
  entropy: Array | None  # [M] float32; None unless asked for


class PairStats(NamedTuple):
  """Per-row statistics of the policy's law p beside a frozen law q."""

  kl: Array  # [M] float32; KL(p || q) over the whole vocabulary
  overlap: Array | None  # [M] float32; sum_v min(p, q), no gradient
  logp: Array | None  # [M] float32; None without targets
  entropy: Array | None  # [M] float32; None unless asked for


def token_logprob(
  hidden: Array,
  head: Array,
  targets: Array,
  *,
  temperature: float = 1.0,
  entropy: bool = False,
  implementation: str | None = None,
  vocab_first: bool = False,
  chunk: int | None = None,
  mesh: jax.sharding.Mesh | None = None,
  vocab_axis: str = 'tensor',
) -> TokenStats:
  """Log-prob of each row's target, differentiable in `hidden` and `head`.

  Sums are float32 whatever the inputs' dtype; gradients come in the inputs'.
  Products of float32 inputs are as exact as `jax.default_matmul_precision` says,
  which by default is less than float32 on a TPU or GPU.
  Where a mesh is active (`jax.set_mesh`, or `mesh`) and has `vocab_axis`, the
  head is taken to be cut over it along V, and each device reads only its part.

  Args:
    hidden: [M, D] float; hidden states after the final norm.
    head: [D, V] float, same dtype as `hidden`; or [V, D], see `vocab_first`.
    targets: [M] int32 in [0, V). A target outside makes its row NaN.
    temperature: divides the logits, before everything else.
    entropy: also return the entropy of each row, differentiable too.
    implementation: one of IMPLEMENTATIONS, or None: the chunked XLA program.
      The Pallas kernels are checked by interpreter and compiler only, so they
      run where they are asked for by name.
    vocab_first: the head is [V, D], as a tied embedding is. Pass that, and not
      its transpose: chunks of a transpose make XLA copy all of it.
    chunk: vocabulary entries (of one shard) at a time; None chooses.
    mesh: the mesh, where none is active.
    vocab_axis: the mesh axis over which V is cut.

  Returns:
    TokenStats, float32.

  Raises:
    ValueError: shapes or dtypes disagree, the temperature is not positive, the
      implementation is unknown, or V is not a multiple of the axis' size.
    NotImplementedError: the implementation named cannot run here.
  """
  vocab = _check_pair('', hidden, head, vocab_first)
  _check_numbers(temperature, chunk)
  _check_implementation(implementation, mesh)
  targets = _check_targets(targets, hidden)
  if implementation == 'reference':
    head = head.T if vocab_first else head
    logp, h = reference.forward(hidden, head, targets, temperature=temperature)
    h = h if entropy else None
  else:
    plan = chunks.make_plan(
      hidden.shape[0],
      vocab,
      temperature=temperature,
      entropy=entropy,
      vocab_first=vocab_first,
      chunk=chunk,
      mesh=mesh,
      vocab_axis=vocab_axis,
      implementation=implementation or 'xla',
    )
    logp, h = vjp.stats(plan, hidden, head, targets)
  return TokenStats(_nan_outside(logp, targets, vocab), h)


def pair_stats(
  hidden: Array,
  head: Array,
  hidden2: Array,
  head2: Array,
  targets: Array | None = None,
  *,
  temperature: float = 1.0,
  entropy: bool = False,
  overlap: bool = True,
  vocab_first: bool = False,
  vocab_first2: bool = False,
  chunk: int | None = None,
  mesh: jax.sharding.Mesh | None = None,
  vocab_axis: str = 'tensor',
) -> PairStats:
  """KL to and overlap with a frozen second law, over the whole vocabulary.

  KL, log-prob and entropy are differentiable in `hidden` and `head`, from the
  same logits: ask here for what would else be a second call. The second pair
  and the overlap have no gradient.

  Args:
    hidden: [M, D] float; the policy's hidden states.
    head: [D, V] float, same dtype as `hidden`.
    hidden2: [M, D2] float; the other model's, for the same rows.
    head2: [D2, V] float, same dtype as `hidden2`.
    targets: [M] int32 in [0, V), to have `logp` too.
    temperature: divides both models' logits.
    entropy: also return the policy's entropy.
    overlap: also return the overlap.
    vocab_first: the head is [V, D]; `vocab_first2`: head2 is [V, D2].
    chunk, mesh, vocab_axis: as in `token_logprob`.

  Returns:
    PairStats, float32.

  Raises:
    ValueError: as `token_logprob`, or the two vocabularies or rows differ.
  """
  vocab = _check_pair('', hidden, head, vocab_first)
  vocab2 = _check_pair('2', hidden2, head2, vocab_first2)
  if (hidden.shape[0], vocab) != (hidden2.shape[0], vocab2):
    raise ValueError(
      f'the two pairs must share M and V; got {(hidden.shape[0], vocab)} and '
      f'{(hidden2.shape[0], vocab2)}: two models, one vocabulary, same rows.'
    )
  _check_numbers(temperature, chunk)
  if targets is not None:
    targets = _check_targets(targets, hidden)
  plan = chunks.make_plan(
    hidden.shape[0],
    vocab,
    temperature=temperature,
    entropy=entropy,
    vocab_first=vocab_first,
    chunk=chunk,
    mesh=mesh,
    vocab_axis=vocab_axis,
  )
  both = pair.Plan(
    policy=plan,
    other=plan._replace(vocab_first=vocab_first2),
    overlap=overlap,
  )
  kl, over, logp, h = pair.stats(both, hidden, head, hidden2, head2, targets)
  if targets is not None:
    logp = _nan_outside(logp, targets, vocab)
  return PairStats(kl, over, logp, h)


def _check_pair(suffix, hidden, head, vocab_first) -> int:
  """V, once hidden and head fit each other."""
  dim, vocab = (1, 0) if vocab_first else (0, 1)
  if hidden.ndim != 2 or head.ndim != 2 or hidden.shape[1] != head.shape[dim]:
    layout = '[V, D]' if vocab_first else '[D, V]'
    raise ValueError(
      f'hidden{suffix} {hidden.shape} must be [M, D] and head{suffix} '
      f'{head.shape} {layout}; a tied embedding is [V, D], with '
      f'vocab_first{suffix}=True.'
    )
  if hidden.dtype != head.dtype:
    raise ValueError(
      f'hidden{suffix} is {hidden.dtype} and head{suffix} {head.dtype}; cast '
      'one, so that the product runs in the dtype that was meant.'
    )
  return head.shape[vocab]


def _check_numbers(temperature, chunk):
  if not temperature > 0:
    raise ValueError(
      f'temperature={temperature} must be positive; log-probs to go with greedy '
      'decoding are those at temperature 1.'
    )
  if chunk is not None and chunk < 1:
    raise ValueError(f'chunk={chunk} must be at least 1, or None to choose.')


def _check_implementation(implementation, mesh):
  if implementation not in (None, *IMPLEMENTATIONS):
    raise ValueError(
      f'implementation={implementation!r} is unknown; it may be None, '
      f'{", ".join(map(repr, IMPLEMENTATIONS))}.'
    )
  if implementation in COMPILED:
    mesh = mesh or jax.sharding.get_abstract_mesh()
    reason = COMPILED[implementation].supported(cuts.platform_of(mesh))
    if reason:
      raise NotImplementedError(
        f'implementation={implementation!r} cannot run: {reason}; leave it at '
        f"None, or take '{implementation}_interpret' to test."
      )


def _check_targets(targets, hidden) -> Array:
  targets = jnp.asarray(targets)
  if targets.shape != hidden.shape[:1] or targets.dtype.kind not in 'iu':
    raise ValueError(
      f'targets {targets.dtype}{targets.shape} must be integers [M] with hidden '
      f'{hidden.shape} [M, D]; flatten rows and positions first.'
    )
  return targets


def _nan_outside(logp, targets, vocab):
  """Loud where a target is no token: nothing can be raised under jit."""
  return jnp.where((targets >= 0) & (targets < vocab), logp, jnp.nan)

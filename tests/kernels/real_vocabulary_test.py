"""token_logprob and pair_stats at the vocabularies of SmolLM2 and Qwen3.

Every program, both layouts of the head, forward and backward; the errors are
printed. What is slow here is small in `token_logprob_*_test.py` too.
"""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tandem.kernels.token_logprob import api
from tandem.kernels.token_logprob import pallas_gpu
from tandem.kernels.token_logprob import pallas_tpu
from tandem.kernels.token_logprob import reference
from tests.kernels import log_probs

pytestmark = pytest.mark.slow

VOCABULARIES = [49_152, 151_936]
PROGRAMS = ['xla', 'pallas_tpu_interpret', 'pallas_gpu_interpret']
# dz is rounded to bfloat16 (8 bits) for the products, and the result again.
TOLERANCE = {'float32': 1e-5, 'bfloat16': 2**-7}
M, D = 19, 32  # rows that need padding


def told(name, pairs, tolerance):
  """Prints the largest error of each pair, as a share of the largest value."""
  for label, got, want in pairs:
    got, want = np.asarray(got, np.float64), np.asarray(want, np.float64)
    error = np.abs(got - want).max() / np.abs(want).max()
    print(f'{name} {label}: {error:.2g}')
    assert error <= (1e-5 if label in log_probs.VALUES else tolerance), label


def wide_blocks(monkeypatch):
  # Few and wide: the interpreters pay by the step. 151,936 has a tail.
  monkeypatch.setattr(pallas_tpu, 'blocks', lambda *_, **__: (16, 2**14))
  monkeypatch.setattr(pallas_gpu, 'PROGRAMS', 4)

  def tile(dim, rows, vocab, itemsize):
    return 16, min(2**14, 2 ** (vocab.bit_length() - 1)), 16

  monkeypatch.setattr(pallas_gpu, 'tile', tile)


@pytest.mark.parametrize('entropy', [True, False])
@pytest.mark.parametrize('vocab_first', [True, False])
@pytest.mark.parametrize('dtype', TOLERANCE)
@pytest.mark.parametrize('vocab', VOCABULARIES)
@pytest.mark.parametrize('program', PROGRAMS)
def test_token_logprob(
  monkeypatch, program, vocab, dtype, vocab_first, entropy
):
  wide_blocks(monkeypatch)
  h, w, t, g = log_probs.make(M, D, vocab, jnp.dtype(dtype))
  f = functools.partial(
    log_probs.run,
    program,
    entropy=entropy,
    vocab_first=vocab_first,
    temperature=0.6,
    chunk=2**15,
  )
  stats, gradients = jax.jit(f)(h, w, t, g)
  h, w = h.astype(jnp.float32), w.astype(jnp.float32)
  values = jax.jit(functools.partial(reference.forward, temperature=0.6))
  want = values(h, w, t)
  backward = jax.jit(functools.partial(reference.backward, temperature=0.6))
  d_want = backward(h, w, t, g[0], g[1] * entropy)
  pairs = [('logp', stats.logp, want[0])]
  if entropy:
    pairs.append(('entropy', stats.entropy, want[1]))
  pairs += zip(('d_hidden', 'd_head'), gradients, d_want)
  told(f'{program} V={vocab} {dtype}', pairs, TOLERANCE[dtype])


@pytest.mark.parametrize('dtype', TOLERANCE)
@pytest.mark.parametrize('vocab', VOCABULARIES)
def test_pair_stats(vocab, dtype):
  h, w, t, g = log_probs.make(M, D, vocab, jnp.dtype(dtype))
  h2, w2, _, _ = log_probs.make(M + 1, D, vocab, jnp.dtype(dtype))
  h2 = h2[:M]

  # The second pair is an argument: XLA would fold a constant's product.
  @jax.jit
  def ours(h, w, h2, w2):
    f = lambda h, w: api.pair_stats(
      h, w, h2, w2, t, entropy=True, temperature=0.6, chunk=2**15
    )
    stats, vjp = jax.vjp(f, h, w)
    return stats, vjp(api.PairStats(g[1], 0 * g[0], g[0], g[1]))

  @jax.jit
  def dense(h, w, h2, w2):
    one = dict(temperature=0.6)
    a = reference.backward(h, w, t, g[0], g[1], **one)
    b = reference.pair_backward(h, w, h2, w2, g[1], **one)
    values = reference.pair_forward(h, w, h2, w2, **one)
    values += reference.forward(h, w, t, **one)
    return values, [x + y for x, y in zip(a, b)]

  stats, gradients = ours(h, w, h2, w2)
  values, d_want = dense(*(x.astype(jnp.float32) for x in (h, w, h2, w2)))
  names = (*api.PairStats._fields, 'd_hidden', 'd_head')
  pairs = zip(names, (*stats, *gradients), (*values, *d_want))
  told(f'pair V={vocab} {dtype}', pairs, TOLERANCE[dtype])


@pytest.mark.parametrize('vocab', VOCABULARIES)
def test_the_reference_s_backward_is_the_gradient_of_its_forward(vocab):
  h, w, t, g = log_probs.make(M, D, vocab)
  h2, w2, _, _ = log_probs.make(M + 1, D, vocab)
  h2 = h2[:M]

  def loss(h, w, h2, w2):
    logp, entropy = reference.forward(h, w, t, temperature=0.7)
    kl, _ = reference.pair_forward(h, w, h2, w2, temperature=0.7)
    return g[0] @ logp + g[1] @ entropy + g[0] @ kl

  @jax.jit
  def written(h, w, h2, w2):
    a = reference.backward(h, w, t, *g, temperature=0.7)
    b = reference.pair_backward(h, w, h2, w2, g[0], temperature=0.7)
    return [x + y for x, y in zip(a, b)]

  want = jax.jit(jax.grad(loss, (0, 1)))(h, w, h2, w2)
  pairs = zip(('d_hidden', 'd_head'), written(h, w, h2, w2), want)
  told(f'reference V={vocab}', pairs, 1e-5)

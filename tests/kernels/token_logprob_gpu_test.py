"""The Pallas GPU kernels in interpret mode against the dense definition."""

import functools

import jax
import jax.numpy as jnp
import pytest

from tandem.kernels.token_logprob import api
from tandem.kernels.token_logprob import pallas_gpu
from tandem.kernels.token_logprob import reference
from tandem.kernels.token_logprob import shapes
from tests.kernels import log_probs

P = jax.P
forward = jax.jit(reference.forward, static_argnames='temperature')
backward = jax.jit(reference.backward, static_argnames='temperature')
make, close = log_probs.make, log_probs.close
run = functools.partial(log_probs.run, 'pallas_gpu_interpret')

# (M, D, V), tile (rows, vocabulary, depth), chunk of backward, head [V, D],
# temperature, entropy, dtype
CASES = {
  'one_tile': ((16, 16, 64), (16, 64, 16), None, False, 0.6, True, 'float32'),
  'rows_and_tail': (
    (37, 48, 1187),
    (16, 256, 16),
    400,  # two whole chunks and one of 387, each with a tail of its own
    False,
    0.6,
    True,
    'float32',
  ),
  'tail_of_one': ((16, 32, 257), (16, 64, 16), 256, True, 0.6, True, 'float32'),
  'no_tail': ((32, 16, 512), (16, 128, 16), 128, True, 1.0, False, 'float32'),
  'bfloat16': ((32, 32, 300), (16, 128, 32), None, True, 1.0, True, 'bfloat16'),
}


@pytest.mark.parametrize('case', CASES)
def test_interpreted_kernels_equal_dense(monkeypatch, case):
  size, tile, chunk, vocab_first, temperature, entropy, dtype = CASES[case]
  smaller = lambda dim, rows, vocab, itemsize: (
    tile[0],
    min(tile[1], 2 ** (vocab.bit_length() - 1)),
    tile[2],
  )
  monkeypatch.setattr(pallas_gpu, 'tile', smaller)
  monkeypatch.setattr(pallas_gpu, 'PROGRAMS', 6)  # so that parts have tiles
  h, w, t, g = make(*size, jnp.dtype(dtype))
  f = functools.partial(
    run,
    entropy=entropy,
    vocab_first=vocab_first,
    temperature=temperature,
    chunk=chunk,
  )
  stats, gradients = jax.jit(f)(h, w, t, g)
  h, w = h.astype(jnp.float32), w.astype(jnp.float32)
  logp, h_want = forward(h, w, t, temperature=temperature)
  close(stats.logp, logp, 1e-5)
  if entropy:
    close(stats.entropy, h_want, 1e-5)
  want = backward(h, w, t, g[0], g[1] * entropy, temperature=temperature)
  # bfloat16: dz is rounded for the products, and the result again.
  tolerance = 1e-5 if dtype == 'float32' else 2**-7
  for a, b in zip(gradients, want):
    assert a.dtype == dtype
    close(a, b, tolerance)


@pytest.mark.parametrize('vocab', [49_152, 151_936])
def test_real_vocabularies(monkeypatch, vocab):
  # Few and wide tiles: the interpreter pays by the step. 151,936 has a tail.
  monkeypatch.setattr(pallas_gpu, 'tile', lambda *_: (16, 2**14, 16))
  monkeypatch.setattr(pallas_gpu, 'PROGRAMS', 4)
  h, w, t, g = make(4, 16, vocab)
  f = functools.partial(run, entropy=True, vocab_first=True, chunk=vocab)
  stats, gradients = jax.jit(f)(h, w, t, g)
  for a, b in zip(stats, forward(h, w, t)):
    close(a, b, 1e-5)
  for a, b in zip(gradients, backward(h, w, t, *g)):
    close(a, b, 1e-5)


def test_on_shards_of_rows_and_vocabulary(monkeypatch):
  monkeypatch.setattr(pallas_gpu, 'tile', lambda *_: (16, 128, 16))
  h, w, t, g = make(32, 16, 600)
  mesh = jax.make_mesh(
    (2, 2), ('data', 'tensor'), axis_types=(jax.sharding.AxisType.Auto,) * 2
  )
  put = lambda x, *spec: jax.device_put(x, jax.NamedSharding(mesh, P(*spec)))
  sharded = put(h, 'data'), put(w, None, 'tensor'), put(t, 'data')
  f = functools.partial(run, entropy=True, vocab_first=False, mesh=mesh)
  stats, gradients = jax.jit(f)(*sharded, g)
  for a, b in zip(stats, forward(h, w, t)):
    close(a, b, 1e-5)
  for a, b in zip(gradients, backward(h, w, t, *g)):
    close(a, b, 1e-5)


def test_the_compiled_kernel_is_refused_off_gpu():
  h, w, t, _ = make(3, 16, 32)
  f = functools.partial(api.token_logprob, implementation='pallas_gpu')
  for program in (f, jax.jit(f)):
    with pytest.raises(NotImplementedError, match='the arrays are on cpu'):
      program(h, w, t)


def test_sizes_that_do_not_fit_are_refused():
  h, w, t, g = make(3, 24, 32)
  with pytest.raises(NotImplementedError, match='D=24'):
    run(h, w, t, g, entropy=False, vocab_first=False)
  for rows, vocab in ((8, 2**16), (2**16, 8192)):
    with pytest.raises(NotImplementedError, match=r'2\*\*31'):
      pallas_gpu.tile(2**15, rows, vocab, 2)


@pytest.mark.parametrize('name', shapes.SHAPES)
def test_real_shapes_fill_the_tile(name):
  shape = shapes.SHAPES[name]
  got = pallas_gpu.tile(shape.dim, shapes.ROWS, shape.vocab, 2)
  assert got == (pallas_gpu.ROWS, pallas_gpu.ENTRIES, pallas_gpu.DEPTH)

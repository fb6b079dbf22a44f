"""The Pallas TPU kernels in interpret mode against the dense definition."""

import functools

import jax
from jax._src.pallas.mosaic.interpret import interpret_pallas_call
from jax.experimental.pallas import tpu as pltpu
import jax.numpy as jnp
import pytest

from tandem.kernels.token_logprob import api
from tandem.kernels.token_logprob import pallas_tpu
from tandem.kernels.token_logprob import reference
from tandem.kernels.token_logprob import shapes
from tests.kernels import log_probs

P = jax.P
forward = jax.jit(reference.forward, static_argnames='temperature')
backward = jax.jit(reference.backward, static_argnames='temperature')
make, close = log_probs.make, log_probs.close
run = functools.partial(log_probs.run, 'pallas_tpu_interpret')

# (M, D, V), block (rows, vocabulary), head [V, D], temperature, entropy, dtype
CASES = {
  'one_block': ((8, 24, 200), (16, 200), False, 0.6, True, jnp.float32),
  'rows_and_tail': ((37, 24, 1187), (16, 512), False, 0.6, True, jnp.float32),
  'tail_of_one': ((16, 24, 257), (16, 128), True, 0.6, True, jnp.float32),
  'no_tail': ((32, 16, 512), (16, 128), True, 1.0, False, jnp.float32),
  'one_row_block': ((16, 16, 400), (16, 128), False, 1.0, False, jnp.float32),
  'bfloat16': ((32, 24, 300), (16, 128), True, 1.0, True, jnp.bfloat16),
}


@pytest.mark.parametrize('case', CASES)
def test_interpreted_kernels_equal_dense(monkeypatch, case):
  (m, d, v), block, vocab_first, temperature, entropy, dtype = CASES[case]
  monkeypatch.setattr(pallas_tpu, 'blocks', lambda *_, **__: block)
  h, w, t, g = make(m, d, v, dtype)
  stats, gradients = run(
    h,
    w,
    t,
    g,
    entropy=entropy,
    vocab_first=vocab_first,
    temperature=temperature,
  )
  h, w = h.astype(jnp.float32), w.astype(jnp.float32)
  logp, h_want = forward(h, w, t, temperature=temperature)
  close(stats.logp, logp, 1e-5)
  if entropy:
    close(stats.entropy, h_want, 1e-5)
  want = backward(h, w, t, g[0], g[1] * entropy, temperature=temperature)
  # bfloat16: dz is rounded for the products, and the result again.
  tolerance = 1e-5 if dtype == jnp.float32 else 2**-7
  for a, b in zip(gradients, want):
    assert a.dtype == dtype
    close(a, b, tolerance)


@pytest.mark.parametrize('vocab', [49_152, 151_936])
def test_real_vocabularies(monkeypatch, vocab):
  # Few and wide blocks: the interpreter pays by the step. 151,936 has a tail.
  monkeypatch.setattr(pallas_tpu, 'blocks', lambda *_, **__: (16, 16_384))
  h, w, t, g = make(4, 8, vocab, jnp.float32)
  stats, gradients = run(h, w, t, g, entropy=True, vocab_first=True)
  for a, b in zip(stats, forward(h, w, t)):
    close(a, b, 1e-5)
  for a, b in zip(gradients, backward(h, w, t, *g)):
    close(a, b, 1e-5)


@pytest.mark.slow
def test_no_copy_of_the_hidden_gradient_races(monkeypatch):
  monkeypatch.setattr(pallas_tpu, 'blocks', lambda *_, **__: (16, 128))
  detecting = functools.partial(pltpu.InterpretParams, detect_races=True)
  monkeypatch.setattr(pltpu, 'InterpretParams', detecting)
  for m in (16, 48):  # with one row block, the next step wants the same
    h, w, t, g = make(m, 16, 300, jnp.float32)
    _, (d_h, _) = run(h, w, t, g, entropy=False, vocab_first=False)
    close(d_h, backward(h, w, t, g[0], 0 * g[1])[0], 1e-5)
    # InterpretParams' docstring names this flag; it is not exported.
    assert not interpret_pallas_call.races.races_found


def test_on_shards_of_rows_and_vocabulary(monkeypatch):
  monkeypatch.setattr(pallas_tpu, 'blocks', lambda *_, **__: (16, 128))
  h, w, t, g = make(32, 16, 600, jnp.float32)
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


def test_rows_that_the_devices_do_not_divide_are_refused():
  mesh = jax.make_mesh(
    (2,), ('data',), axis_types=(jax.sharding.AxisType.Auto,)
  )
  h, w, t, g = make(3, 4, 11, jnp.float32)
  with pytest.raises(NotImplementedError, match='M=3 is not a multiple'):
    run(h, w, t, g, entropy=False, vocab_first=False, mesh=mesh)


def test_the_compiled_kernel_is_refused_off_tpu():
  h, w, t, _ = make(3, 4, 11, jnp.float32)
  f = functools.partial(api.token_logprob, implementation='pallas_tpu')
  for program in (f, jax.jit(f)):
    with pytest.raises(NotImplementedError, match='the arrays are on cpu'):
      program(h, w, t)


@pytest.mark.parametrize('name', shapes.SHAPES)
@pytest.mark.parametrize('backward', [False, True])
def test_real_shapes_have_blocks(name, backward):
  shape = shapes.SHAPES[name]
  rows, vocab = pallas_tpu.blocks(
    shape.dim, shapes.ROWS, shape.vocab, 2, backward=backward
  )
  # Operations per byte of what streams past, against 240 (v5e).
  assert (vocab * 6 / 10 if backward else rows) > 240
  with pytest.raises(NotImplementedError, match='VMEM'):
    pallas_tpu.blocks(2**20, 8, 8, 2, backward=backward)

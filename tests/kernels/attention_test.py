"""Attention to train: the libraries' kernels against the definition."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tandem.kernels.attention import api

P = jax.P


def make(n, s, q, k, h, dtype=jnp.float32):
  """q, k, v and the cotangent of the output."""
  rng = np.random.default_rng(s)
  draw = lambda heads: jnp.asarray(
    rng.standard_normal((n, s, heads, h), np.float32), dtype
  )
  return draw(q), draw(k), draw(k), draw(q)


@functools.partial(jax.jit, static_argnames=('implementation', 'mesh'))
def run(q, k, v, g, *, implementation, mesh=None):
  """Output and the gradients of q, k, v."""
  f = functools.partial(api.attention, implementation=implementation, mesh=mesh)
  out, vjp = jax.vjp(f, q, k, v)
  return out, *vjp(g)


def close(got, want, tolerance):
  for a, b in zip(got, want):
    assert a.dtype == b.dtype
    a, b = np.asarray(a, np.float64), np.asarray(b, np.float64)
    assert np.abs(a - b).max() <= tolerance * np.abs(b).max()


# N, S, Q, K, H
CASES = {
  'one_block': (2, 128, 4, 2, 64),
  'padded': (1, 150, 3, 1, 64),  # to two blocks of 128, taken as one of 256
  'short': (2, 7, 2, 2, 128),
}


@pytest.mark.parametrize('case', CASES)
@pytest.mark.parametrize('implementation', ['xla', 'splash_interpret'])
def test_forward_and_backward_are_the_definition_s(implementation, case):
  arrays = make(*CASES[case])
  want = run(*arrays, implementation='reference')
  close(run(*arrays, implementation=implementation), want, 1e-5)


@pytest.mark.slow
def test_many_blocks():
  arrays = make(1, 600, 4, 2, 64)
  want = run(*arrays, implementation='reference')
  close(run(*arrays, implementation='splash_interpret'), want, 1e-5)


@pytest.mark.parametrize('implementation', ['xla', 'splash_interpret'])
def test_bfloat16(implementation):
  arrays = make(1, 40, 2, 1, 64, jnp.bfloat16)
  want = run(*arrays, implementation='reference')
  # The queries are scaled, the weights rounded, the result rounded again.
  close(run(*arrays, implementation=implementation), want, 2**-6)


def test_on_shards_of_rows_and_heads():
  mesh = jax.make_mesh(
    (2, 1, 2),
    ('data', 'fsdp', 'tensor'),
    axis_types=(jax.sharding.AxisType.Auto,) * 3,
  )
  arrays = make(2, 20, 4, 2, 64)
  cut = jax.NamedSharding(mesh, P('data', None, 'tensor'))
  got = run(
    *(jax.device_put(x, cut) for x in arrays),
    implementation='splash_interpret',
    mesh=mesh,
  )
  close(got, run(*arrays, implementation='reference'), 1e-5)


def test_on_a_cpu_the_default_is_jax_s_own_program():
  q, k, v, _ = make(1, 8, 2, 1, 64)

  def plain(q, k, v):
    return jax.nn.dot_product_attention(q, k, v, is_causal=True)

  def ours(q, k, v):
    return api.attention(q, k, v)

  text = lambda f: jax.jit(f).lower(q, k, v).as_text().split('\n', 1)[1]
  assert text(ours) == text(plain)


def test_what_cannot_run_is_refused():
  q, k, v, _ = make(2, 8, 4, 2, 32)
  call = functools.partial(api.attention, q, k, v)
  with pytest.raises(NotImplementedError, match='the arrays are on cpu'):
    call(implementation='splash')
  with pytest.raises(NotImplementedError, match='the arrays are on cpu'):
    call(implementation='cudnn')
  with pytest.raises(NotImplementedError, match='H=32 must be a multiple'):
    call(implementation='splash_interpret')
  with pytest.raises(ValueError, match='is unknown; it may be None'):
    call(implementation='flash')
  with pytest.raises(ValueError, match='do not fit each other'):
    api.attention(q, k, v[:1])
  q, k, v, _ = make(2, 8, 4, 2, 64)
  mesh = functools.partial(
    jax.make_mesh, axis_types=(jax.sharding.AxisType.Auto,)
  )
  call = functools.partial(
    api.attention, q, k, v, implementation='splash_interpret'
  )
  with pytest.raises(NotImplementedError, match='K=2 heads do not divide'):
    call(mesh=mesh((4,), ('tensor',)))
  with pytest.raises(NotImplementedError, match='N=2 rows do not divide'):
    call(mesh=mesh((4,), ('data',)))

"""Operations by hand against the counter's."""

import functools

import jax
from jax.experimental import pallas as pl
import jax.numpy as jnp
import pytest

from tandem.ahead import count as count_lib
from tandem.kernels.attention import api as attention_lib

X = jax.ShapeDtypeStruct((8, 16), jnp.float32)
W = jax.ShapeDtypeStruct((16, 32), jnp.float32)
ONE = 2 * 8 * 16 * 32  # x @ w


def counted(function, *args, trips=1):
  return count_lib.count(jax.make_jaxpr(function)(*args), trips)


def test_one_product():
  found = counted(lambda x, w: x @ w, X, W)
  assert found.flops == found.wide_flops == ONE
  assert found.bytes == 4 * (8 * 16 + 16 * 32 + 8 * 32)
  assert found.attention_flops == 0


def test_bfloat16_operands_are_not_wide():
  wide = lambda x, w: jax.lax.dot(
    x.astype(jnp.bfloat16),
    w.astype(jnp.bfloat16),
    preferred_element_type=jnp.float32,
  )
  found = counted(wide, X, W)
  assert (found.flops, found.wide_flops) == (ONE, 0)


def test_batched_products_are_attention():
  q = jax.ShapeDtypeStruct((2, 4, 8, 16), jnp.float32)
  found = counted(lambda q: jnp.einsum('bhqd,bhkd->bhqk', q, q), q)
  assert found.flops == found.attention_flops == 2 * 2 * 4 * 8 * 8 * 16


def test_scan_multiplies_and_nests():
  def f(x, w):
    def outer(c, _):
      inner = lambda c, _: (c + x @ w, None)
      return jax.lax.scan(inner, c, length=3)[0], None

    return jax.lax.scan(outer, jnp.zeros((8, 32)), length=5)[0]

  assert counted(f, X, W).flops == 15 * ONE


def test_loop_on_data_takes_the_trips_it_is_told():
  def f(x, w):
    body = lambda c: c + (x @ w).sum()
    return jax.lax.while_loop(lambda c: c < 1, body, 0.0)

  assert counted(f, X, W, trips=7).flops == 7 * ONE
  assert counted(f, X, W, trips=0).flops == 0


def test_gradient_under_remat_recomputes():
  f = lambda w, x: jnp.tanh(jnp.tanh(x @ w) @ w.T).sum()
  plain = counted(jax.grad(f), W, X)
  again = counted(jax.grad(jax.checkpoint(f)), W, X)
  assert plain.flops == 5 * ONE  # x needs no gradient: 2 forward, 3 backward
  assert again.flops > plain.flops


def test_custom_vjp_jit_and_branches_are_entered():
  @jax.custom_vjp
  def f(x, w):
    return x @ w

  f.defvjp(lambda x, w: (x @ w, w), lambda w, g: (g @ w.T, None))

  def branched(x, w):
    y = jax.jit(f)(x, w)
    more = lambda y: (y @ w.T) @ w
    return jax.lax.cond(y.sum() > 0, more, lambda y: y, y)

  assert counted(branched, X, W).flops == 3 * ONE


def test_shard_map_counts_all_devices():
  mesh = jax.make_mesh((8,), ('a',), axis_types=(jax.sharding.AxisType.Auto,))
  f = jax.shard_map(
    lambda x, w: x @ w,
    mesh=mesh,
    in_specs=(jax.P('a'), jax.P()),
    out_specs=jax.P('a'),
  )
  assert counted(f, X, W).flops == ONE


def test_pallas_counts_each_cell():
  def kernel(x, w, o):
    o[...] = x[...] @ w[...]

  f = pl.pallas_call(
    kernel,
    out_shape=jax.ShapeDtypeStruct((8, 32), jnp.float32),
    grid=(4,),
    in_specs=[
      pl.BlockSpec((8, 16), lambda i: (0, 0)),
      pl.BlockSpec((16, 8), lambda i: (0, i)),
    ],
    out_specs=pl.BlockSpec((8, 8), lambda i: (0, i)),
    interpret=True,
    name='product',
  )
  found = counted(f, X, W)
  assert found.flops == ONE
  assert found.pallas == pytest.approx({'product': ONE})


def test_a_grid_that_ends_on_data_counts_in_full():
  def kernel(x, w, o):
    o[...] = x[...] @ w[...]

  def f(x, w, n):
    return pl.pallas_call(
      kernel,
      out_shape=jax.ShapeDtypeStruct((8, 32), jnp.float32),
      grid=(n,),
      in_specs=[
        pl.BlockSpec((8, 16), lambda i: (0, 0)),
        pl.BlockSpec((16, 8), lambda i: (0, i)),
      ],
      out_specs=pl.BlockSpec((8, 8), lambda i: (0, i)),
      interpret=True,
      name='product',
    )(x, w)

  n = jax.ShapeDtypeStruct((), jnp.int32)
  assert counted(f, X, W, n).flops == ONE  # four blocks of the second


def attention_gradient(implementation, size, heads=4, h=64, **kwargs):
  """Counted: forward and backward of causal attention over 2 rows."""
  x = jax.ShapeDtypeStruct((2, size, heads, h), jnp.bfloat16)

  def f(q, k, v):
    out = attention_lib.attention(
      q, k, v, implementation=implementation, **kwargs
    )
    return out.astype(jnp.float32).sum()

  found = counted(jax.grad(f, argnums=(0, 1, 2)), x, x, x)
  return found, 2.0 * 2 * heads * size * size * h  # of one product


def test_splash_counts_the_blocks_that_its_mask_leaves():
  # Forward 2 products; the backward kernels 4 and 3, for each makes its scores.
  for size, share in ((1024, 3 / 4), (512, 1)):  # of 2 x 2 blocks, of one
    found, one = attention_gradient('splash_interpret', size)
    assert sum(found.pallas.values()) == 9 * one * share
    # The rest: one row sum of the backward pass, a product for jax.
    assert found.flops == pytest.approx(9 * one * share, rel=1e-2)
    assert found.attention_flops == found.flops


def test_cudnn_goes_by_formula(monkeypatch):
  from jax._src.cudnn import fused_attention_stablehlo as fused

  # Neither library nor card is asked for while it is traced.
  monkeypatch.setattr(fused, 'check_cudnn_version', lambda: 91_000)
  x = jax.ShapeDtypeStruct((2, 256, 8, 64), jnp.bfloat16)
  k = jax.ShapeDtypeStruct((2, 256, 2, 64), jnp.bfloat16)

  def f(causal, q, k, v):
    with jax.numpy_dtype_promotion('standard'):
      return jax.nn.dot_product_attention(
        q, k, v, is_causal=causal, implementation='cudnn'
      ).sum()

  one = 2.0 * 2 * 8 * 256 * 256 * 64
  for causal, share in ((True, 0.5), (False, 1.0)):
    grad = jax.grad(functools.partial(f, causal), argnums=(0, 1, 2))
    found = counted(grad, x, k, k)
    assert found.flops == found.attention_flops == 7 * one * share

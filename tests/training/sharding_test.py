"""The table: every leaf of params, moments and decode trees has its place."""

import functools
import math

from absl import logging
import jax
import jax.numpy as jnp
from jax.sharding import PartitionSpec as P
import numpy as np
import optax
import pytest

from tandem import types
from tandem.training import mesh as meshes
from tandem.training import optimizer
from tandem.training import sharding

SHAPES = [(2, 2, 2), (8, 1, 1), (1, 2, 4)]
L, D, Q, K, H, F, V = 2, 8, 4, 2, 6, 16, 24

LEAVES = {
  'embed': (V, D),
  'head': (D, V),
  'final_norm': (D,),
}
LAYER = {
  'attn_norm': (D,),
  'q': (D, Q, H),
  'k': (D, K, H),
  'v': (D, K, H),
  'o': (Q, H, D),
  'q_bias': (Q, H),
  'k_bias': (K, H),
  'v_bias': (K, H),
  'q_norm': (H,),
  'k_norm': (H,),
  'mlp_norm': (D,),
  'gate': (D, F),
  'up': (D, F),
  'down': (F, D),
}


def init(key):
  shapes = {
    **LEAVES,
    'layers': {name: (L, *shape) for name, shape in LAYER.items()},
  }
  leaves, treedef = jax.tree.flatten(
    shapes, is_leaf=lambda x: isinstance(x, tuple)
  )
  # One draw, cut up: seventeen sharded draws compile for half a minute.
  sizes = [math.prod(shape) for shape in leaves]
  flat = 0.3 * jax.random.normal(key, (sum(sizes),))
  parts = jnp.split(flat, np.cumsum(sizes)[:-1])
  made = [part.reshape(shape) for part, shape in zip(parts, leaves)]
  return jax.tree.unflatten(treedef, made)


def specs(tree, mesh, table=sharding.PARAMS):
  return jax.tree.map(
    lambda s: s.spec, sharding.shardings_for(tree, mesh, table)
  )


def test_table_of_a_stack_by_hand():
  got = specs(
    jax.eval_shape(init, jax.random.key(0)), meshes.make_mesh(2, 2, 2)
  )
  assert got['embed'] == P('tensor', 'fsdp')
  assert got['head'] == P('fsdp', 'tensor')
  assert got['final_norm'] == P(None)
  layers = got['layers']
  assert layers['q'] == P(None, 'fsdp', 'tensor', None)
  assert layers['k'] == layers['v'] == layers['q']
  assert layers['o'] == P(None, 'tensor', None, 'fsdp')
  assert layers['q_bias'] == P(None, 'tensor', None)
  assert layers['gate'] == layers['up'] == P(None, 'fsdp', 'tensor')
  assert layers['down'] == P(None, 'tensor', 'fsdp')
  for name in ('attn_norm', 'mlp_norm', 'q_norm', 'k_norm'):
    assert layers[name] == P(None, None)


def test_decode_trees_use_tensor_only():
  params = jax.eval_shape(init, jax.random.key(0))
  one = jax.tree.map(
    lambda x: jax.ShapeDtypeStruct(x.shape[1:], x.dtype), params['layers']
  )
  decode = {**params, 'layers': [one] * L}
  mesh = meshes.make_mesh(2, 2, 2)
  got = specs(decode, mesh, sharding.DECODE)
  assert got['embed'] == P('tensor', None)
  for layer in got['layers']:
    assert layer['q'] == P(None, 'tensor', None)
    assert layer['down'] == P('tensor', None)
  trained = specs(decode, mesh)
  assert trained['layers'][1]['q'] == P('fsdp', 'tensor', None)


def test_heads_that_do_not_divide_are_whole_and_said_once(monkeypatch):
  said = []
  monkeypatch.setattr(logging, 'warning', lambda f, *a: said.append(f % a))
  sharding._say_once.cache_clear()
  mesh = meshes.make_mesh(1, 2, 4)
  tx = optax.adam(1e-3)
  params = jax.eval_shape(init, jax.random.key(0))
  state = {'params': params, 'opt_state': jax.eval_shape(tx.init, params)}
  for _ in range(2):
    got = specs(state, mesh)
  # K = 2 heads over tensor = 4; Q = 4 heads do divide.
  assert got['params']['layers']['k'] == P(None, 'fsdp', None, None)
  assert got['params']['layers']['q'] == P(None, 'fsdp', 'tensor', None)
  about_k = [line for line in said if line.startswith('layers/k:')]
  assert len(about_k) == 1 and 'tensor=4' in about_k[0]


def test_a_whole_train_state_follows_its_params():
  mesh = meshes.make_mesh(2, 2, 2)
  tx = optimizer.make_optimizer(1e-3, mu_dtype='bfloat16')
  params = jax.eval_shape(init, jax.random.key(0))
  state = types.TrainState(
    params=params,
    opt_state=jax.eval_shape(tx.init, params),
    loss_state={'rho': jax.ShapeDtypeStruct((3,), jnp.float32)},
    skipped=jax.ShapeDtypeStruct((), jnp.int32),
  )
  got = specs(state, mesh)
  assert got.skipped == P() and got.loss_state['rho'] == P(None)
  adam = next(s for s in got.opt_state if isinstance(s, optax.ScaleByAdamState))
  assert adam.mu == adam.nu == got.params
  assert adam.count == P()


def test_unknown_leaf_is_named():
  with pytest.raises(ValueError, match="'layers/router'.*sharding.py"):
    specs(
      {'layers': {'router': jax.ShapeDtypeStruct((2, 3), jnp.float32)}},
      meshes.make_mesh(8, 1, 1),
    )


@pytest.mark.parametrize('shape', SHAPES)
def test_sharded_init_equals_unsharded(shape):
  mesh = meshes.make_mesh(*shape)
  want, _, _ = on_one_device()
  made = sharding.init_sharded(init, mesh, jax.random.key(0))
  # To the last bit but one: programs of other shapes round erfinv otherwise.
  jax.tree.map(
    lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-6, atol=1e-7),
    made,
    want,
  )
  for x, s in zip(
    jax.tree.leaves(made), jax.tree.leaves(sharding.shardings_for(want, mesh))
  ):
    assert x.sharding.is_equivalent_to(s, x.ndim)
  piece = made['layers']['gate'].addressable_shards[0].data.size
  assert piece * shape[1] * shape[2] == made['layers']['gate'].size


def loss(params, x, constrain=lambda x, name: x):
  x = constrain(x, 'btd')

  def block(x, p):
    q = jnp.einsum('btd,dqh->btqh', x, p['q']) + p['q_bias'][None, None]
    x = x + jnp.einsum('btqh,qhd->btd', q, p['o'])
    x = x + jnp.tanh(x @ p['gate']) @ p['down'] * p['mlp_norm'][None, None]
    return constrain(x / jnp.sqrt(1.0 + (x**2).mean(-1, keepdims=True)), 'btd')

  x, _ = jax.lax.scan(lambda x, p: (block(x, p), None), x, params['layers'])
  return jnp.mean(jnp.tanh(x @ params['head']) ** 2)


@functools.cache
def on_one_device():
  """(params, x, gradient), made once for all meshes."""
  params = jax.jit(init)(jax.random.key(0))
  x = jax.random.normal(jax.random.key(1), (8, 3, D))
  host = lambda tree: jax.tree.map(np.asarray, tree)
  return host(params), host(x), host(jax.jit(jax.grad(loss))(params, x))


@pytest.mark.parametrize('shape', SHAPES)
def test_gradients_equal_those_of_one_device(shape):
  mesh = meshes.make_mesh(*shape)
  params, x, want = on_one_device()
  place = sharding.shardings_for(params, mesh)
  grad = jax.jit(
    jax.grad(functools.partial(loss, constrain=sharding.constrain(mesh))),
    out_shardings=place,
  )
  got = grad(jax.device_put(params, place), meshes.put_rows(mesh, x))
  away = jax.tree.map(lambda a, b: np.asarray(a) - b, got, want)
  square = lambda tree: sum((x**2).sum() for x in jax.tree.leaves(tree))
  assert square(want) > 1e-6
  assert square(away) < 1e-12 * square(want)


def test_hook_knows_its_layouts():
  hook = sharding.constrain(meshes.make_mesh(2, 2, 2))
  x = jax.jit(lambda x: hook(x, 'btd'))(jnp.zeros((4, 3, 2)))
  assert x.sharding.spec == P(('data', 'fsdp'))
  with pytest.raises(ValueError, match="'bdt'.*'btd'"):
    hook(x, 'bdt')

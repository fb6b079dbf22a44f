"""What token_logprob and pair_stats cost: memory as compiled, operations.

The compiled program is asked, not run (CASES 18).
"""

import math

import jax
import jax.numpy as jnp
import pytest

from tandem.kernels.token_logprob import api
from tandem.kernels.token_logprob import chunks
from tandem.kernels.token_logprob import pair

Struct = jax.ShapeDtypeStruct


def program(m, d, v, kind, dense):
  """(value-and-grad function, its argument shapes)."""
  t = jnp.zeros(m, jnp.int32)

  def loss(h, w, h2, w2):
    if dense:
      logp = jax.nn.log_softmax(h @ w.T / 0.6)
      total = jnp.take_along_axis(logp, t[:, None], 1).sum()
      p = jnp.exp(logp)
      if kind != 'logp':
        total -= (p * logp).sum()
      if kind != 'pair':
        return total, None
      logq = jax.nn.log_softmax(h2 @ w2.T / 0.6)
      overlap = jnp.exp(jnp.minimum(logp, logq)).sum()
      return total + (p * (logp - logq)).sum(), jax.lax.stop_gradient(overlap)
    options = dict(temperature=0.6, vocab_first=True)
    if kind == 'pair':
      stats = api.pair_stats(
        h, w, h2, w2, t, entropy=True, vocab_first2=True, **options
      )
      return sum(x.sum() for x in stats), stats.overlap
    stats = api.token_logprob(h, w, t, entropy=kind == 'entropy', **options)
    return sum(x.sum() for x in stats if x is not None), None

  shapes = (Struct((m, d), jnp.float32), Struct((v, d), jnp.float32))
  return jax.value_and_grad(loss, (0, 1), has_aux=True), shapes * 2


M, V = 8192, 151_936


@pytest.mark.parametrize('kind', ['logp', 'entropy', 'pair'])
@pytest.mark.parametrize('d', [64, pytest.param(2560, marks=pytest.mark.slow)])
def test_compiled_memory_is_below_an_eighth_of_the_logits(kind, d):
  f, shapes = program(M, d, V, kind, dense=False)
  memory = jax.jit(f).lower(*shapes).compile().memory_analysis()
  ratio = memory.temp_size_in_bytes / (M * V * 4)
  print(f'{kind} D={d}: {ratio:.4f} of the logits')
  assert ratio < 1 / 8


def sub_jaxprs(equation):
  for value in equation.params.values():
    for x in value if isinstance(value, (tuple, list)) else (value,):
      if hasattr(x, 'eqns'):
        yield x
      elif hasattr(x, 'jaxpr'):
        yield x.jaxpr


# They move what other equations made; nothing is computed.
MOVES = {
  'broadcast_in_dim',
  'dynamic_slice',
  'dynamic_update_slice',
  'reshape',
  'transpose',
}


def operations(jaxpr) -> float:
  """Products at 2*M*N*K, all else one operation per element; loops by length."""
  total = 0
  for e in jaxpr.eqns:
    inner = sum(map(operations, sub_jaxprs(e)))
    if e.primitive.name == 'scan':
      total += inner * e.params['length']
    elif e.primitive.name == 'dot_general':
      (contract, _), _ = e.params['dimension_numbers']
      depth = math.prod(e.invars[0].aval.shape[i] for i in contract)
      total += 2 * depth * math.prod(e.outvars[0].aval.shape)
    elif inner:
      assert e.primitive.name != 'while', 'no trip count to multiply by'
      total += inner
    elif e.primitive.name.startswith('reduce'):
      total += math.prod(e.invars[0].aval.shape)
    elif e.primitive.name not in MOVES:
      total += sum(math.prod(v.aval.shape) for v in e.outvars)
  return total


@pytest.mark.parametrize(
  'kind, limit', [('logp', 1.35), ('entropy', 1.35), ('pair', 1.5)]
)
def test_operations_against_dense(kind, limit):
  counts = []
  for dense in (False, True):
    f, shapes = program(M, 2560, V, kind, dense)
    counts.append(operations(jax.make_jaxpr(f)(*shapes).jaxpr))
  print(f'{kind}: {counts[0] / counts[1]:.4f} of the dense operations')
  assert counts[0] <= limit * counts[1]


def test_a_frozen_scorer_pays_one_product():
  f = lambda h, w: api.token_logprob(
    h, w, jnp.zeros(M, jnp.int32), vocab_first=True
  )
  shapes = Struct((M, 2560), jnp.float32), Struct((V, 2560), jnp.float32)
  count = operations(jax.make_jaxpr(f)(*shapes).jaxpr)
  assert count < 1.01 * 2 * M * V * 2560


def test_no_array_of_rows_by_vocabulary():
  def shapes_in(jaxpr):
    for e in jaxpr.eqns:
      yield from (v.aval.shape for v in e.outvars)
      for inner in sub_jaxprs(e):
        yield from shapes_in(inner)

  for kind in ('entropy', 'pair'):
    f, args = program(M, 64, V, kind, dense=False)
    biggest = max(map(math.prod, shapes_in(jax.make_jaxpr(f)(*args).jaxpr)))
    assert biggest <= max(pair.BLOCK_ELEMENTS, chunks.CHUNK_ELEMENTS, 64 * V)

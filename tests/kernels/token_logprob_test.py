"""token_logprob and pair_stats against the dense definition, and their cost."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tandem.kernels.token_logprob import api
from tandem.kernels.token_logprob import pair
from tandem.kernels.token_logprob import reference

P = jax.P
Struct = jax.ShapeDtypeStruct


def make(m, d, v, dtype=jnp.float32):
  """hidden, head, hidden2, head2, targets, cotangents; logits of order 1."""
  rng = np.random.default_rng(m * 1000 + v)
  normal = lambda *shape: rng.standard_normal(shape, np.float32)
  hidden, hidden2 = normal(m, d), normal(m, d + 3)
  head, head2 = normal(d, v) / d**0.5, normal(d + 3, v) / d**0.5
  targets = rng.integers(0, v, m, np.int32)
  arrays = [jnp.asarray(x, dtype) for x in (hidden, head, hidden2, head2)]
  return (*arrays, jnp.asarray(targets), normal(3, m))


# Unjitted, every small operation of theirs would be compiled by itself.
forward = jax.jit(reference.forward, static_argnames='temperature')
backward = jax.jit(reference.backward, static_argnames='temperature')
pair_forward = jax.jit(reference.pair_forward, static_argnames='temperature')
pair_backward = jax.jit(reference.pair_backward, static_argnames='temperature')


def value_and_vjp(f, primals, cotangents):
  """f's value and its pulled-back cotangents, as one program."""

  def both(primals, cotangents):
    value, vjp = jax.vjp(f, *primals)
    return value, vjp(cotangents)

  return jax.jit(both)(primals, cotangents)


def close(got, want, tolerance):
  """To `tolerance` of the largest wanted value (of 1, where that is less)."""
  got, want = np.asarray(got, np.float64), np.asarray(want, np.float64)
  assert got.shape == want.shape
  error = np.abs(got - want) / max(np.abs(want).max(), 1e-30)
  worst = np.unravel_index(np.argmax(error), error.shape)
  bad = int((~(error <= tolerance)).sum())
  assert bad == 0, f'max {error.max():.3g} at {worst}, {bad} of {error.size}'


def test_reference_backward_is_the_gradient_of_its_forward():
  h, w, h2, w2, t, (g1, g2, g3) = make(7, 5, 23)

  def single(h, w):
    logp, entropy = reference.forward(h, w, t, temperature=0.7)
    return g1 @ logp + g2 @ entropy

  def both(h, w):
    kl, _ = reference.pair_forward(h, w, h2, w2, temperature=0.7)
    return g3 @ kl

  for f, got in (
    (single, backward(h, w, t, g1, g2, temperature=0.7)),
    (both, pair_backward(h, w, h2, w2, g3, temperature=0.7)),
  ):
    for a, b in zip(got, jax.jit(jax.grad(f, (0, 1)))(h, w)):
      close(a, b, 2e-6)


CASES = {
  'one_chunk': (5, 8, 17, None),
  'tail': (33, 24, 1187, 256),  # 1187 = 4 * 256 + 163
  'no_tail': (16, 8, 512, 128),
  'one_full_and_tail': (3, 8, 200, 128),
  'one_row': (1, 8, 300, 128),
  'smollm2': (2, 8, 49_152, None),
  'qwen3': (2, 4, 151_936, 8192),  # 18 * 8192 + 4480
}


@pytest.mark.parametrize('temperature, vocab_first', [(1, False), (0.6, True)])
@pytest.mark.parametrize('case', CASES)
def test_values_and_gradients_equal_dense(case, temperature, vocab_first):
  m, d, v, chunk = CASES[case]
  h, w, _, _, t, (g1, g2, _) = make(m, d, v)

  options = dict(temperature=temperature, entropy=True, chunk=chunk)
  f = lambda h, w: api.token_logprob(
    h, w, t, vocab_first=vocab_first, **options
  )
  stats, (d_h, d_w) = value_and_vjp(
    f, (h, w.T if vocab_first else w), api.TokenStats(g1, g2)
  )
  want = forward(h, w, t, temperature=temperature)
  close(stats.logp, want[0], 1e-5)
  close(stats.entropy, want[1], 1e-5)
  want = backward(h, w, t, g1, g2, temperature=temperature)
  close(d_h, want[0], 1e-5)
  close(d_w.T if vocab_first else d_w, want[1], 1e-5)


def test_without_entropy_and_under_remat_and_scan():
  h, w, _, _, t, (g1, _, _) = make(12, 8, 300)

  def f(h, w):
    def micro(total, xs):
      h, t, g = xs
      stats = api.token_logprob(h, w, t, chunk=128)
      assert stats.entropy is None
      return total + g @ stats.logp, None

    split = lambda x: x.reshape(3, 4, *x.shape[1:])
    xs = (split(h), split(t), split(g1))
    return jax.lax.scan(jax.checkpoint(micro), 0.0, xs)[0]

  value, (d_h, d_w) = jax.jit(jax.value_and_grad(f, (0, 1)))(h, w)
  close(value, g1 @ forward(h, w, t)[0], 1e-5)
  want = backward(h, w, t, g1, jnp.zeros_like(g1))
  close(d_h, want[0], 1e-5)
  close(d_w, want[1], 1e-5)


def test_bfloat16_inputs_sum_in_float32():
  h, w, _, _, t, (g1, g2, _) = make(16, 64, 1187, jnp.bfloat16)
  f = lambda h, w: api.token_logprob(h, w, t, entropy=True, chunk=256)
  stats, (d_h, d_w) = value_and_vjp(f, (h, w), api.TokenStats(g1, g2))
  assert stats.logp.dtype == stats.entropy.dtype == jnp.float32
  h32, w32 = h.astype(jnp.float32), w.astype(jnp.float32)
  want = forward(h32, w32, t)
  # The inputs are the same numbers: only the order of float32 sums differs.
  close(stats.logp, want[0], 1e-5)
  close(stats.entropy, want[1], 1e-5)
  assert d_h.dtype == d_w.dtype == jnp.bfloat16
  want = backward(h32, w32, t, g1, g2)
  # dz is rounded to bfloat16 (8 bits) for the products, the result again.
  close(d_h, want[0], 2**-7)
  close(d_w, want[1], 2**-7)


def test_logits_far_apart_stay_finite():
  h, w, h2, w2, t, _ = make(8, 8, 700)
  # Chunks whose maximum is far below, then far above what came before.
  w = w * 1e-3 + jnp.where(jnp.arange(700) < 300, -30.0, 30.0)[None]
  h = jnp.abs(h)
  f = lambda h: api.token_logprob(h, w, t, entropy=True, chunk=128)
  ones = jnp.ones(8)
  stats, (d_h,) = value_and_vjp(f, (h,), api.TokenStats(ones, ones))
  want = forward(h, w, t)
  close(stats.logp, want[0], 1e-5)
  np.testing.assert_allclose(stats.entropy, want[1], atol=1e-4)
  assert np.isfinite(d_h).all()


@pytest.mark.parametrize('temperature, vocab_first', [(1, False), (0.6, True)])
@pytest.mark.parametrize('blocks', [1, 4])
def test_pair_equals_dense(monkeypatch, blocks, temperature, vocab_first):
  m, v = 13, 523  # 13 rows in 4 blocks of 4: three rows are padding
  monkeypatch.setattr(pair, 'BLOCK_ELEMENTS', -(-m * v // blocks))
  h, w, h2, w2, t, (g1, g2, g3) = make(m, 8, v)

  options = dict(temperature=temperature, entropy=True, chunk=128)
  q = (h2, w2.T if vocab_first else w2)
  f = lambda h, w: api.pair_stats(
    h, w, *q, t, vocab_first2=vocab_first, **options
  )
  # The overlap's cotangent, the second, must change nothing.
  stats, got = value_and_vjp(f, (h, w), api.PairStats(g3, g1, g1, g2))
  want = pair_forward(h, w, h2, w2, temperature=temperature)
  want += forward(h, w, t, temperature=temperature)
  for a, b in zip(stats, want):
    close(a, b, 1e-5)
  single = backward(h, w, t, g1, g2, temperature=temperature)
  both = pair_backward(h, w, h2, w2, g3, temperature=temperature)
  for a, b, c in zip(got, single, both):
    close(a, b + c, 1e-5)


def test_pair_of_equal_laws_is_exactly_zero():
  h, w, _, _, _, (g1, _, _) = make(9, 8, 300)
  f = lambda h: api.pair_stats(h, w, h, w, chunk=128)[:2]
  (kl, overlap), (d_h,) = value_and_vjp(f, (h,), (g1, g1))
  assert not np.any(kl) and not np.any(d_h)
  np.testing.assert_allclose(overlap, 1.0, rtol=1e-6)


def test_second_pair_gets_no_gradient():
  h, w, h2, w2, _, _ = make(9, 8, 300)
  f = lambda h2, w2: api.pair_stats(h, w, h2, w2).kl.sum()
  assert not any(np.any(g) for g in jax.jit(jax.grad(f, (0, 1)))(h2, w2))


# Sharding.


@pytest.mark.parametrize(
  'shape, vocab_first',
  [((2, 2, 2), False), ((1, 2, 4), True), ((8, 1, 1), True)],
)
def test_sharded_equals_one_device(monkeypatch, shape, vocab_first):
  monkeypatch.setattr(pair, 'BLOCK_ELEMENTS', 1000)
  h, w, h2, w2, t, (g1, g2, g3) = make(32, 16, 1187 * 8)
  if vocab_first:
    w, w2 = w.T, w2.T

  def loss(h, w, h2, w2, t, g):
    kinds = dict(temperature=0.7, entropy=True, chunk=256)
    a = api.token_logprob(h, w, t, vocab_first=vocab_first, **kinds)
    b = api.pair_stats(
      h, w, h2, w2, vocab_first=vocab_first, vocab_first2=vocab_first, **kinds
    )
    total = g[0] @ a.logp + g[1] @ (a.entropy + b.entropy) + g[2] @ b.kl
    return total, [x for x in (*a, *b) if x is not None]

  f = jax.value_and_grad(loss, (0, 1), has_aux=True)
  args = (h, w, h2, w2, t, (g1, g2, g3))
  want = jax.jit(f)(*args)
  axes = ('data', 'fsdp', 'tensor')
  mesh = jax.make_mesh(
    shape, axes, axis_types=(jax.sharding.AxisType.Auto,) * 3
  )
  rows = P(('data', 'fsdp'))
  head = P('tensor', 'fsdp') if vocab_first else P('fsdp', 'tensor')
  head2 = P('tensor') if vocab_first else P(None, 'tensor')  # D2 = 19
  specs = (rows, head, rows, head2, rows, (rows,) * 3)
  named = jax.tree.map(
    lambda spec: jax.NamedSharding(mesh, spec),
    specs,
    is_leaf=lambda x: isinstance(x, P),
  )
  with jax.set_mesh(mesh):
    sharded = jax.tree.map(jax.device_put, args, named)
    got = jax.jit(f)(*sharded)
  (_, values), gradients = got
  jax.tree.map(lambda a, b: close(a, b, 1e-6), values, want[0][1])
  for a, b in zip(gradients, want[1]):
    assert jnp.linalg.norm(jax.device_get(a) - b) < 1e-6 * jnp.linalg.norm(b)


@pytest.mark.parametrize('vocab_first', [False, True])
def test_no_device_gathers_the_vocabulary(vocab_first):
  m, d, v = 4096, 32, 8 * 4096
  mesh = jax.make_mesh(
    (2, 4), ('data', 'tensor'), axis_types=(jax.sharding.AxisType.Auto,) * 2
  )
  spec = P('tensor') if vocab_first else P(None, 'tensor')
  hidden = Struct(
    (m, d), jnp.float32, sharding=jax.NamedSharding(mesh, P('data'))
  )
  head = Struct(
    (v, d) if vocab_first else (d, v),
    jnp.float32,
    sharding=jax.NamedSharding(mesh, spec),
  )

  def f(h, w):
    t = jnp.zeros(m, jnp.int32)
    kinds = dict(vocab_first=vocab_first, mesh=mesh, chunk=1024)
    pair = api.pair_stats(h, w, h, w, vocab_first2=vocab_first, **kinds)
    return (api.token_logprob(h, w, t, **kinds).logp + pair.kl).sum()

  text = jax.jit(jax.value_and_grad(f, (0, 1))).lower(hidden, head).compile()
  assert 'all-gather' not in text.as_text()


# Bad input.


def test_a_target_outside_the_vocabulary_is_nan():
  h, w, _, _, _, _ = make(3, 4, 11)
  t = jnp.array([-1, 10, 11])
  finite = np.isfinite(api.token_logprob(h, w, t).logp)
  assert finite.tolist() == [False, True, False]


@pytest.mark.parametrize(
  'change, message',
  [
    (dict(temperature=0.0), 'temperature=0.0'),
    (dict(implementation='cuda'), "'xla'"),
    (dict(chunk=0), 'chunk=0'),
    (dict(vocab_first=True), r'\[V, D\]'),
    (dict(targets=jnp.zeros((3, 1), jnp.int32)), r'\[M\]'),
    (dict(targets=jnp.zeros(3)), 'integers'),
    (dict(hidden=jnp.zeros((3, 4), jnp.bfloat16)), 'bfloat16'),
    (dict(hidden=jnp.zeros((3, 5))), r'\[M, D\]'),
  ],
)
def test_bad_arguments_say_what_is_wrong(change, message):
  arguments = dict(
    hidden=jnp.zeros((3, 4)),
    head=jnp.zeros((4, 11)),
    targets=jnp.zeros(3, jnp.int32),
  )
  with pytest.raises(ValueError, match=message):
    api.token_logprob(**(arguments | change))


def test_two_vocabularies_are_refused():
  h = jnp.zeros((3, 4))
  with pytest.raises(ValueError, match='one vocabulary'):
    api.pair_stats(h, jnp.zeros((4, 11)), h, jnp.zeros((4, 12)))


def test_a_vocabulary_that_the_axis_does_not_divide_is_refused():
  mesh = jax.make_mesh(
    (2, 4), ('data', 'tensor'), axis_types=(jax.sharding.AxisType.Auto,) * 2
  )
  with pytest.raises(ValueError, match='V=11 is not a multiple'):
    api.token_logprob(
      jnp.zeros((3, 4)), jnp.zeros((4, 11)), jnp.zeros(3, jnp.int32), mesh=mesh
    )

"""handoff_sample: tokens equal, log-probs close, to the rollout's own steps."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tandem.kernels.handoff_sample import api
from tandem.kernels.handoff_sample import noise as noise_lib
from tandem.kernels.handoff_sample import pallas_gpu
from tandem.kernels.handoff_sample import pallas_tpu
from tandem.kernels.handoff_sample import reference
from tandem.rollout import sampling as sampling_lib
from tandem.rollout import turns as turns_lib

P = jax.P
PROGRAMS = ['xla', 'pallas_tpu_interpret', 'pallas_gpu_interpret']
FULL = sampling_lib.Sampling()


def make(n, v, seed=0):
  """senior, junior, row keys, position, boundary, author, coin, may_change."""
  rng = np.random.default_rng(seed)
  senior = 3 * rng.standard_normal((n, v), np.float32)
  junior = senior + rng.standard_normal((n, v), np.float32)
  keys = jax.vmap(functools.partial(jax.random.fold_in, jax.random.key(seed)))
  coin = lambda: jnp.asarray(rng.random(n) < 0.5)
  return (
    jnp.asarray(senior),
    jnp.asarray(junior),
    keys(jnp.arange(n)),
    jnp.asarray(rng.integers(0, 5000, n), jnp.int32),
    jnp.asarray(rng.random(v) < 0.7),
    coin(),
    coin(),
    coin(),
  )


def folded(row_keys, position):
  """[N, 2] uint32, as the rollout would make them."""
  keys = sampling_lib._fold(row_keys, sampling_lib._TOKEN_STREAM, position)
  return jax.random.key_data(keys)


@functools.partial(jax.jit, static_argnames=('sampling', 'strict'))
def as_rollout(
  senior,
  junior,
  row_keys,
  position,
  boundary,
  author,
  coin,
  open_,
  *,
  sampling,
  strict,
):
  """The steps of rollout.lockstep, and the thresholds they come to."""
  noise = None
  if not sampling.greedy:
    noise = sampling_lib.token_noise(row_keys, position, senior.shape[1])
  laws = [sampling_lib.filtered(z, sampling) for z in (senior, junior)]
  mine, other = (sampling_lib.choose(s, noise) for s in laws)
  turns = turns_lib.Turns(schedule='strict_word' if strict else 'word')
  state = turns_lib.TurnState(author, open_.astype(jnp.int32))
  author = turns_lib.speaker(
    turns, state, boundary[mine], boundary[other], coin
  )
  token = jnp.where(author, mine, other)
  gathered = [
    sampling_lib.gather_logp(x, token) for x in (*laws, senior, junior)
  ]
  least = [
    jnp.where(s > -jnp.inf, z, jnp.inf).min(1)
    for s, z in zip(laws, (senior, junior))
  ]
  return api.Handoff(token, author, boundary[token], *gathered), least


@functools.partial(
  jax.jit, static_argnames=('temperature', 'strict', 'implementation')
)
def run(
  senior,
  junior,
  keys,
  boundary,
  author,
  coin,
  open_,
  least=(None, None),
  *,
  temperature=1.0,
  strict=False,
  implementation,
):
  return api.handoff_sample(
    senior,
    junior,
    keys,
    boundary,
    author,
    coin=coin if strict else None,
    may_change=open_ if strict else None,
    least=least,
    temperature=temperature,
    implementation=implementation,
  )


def tiles_of(entries, monkeypatch):
  for kernel in (pallas_tpu, pallas_gpu):
    monkeypatch.setattr(kernel, 'ENTRIES', entries)


def equal(got, want):
  for name in ('token', 'author', 'boundary'):
    np.testing.assert_array_equal(getattr(got, name), getattr(want, name))
  for a, b in zip(got[3:], want[3:]):
    np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-5)


def check(implementation, n, v, sampling=FULL, strict=False, seed=0):
  senior, junior, keys, position, *turn = make(n, v, seed)
  want, least = as_rollout(
    senior, junior, keys, position, *turn, sampling=sampling, strict=strict
  )
  cut = not sampling.greedy and not sampling.full_law
  got = run(
    senior,
    junior,
    folded(keys, position),
    *turn,
    tuple(least) if cut else (None, None),
    temperature=sampling.temperature,
    strict=strict,
    implementation=implementation,
  )
  equal(got, want)
  return got, want


@pytest.mark.parametrize('vocab', [1, 7, 1187])
def test_noise_is_the_rollout_s_bit_for_bit(vocab):
  _, _, keys, position, *_ = make(5, vocab)
  words = folded(keys, position)
  bits = noise_lib.bits(
    words[:, :1], words[:, 1:], jnp.arange(vocab, dtype=jnp.uint32)[None]
  )
  want = jax.vmap(
    lambda key: jax.random.bits(
      jax.random.wrap_key_data(key, impl='threefry2x32'), (vocab,), jnp.uint32
    )
  )(words)
  np.testing.assert_array_equal(bits, want)
  want = sampling_lib.token_noise(keys, position, vocab)
  np.testing.assert_array_equal(noise_lib.gumbel(bits), want)
  np.testing.assert_array_equal(reference.noise(words, vocab), want)


def test_noise_of_the_extreme_bits():
  bits = jnp.array([0, 1, 2**31, 2**32 - 2**7, 2**32 - 1], jnp.uint32)
  uniform = (bits.astype(jnp.float32) + 0.5) * 2.0**-32
  uniform = jnp.minimum(uniform, 1 - 2.0**-24)
  want = -jnp.log(-jnp.log1p(-uniform))
  got = noise_lib.gumbel(bits)
  np.testing.assert_array_equal(got, want)
  assert np.isfinite(got).all()


@pytest.mark.parametrize('implementation', ['reference', *PROGRAMS])
def test_200_rows_are_the_rollout_s(implementation, monkeypatch):
  tiles_of(256, monkeypatch)
  got, _ = check(implementation, 200, 1187)
  assert 0 < got.author.mean() < 1


LAWS = {
  'tempered': sampling_lib.Sampling(temperature=0.6),
  'greedy': sampling_lib.Sampling(temperature=0.0),
  'filtered': sampling_lib.Sampling(temperature=0.7, top_k=40, top_p=0.9),
}


@pytest.mark.parametrize('law', LAWS)
@pytest.mark.parametrize('implementation', ['reference', *PROGRAMS])
def test_laws(implementation, law, monkeypatch):
  tiles_of(128, monkeypatch)
  got, _ = check(implementation, 24, 300, LAWS[law], seed=1)
  if law == 'filtered':
    silent = jnp.where(got.author, got.logp_junior, got.logp_senior)
    assert (silent == -jnp.inf).any()


@pytest.mark.parametrize('implementation', ['reference', *PROGRAMS])
def test_strict_word_asks_the_coin_where_both_begin_a_word(implementation):
  got, _ = check(implementation, 24, 300, strict=True, seed=2)
  holder = make(24, 300, 2)[5]
  assert (got.author != holder).any()


@pytest.mark.parametrize('implementation', PROGRAMS)
def test_the_first_of_equals_is_taken(implementation, monkeypatch):
  tiles_of(128, monkeypatch)
  z = jnp.zeros((3, 300)).at[:, [131, 140, 290]].set(1.0)
  senior, junior, keys, position, *turn = make(3, 300)
  got = run(
    z,
    z,
    folded(keys, position),
    *turn,
    temperature=0.0,
    implementation=implementation,
  )
  np.testing.assert_array_equal(got.token, 131)


@pytest.mark.parametrize('implementation', PROGRAMS)
def test_forbidden_ids(implementation):
  senior, junior, keys, position, *turn = make(8, 300)
  odd = (jnp.arange(300) % 2 == 1)[None]
  senior, junior = (jnp.where(odd, -jnp.inf, z) for z in (senior, junior))
  words = folded(keys, position)
  got = run(senior, junior, words, *turn, implementation=implementation)
  want = run(senior, junior, words, *turn, implementation='reference')
  equal(got, want)
  assert (got.token % 2 == 0).all()


@pytest.mark.parametrize('implementation', PROGRAMS[1:])
def test_on_shards_of_rows_and_vocabulary(implementation, monkeypatch):
  tiles_of(128, monkeypatch)
  senior, junior, keys, position, *turn = make(16, 600)
  mesh = jax.make_mesh(
    (2, 2), ('data', 'tensor'), axis_types=(jax.sharding.AxisType.Auto,) * 2
  )
  put = lambda x: jax.device_put(
    x, jax.NamedSharding(mesh, P('data', 'tensor'))
  )
  f = functools.partial(
    api.handoff_sample, implementation=implementation, mesh=mesh
  )
  words = folded(keys, position)
  got = jax.jit(f)(put(senior), put(junior), words, *turn[:2])
  equal(got, run(senior, junior, words, *turn, implementation='reference'))


@pytest.mark.slow
@pytest.mark.parametrize('law', ['full', *LAWS])
@pytest.mark.parametrize('vocab', [49_152, 151_936])
@pytest.mark.parametrize('implementation', PROGRAMS)
def test_200_rows_of_real_vocabularies(implementation, vocab, law, monkeypatch):
  # Few and wide tiles: the interpreter pays by the step. 151,936 has a tail.
  tiles_of(16_384, monkeypatch)
  monkeypatch.setattr(pallas_tpu, 'ROWS', 200)
  got, want = check(implementation, 200, vocab, ({'full': FULL} | LAWS)[law])
  for name, a, b in zip(got._fields[3:], got[3:], want[3:]):
    both = np.isfinite(b)
    error = np.abs(a - b, where=both, out=np.zeros(len(b))).max()
    print(f'{implementation} V={vocab} {law} {name}: {error:.2g}')


def test_what_cannot_run_is_refused():
  senior, junior, keys, position, *turn = make(3, 10)
  boundary, author, coin, _ = turn
  words = folded(keys, position)
  call = functools.partial(api.handoff_sample, senior, junior)
  with pytest.raises(NotImplementedError, match='the arrays are on cpu'):
    call(words, boundary, author, implementation='pallas_tpu')
  with pytest.raises(ValueError, match='is unknown; it may be None'):
    call(words, boundary, author, implementation='cuda')
  with pytest.raises(ValueError, match='key_data of threefry keys'):
    call(words[:, :1], boundary, author)
  with pytest.raises(ValueError, match='table has 4 entries'):
    call(words, boundary[:4], author)
  with pytest.raises(ValueError, match='go together'):
    call(words, boundary, author, coin=coin)
  with pytest.raises(ValueError, match='one threshold of two'):
    call(words, boundary, author, least=(None, jnp.zeros(3)))
  with pytest.raises(ValueError, match='must be at least 0'):
    call(words, boundary, author, temperature=-1.0)

"""Sampling: what noise depends on, and the laws it draws from."""

import functools

import jax
import jax.numpy as jnp
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec
import numpy as np
import pytest
from scipy import stats

from tandem.kernels.handoff_sample import noise as noise_lib
from tandem.rollout import sampling

Sampling = sampling.Sampling
# Every chi-square below alarms falsely once in 10,000 draws of the keys; the
# keys are fixed, so a pass stays a pass.
FALSE_ALARM = 1e-4


token_noise = jax.jit(sampling.token_noise, static_argnums=2)
coins = jax.jit(sampling.coins)
jit_law = jax.jit(sampling.law, static_argnums=1)


def row_keys(n, seed=0):
  root = jax.random.key(seed)
  return jax.vmap(lambda i: jax.random.fold_in(root, i))(jnp.arange(n))


def positions(n, start=0):
  return jnp.arange(start, start + n, dtype=jnp.int32)


def test_noise_and_coins_do_not_depend_on_the_batch():
  keys, position = row_keys(8), positions(8, 3)
  noise = np.asarray(token_noise(keys, position, 33))
  flips = np.asarray(coins(keys, position, 0.5))
  for split in (2, 8):
    parts = range(0, 8, 8 // split)
    rows = [slice(i, i + 8 // split) for i in parts]
    np.testing.assert_array_equal(
      noise,
      np.concatenate([token_noise(keys[r], position[r], 33) for r in rows]),
    )
    np.testing.assert_array_equal(
      flips,
      np.concatenate([coins(keys[r], position[r], 0.5) for r in rows]),
    )
  order = np.array([5, 0, 7, 2, 2, 1, 6, 3])  # other neighbours, one repeated
  np.testing.assert_array_equal(
    noise[order], token_noise(keys[order], position[order], 33)
  )


def test_noise_and_coins_do_not_depend_on_sharding():
  mesh = jax.make_mesh(
    (2, 4), ('data', 'tensor'), axis_types=(jax.sharding.AxisType.Auto,) * 2
  )
  keys, position = row_keys(16), positions(16, 2)
  rows = NamedSharding(mesh, PartitionSpec('data'))
  table = NamedSharding(mesh, PartitionSpec('data', 'tensor'))
  noise = jax.jit(
    functools.partial(sampling.token_noise, vocab=64),
    in_shardings=(rows, rows),
    out_shardings=table,
  )(keys, position)
  assert len(noise.sharding.device_set) == 8
  np.testing.assert_array_equal(noise, token_noise(keys, position, 64))
  flips = jax.jit(
    functools.partial(sampling.coins, p=0.5), in_shardings=(rows, rows)
  )(keys, position)
  np.testing.assert_array_equal(flips, coins(keys, position, 0.5))


def test_noise_differs_by_key_position_and_stream():
  keys = row_keys(8)
  same = jnp.zeros(8, jnp.int32)
  noise = np.asarray(token_noise(keys, same, 16))
  assert len(np.unique(noise, axis=0)) == 8
  moved = np.asarray(token_noise(keys, same + 1, 16))
  assert not np.any(noise == moved)
  # The coin's own stream: were it made of the token's bits, the two would go
  # together. Correlation of 4096 independent pairs stays under 4/sqrt(4096).
  keys = row_keys(4096)
  same = jnp.zeros(4096, jnp.int32)
  flips = np.asarray(coins(keys, same, 0.5), float)
  first = np.asarray(token_noise(keys, same, 1))[:, 0]
  assert abs(np.corrcoef(flips, first)[0, 1]) < 4 / 64
  again = np.asarray(coins(keys, same + 1, 0.5), float)
  assert abs(np.corrcoef(flips, again)[0, 1]) < 4 / 64


def test_noise_is_gumbel_and_finite_at_both_ends(monkeypatch):
  noise = token_noise(row_keys(8), positions(8), 4096)
  assert noise.dtype == jnp.float32
  gumbel = stats.kstest(np.asarray(noise).ravel(), stats.gumbel_r.cdf)
  assert gumbel.pvalue > FALSE_ALARM
  for bits, value in ((0, 22.873857), (2**32 - 1, -2.811541)):
    # -log(-log1p(-2^-33)) = 33 log 2; -log(24 log 2).
    monkeypatch.setattr(
      noise_lib,
      'bits',
      lambda a, b, entry, bits=bits: jnp.full_like(entry, bits),
    )
    edge = sampling.token_noise(row_keys(1), positions(1), 2)
    np.testing.assert_allclose(edge, np.full((1, 2), value), rtol=1e-6)


def test_keys_whose_draws_depend_on_the_batch_are_refused():
  keys = jax.random.split(jax.random.key(0, impl='rbg'), 4)
  with pytest.raises(ValueError, match='rbg.*threefry2x32'):
    sampling.token_noise(keys, positions(4), 8)


@pytest.mark.parametrize('p', (0.2, 0.5))
def test_coins_follow_p(p):
  n = 4096
  heads = int(coins(row_keys(n), positions(n), p).sum())
  assert stats.binomtest(heads, n, p).pvalue > FALSE_ALARM


def test_certain_coins():
  assert bool(coins(row_keys(512), positions(512), 1.0).all())
  assert not bool(coins(row_keys(512), positions(512), 0.0).any())


LAWS = (
  Sampling(),
  Sampling(temperature=0.6),
  Sampling(temperature=2.0, top_k=3),
  Sampling(temperature=0.6, top_p=0.8),
  Sampling(temperature=1.5, top_k=4, top_p=0.9),
)


@functools.cache
def toy_noise(n):
  return token_noise(row_keys(n, 1), positions(n), 5)


def reference_law(logits, settings):
  """One row's probabilities by sorting, in float64."""
  logits = np.asarray(logits, np.float64) / settings.temperature
  keep = np.ones(logits.shape, bool)
  if settings.top_k:
    keep &= logits >= np.sort(logits)[::-1][: settings.top_k][-1]
  probs = np.where(keep, np.exp(logits - logits.max()), 0)
  probs /= probs.sum()
  if settings.top_p < 1:
    above = np.array([probs[probs > q].sum() for q in probs])
    probs = np.where(above < settings.top_p, probs, 0)
    probs /= probs.sum()
  return probs


@pytest.mark.parametrize('settings', LAWS, ids=str)
def test_frequencies_follow_the_law(settings):
  n = 8192
  logits = jnp.array([[1.0, -0.5, 0.3, 2.0, 0.9]])
  scores = jnp.broadcast_to(sampling.filtered(logits, settings), (n, 5))
  noise = toy_noise(n)
  drawn = np.bincount(sampling.choose(scores, noise), minlength=5)
  law = reference_law(logits[0], settings)
  kept = law > 0
  assert drawn[~kept].sum() == 0
  assert stats.chisquare(drawn[kept], n * law[kept]).pvalue > FALSE_ALARM


@pytest.mark.parametrize('settings', LAWS, ids=str)
@pytest.mark.parametrize('spread', (0.3, 4.0))
def test_the_law_equals_sorting(settings, spread):
  rng = np.random.default_rng(5)
  logits = (spread * rng.standard_normal((6, 301))).astype(np.float32)
  law = np.asarray(jit_law(jnp.asarray(logits), settings))
  assert law.dtype == np.float32
  expected = np.stack([reference_law(row, settings) for row in logits])
  np.testing.assert_array_equal(law > -np.inf, expected > 0)
  np.testing.assert_allclose(np.exp(law), expected, atol=1e-6, rtol=2e-5)
  np.testing.assert_allclose(np.exp(law).sum(-1), 1, rtol=0, atol=1e-5)


def test_what_is_kept_by_hand():
  probs = jnp.array([[0.1, 0.4, 0.2, 0.2, 0.1]])

  def kept(**settings):
    law = jit_law(jnp.log(probs), Sampling(**settings))
    return (law[0] > -jnp.inf).astype(int).tolist()

  assert kept(top_k=1) == [0, 1, 0, 0, 0]
  assert kept(top_k=2) == [0, 1, 1, 1, 0]  # the two 0.2 tie for second place
  assert kept(top_k=-1) == kept(top_k=0) == kept(top_k=9) == [1] * 5
  assert kept(top_p=1e-6) == [0, 1, 0, 0, 0]  # the likeliest always stays
  assert kept(top_p=0.39) == [0, 1, 0, 0, 0]
  assert kept(top_p=0.41) == [0, 1, 1, 1, 0]  # again both of the tie
  assert kept(top_p=0.81) == [1] * 5
  # top-p sees what top-k left: .4/.8, .2/.8, .2/.8; without top-k .5 would
  # need a second id.
  assert kept(top_k=3, top_p=0.49) == [0, 1, 0, 0, 0]
  assert kept(top_p=0.49) == [0, 1, 1, 1, 0]
  # top-p sees tempered probabilities: at 1/2, .16/.26 = .615 for the first.
  assert kept(temperature=0.5, top_p=0.6) == [0, 1, 0, 0, 0]


def test_top_p_keeps_all_of_a_flat_row_and_one_of_a_peaked_one():
  logits = jnp.zeros((2, 50)).at[1, 7].set(80.0)
  law = jit_law(logits, Sampling(top_p=0.5))
  assert (law > -jnp.inf).sum(-1).tolist() == [50, 1]


def test_greedy_ignores_noise_and_takes_the_first_of_equals():
  logits = jnp.array([[0.0, 3.0, 3.0], [2.0, -jnp.inf, 1.0]])
  settings = Sampling(temperature=0)
  law = sampling.law(logits, settings)
  np.testing.assert_array_equal(
    law, [[-np.inf, 0, -np.inf], [0, -np.inf, -np.inf]]
  )
  noise = 50 * token_noise(row_keys(2), positions(2), 3)
  for drawn in (sampling.choose(law, noise), sampling.choose(law, None)):
    assert drawn.dtype == jnp.int32
    assert drawn.tolist() == [1, 0]


def test_gathered_log_probs_are_the_laws():
  rng = np.random.default_rng(2)
  logits = jnp.asarray(rng.standard_normal((3, 4, 11)), jnp.float32)
  tokens = jnp.asarray(rng.integers(0, 11, (3, 4)), jnp.int32)
  for settings in (Sampling(temperature=0.6), Sampling(top_k=3)):
    scores = sampling.filtered(logits, settings)
    law = np.asarray(sampling.law(logits, settings))
    expected = np.take_along_axis(law, np.asarray(tokens)[..., None], -1)
    np.testing.assert_allclose(
      sampling.gather_logp(scores, tokens), expected[..., 0], atol=1e-6
    )


def test_no_law_sorts():
  logits = jnp.zeros((2, 64))
  for settings in LAWS:
    program = jax.make_jaxpr(functools.partial(sampling.law, sampling=settings))
    text = str(program(logits))
    assert 'sort' not in text and 'top_k' not in text


def test_the_cut_at_the_edges_of_float32():
  # Both zeros are one value, infinities are in order, and ids that an earlier
  # mask took away are not brought back by a large k.
  logits = jnp.array(
    [
      [-0.0, 0.0, -1e-3, -np.inf],
      [3e38, -3e38, 1e-30, -1e-30],
      [-np.inf, -np.inf, 5.0, -np.inf],
    ]
  )
  kept = lambda k: (
    (jit_law(logits, Sampling(top_k=k)) > -jnp.inf).astype(int).tolist()
  )
  assert kept(1) == [[1, 1, 0, 0], [1, 0, 0, 0], [0, 0, 1, 0]]
  filtered = sampling.filtered(logits, Sampling(top_k=3))
  assert (filtered > -jnp.inf).astype(int).tolist() == [
    [1, 1, 1, 0],
    [1, 0, 1, 1],
    [0, 0, 1, 0],
  ]


@pytest.mark.parametrize(
  ('fields', 'words'),
  (
    ({'temperature': -1.0}, 'temperature=-1.0'),
    ({'temperature': float('nan')}, 'temperature=nan'),
    ({'top_k': -2}, 'top_k=-2'),
    ({'top_p': 0.0}, 'top_p=0.0'),
    ({'top_p': 1.01}, 'top_p=1.01'),
  ),
)
def test_a_wrong_setting_is_refused(fields, words):
  with pytest.raises(ValueError, match=words):
    Sampling(**fields)


def test_only_the_full_law_says_so():
  assert Sampling().full_law and Sampling(temperature=0.6, top_k=-1).full_law
  for fields in ({'temperature': 0}, {'top_k': 5}, {'top_p': 0.99}):
    assert not Sampling(**fields).full_law
  assert Sampling(top_k=-1) == Sampling()


@pytest.mark.parametrize('shape', [(3, 17), (2, 4, 9), (1, 1)])
def test_choice_is_the_first_of_equals(shape, key):
  scores = jax.random.randint(key, shape, 0, 4).astype(jnp.float32)
  scores = jnp.where(scores == 0, -jnp.inf, scores)
  flat = scores.reshape(-1, shape[-1])
  got = jax.jit(sampling.choose)(flat, None)
  assert got.dtype == jnp.int32
  np.testing.assert_array_equal(got, np.argmax(np.asarray(flat), -1))
  # A row of NaN is an id all the same.
  nan = jnp.full((2, 5), jnp.nan)
  assert (sampling.choose(nan, None) < 5).all()

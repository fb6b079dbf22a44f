"""The network's identities: padding, neighbours, scan, cache, dtypes, remat."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tandem import types
from tandem.models import cache as cache_lib
from tandem.models import decoder
from tandem.models import rotary
from tandem.models import scoring
from tests import fakes

LLAMA = dataclasses.replace(
  fakes.SMALLER,
  qkv_bias=False,
  num_layers=2,
  rope_scaling=types.RopeScaling(8.0, 1.0, 4.0, 16),
  family='llama',
)
CONFIGS = {'qwen3': fakes.TINY, 'qwen2': fakes.SMALLER, 'llama': LLAMA}
LAYOUTS = ('heads', 'slots')
apply = jax.jit(decoder.apply, static_argnums=1)
prefill = jax.jit(decoder.prefill, static_argnums=1)
decode_step = jax.jit(decoder.decode_step, static_argnums=1)
score = jax.jit(scoring.score, static_argnums=1)


@functools.cache
def _initial(cfg):
  return jax.tree.map(np.asarray, fakes.params(cfg))


def _params(cfg):
  """Norms and biases away from their initial ones and zeros."""
  rng = np.random.default_rng(0)
  draw = lambda a: a + 0.2 * rng.standard_normal(a.shape)
  return jax.tree.map(lambda a: jnp.float32(draw(a)), _initial(cfg))


def _ids(*shape, seed=0):
  rng = np.random.default_rng(seed)
  return jnp.asarray(rng.integers(0, fakes.VOCAB, shape), jnp.int32)


@pytest.mark.parametrize('pads', [3, 17])
def test_pads_and_neighbours_change_nothing(pads):
  # Case 7. The pads are ids that could be real, the neighbours longer.
  cfg, row = fakes.TINY, _ids(1, 9)
  params = _params(cfg)
  alone = apply(params, cfg, row)
  padded = jnp.concatenate([row, _ids(1, pads, seed=1)], 1)
  batch = jnp.concatenate([_ids(2, 9 + pads, seed=2), padded])
  got = apply(params, cfg, batch)[2:, :9]
  np.testing.assert_allclose(got, alone, atol=1e-5)
  assert np.abs(apply(params, cfg, _ids(1, 9, seed=3)) - alone).max() > 1e-2


@pytest.mark.parametrize('cfg', [fakes.TINY, fakes.SMALLER], ids=['un', 'tied'])
def test_log_probs_equal_a_loop_over_prefixes(cfg):
  # Case 8.
  params = _params(cfg)
  context = fakes.prompts([1, 4, 3], width=5)
  tokens = _ids(3, 4, seed=5)
  scored = score(params, cfg, context, tokens)['logp']
  next_logits = fakes.next_logits(params, cfg)
  for i, length in enumerate(np.asarray(context.lengths)):
    text = np.asarray(context.ids)[i, :length].tolist()
    for t, token in enumerate(np.asarray(tokens)[i].tolist()):
      logp = jax.nn.log_softmax(next_logits(text))
      np.testing.assert_allclose(scored[i, t], logp[token], atol=1e-5)
      text.append(token)


def _start(params, cfg, prompts, group, slots, layout):
  prefix = prefill(params, cfg, prompts.ids)
  return cache_lib.allocate(
    cfg, prefix, prompts.lengths, group=group, slots=slots, layout=layout
  )


@pytest.mark.parametrize(
  'family, layout, stride',
  [
    ('qwen3', 'heads', 1),
    ('qwen3', 'slots', 3),
    ('qwen2', 'slots', 1),
    ('llama', 'heads', 3),
  ],
)
def test_decoding_equals_the_whole_forward(family, layout, stride):
  # Prompts of 1, 4 and 7 tokens, padded with garbage; two samples of each.
  # Scanned stacked layers on one side, unrolled ones on the other.
  cfg, group, steps = CONFIGS[family], 2, 6
  params = _params(cfg)
  prompts = fakes.prompts([1, 4, 7], width=8)
  responses = _ids(6, steps, seed=7)
  unrolled = decoder.decode_params(params, cfg)
  cache = _start(unrolled, cfg, prompts, group, steps, layout)
  logits = []
  for t in range(0, steps, stride):
    slots = jnp.broadcast_to(jnp.arange(t, t + stride), (6, stride))
    ids = responses[:, t : t + stride]
    x, cache = decode_step(unrolled, cfg, cache, ids, slots)
    logits.append(decoder.logits_of(unrolled, cfg, x))
  logits = jnp.concatenate(logits, 1)
  repeated = jax.tree.map(lambda a: jnp.repeat(a, group, 0), prompts)
  whole = apply(params, cfg, scoring.pack(repeated, responses)[0])
  for row, length in enumerate(np.asarray(repeated.lengths)):
    expected = whole[row, length : length + steps]
    np.testing.assert_allclose(logits[row], expected, atol=2e-5)


@pytest.mark.parametrize('layout', LAYOUTS)
def test_rejected_drafts_leave_no_trace(layout):
  cfg = fakes.TINY
  params = decoder.decode_params(_params(cfg), cfg)
  prompts = fakes.prompts([2, 5])
  cache = _start(params, cfg, prompts, 1, 4, layout)
  ids, drafts = _ids(2, 3, seed=1), _ids(2, 3, seed=2)
  slots = jnp.broadcast_to(jnp.arange(3), (2, 3))
  clean, _ = decode_step(params, cfg, cache, ids, slots)
  _, dirty = decode_step(params, cfg, cache, drafts, slots + 1)
  again, _ = decode_step(params, cfg, dirty, ids, slots)
  np.testing.assert_array_equal(again, clean)
  # A finished row's slot lies outside: its cache stays, the others' move.
  parked = slots.at[0].set(4)
  _, after = decode_step(params, cfg, cache, ids, parked)
  for old, new in zip(cache.layers, after.layers):
    np.testing.assert_array_equal(new.suffix_k[0], old.suffix_k[0])
    assert (new.suffix_k[1] != old.suffix_k[1]).any()


def test_unrolled_layers_are_the_scanned_ones():
  cfg = fakes.TINY
  params = _params(cfg)
  split = decoder.decode_params(params, cfg, jnp.bfloat16)
  assert len(split['layers']) == cfg.num_layers
  for i, layer in enumerate(split['layers']):
    for name, leaf in layer.items():
      assert leaf.dtype == jnp.bfloat16
      expected = params['layers'][name][i].astype(jnp.bfloat16)
      np.testing.assert_array_equal(leaf, expected)


def test_remat_changes_no_number():
  cfg, ids = fakes.TINY, _ids(2, 6)
  params = _params(cfg)

  @functools.partial(jax.jit, static_argnums=1)
  def gradient(params, remat):
    spread = lambda p: decoder.hidden(p, cfg, ids, remat=remat).var()
    return jax.grad(spread)(params)

  expected, *others = (gradient(params, remat) for remat in decoder.REMAT)
  assert np.abs(expected['layers']['q']).max() > 1e-4
  for got in others:
    jax.tree.map(
      lambda a, b: np.testing.assert_allclose(a, b, atol=1e-6), got, expected
    )


def test_unknown_remat_is_refused():
  with pytest.raises(ValueError, match="remat='all'"):
    decoder.hidden(fakes.params(), fakes.TINY, _ids(1, 2), remat='all')


def test_constrain_sees_every_block():
  seen = []

  def constrain(x, name):
    seen.append((name, x.shape))
    return x

  jax.eval_shape(
    lambda: decoder.hidden(
      _params(fakes.TINY), fakes.TINY, _ids(2, 3), constrain=constrain
    )
  )
  assert seen == [('btd', (2, 3, 16))] * 2  # embedding, and the scanned block


@pytest.mark.parametrize('family', CONFIGS)
@pytest.mark.parametrize('dtype', [jnp.float32, jnp.bfloat16])
def test_strict_dtypes(family, dtype):
  cfg, ids = CONFIGS[family], _ids(2, 4)
  params = _params(cfg)

  def run():
    split = decoder.decode_params(params, cfg, dtype)
    cache = _start(split, cfg, fakes.prompts([2, 3]), 1, 2, 'heads')
    slots = jnp.zeros((2, 1), jnp.int32)
    return {
      'hidden': decoder.hidden(params, cfg, ids, dtype=dtype),
      'apply': decoder.apply(params, cfg, ids, dtype=dtype),
      'step': decoder.decode_step(split, cfg, cache, ids[:, :1], slots),
    }

  with jax.numpy_dtype_promotion('strict'):
    out = jax.eval_shape(run)
  x, cache = out['step']
  assert out['hidden'].dtype == x.dtype == dtype
  assert cache.layers[0].suffix_k.dtype == dtype
  assert out['apply'].dtype == jnp.float32


def test_bfloat16_is_near_float32():
  cfg, ids = fakes.TINY, _ids(2, 40)
  params = _params(cfg)
  exact = apply(params, cfg, ids)
  half = jax.tree.map(lambda a: a.astype(jnp.bfloat16), params)
  rounded = apply(half, cfg, ids)
  assert rounded.dtype == jnp.float32
  # 8 bits of mantissa, two layers; a position lost in rounding costs far more.
  assert np.abs(rounded - exact).mean() < 0.03 * exact.std()


def test_rotary_frequencies_by_hand():
  # Wavelengths 2 pi, 2 pi 100 with theta = 10^4 and H = 4. Over a context of
  # 628.3 the first turns 100 times (kept: above 4), the second once (divided
  # by 8: not above 1); over 1570.8 it turns 2.5 times, half of the way from 1
  # to 4, so the mean of kept and divided.
  base = dataclasses.replace(fakes.TINY, head_dim=4, rope_theta=1e4)
  np.testing.assert_allclose(rotary.frequencies(base), [1, 0.01])
  for context, second in ((628.3, 0.01 / 8), (1570.796, 0.01 * 9 / 16)):
    scaled = dataclasses.replace(
      base, rope_scaling=types.RopeScaling(8.0, 1.0, 4.0, context)
    )
    np.testing.assert_allclose(
      rotary.frequencies(scaled), [1, second], rtol=1e-4
    )


@pytest.mark.parametrize('cfg', [fakes.TINY, fakes.SMALLER])
def test_flipped_projections_are_the_same_model(cfg, key):
  params = decoder.init_params(key, cfg)
  ids = jax.random.randint(key, (3, 7), 0, cfg.vocab)
  plain = decoder.decode_params(params, cfg)
  flipped = decoder.decode_params(params, cfg, flip=True)
  assert flipped['layers'][0]['q'].shape == (
    cfg.num_heads * cfg.head_dim,
    cfg.dim,
  )
  want = decoder.hidden(plain, cfg, ids)
  got = decoder.hidden(flipped, cfg, ids)
  np.testing.assert_allclose(got, want, atol=1e-5)
  for a, b in zip(
    decoder.prefill(flipped, cfg, ids), decoder.prefill(plain, cfg, ids)
  ):
    np.testing.assert_allclose(a[0], b[0], atol=1e-5)
    np.testing.assert_allclose(a[1], b[1], atol=1e-5)

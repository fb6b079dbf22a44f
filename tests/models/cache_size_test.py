"""A grown cache and a cut one hold what they should, and read as they should."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tandem.models import cache as cache_lib
from tandem.models import cache_size
from tandem.models import decoder
from tests import fakes

LAYOUTS, CFG = ('heads', 'slots'), fakes.TINY
B, G, P, S = 2, 3, 5, 40
N = B * G
KV = (CFG.num_kv_heads, CFG.head_dim)
ENDS = np.array([0, 1, 4, 23, 39, 40])  # tokens of each row
read, write = jax.jit(cache_lib.read), jax.jit(cache_lib.write)
decode_step = jax.jit(decoder.decode_step, static_argnums=1)


def _draw(seed, *shape):
  return jax.random.normal(jax.random.key(seed), shape)


def _all(values):
  return jnp.broadcast_to(jnp.arange(values), (N, values))


def _filled(layout, dtype=None):
  """A cache with something in each of its slots."""
  prefix = [
    (_draw(i, B, P, *KV), _draw(i + 9, B, P, *KV))
    for i in range(CFG.num_layers)
  ]
  cache = cache_lib.allocate(
    CFG,
    prefix,
    jnp.asarray([2, 5], jnp.int32),
    group=G,
    slots=S,
    layout=layout,
    dtype=dtype,
  )
  keys, values = _draw(20, N, S, *KV), _draw(21, N, S, *KV)
  put = lambda layer: write(layer, keys, values, _all(S))
  return cache.replace(layers=tuple(map(put, cache.layers)))


@pytest.mark.parametrize('dtype', [None, 'int8'])
@pytest.mark.parametrize('layout', LAYOUTS)
def test_a_grown_cache_reads_the_same_and_holds_more(layout, dtype):
  cache = _filled(layout, dtype)
  large = cache_size.grow(cache, S + 3)
  args = _draw(22, N, S, CFG.num_heads, KV[1]), cache.prefix_lengths, _all(S)
  before, after = read(cache.layers[1], *args), read(large.layers[1], *args)
  np.testing.assert_allclose(before, after, atol=1e-6)
  # The last slot can be written now, and is read.
  new, last = _draw(23, N, 1, *KV), jnp.full((N, 1), S + 2)
  layer = write(large.layers[1], new, new, last)
  held = jax.tree.map(lambda a, b: (a != b).any(), layer, large.layers[1])
  assert held.suffix_k and held.suffix_v
  assert not held.prefix_k
  with pytest.raises(ValueError, match='slots=3 is fewer than the 40'):
    cache_size.grow(cache, 3)


@pytest.mark.parametrize('dtype', [None, 'int8'])
@pytest.mark.parametrize('layout', LAYOUTS)
def test_a_tail_holds_the_last_tokens_of_each_row(layout, dtype):
  cache, last, more = _filled(layout, dtype), 3, 2
  tail = cache_size.tail(cache, jnp.asarray(ENDS), last, more)
  by_slot = lambda x: x if layout == 'slots' else np.swapaxes(x, 1, 2)
  for whole, cut in zip(cache.layers, tail.layers):
    stores = [(whole.suffix_k, cut.suffix_k), (whole.suffix_v, cut.suffix_v)]
    if dtype:
      stores += [(whole.scales[x], cut.scales[x]) for x in ('suffix_k',)]
    for a, b in stores:
      a, b = by_slot(a), by_slot(b)
      # Whole tiles of a TPU, where it is for one.
      size = 16 if layout == 'slots' else last + more
      assert b.shape[1] == size
      for row, end in enumerate(ENDS):
        at = np.arange(max(end - last, 0), end)
        slots = np.asarray(tail.slots(jnp.broadcast_to(at, (N, len(at)))))[row]
        assert (slots >= 0).all()
        # Those after them can be written, as far as the cache itself goes.
        assert slots.max(initial=-1) + min(more, S - end) < size
        np.testing.assert_array_equal(b[row, slots], a[row, at])
    np.testing.assert_array_equal(whole.prefix_k, cut.prefix_k)


@pytest.mark.parametrize('layout', LAYOUTS)
def test_a_tail_is_a_window_of_attention(layout):
  # One layer, so that what is cut off is read nowhere else.
  cfg, last = fakes.SMALLER, 3 if layout == 'heads' else 15
  assert cfg.num_layers == 1
  params = decoder.decode_params(fakes.params(cfg, 0), cfg)
  prompts = fakes.prompts([1, 4])
  prefix = decoder.prefill(params, cfg, prompts.ids)
  ids = jax.random.randint(jax.random.key(3), (N, S), 0, cfg.vocab)
  start = lambda n: cache_lib.allocate(
    cfg, prefix, prompts.lengths - 1, group=G, slots=n, layout=layout
  )
  _, cache = decode_step(params, cfg, start(S), ids, _all(S))
  end = 30
  at = jnp.full((N, 1), end)
  tail = cache_size.tail(cache, jnp.full((N,), end), last, 1)
  got, _ = decode_step(params, cfg, tail, ids[:, end:][:, :1], at)
  # The same tokens at the same places, and nothing between prompt and window.
  few = start(last + 1).replace(first=jnp.full((N,), end - last))
  places = end - last + _all(last + 1)
  want, _ = decode_step(params, cfg, few, ids[:, end - last : end + 1], places)
  np.testing.assert_allclose(got[:, 0], want[:, -1], atol=1e-5)
  whole, _ = decode_step(params, cfg, cache, ids[:, end:][:, :1], at)
  assert np.abs(got - whole).max() > 1e-3
  # A window over all that there is changes nothing.
  wide = cache_size.tail(cache, jnp.full((N,), end), end, 1)
  same, _ = decode_step(params, cfg, wide, ids[:, end:][:, :1], at)
  np.testing.assert_allclose(same, whole, atol=1e-5)


def test_a_tail_serves_until_a_row_finds_no_room():
  cache, last, more = _filled('heads'), 3, 4
  tail = cache_size.tail(cache, jnp.full((N,), 10), last, more)
  room = lambda at, count: cache_size.fits(tail, S, jnp.full((N,), at), count)
  assert room(10, 4).all() and room(12, 2).all()
  assert not room(10, 5).any() and not room(13, 2).any()
  # None could hold more than one that ends where the cache does.
  at_end = cache_size.tail(cache, jnp.full((N,), S - 1), last, more)
  assert cache_size.fits(at_end, S, jnp.full((N,), S - 1), 9).all()

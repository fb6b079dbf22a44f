"""The cache against plain attention over one row's own keys and values."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tandem import types
from tandem.models import cache as cache_lib
from tandem.models import decoder

LAYOUTS = ('heads', 'slots')
CFG = types.ModelConfig(
  vocab=5,
  dim=8,
  num_layers=2,
  num_heads=4,
  num_kv_heads=2,
  head_dim=6,
  hidden=8,
)
B, G, P, S = 2, 3, 5, 4
N = B * G
LENGTHS = np.array([2, 5], np.int32)
write, read = jax.jit(cache_lib.write), jax.jit(cache_lib.read)


def _draw(seed, *shape):
  return jax.random.normal(jax.random.key(seed), shape)


def _prefix(seed=0):
  heads = (CFG.num_kv_heads, CFG.head_dim)
  return [
    (_draw(seed + 2 * i, B, P, *heads), _draw(seed + 2 * i + 1, B, P, *heads))
    for i in range(CFG.num_layers)
  ]


def _cache(layout, lengths=LENGTHS, prefix=None, **kwargs):
  return cache_lib.allocate(
    CFG,
    prefix or _prefix(),
    jnp.asarray(lengths),
    group=G,
    slots=S,
    layout=layout,
    **kwargs,
  )


def _new(seed, c=1):
  """Keys, values and queries of c tokens per row."""
  kv = (N, c, CFG.num_kv_heads, CFG.head_dim)
  q = (N, c, CFG.num_heads, CFG.head_dim)
  return _draw(seed, *kv), _draw(seed + 1, *kv), _draw(seed + 2, *q)


def _slots(*columns):
  return jnp.asarray(columns, jnp.int32).T


def _attention(q, k, v):
  """One query head by head: q [Q, H], k and v [s, K, H]."""
  out = []
  for head in range(CFG.num_heads):
    kv = head // (CFG.num_heads // CFG.num_kv_heads)
    scores = k[:, kv] @ q[head] / np.sqrt(CFG.head_dim)
    weights = np.exp(scores - scores.max())
    out.append(weights / weights.sum() @ v[:, kv])
  return np.stack(out)


@pytest.mark.parametrize('layout', LAYOUTS)
def test_equals_plain_attention(layout):
  cache = _cache(layout)
  layer, prefix = cache.layers[1], [np.asarray(x) for x in _prefix()[1]]
  keys, values = [[] for _ in range(N)], [[] for _ in range(N)]
  for t in range(S):
    k, v, q = _new(10 * t + 100)
    layer = write(layer, k, v, jnp.full((N, 1), t))
    out = read(layer, q, cache.prefix_lengths, jnp.full((N, 1), t))
    for row in range(N):
      keys[row].append(np.asarray(k[row, 0]))
      values[row].append(np.asarray(v[row, 0]))
      b, length = row // G, LENGTHS[row // G]
      expected = _attention(
        np.asarray(q[row, 0]),
        np.concatenate([prefix[0][b, :length], keys[row]]),
        np.concatenate([prefix[1][b, :length], values[row]]),
      )
      np.testing.assert_allclose(out[row, 0], expected, atol=2e-6)


@pytest.mark.parametrize('layout', LAYOUTS)
def test_many_tokens_equal_one_at_a_time(layout):
  cache = _cache(layout)
  k, v, q = _new(3, c=S)
  slots = jnp.broadcast_to(jnp.arange(S), (N, S))
  together = write(cache.layers[0], k, v, slots)
  out = read(together, q, cache.prefix_lengths, slots)
  layer = cache.layers[0]
  for t in range(S):
    at = slots[:, t : t + 1]
    layer = write(layer, k[:, t : t + 1], v[:, t : t + 1], at)
    one = read(layer, q[:, t : t + 1], cache.prefix_lengths, at)
    np.testing.assert_allclose(out[:, t : t + 1], one, atol=2e-6)
  jax.tree.map(np.testing.assert_array_equal, layer, together)


@pytest.mark.parametrize('layout', LAYOUTS)
def test_rows_write_at_slots_of_their_own(layout):
  # Rows that are behind, and a prompt read by its own group only.
  cache = _cache(layout)
  k, v, q = _new(4)
  slots = _slots([0, 1, 2, 3, 1, 0])
  layer = write(cache.layers[0], k, v, slots)
  axis = 1 if layout == 'slots' else 2
  held = np.moveaxis(np.asarray(layer.suffix_k), axis, 1)  # [N, S, K, H]
  expected = np.zeros_like(held)
  expected[np.arange(N), np.asarray(slots)[:, 0]] = k[:, 0]
  np.testing.assert_array_equal(held, expected)


@pytest.mark.parametrize('layout', LAYOUTS)
def test_out_of_range_slots_are_dropped(layout):
  layer = _cache(layout).layers[0]
  k, v, _ = _new(5)
  for slots in ([S] * N, [S + 7] * N, [-1] * N, [-S] * N, [2**30] * N):
    after = write(layer, k, v, _slots(slots))
    jax.tree.map(np.testing.assert_array_equal, after, layer)
  # Only the row in range is written.
  after = write(layer, k, v, _slots([S, -1, 1, S, -1, S]))
  changed = np.asarray((after.suffix_k != layer.suffix_k).any((1, 2, 3)))
  np.testing.assert_array_equal(changed, [0, 0, 1, 0, 0, 0])


@pytest.mark.parametrize('layout', LAYOUTS)
def test_what_is_beyond_is_never_read(layout):
  k, v, q = _new(6)
  slots = _slots([1] * N)
  outs = []
  for garbage in (0.0, 50.0):
    late = np.arange(P)[None, :, None, None] >= LENGTHS[:, None, None, None]
    prefix = [
      tuple(jnp.where(late, garbage, x) for x in pair) for pair in _prefix()
    ]
    cache = _cache(layout, prefix=prefix)
    layer = cache.layers[0]
    for t in (2, 3):  # drafts that were refused
      at = _slots([t] * N)
      layer = write(layer, k * 0 + garbage, v * 0 + garbage, at)
    layer = write(layer, k * 2, v * 2, _slots([0] * N))
    layer = write(layer, v, k, slots)  # refused too, then overwritten
    layer = write(layer, k, v, slots)
    outs.append(read(layer, q, cache.prefix_lengths, slots))
  np.testing.assert_array_equal(*outs)


@pytest.mark.parametrize('layout', LAYOUTS)
def test_an_empty_prefix_is_invisible(layout):
  cache = _cache(layout, lengths=np.zeros(B, np.int32))
  k, v, q = _new(7)
  layer = write(cache.layers[0], k, v, _slots([0] * N))
  out = read(layer, q, cache.prefix_lengths, _slots([0] * N))
  # One visible key: its value, whatever the query.
  repeats = CFG.num_heads // CFG.num_kv_heads
  np.testing.assert_allclose(out, jnp.repeat(v, repeats, 2), atol=1e-6)


def test_layouts_hold_the_same_and_the_prompt_once():
  heads, slots = (_cache(layout).layers[0] for layout in LAYOUTS)
  assert heads.prefix_k.shape == (B, CFG.num_kv_heads, P, CFG.head_dim)
  assert slots.prefix_k.shape == (B, P, CFG.num_kv_heads, CFG.head_dim)
  assert heads.suffix_k.shape == (N, CFG.num_kv_heads, S, CFG.head_dim)
  np.testing.assert_array_equal(heads.prefix_k.swapaxes(1, 2), slots.prefix_k)
  assert cache_lib.default_layout() == 'heads'  # on CPU


@pytest.mark.parametrize('layout', LAYOUTS)
def test_strict_dtypes(layout):
  with jax.numpy_dtype_promotion('strict'):
    prefix = jax.tree.map(lambda x: x.astype(jnp.bfloat16), _prefix())
    cache = _cache(layout, prefix=prefix)
    k, v, q = (x.astype(jnp.bfloat16) for x in _new(8))
    layer = write(cache.layers[0], k, v, _slots([0] * N))
    out = read(layer, q, cache.prefix_lengths, _slots([0] * N))
  assert out.dtype == layer.suffix_k.dtype == jnp.bfloat16


@pytest.mark.parametrize('layout', LAYOUTS)
def test_owned_rows_are_the_groups_in_any_order(layout):
  # A permuted owner permutes rows; and a group may have any number of rows.
  params = decoder.init_params(jax.random.key(0), CFG)
  params = decoder.decode_params(params, CFG)
  owner = np.arange(N) // G
  order = np.array([4, 0, 5, 1, 3])  # row 2 is left out
  ids = jnp.asarray([[1, 2], [3, 4], [0, 1], [2, 2], [4, 0], [1, 3]])
  slots = jnp.asarray([[0, 1], [0, 1], [0, 1], [0, 1], [0, 1], [0, 1]])
  step = jax.jit(decoder.decode_step, static_argnums=1)
  prefix, lengths = _prefix(), jnp.asarray(LENGTHS)

  def run(owner, ids, slots):
    owned = cache_lib.allocate(
      CFG, prefix, lengths, slots=S, owner=owner, layout=layout
    )
    assert owned.layers[0].prefix_k.shape[0] == B
    x, owned = step(params, CFG, owned, ids[:, :1], slots[:, :1])
    return step(params, CFG, owned, ids[:, 1:], slots[:, 1:])[0]

  grouped = _cache(layout)
  x, grouped = step(params, CFG, grouped, ids[:, :1], slots[:, :1])
  x, grouped = step(params, CFG, grouped, ids[:, 1:], slots[:, 1:])
  np.testing.assert_allclose(run(jnp.asarray(owner), ids, slots), x, atol=1e-6)
  some = run(jnp.asarray(owner[order]), ids[order], slots[order])
  np.testing.assert_allclose(some, x[order], atol=1e-6)


def test_rows_that_disagree_are_an_error():
  with pytest.raises(ValueError, match='rows=4, but owner makes 3'):
    cache_lib.allocate(
      CFG,
      _prefix(),
      jnp.asarray(LENGTHS),
      slots=S,
      rows=4,
      owner=jnp.zeros(3, jnp.int32),
    )


def _dequantised(layer, name):
  scale = (
    jnp.ones(()) if layer.scales is None else layer.scales[name][..., None]
  )
  return getattr(layer, name).astype(jnp.float32) * scale


@pytest.mark.parametrize('owner', [None, np.array([1, 0, 0, 1, 1, 0])])
@pytest.mark.parametrize('dtype', ['bfloat16', 'int8'])
@pytest.mark.parametrize('layout', LAYOUTS)
def test_a_narrow_cache_reads_as_what_it_holds(layout, dtype, owner):
  # The only error is that of storage: a wide cache that holds the dequantised
  # numbers reads the same.
  owner = None if owner is None else jnp.asarray(owner, jnp.int32)
  cache = _cache(layout, dtype=dtype, owner=owner)
  k, v, q = _new(9, c=2)
  # Scales that differ by token and head, and one token of zeros.
  k = k.at[:, 1].multiply(5.0)
  v = v.at[0, 0].set(0.0).at[:, :, 1].multiply(30.0)
  slots = jnp.broadcast_to(jnp.arange(2), (N, 2))
  layer = write(cache.layers[0], k, v, slots)
  assert layer.suffix_k.dtype == layer.prefix_v.dtype == jnp.dtype(dtype)
  wide = {name: _dequantised(layer, name) for name in cache_lib.PARTS}
  for name, x in wide.items():
    exact = _prefix()[0][name.endswith('v')]
    if name.startswith('suffix'):
      exact = jnp.zeros((N, S) + k.shape[2:])
      exact = exact.at[:, :2].set(v if name.endswith('v') else k)
    if layout == 'heads':
      exact = jnp.swapaxes(exact, 1, 2)
    step = jnp.abs(exact).max(-1, keepdims=True) / 2**8
    assert (jnp.abs(x - exact) <= step * 1.01).all()  # half a step of 127
  out = read(layer, q, cache.prefix_lengths, slots, cache.owner)
  layer = layer.replace(scales=None, **wide)
  expected = read(layer, q, cache.prefix_lengths, slots, cache.owner)
  np.testing.assert_allclose(out, expected, rtol=2e-6, atol=2e-6)
  assert out.dtype == q.dtype


def test_an_unknown_dtype_is_an_error():
  with pytest.raises(ValueError, match="dtype='int4' is no dtype"):
    _cache('heads', dtype='int4')

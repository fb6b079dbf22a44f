"""decode_attention: XLA and the interpreted kernels against the definition."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tandem.kernels.decode_attention import api
from tandem.kernels.decode_attention import pallas_gpu
from tandem.kernels.decode_attention import pallas_tpu
from tandem.models import cache as cache_lib

P = jax.P
KERNELS = ['pallas_tpu_interpret', 'pallas_gpu_interpret']


def make(b, g, c, q, k, h, p, s, *, dtype=jnp.float32, slots=None):
  """Arguments of decode_attention in layout `slots`; rows of all lengths."""
  rng = np.random.default_rng(b + 10 * g + 100 * c + p)
  n = b * g
  draw = lambda *shape: jnp.asarray(
    rng.standard_normal(shape, np.float32), dtype
  )
  lengths = rng.integers(0, p + 1, b)
  lengths[: min(b, 3)] = (p, 0, 1)[: min(b, 3)]
  if slots is None:
    first = rng.integers(0, s - c + 1, n)
    first[:2] = (0, s - c)[: min(n, 2)]
    slots = first[:, None] + np.arange(c)
  return (
    draw(n, c, q, h),
    draw(b, p, k, h),
    draw(b, p, k, h),
    draw(n, s, k, h),
    draw(n, s, k, h),
    jnp.asarray(lengths, jnp.int32),
    jnp.asarray(slots, jnp.int32),
  )


def in_layout(arguments, layout):
  if layout == 'slots':
    return arguments
  q, *keys = arguments[:5]
  return (q, *(jnp.swapaxes(x, 1, 2) for x in keys), *arguments[5:])


@functools.partial(
  jax.jit, static_argnames=('layout', 'implementation', 'mesh')
)
def run(*arguments, implementation, layout='slots', owner=None, mesh=None):
  """Arguments come in layout `slots` unless told."""
  if 'gpu' in implementation:
    arguments, layout = in_layout(arguments, 'heads'), 'heads'
  return api.decode_attention(
    *arguments,
    layout=layout,
    owner=owner,
    implementation=implementation,
    mesh=mesh,
  )


def close(got, want, tolerance):
  got, want = np.asarray(got, np.float64), np.asarray(want, np.float64)
  assert np.abs(got - want).max() <= tolerance * max(1, np.abs(want).max())


# B, G, C, Q, K, H, P, S
CASES = {
  'one_token': (3, 4, 1, 4, 2, 16, 37, 20),
  'draft_of_3': (3, 1, 3, 9, 3, 16, 16, 53),
  'draft_of_8': (2, 4, 8, 4, 1, 16, 5, 32),
  'draft_of_16': (4, 1, 16, 6, 2, 16, 1, 16),
}


@pytest.mark.parametrize('case', CASES)
@pytest.mark.parametrize('layout', api.LAYOUTS)
def test_xla_equals_the_definition(case, layout):
  arguments = make(*CASES[case])
  want = run(*arguments, implementation='reference')
  got = run(*in_layout(arguments, layout), layout=layout, implementation='xla')
  close(got, want, 1e-5)


@pytest.mark.parametrize('case', CASES)
@pytest.mark.parametrize('implementation', KERNELS)
def test_interpreted_kernels_equal_the_definition(
  monkeypatch, implementation, case
):
  # Blocks of 16 slots: several to a row, the last hanging over the end.
  monkeypatch.setattr(pallas_tpu, 'SLOTS', (16, 16))
  monkeypatch.setattr(pallas_gpu, 'SLOTS', 16)
  arguments = make(*CASES[case])
  want = run(*arguments, implementation='reference')
  close(run(*arguments, implementation=implementation), want, 1e-5)


@pytest.mark.parametrize('implementation', KERNELS)
def test_many_queries_are_taken_in_tiles(monkeypatch, implementation):
  monkeypatch.setattr(pallas_tpu, 'ROWS', 16)
  monkeypatch.setattr(pallas_gpu, 'ROWS', 16)
  arguments = make(2, 4, 3, 4, 2, 16, 20, 12)
  want = run(*arguments, implementation='reference')
  close(run(*arguments, implementation=implementation), want, 1e-5)


@pytest.mark.parametrize('implementation', ['xla', *KERNELS])
def test_bfloat16(implementation):
  arguments = make(2, 2, 2, 4, 2, 16, 40, 24, dtype=jnp.bfloat16)
  want = run(*arguments, implementation='reference')
  got = run(*arguments, implementation=implementation)
  assert got.dtype == jnp.bfloat16
  # Weights are rounded for the product with the values, and the result again.
  close(got, want, 2**-7)


@pytest.mark.parametrize('implementation', ['xla', *KERNELS])
def test_rows_of_any_owner(implementation):
  arguments = make(3, 2, 2, 4, 2, 16, 20, 12)
  owner = jnp.array([2, 0, 0, 1, 2, 2], jnp.int32)
  want = run(*arguments, owner=owner, implementation='reference')
  got = run(*arguments, owner=owner, implementation=implementation)
  close(got, want, 1e-5)
  siblings = run(*arguments, implementation='reference')
  assert np.abs(siblings - want).max() > 0.1


@pytest.mark.parametrize('implementation', ['xla', *KERNELS])
def test_a_query_that_sees_nothing_gets_zero(implementation):
  slots = np.array([[-1, 0], [-1, 5]])
  arguments = make(2, 1, 2, 2, 1, 16, 4, 8, slots=slots)
  arguments = (*arguments[:5], jnp.array([0, 4], jnp.int32), arguments[6])
  got = run(*arguments, implementation=implementation)
  assert not got[0, 0].any() and got[0, 1].any() and got[1, 0].any()
  close(got, run(*arguments, implementation='reference'), 1e-5)


@pytest.mark.parametrize('implementation', ['xla', *KERNELS])
def test_what_lies_past_a_row_is_never_read(implementation):
  q, *keys, lengths, slots = make(2, 2, 2, 4, 2, 16, 20, 12)
  dirty = []
  past = [jnp.arange(20)[None] >= lengths[:, None]] * 2
  past += [jnp.arange(12)[None] > slots.max(1)[:, None]] * 2
  for x, hidden in zip(keys, past):
    dirty.append(jnp.where(hidden[..., None, None], 1e9, x))
  close(
    run(q, *dirty, lengths, slots, implementation=implementation),
    run(q, *keys, lengths, slots, implementation='reference'),
    1e-5,
  )


@pytest.mark.parametrize(
  'layout, implementation',
  [
    ('heads', 'reference'),
    ('heads', 'pallas_gpu_interpret'),
    ('slots', 'pallas_tpu_interpret'),
  ],
)
def test_reads_a_cache_as_the_cache_does(layout, implementation):
  arguments = make(2, 4, 3, 4, 2, 16, 20, 12)
  q, *keys, lengths, slots = in_layout(arguments, layout)
  layer = cache_lib.LayerCache(*keys, layout)
  want = cache_lib.read(layer, q, lengths, slots)
  got = cache_lib.reader(implementation)(layer, q, lengths, slots)
  close(got, want, 1e-5)
  with pytest.raises(NotImplementedError, match='reads no int8 cache'):
    cache_lib.reader(implementation)(
      layer.replace(scales={}), q, lengths, slots
    )


def mesh_of(*shape):
  axes = ('data', 'fsdp', 'tensor')
  kinds = (jax.sharding.AxisType.Auto,) * 3
  return jax.make_mesh(shape, axes, axis_types=kinds)


@pytest.mark.parametrize('implementation', KERNELS)
def test_on_shards_of_rows_and_heads(implementation):
  arguments = make(4, 2, 2, 4, 2, 16, 20, 12)
  want = run(*arguments, implementation='reference')
  mesh, layout = mesh_of(2, 1, 2), 'slots'
  keys = P('data', None, 'tensor')
  if 'gpu' in implementation:
    arguments, layout = in_layout(arguments, 'heads'), 'heads'
    keys = P('data', 'tensor')
  specs = [P('data', None, 'tensor'), *[keys] * 4, P('data'), P('data')]
  sharded = [
    jax.device_put(x, jax.NamedSharding(mesh, spec))
    for x, spec in zip(arguments, specs)
  ]
  f = functools.partial(
    api.decode_attention,
    layout=layout,
    implementation=implementation,
    mesh=mesh,
  )
  got = jax.jit(f)(*sharded)
  assert got.sharding.spec == P('data', None, 'tensor')
  close(got, want, 1e-5)


@pytest.mark.parametrize('lanes', [1, 2, 4])
@pytest.mark.parametrize('cut', [True, False])
@pytest.mark.parametrize('implementation', KERNELS)
def test_rows_of_any_owner_on_shards(implementation, cut, lanes):
  arguments = make(4, 2, 2, 4, 2, 16, 20, 12)
  # Rows whose prompt another device holds, where prompts are cut; or those of a
  # device, or fewer, keep to themselves.
  owner = {1: [3, 0, 2, 1, 0, 1, 3, 0], 2: [1, 0, 0, 1, 2, 3, 3, 2]}
  owner = jnp.array(owner.get(lanes, [0, 0, 1, 1, 2, 2, 3, 3]), jnp.int32)
  want = run(*arguments, owner=owner, implementation='reference')
  mesh, layout = mesh_of(2, 1, 2), 'slots'
  keys = lambda entries: P(entries, None, 'tensor')
  if 'gpu' in implementation:
    arguments, layout = in_layout(arguments, 'heads'), 'heads'
    keys = lambda entries: P(entries, 'tensor')
  prompts = 'data' if cut else None
  specs = [P('data', None, 'tensor'), *[keys(prompts)] * 2]
  specs += [*[keys('data')] * 2, P(prompts), P('data')]
  put = lambda x, spec: jax.device_put(x, jax.NamedSharding(mesh, spec))
  sharded = [put(x, spec) for x, spec in zip(arguments, specs)]
  f = jax.jit(
    functools.partial(
      api.decode_attention,
      layout=layout,
      lanes=lanes,
      implementation=implementation,
      mesh=mesh,
    )
  )
  owner = put(owner, P('data'))
  close(f(*sharded, owner=owner), want, 1e-5)
  text = f.lower(*sharded, owner=owner).compile().as_text()
  assert ('all-gather' in text) == (cut and lanes == 1)


@pytest.mark.parametrize('implementation', ['xla', *KERNELS])
def test_an_owner_that_is_no_prompt_reads_the_nearest(implementation):
  arguments = make(3, 1, 2, 4, 2, 16, 20, 12)
  near = jnp.array([0, 2, 2], jnp.int32)
  want = run(*arguments, owner=near, implementation='reference')
  owner = jnp.array([-1, 3, 99], jnp.int32)
  close(run(*arguments, owner=owner, implementation=implementation), want, 1e-5)
  # Nor where a mesh cuts heads only, and each device has every prompt.
  mesh = mesh_of(1, 1, 2)
  got = run(*arguments, owner=owner, implementation=implementation, mesh=mesh)
  close(got, want, 1e-5)


def test_what_cannot_run_is_refused():
  arguments = make(2, 1, 1, 4, 2, 8, 3, 5)
  call = functools.partial(api.decode_attention, *arguments, layout='slots')
  with pytest.raises(NotImplementedError, match='the arrays are on cpu'):
    call(implementation='pallas_tpu')
  with pytest.raises(NotImplementedError, match='K=2 heads do not divide'):
    call(implementation='pallas_tpu_interpret', mesh=mesh_of(1, 1, 4))
  with pytest.raises(NotImplementedError, match='B=2 does not divide'):
    call(implementation='pallas_tpu_interpret', mesh=mesh_of(2, 2, 1))
  with pytest.raises(NotImplementedError, match='N=2 does not divide'):
    call(
      owner=jnp.zeros(2, jnp.int32),
      implementation='pallas_tpu_interpret',
      mesh=mesh_of(4, 1, 1),
    )
  with pytest.raises(NotImplementedError, match='reads one head at a time'):
    call(implementation='pallas_gpu_interpret')
  with pytest.raises(NotImplementedError, match='H=8 must be a power of two'):
    api.decode_attention(
      *in_layout(arguments, 'heads'),
      layout='heads',
      implementation='pallas_gpu_interpret',
    )
  with pytest.raises(ValueError, match='is unknown; it may be None'):
    call(implementation='cuda')
  with pytest.raises(ValueError, match='layout=.rows. is unknown'):
    api.decode_attention(*arguments, layout='rows')
  with pytest.raises(ValueError, match='do not fit each other'):
    api.decode_attention(*arguments, layout='heads')

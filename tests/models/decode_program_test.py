"""What the compiled decode programs hold and do, read from their own text.

From shapes alone. Each finder is shown a program that has what it looks for.
"""

import dataclasses
import functools
import math

import jax
import jax.numpy as jnp
import pytest

from tandem import types
from tandem.ahead import audit
from tandem.ahead import hlo
from tandem.models import cache as cache_lib
from tandem.models import decoder
from tandem.models import presets
from tandem.rollout import lockstep
from tandem.rollout import sampling
from tandem.rollout import speculative
from tandem.rollout import turns

# Sizes that are found nowhere else: an array with P or T and H is of a cache.
P, T = 29, 31
TINY = types.ModelConfig(
  vocab=67,
  dim=20,
  num_layers=2,
  num_heads=4,
  num_kv_heads=2,
  head_dim=6,
  hidden=40,
)
_MOVES = (
  'concatenate',
  'copy',
  'copy-start',
  'dynamic-slice',
  'gather',
  'pad',
  'slice',
  'transpose',
)
shape = jax.ShapeDtypeStruct


def _config(name):
  if name == 'tiny':
    return TINY
  return dataclasses.replace(presets.preset(name), num_layers=2)


def _params(cfg):
  make = lambda: decoder.init_params(jax.random.key(0), cfg)
  return jax.eval_shape(lambda: decoder.decode_params(make(), cfg))


@functools.cache
def _compiled(name, program='lockstep', prompts=2, group=4, **options):
  """(the compiled program, its config)."""
  cfg = _config(name)
  pair = program != 'solo'
  keys = jax.eval_shape(jax.random.key, 0).dtype
  function = lockstep.lockstep
  if program == 'speculative':
    function = speculative.counted
    options = {'draft_tokens': 3} | options
  lowered = function.lower(
    _params(cfg),
    _params(cfg) if pair else None,
    types.Context(
      ids=shape((prompts, P), jnp.int32), lengths=shape((prompts,), jnp.int32)
    ),
    shape((prompts * group,), keys),
    shape((cfg.vocab,), jnp.bool_),
    senior_cfg=cfg,
    junior_cfg=cfg if pair else None,
    group=group,
    max_tokens=T,
    eos_ids=(0,),
    turns=turns.Turns(),
    sampling=sampling.Sampling(),
    **options,
  )
  return lowered.compile(), cfg


def _moved_in_loop(compiled, cfg):
  """Copies of cache parts inside a loop on data: (opcode, sizes)."""
  module, found = hlo.Module(compiled.as_text()), []
  assert any(inside for _, _, inside in module.runs())  # there is such a loop
  for one, _, inside in module.everywhere():
    for x in one.shapes:
      of_cache = cfg.head_dim in x.sizes and {P, T} & set(x.sizes)
      if inside and of_cache and one.opcode in _MOVES:
        found.append((one.opcode, x.sizes))
  return found


def _stored_logits(compiled, cfg):
  """Arrays as large as the logits of all positions, the embedding aside."""
  module = hlo.Module(compiled.as_text())
  found = audit.arrays_over(module, 8 * T * cfg.vocab - 1, [cfg.vocab])
  return [x for x in found if cfg.dim not in x[1]]


MODELS = (
  'tiny',
  pytest.param('smollm2-135m', marks=pytest.mark.slow),
  pytest.param('qwen3-4b-instruct-2507', marks=pytest.mark.slow),
)


@pytest.mark.parametrize('name', MODELS)
@pytest.mark.parametrize('program', ['lockstep', 'speculative'])
def test_the_loop_copies_no_cache_and_stores_no_logits(program, name):
  compiled, cfg = _compiled(name, program)
  assert not _moved_in_loop(compiled, cfg)
  assert not _stored_logits(compiled, cfg)


def test_a_scan_over_a_stacked_cache_copies_it():
  # The control: one leaf for all layers, driven by a scan in the loop.
  cache = jax.eval_shape(
    lambda kv: cache_lib.allocate(TINY, [(kv, kv)], jnp.ones(2), slots=T),
    shape((2, P, TINY.num_kv_heads, TINY.head_dim), jnp.float32),
  )
  stacked = jax.tree.map(
    lambda x: shape((3, *x.shape), x.dtype), cache.layers[0]
  )
  q = shape((2, 1, TINY.num_heads, TINY.head_dim), jnp.float32)

  def program(layers, q):
    def layer(q, kv):
      slots = jnp.zeros((2, 1), jnp.int32)
      kv = cache_lib.write(kv, q[:, :, :2], q[:, :, :2], slots)
      return cache_lib.read(kv, q, jnp.ones(2, jnp.int32), slots), kv

    step = lambda carry: jax.lax.scan(layer, *carry)
    return jax.lax.while_loop(lambda c: c[0].sum() < 9, step, (q, layers))

  compiled = jax.jit(program).lower(stacked, q).compile()
  assert _moved_in_loop(compiled, TINY)


def test_logits_of_a_whole_response_are_found():
  ids = shape((8, T), jnp.int32)
  params = jax.eval_shape(lambda: decoder.init_params(jax.random.key(0), TINY))
  compiled = jax.jit(decoder.apply, static_argnums=1).lower(params, TINY, ids)
  assert _stored_logits(compiled.compile(), TINY)


def _flops(compiled):
  return compiled.cost_analysis()['flops']


def _prefill(prompts, group):
  def program(params, ids, lengths):
    prefix = decoder.prefill(params, TINY, ids)
    return cache_lib.allocate(TINY, prefix, lengths, group=group, slots=T)

  args = shape((prompts, P), jnp.int32), shape((prompts,), jnp.int32)
  return jax.jit(program).lower(_params(TINY), *args).compile()


def test_a_group_prefills_once():
  one, group, eight = (_flops(_prefill(*x)) for x in ((1, 1), (1, 8), (8, 1)))
  assert one == group
  assert eight > 7 * one  # the control; the sines of positions are shared
  # Of whole programs, whose loop over 8 rows is the same but for its prompts.
  grouped, _ = _compiled('tiny', 'solo', prompts=1, group=8)
  apart, _ = _compiled('tiny', 'solo', prompts=8, group=1)
  saved = _flops(apart) - _flops(grouped)
  assert saved == pytest.approx(eight - one, rel=0.01)


def _with_all_prompts(compiled, rows):
  """Arrays that hold the prompt once per row."""
  least = rows * TINY.num_kv_heads * P * TINY.head_dim
  module = hlo.Module(compiled.as_text())
  found = audit.arrays_over(module, least - 1, [P])
  return [x for x in found if TINY.head_dim in x[1]]


def test_a_group_holds_its_prompt_once():
  kv = shape((1, P, TINY.num_kv_heads, TINY.head_dim), jnp.float32)

  def held(group):
    make = functools.partial(
      cache_lib.allocate, TINY, group=group, slots=T, layout='heads'
    )
    cache = jax.eval_shape(make, [(kv, kv)], shape((1,), jnp.int32))
    size = lambda x: math.prod(x.shape) * x.dtype.itemsize
    return {name: size(getattr(cache.layers[0], name)) for name in names}

  names = cache_lib.PARTS
  one, eight = held(1), held(8)
  for name in names:
    times = 8 if name.startswith('suffix') else 1
    assert eight[name] == times * one[name]
  assert not _with_all_prompts(
    _compiled('tiny', 'solo', prompts=1, group=8)[0], 8
  )
  # The control: rows whose prompts are gathered.
  owned, _ = _compiled('tiny', 'speculative', slots=6)
  assert _with_all_prompts(owned, 6)

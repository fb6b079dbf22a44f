"""What must not stand in a program's text is found where it does.

The second half reads the 4B configuration's text from the real TPU compiler,
at two layers; it needs libtpu, see tandem/kernels/compile_table/spawn.py.
"""

import functools
import json
import os
import pathlib
import subprocess

import jax
import jax.numpy as jnp
from jax.sharding import NamedSharding
import pytest

from configs import trl_qwen3_4b
from tandem.ahead import audit
from tandem.ahead import collectives
from tandem.ahead import hlo
from tandem.kernels.compile_table import spawn
from tandem.models import presets
from tandem.training import mesh as mesh_lib

ROOT = pathlib.Path(__file__).parents[2]
PYTHON = spawn.interpreter('tpu')
needs_libtpu = pytest.mark.skipif(PYTHON is None, reason=spawn.missing('tpu'))


def decoding(spec):
  """A loop on data over a weight cut by `spec`, on eight fake devices."""
  mesh = mesh_lib.make_mesh(fsdp=4, tensor=2)
  place = lambda shape, spec: jax.ShapeDtypeStruct(
    shape, jnp.float32, sharding=NamedSharding(mesh, spec)
  )

  def f(x, w):
    # The weight changes: one that does not is gathered once, before the loop.
    body = lambda c: (jnp.tanh(c[0] @ c[1]) @ c[1].T, 0.5 * c[1])
    return jax.lax.while_loop(lambda c: c[0].sum() < 1, body, (x, w))

  x, w = place((8, 64), jax.P('fsdp')), place((64, 64), spec)
  out = (NamedSharding(mesh, jax.P('fsdp')), NamedSharding(mesh, spec))
  compiled = jax.jit(f, out_shardings=out).lower(x, w).compile()
  return hlo.Module(compiled.as_text()), mesh


def test_a_weight_cut_over_fsdp_is_gathered_at_each_step():
  whole = 64 * 64 * 4 / 2
  for spec, least, most in (
    (jax.P('fsdp', 'tensor'), whole / 2, 1e9),
    (jax.P(None, 'tensor'), 0, whole / 4),
  ):
    module, mesh = decoding(spec)
    sent = collectives.find(module, mesh, 10)
    assert least <= audit.gathered_per_step(sent, 10) <= most, spec


def test_wide_products_and_large_arrays_are_found():
  def f(x, w, narrow):
    y = jax.lax.dot(narrow, narrow, preferred_element_type=jnp.float32)
    return x @ w, y

  x, w = jnp.zeros((64, 32)), jnp.zeros((32, 96))
  text = jax.jit(f).lower(x, w, jnp.zeros((64, 64), jnp.int8)).as_text('hlo')
  module = hlo.Module(text)
  assert len(audit.wide_products(module, 1)) == 1
  assert not audit.wide_products(module, 1e6)
  assert audit.arrays_over(module, 64 * 96 - 1, (96,))
  assert not audit.arrays_over(module, 64 * 96, (96,))
  assert not audit.arrays_over(module, 1, (97,))


def test_copies_in_a_loop_on_data_are_found():
  text = """HloModule m

body {
  c = (s32[], f32[64,128]{1,0}) parameter(0)
  a = f32[64,128]{1,0} get-tuple-element(c), index=1
  copy.1 = f32[64,128]{0,1} copy(a), metadata={op_name="jit(f)/while/copy"}
  ROOT t = (s32[], f32[64,128]{0,1}) tuple(c, copy.1)
}

ENTRY main {
  p = (s32[], f32[64,128]{1,0}) parameter(0)
  copy.2 = f32[64,128]{0,1} copy(p)
  ROOT w = (s32[], f32[64,128]{1,0}) while(p), condition=none, body=body
}
"""
  found = audit.loop_copies(hlo.Module(text), 64 * 128 * 4)
  assert found == [('copy.1', 64 * 128 * 4, 'jit(f)/while/copy')]
  assert not audit.loop_copies(hlo.Module(text), 64 * 128 * 4 + 1)


def test_a_copy_within_a_fusion_counts_where_it_is_stored():
  text = """HloModule m

order {
  p = f32[64,128]{1,0} parameter(0)
  ROOT copy.1 = f32[64,128]{0,1} copy(p)
}

product {
  q = f32[64,128]{1,0} parameter(0)
  fusion.1 = f32[64,128]{0,1} fusion(q), kind=kLoop, calls=order
  ROOT dot = f32[64,64]{1,0} dot(fusion.1, fusion.1), lhs_contracting_dims={1}
}

body {
  c = (s32[], f32[64,128]{1,0}) parameter(0)
  a = f32[64,128]{1,0} get-tuple-element(c), index=1
  fusion.2 = f32[64,64]{1,0} fusion(a), kind=kOutput, calls=product
  ROOT t = (s32[], f32[64,128]{0,1}) tuple(c, a)
}

ENTRY main {
  p = f32[64,128]{1,0} parameter(0)
  ROOT w = (s32[], f32[64,128]{1,0}) while(p), condition=none, body=body
}
"""
  assert not audit.loop_copies(hlo.Module(text), 1)
  stored = text.replace('calls=product', 'calls=order')
  assert [x[0] for x in audit.loop_copies(hlo.Module(stored), 1)] == ['copy.1']


# ---- The 4B pair at two layers, compiled for a v5p-8 -------------------------

CONFIG = trl_qwen3_4b.get_config()
TENSOR = 4
ROWS = CONFIG.rollout.prompts * CONFIG.rollout.group
CFG = presets.preset('qwen3-4b-instruct-2507')


@functools.cache
def compiled(folder):
  command = [PYTHON, '-m', 'launch.compile_ahead', f'--text={folder}']
  command += ['--config=configs/trl_qwen3_4b.py', '--topology=v5p:2x2x1']
  command += ['--layers=2', '--only=rollout,score/old,update']
  # The suite's flags are for a CPU's code generation.
  env = {k: v for k, v in os.environ.items() if k != 'XLA_FLAGS'}
  done = subprocess.run(
    command, cwd=ROOT, env=env, capture_output=True, text=True
  )
  assert done.returncode == 0, done.stderr[-3000:]
  texts = {
    path.stem: hlo.Module(path.read_text())
    for path in pathlib.Path(folder).glob('*.hlo')
  }
  return json.loads(done.stdout), texts


@pytest.fixture(scope='module')
def texts(tmp_path_factory):
  return compiled(str(tmp_path_factory.mktemp('texts')))


@needs_libtpu
@pytest.mark.slow
def test_no_logits_are_stored(texts):
  """A quarter of [micro rows, T, V] over tensor; the decode step has [N, V]."""
  rollout = CONFIG.rollout
  vocab = (CFG.vocab, CFG.vocab // TENSOR)
  most = CONFIG.learner.micro_rows * rollout.max_response * CFG.vocab / TENSOR
  for name, module in texts[1].items():
    assert not audit.arrays_over(module, most / 4, vocab), name


@needs_libtpu
@pytest.mark.slow
def test_decode_gathers_no_weights_and_copies_no_cache(texts):
  found, modules = texts
  sent = found['programs']['rollout']['collectives']
  trips = found['programs']['rollout']['trips']
  gathers = ('all-gather', 'collective-permute', 'all-to-all')
  each = sum(x['in_loop_bytes'] for x in sent if x['kind'] in gathers) / trips
  layer = CFG.dim * CFG.head_dim * (2 * CFG.num_heads + 2 * CFG.num_kv_heads)
  weights = 2 * 2 * (layer + 3 * CFG.dim * CFG.hidden) * 2 / TENSOR
  assert each < weights / 20
  cache = ROWS * CFG.num_kv_heads / TENSOR * CFG.head_dim * 2
  cache *= CONFIG.rollout.max_response
  assert not audit.loop_copies(modules['rollout'], cache / 2)


@needs_libtpu
@pytest.mark.slow
def test_products_are_bfloat16(texts):
  for name, module in texts[1].items():
    assert not audit.wide_products(module), name

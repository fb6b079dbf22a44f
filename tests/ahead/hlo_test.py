"""Texts of compiled programs, written and real, taken apart."""

import jax
import jax.numpy as jnp
from jax.sharding import NamedSharding
import pytest

from tandem.ahead import collectives
from tandem.ahead import hlo
from tandem.ahead import targets
from tandem.ahead import traffic
from tandem.training import mesh as mesh_lib

# A decode loop as a TPU's compiler writes it, cut to what is read.
TEXT = """HloModule jit_f, is_scheduled=true, num_partitions=8

%sum (a: f32[], b: f32[]) -> f32[] {
  %a = f32[]{:T(128)} parameter(0)
  %b = f32[]{:T(128)} parameter(1)
  ROOT %add.9 = f32[]{:T(128)} add(%a, %b)
}

%update (p0: bf16[64,128], p1: bf16[1,128], p2: s32[]) -> bf16[64,128] {
  %p0 = bf16[64,128]{1,0:T(8,128)(2,1)} parameter(0)
  %p1 = bf16[1,128]{1,0:T(2,128)(2,1)} parameter(1)
  %p2 = s32[]{:T(128)} parameter(2)
  %zero = s32[] constant(0)
  ROOT %dus = bf16[64,128]{1,0:T(8,128)(2,1)} dynamic-update-slice(%p0, %p1, %p2, %zero)
}

%body (c: (s32[], bf16[64,128], bf16[1,128])) -> (s32[], bf16[64,128], bf16[1,128]) {
  %c = (s32[]{:T(128)}, bf16[64,128]{1,0:T(8,128)(2,1)}, bf16[1,128]{1,0}) parameter(0)
  %i = s32[]{:T(128)} get-tuple-element(%c), index=0
  %cache = bf16[64,128]{1,0:T(8,128)(2,1)} get-tuple-element(%c), index=1
  %row = bf16[1,128]{1,0} get-tuple-element(%c), index=2
  %fusion.1 = bf16[64,128]{1,0:T(8,128)(2,1)} fusion(%cache, %row, %i), kind=kLoop, calls=%update
  %all-reduce.1 = bf16[1,128]{1,0} all-reduce(%row), replica_groups=[2,4]<=[8], use_global_device_ids=true, to_apply=%sum, metadata={op_name="jit(f)/while/body/dot"}
  %near = bf16[1,128]{1,0:T(2,128)S(1)} copy(%all-reduce.1)
  ROOT %t = (s32[], bf16[64,128], bf16[1,128]) tuple(%i, %fusion.1, %all-reduce.1)
}

%cond (c: (s32[], bf16[64,128], bf16[1,128])) -> pred[] {
  %c.1 = (s32[], bf16[64,128], bf16[1,128]) parameter(0)
  ROOT %no = pred[]{:T(512)} constant(false)
}

ENTRY %main (p: bf16[64,128], q: bf16[8,128]) -> bf16[64,128] {
  %p = bf16[64,128]{1,0:T(8,128)(2,1)} parameter(0)
  %q = bf16[8,128]{1,0:T(8,128)(2,1)} parameter(1)
  %start = (bf16[8,128]{1,0}, bf16[64,128]{1,0}) all-gather-start(%q), replica_groups=[1,8]<=[8], dimensions={0}
  %done = bf16[64,128]{1,0} all-gather-done(%start)
  %hop = bf16[8,128]{1,0} collective-permute(%q), source_target_pairs={{0,1},{1,2},{2,3},{3,0},{4,5},{5,6},{6,7},{7,4}}
  %tuple = (s32[], bf16[64,128], bf16[1,128]) tuple(%p, %done, %q)
  %while = (s32[], bf16[64,128], bf16[1,128]) while(%tuple), condition=%cond, body=%body
  ROOT %out = bf16[64,128]{1,0} get-tuple-element(%while), index=1
}
"""


@pytest.fixture
def mesh():
  return mesh_lib.make_mesh(data=2, tensor=4)


def test_trips_and_calls():
  runs = {name: (n, inside) for name, n, inside in hlo.Module(TEXT).runs(10)}
  assert runs == {'main': (1, False), 'body': (10, True)}
  known = TEXT.replace(
    'body=%body\n',
    'body=%body, backend_config={"known_trip_count":{"n":"3"}}\n',
  )
  runs = {name: (n, inside) for name, n, inside in hlo.Module(known).runs(10)}
  assert runs['body'] == (3, False)


def test_collectives_by_kind_axes_and_bytes(mesh):
  found = {x.kind: x for x in collectives.find(hlo.Module(TEXT), mesh, 10)}
  gather, reduce = found['all-gather'], found['all-reduce']
  assert (gather.axes, gather.size) == (('data', 'tensor'), 8)
  assert (gather.count, gather.bytes, gather.in_loop) == (1, 64 * 128 * 2, 0)
  assert (reduce.axes, reduce.size, reduce.count) == (('tensor',), 4, 10)
  assert reduce.bytes == reduce.in_loop == 10 * 128 * 2
  assert reduce.where == 'jit(f)/while/body/dot'
  hop = found['collective-permute']
  assert (hop.axes, hop.bytes) == (('tensor',), 8 * 128 * 2)


def test_permutes_are_one_wherever_they_begin(mesh):
  hop = '{{0,1},{1,2},{2,3},{3,0},{4,5},{5,6},{6,7},{7,4}}'
  other = '{{3,0},{0,1},{1,2},{2,3},{4,5},{5,6},{6,7},{7,4}}'
  assert hop in TEXT
  line = next(x for x in TEXT.splitlines() if hop in x)
  more = line.replace('%hop', '%back').replace(hop, other)
  module = hlo.Module(TEXT.replace(line, f'{line}\n{more}'))
  (one,) = (
    x for x in collectives.find(module, mesh) if x.kind == 'collective-permute'
  )
  assert (one.count, one.reach) == (2, 3)


def test_traffic_counts_an_update_in_place_as_its_update():
  module = hlo.Module(TEXT)
  moved = {one.name: b for (one, b), *_ in traffic.touched(module, 10)}
  row = 128 * 2
  assert moved['fusion.1'] == 2 * row + 4  # not the 64 rows that it lies in
  assert moved['near'] == row  # its result stays on the chip
  total, looped = traffic.of(module, 10)
  assert looped == 10 * (2 * row + 4 + 2 * row + row)
  assert total > looped


# A fusion that slices a stack within another, and gives an update in place
# beside a small result.
NESTED = """HloModule jit_f

%inner (p0: bf16[36,64,128], p1: s32[]) -> bf16[64,128] {
  %p0 = bf16[36,64,128]{2,1,0} parameter(0)
  %p1 = s32[] parameter(1)
  %zero = s32[] constant(0)
  %slice = bf16[1,64,128]{2,1,0} dynamic-slice(%p0, %p1, %zero, %zero)
  ROOT %b = bf16[64,128]{1,0} bitcast(%slice)
}

%outer (q0: bf16[36,64,128], q1: s32[]) -> (bf16[36,64,128], bf16[64]) {
  %q0 = bf16[36,64,128]{2,1,0} parameter(0)
  %q1 = s32[] parameter(1)
  %zero.1 = s32[] constant(0)
  %fusion.8 = bf16[64,128]{1,0} fusion(%q0, %q1), kind=kLoop, calls=%inner
  %b.1 = bf16[1,64,128]{2,1,0} bitcast(%fusion.8)
  %dus = bf16[36,64,128]{2,1,0} dynamic-update-slice(%q0, %b.1, %q1, %zero.1)
  %sum = bf16[64]{0} negate(%fusion.8)
  ROOT %t = (bf16[36,64,128], bf16[64]) tuple(%dus, %sum)
}

ENTRY %main (p: bf16[36,64,128], i: s32[]) -> (bf16[36,64,128], bf16[64]) {
  %p = bf16[36,64,128]{2,1,0} parameter(0)
  %i = s32[] parameter(1)
  ROOT %fusion.9 = (bf16[36,64,128]{2,1,0}, bf16[64]{0}) fusion(%p, %i), kind=kOutput, calls=%outer
}
"""


def test_traffic_of_a_slice_within_fusions_is_the_slice():
  (((_, moved), *_),) = traffic.touched(hlo.Module(NESTED))
  layer = 64 * 128 * 2
  assert moved == layer + 4 + layer + 64 * 2  # read, where; written twice


def test_a_group_within_a_host_does_not_wait_for_the_network(mesh):
  found = {x.kind: x for x in collectives.find(hlo.Module(TEXT), mesh, 10)}
  within, across = found['all-reduce'], found['all-gather']  # of 4, of 8
  chip = targets.CHIPS['H200']
  assert within.seconds(chip, 4) == within.seconds(chip)
  slower = across.seconds(chip, 4) / across.seconds(chip)
  assert slower == pytest.approx(chip.ring / chip.between)
  assert across.seconds(chip, 8) == across.seconds(chip)


def test_an_all_to_all_walks_a_torus_and_not_a_switch():
  one = collectives.Collective(
    'all-to-all', ('fsdp',), 64, 1, 64e9, 0, 64e9, ''
  )
  tpu, gpu = targets.CHIPS['v5p'], targets.CHIPS['H200']
  assert one.seconds(gpu) == pytest.approx(63e9 / gpu.ring)
  assert one.seconds(tpu) == pytest.approx(8 * 63e9 / tpu.ring)


def test_traffic_of_a_prefetch_is_one_reading():
  text = TEXT.replace(
    '  %near = bf16[1,128]{1,0:T(2,128)S(1)} copy(%all-reduce.1)',
    '  %near = (bf16[64,128]{1,0:S(1)}, bf16[64,128]{1,0}, u32[]) '
    'copy-start(%cache)',
  )
  moved = {x.name: b for (x, b), *_ in traffic.touched(hlo.Module(text), 1)}
  assert moved['near'] == 64 * 128 * 2


def test_traffic_of_a_sliced_prefetch_is_the_slice():
  text = TEXT.replace(
    '  %near = bf16[1,128]{1,0:T(2,128)S(1)} copy(%all-reduce.1)',
    '  %far = ((bf16[64,128]{1,0}), bf16[16,128]{1,0:S(1)}, s32[]{:S(2)}) '
    'slice-start(%cache), slice={[0:16], [0:128]}\n'
    '  %near = bf16[16,128]{1,0:S(1)} slice-done(%far)',
  )
  moved = {x.name: b for (x, b), *_ in traffic.touched(hlo.Module(text), 1)}
  assert moved['far'] == 16 * 128 * 2 and 'near' not in moved


def test_traffic_of_a_fusion_that_copies_is_all_of_it():
  copies = NESTED.replace(
    '%slice = bf16[1,64,128]{2,1,0} dynamic-slice(%p0, %p1, %zero, %zero)',
    '%slice = bf16[36,64,128]{1,2,0} copy(%p0)',
  ).replace('ROOT %b = bf16[64,128]{1,0} bitcast', 'ROOT %b = bf16[64] bitcast')
  (((_, moved), *_),) = traffic.touched(hlo.Module(copies))
  layer = 64 * 128 * 2
  assert moved == 36 * layer + 4 + layer + 64 * 2


def test_a_kernels_attributes_may_hold_line_ends(mesh):
  kernel = """  %k = bf16[1,128]{1,0} custom-call(%row), frontend_attributes={kernel_metadata={
"block": "{512}"
}}, metadata={op_name="jit(f)/kernel"}
  %all-reduce.1"""
  text = TEXT.replace('  %all-reduce.1', kernel, 1)
  module = hlo.Module(text)
  assert module.computations['body']['k'].op_name == 'jit(f)/kernel'
  assert module.computations['body']['t'].root
  found = [x.kind for x in collectives.find(module, mesh, 10)]
  assert 'all-reduce' in found


def test_groups_in_all_their_spellings():
  of = lambda text: collectives.group(f'x, replica_groups={text}, y', 8)
  assert of("mesh['a'=1,'b'=8] {'b'}") == tuple(range(8))
  assert of("mesh['a'=2,'b'=4] {'b'}") == (0, 1, 2, 3)
  assert of("mesh['a'=2,'b'=4] {'a'}") == (0, 4)
  assert of("mesh['a'=2,'b'=4], device_ids=([4,2]T(1,0)) {'b'}") == (0, 2, 4, 6)
  assert of("mesh['a'=2,'b'=4] {'b':(1)2}") == (0, 2)
  assert of("mesh['a'=2,'b'=4] {'b':(2)2}") == (0, 1)
  assert of("mesh['a'=2,'b'=4] {'a','b':(2)2}") == (0, 1, 4, 5)
  with pytest.raises(ValueError, match='no spelling'):
    of('circle[8]')
  assert collectives.group('replica_groups={{0,2},{1,3}}, x', 4) == (0, 2)
  assert collectives.group('replica_groups=[2,2]<=[2,2]T(1,0), x', 4) == (0, 2)
  assert collectives.group('replica_groups=[2,2]<=[4], x', 4) == (0, 1)
  assert collectives.group('replica_groups={}', 4) == (0, 1, 2, 3)


def test_a_real_program(mesh):
  """x cut over data, w over tensor's contraction: one reduction over tensor."""
  sharded = lambda shape, *spec: jax.ShapeDtypeStruct(
    shape, jnp.float32, sharding=NamedSharding(mesh, jax.P(*spec))
  )

  def f(x, w):
    step = lambda x, _: (jnp.tanh(x @ w), None)
    return jax.lax.scan(step, x, length=6)[0]

  x, w = sharded((16, 64), 'data', None), sharded((64, 64), 'tensor', None)
  out = NamedSharding(mesh, jax.P('data', None))
  compiled = jax.jit(f, out_shardings=out).lower(x, w).compile()
  module = hlo.Module(compiled.as_text())
  found = collectives.find(module, mesh)
  reduces = [x for x in found if x.kind == 'all-reduce']
  assert [x.axes for x in reduces] == [('tensor',)]
  assert reduces[0].count == 6
  assert reduces[0].bytes == 6 * (16 / 2) * 64 * 4


def test_a_tpus_scan_counts_in_its_condition(mesh):
  # What jax's scans become: counter < constant, and nothing beside the loop.
  counts = """  %n = s32[]{:T(128)} constant(36)
  %k = s32[]{:T(128)} get-tuple-element(%c.1), index=0
  ROOT %lt = pred[]{:T(512)} compare(%k, %n), direction=LT
"""
  on_data = '  ROOT %no = pred[]{:T(512)} constant(false)\n'
  assert on_data in TEXT
  module = hlo.Module(TEXT.replace(on_data, counts))
  times = {name: (n, inside) for name, n, inside in module.runs(trips=7)}
  assert times['body'] == (36, False)
  (found,) = (
    x for x in collectives.find(module, mesh, 7) if x.kind == 'all-reduce'
  )
  assert found.count == 36 and found.in_loop == 0
  # A bound that is carried, or a test of more than the counter, is of data.
  for bound in ('get-tuple-element(%c.1), index=2', 'parameter(1)'):
    text = TEXT.replace(on_data, counts.replace('constant(36)', bound))
    times = {name: n for name, n, _ in hlo.Module(text).runs(trips=7)}
    assert times['body'] == 7
  text = TEXT.replace(on_data, counts.replace('compare', 'and'))
  assert dict(x[:2] for x in hlo.Module(text).runs(trips=7))['body'] == 7


# A gather that a TPU's compiler spreads over a product, and a reduce-scatter.
CHAINED = """HloModule jit_f

%first (s: bf16[16,128]) -> (bf16[16,128], bf16[64,128], s32[2]) {
  %s = bf16[16,128]{1,0} parameter(0)
  %gather.1 = bf16[64,128]{1,0} all-gather(%s), channel_id=7, replica_groups=[2,4]<=[8], frontend_attributes={chain_id="3"}
  ROOT %go = (bf16[16,128]{1,0}, bf16[64,128]{1,0}, s32[2]{0:S(4)}) custom-call(%gather.1), custom_call_target="AsyncCollectiveStart"
}

%beside (s.1: bf16[16,128], w.1: bf16[64,128], n.1: s32[2], x: bf16[32,128]) -> (bf16[32,128], bf16[16,128], bf16[64,128], s32[2]) {
  %s.1 = bf16[16,128]{1,0} parameter(0)
  %w.1 = bf16[64,128]{1,0} parameter(1)
  %n.1 = s32[2]{0:S(4)} parameter(2)
  %x = bf16[32,128]{1,0} parameter(3)
  %y = bf16[32,128]{1,0} negate(%x)
  %gather.2 = bf16[64,128]{1,0} all-gather(%s.1), channel_id=7, replica_groups=[2,4]<=[8], frontend_attributes={chain_id="3"}
  ROOT %on = (bf16[32,128]{1,0}, bf16[16,128]{1,0}, bf16[64,128]{1,0}, s32[2]{0:S(4)}) custom-call(%y, %s.1, %gather.2, %n.1), custom_call_target="AsyncCollectiveStep"
}

%last (s.2: bf16[16,128], w.2: bf16[64,128], n.2: s32[2]) -> bf16[64,128] {
  %s.2 = bf16[16,128]{1,0} parameter(0)
  %w.2 = bf16[64,128]{1,0} parameter(1)
  %n.2 = s32[2]{0:S(4)} parameter(2)
  %gather.3 = bf16[64,128]{1,0} all-gather(%s.2), channel_id=7, replica_groups=[2,4]<=[8], frontend_attributes={chain_id="3"}
  ROOT %there = bf16[64,128]{1,0} custom-call(%gather.3, %w.2, %n.2), custom_call_target="AsyncCollectiveDone"
}

%all-reduce-scatter.1 (g: bf16[32,128]) -> bf16[8,128] {
  %g = bf16[32,128]{1,0} parameter(0)
  %all-reduce.5 = bf16[32,128]{1,0} all-reduce(%g), channel_id=9, replica_groups=[2,4]<=[8], to_apply=%sum
  %at = u32[] partition-id()
  %zero = u32[] constant(0)
  ROOT %mine = bf16[8,128]{1,0} dynamic-slice(%all-reduce.5, %at, %zero), dynamic_slice_sizes={8,128}
}

ENTRY %main (p: bf16[16,128], q: bf16[32,128]) -> bf16[8,128] {
  %p = bf16[16,128]{1,0} parameter(0)
  %q = bf16[32,128]{1,0} parameter(1)
  %start = (bf16[16,128]{1,0}, bf16[64,128]{1,0}, s32[2]{0:S(4)}) fusion(%p), kind=kCustom, output_to_operand_aliasing={{0}: (0, {})}, calls=%first
  %s.3 = bf16[16,128]{1,0} get-tuple-element(%start), index=0
  %w.3 = bf16[64,128]{1,0} get-tuple-element(%start), index=1
  %n.3 = s32[2]{0:S(4)} get-tuple-element(%start), index=2
  %work = (bf16[32,128]{1,0}, bf16[16,128]{1,0}, bf16[64,128]{1,0}, s32[2]{0:S(4)}) fusion(%s.3, %w.3, %n.3, %q), kind=kOutput, output_to_operand_aliasing={{1}: (0, {}), {2}: (1, {}), {3}: (2, {})}, calls=%beside
  %y.3 = bf16[32,128]{1,0} get-tuple-element(%work), index=0
  %done = bf16[64,128]{1,0} fusion(%s.3, %w.3, %n.3), kind=kCustom, output_to_operand_aliasing={{}: (1, {})}, calls=%last
  ROOT %shard = bf16[8,128]{1,0} fusion(%y.3), kind=kCustom, calls=%all-reduce-scatter.1
}
"""


def test_a_collective_spread_over_fusions_is_one(mesh):
  found = {x.kind: x for x in collectives.find(hlo.Module(CHAINED), mesh)}
  gather, scatter = found['all-gather'], found['reduce-scatter']
  assert (gather.count, gather.bytes) == (1, 64 * 128 * 2)
  # Each device keeps its quarter of what is added up.
  assert (scatter.count, scatter.bytes) == (1, 32 * 128 * 2)
  assert 'all-reduce' not in found


def test_traffic_of_a_gather_spread_over_fusions_is_its_own_once():
  moved = {x.name: b for (x, b), *_ in traffic.touched(hlo.Module(CHAINED))}
  row = 128 * 2
  assert moved['start'] == (16 + 64) * row
  assert moved['work'] == 2 * 32 * row  # the gather's buffers pass through
  assert moved['done'] == 0

"""The whole report of a tiny run on eight fake devices."""

import json

import pytest

from configs import quickstart
from tandem.ahead import collectives
from tandem.ahead import programs
from tandem.ahead import report
from tandem.ahead import roofline
from tandem.ahead import shapes
from tandem.ahead import targets
from tandem.models import presets
from tandem.rollout import lockstep
from tandem.rollout import speculative
from tandem.training import mesh as mesh_lib


def small():
  config = quickstart.get_config('tiny')
  config.mesh.data, config.mesh.fsdp, config.mesh.tensor = 2, 2, 2
  config.rollout.max_prompt, config.rollout.max_response = 8, 8
  config.learner.micro_rows = 4
  return config


@pytest.fixture(scope='module')
def found():
  return report.run(small(), 'cpu:8')


def test_what_checks_read(found):
  assert found['fits'] is True
  assert found['peak_bytes_per_device'] > 0
  assert found['flops_per_device'] > 0
  assert found['compile_seconds'] > 0
  assert json.loads(json.dumps(found)) == found
  assert list(found['programs']) == [
    'decode_copy',
    'rollout',
    'score/old',
    'update',
  ]


def test_peak_is_the_worst_phase_with_what_waits(found):
  phases = {
    name: part['bytes']['peak'] + part['resident_beside']
    for name, part in found['programs'].items()
  }
  assert found['peak_bytes_per_device'] == max(phases.values())
  # Weights, two moments and the junior wait while both models decode.
  assert found['programs']['rollout']['resident_beside'] > 0


def test_decode_names_its_bound(found):
  decode = found['programs']['rollout']['decode']
  parts = decode['step_seconds']
  assert decode['bound'] in ('weights', 'cache', 'compute', 'network')
  assert parts[decode['bound']] == max(
    parts[name] for name in ('weights', 'cache', 'compute', 'network')
  )
  assert decode['tokens_per_second'] <= decode['tokens_per_second_at_best']


def test_update_gathers_over_fsdp_and_has_a_mfu(found):
  update = found['programs']['update']
  assert 0 < update['mfu'] <= update['mfu_if_overlapped'] < 1
  axes = {x['axes'] for x in update['collectives']}
  assert 'fsdp' in ''.join(axes)


def test_what_does_not_fit_says_why(monkeypatch):
  import dataclasses

  chip = dataclasses.replace(targets.CHIPS['cpu'], memory=1e4)
  monkeypatch.setitem(targets.CHIPS, 'cpu', chip)
  found = report.run(small(), 'cpu:8', only=('decode_copy',))
  assert found['fits'] is False
  sizes = list(found['largest'].values())
  assert sizes == sorted(sizes, reverse=True)
  assert 'optimizer' in found['largest']


def test_a_program_that_the_run_has_not_is_named():
  with pytest.raises(ValueError, match='only=score: no such.*score/old'):
    report.run(small(), 'cpu:8', only=('update', 'score'))


@pytest.mark.parametrize(
  'said',
  [
    'XLA:TPU compile permanent error. Ran out of memory in memory space hbm. '
    'Used 20.50G of 15.75G hbm. Exceeded hbm capacity',
    'Ran out of memory on HBM, the total memory required for HLO temporaries '
    '(20.50G) exceeds available HBM (15.75G).',
  ],
)
def test_a_refusal_for_memory_is_an_answer(said):
  assert report._refusal(RuntimeError(f'RESOURCE_EXHAUSTED: {said}')) == {
    'peak': 20.5 * 2**30,
    'limit': 15.75 * 2**30,
  }
  assert report._refusal(RuntimeError('no such thing')) is None


def test_resident_weights_are_sixteen_bytes_less_the_gradient():
  """Float32 weights and two moments: 12 a parameter, over fsdp and tensor."""
  config = small()
  config.mesh.data, config.mesh.fsdp, config.mesh.tensor = 1, 4, 2
  mesh = mesh_lib.make_mesh(**config.mesh)
  run = shapes.run(config, mesh)
  total = sum(x.size for x in _leaves(run.state.params))
  held = shapes.bytes_per_device((run.state.params, run.state.opt_state))
  # Norms are whole everywhere, so a little above the even share.
  assert 1 <= held / (12 * total / 8) < 1.2


def test_a_step_reads_the_prompts_of_its_rows_only():
  cfg, section = presets.preset('qwen3-4b'), small().rollout
  section.prompts, section.group = 2, 4
  section.max_prompt, section.max_response = 16, 100
  mesh = mesh_lib.make_mesh(data=8)
  slot = 2 * cfg.num_layers * cfg.num_kv_heads * cfg.head_dim * 2
  bytes_of = lambda **how: roofline.cache_bytes(cfg, section, mesh, **how)
  # One row each; two prompts do not split over eight devices.
  assert bytes_of() == slot * (100 + 2 * 16)
  assert bytes_of(read=True) == slot * (100 + 16)
  mesh = mesh_lib.make_mesh(data=2, tensor=4)
  assert bytes_of(read=True) == bytes_of() == slot / 4 * (400 + 16)
  section.slots = 4  # rows of two prompts at the most, and each reads its own
  assert bytes_of() == slot / 4 * (200 + 16)
  assert bytes_of(read=True) == slot / 4 * (200 + 2 * 16)


def _leaves(tree):
  import jax

  return jax.tree.leaves(tree)


def test_model_flops_are_six_per_weight_and_token():
  cfg = presets.preset('qwen3-4b')
  flops = roofline.model_flops(cfg, 1000, 1, 1000)
  weights = 4_022_468_096 - 36 * (2 * 2560 + 2 * 128) - 2560
  assert flops == pytest.approx(6 * weights * 1000, rel=1e-4)


def test_ring_times():
  chip = targets.CHIPS['v5p']
  make = lambda kind, size, b: collectives.Collective(
    kind, ('tensor',), size, 1, b, 0, b, ''
  )
  gather = make('all-gather', 4, 180e9).seconds(chip)
  assert gather == pytest.approx(0.75)
  assert make('all-reduce', 4, 180e9).seconds(chip) == 2 * gather
  assert make('collective-permute', 4, 90e9).seconds(chip) == 1.0


def test_the_rollout_is_the_one_that_training_chooses():
  config = small()
  config.rollout.decoder, config.rollout.draft_tokens = 'speculative', 3
  config.rollout.slots, config.rollout.window = 4, 4  # of 8 rows
  config.rollout.cache_dtype = 'bfloat16'
  mesh = mesh_lib.make_mesh(**config.mesh)

  def program():
    run = shapes.run(config, mesh)
    return programs.rollout(config, run, platform='gpu')

  one = program()
  assert one.function is speculative.counted
  told = {
    name: one.kwargs[name] for name in ('draft_tokens', 'slots', 'window')
  }
  assert told == {'draft_tokens': 3, 'slots': 4, 'window': 4}
  assert one.kwargs['cache_dtype'] == 'bfloat16' and not one.kwargs['solo']
  # A senior alone has the junior draft for it, and holds both.
  config.rollout.mode = 'solo'
  one = program()
  assert one.kwargs['solo'] and one.args[1] is not None
  config.rollout.decoder, config.rollout.slots = 'lockstep', 0
  one = program()
  assert one.function is lockstep.lockstep and one.args[1] is None

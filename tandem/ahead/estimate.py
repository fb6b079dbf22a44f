"""From shapes alone, in a second: what stays resident, what a decode step costs.

No compiler is asked, so nothing is said of temporaries: that a run is too large
can be told here, that it fits cannot.
"""

from typing import Any

from tandem import types
from tandem.ahead import count as count_lib
from tandem.ahead import roofline
from tandem.ahead import shapes as shapes_lib
from tandem.ahead import targets


def cache_slots(section) -> int:
  """Rows that are decoded at once."""
  rows = section.prompts * section.group
  return min(section.slots, rows) or rows


def step_flops(cfg: types.ModelConfig, section) -> float:
  """Products of one decode step of one model, all rows."""
  heads = cfg.num_heads * cfg.head_dim
  keys = cfg.num_kv_heads * cfg.head_dim
  layer = cfg.dim * (2 * heads + 2 * keys + 3 * cfg.hidden)
  weights = cfg.num_layers * layer + cfg.dim * cfg.vocab
  # Scores and mix over every slot, filled or not.
  width = section.max_prompt + section.max_response
  attention = 2 * cfg.num_layers * width * heads
  return 2.0 * cache_slots(section) * (weights + attention)


def resident(config, run: shapes_lib.Run) -> dict[str, float]:
  """Bytes of one device by name, the caches of the rollout included.

  Gradients are the update's, and come on top in its phase.
  """
  out = {
    'master weights': shapes_lib.bytes_per_device(run.state.params),
    'optimizer': shapes_lib.bytes_per_device(run.state.opt_state),
  }
  seen = set()
  for role, tree in run.frozen.items():
    if id(tree) not in seen:
      name = 'senior decode copy' if role == 'senior' else role
      out[name] = shapes_lib.bytes_per_device(tree)
      seen.add(id(tree))
  itemsize = 2 if config.rollout.dtype == 'bfloat16' else 4
  for role in writers(config):
    out[f'{role} cache'] = roofline.cache_bytes(
      run.cfgs[role], config.rollout, run.mesh, itemsize
    )
  return out


def writers(config) -> tuple[str, ...]:
  """Who decodes."""
  pair = config.rollout.mode == 'tandem'
  return ('senior', 'junior') if pair else ('senior',)


def report(config, run: shapes_lib.Run, chip: targets.Chip) -> dict[str, Any]:
  """What can be said before a compile.

  `phases` are lower bounds: rollout without temporaries, update with float32
  gradients and without activations.
  """
  held = resident(config, run)
  caches = sum(size for name, size in held.items() if 'cache' in name)
  copy = held['senior decode copy']
  rollout = sum(held.values())
  phases = {
    'rollout': rollout,
    'update': rollout - caches - copy + held['master weights'],
  }
  section = config.rollout
  flops = sum(step_flops(run.cfgs[role], section) for role in writers(config))
  bounds = roofline.decode_step(
    config, run, chip, count_lib.Count(flops=flops), 0.0
  )
  seconds = max(bounds.weights + bounds.cache, bounds.compute)
  return {
    'resident': dict(sorted(held.items(), key=lambda x: -x[1])),
    'least_bytes_in_phase': phases,
    'too_large': max(phases.values()) > chip.memory,
    'decode': {
      'bound': bounds.bound,
      'weights_seconds': bounds.weights,
      'cache_seconds': bounds.cache,
      'compute_seconds': bounds.compute,
      'tokens_per_second_at_best': cache_slots(section) / seconds,
    },
  }

"""Compiles every program of a step for a machine that is not here, and says.

`run` gives the JSON object that launch.compile_ahead prints. All bytes are of
one device; operations are of products only (see `count`).
"""

from collections.abc import Callable
import dataclasses
import re
import time
from typing import Any

from absl import logging
import jax
import tqdm

from tandem import types
from tandem.ahead import audit
from tandem.ahead import collectives as collectives_lib
from tandem.ahead import count as count_lib
from tandem.ahead import estimate
from tandem.ahead import hlo
from tandem.ahead import programs as programs_lib
from tandem.ahead import roofline
from tandem.ahead import shapes as shapes_lib
from tandem.ahead import targets
from tandem.ahead import traffic
from tandem.training import build
from tandem.training import limits
from tandem.training import mesh as mesh_lib

# What a TPU's compiler says where a program finds no room: of all that it
# needs, or of its temporaries alone where those are too much already.
_REFUSED = re.compile(
  r'(?:Used |temporaries \()([\d.]+)([KMGT])'
  r'(?: of |\) exceeds available HBM \()([\d.]+)([KMGT])'
)
_UNITS = {'K': 2.0**10, 'M': 2.0**20, 'G': 2.0**30, 'T': 2.0**40}


@dataclasses.dataclass
class Compiled:
  """A program after its compiler; text is empty where that refused."""

  program: programs_lib.Program
  seconds: float
  memory: dict[str, float]
  text: str
  compiler_flops: float
  counted: count_lib.Count
  before_loop: count_lib.Count  # without loops that end on data
  refused: str = ''


def _memory(compiled) -> dict[str, float]:
  found = compiled.memory_analysis()
  arguments = found.argument_size_in_bytes
  temporaries = found.temp_size_in_bytes
  fresh = found.output_size_in_bytes - found.alias_size_in_bytes
  peak = getattr(found, 'peak_memory_in_bytes', 0)
  return {
    'arguments': arguments,
    'outputs': found.output_size_in_bytes,
    'aliased': found.alias_size_in_bytes,
    'temporaries': temporaries,
    'peak': peak or arguments + temporaries + fresh,
  }


def _refusal(error: Exception) -> dict[str, float] | None:
  """The totals of a compiler that found no room; None: it said another thing."""
  found = _REFUSED.search(str(error))
  if not found:
    return None
  used, unit, limit, limit_unit = found.groups()
  return {
    'peak': float(used) * _UNITS[unit],
    'limit': float(limit) * _UNITS[limit_unit],
  }


def compile_program(program: programs_lib.Program) -> Compiled:
  """Lowers and compiles; a refusal for want of memory is an answer."""
  traced = program.function.trace(*program.args, **program.kwargs)
  counted = count_lib.count(traced.jaxpr, program.trips)
  before = count_lib.count(traced.jaxpr, 0)
  lowered = traced.lower()
  start = time.monotonic()
  try:
    compiled = lowered.compile()
  except jax.errors.JaxRuntimeError as error:
    memory = _refusal(error)
    if memory is None:
      raise
    return Compiled(
      program,
      time.monotonic() - start,
      memory,
      '',
      0.0,
      counted,
      before,
      refused=str(error)[:4000],
    )
  took = time.monotonic() - start
  cost = compiled.cost_analysis() or {}
  return Compiled(
    program,
    took,
    _memory(compiled),
    compiled.as_text(),
    float(cost.get('flops', 0.0)),
    counted,
    before,
  )


def _contributors(one: Compiled) -> dict[str, float]:
  """What takes room while the program runs, largest first."""
  parts = dict(one.program.waiting)
  names = {
    'decode_copy': ('master weights',),
    'rollout': ('senior decode copy', 'junior decode copy', 'prompts'),
    'update': ('train state', 'batch', 'teacher'),
  }.get(one.program.name, ('scorer', 'context', 'tokens'))
  for name, tree in zip(names, one.program.args):
    parts[name] = shapes_lib.bytes_per_device(tree)
  used = sum(parts[name] for name in names if name in parts)
  parts['temporaries and results'] = max(one.memory['peak'] - used, 0.0)
  ranked = sorted(parts.items(), key=lambda x: -x[1])
  return {name: size for name, size in ranked if size > 0}


def _collective(one: collectives_lib.Collective) -> dict[str, Any]:
  return {
    'kind': one.kind,
    'axes': '+'.join(one.axes),
    'size': one.size,
    'count': one.count,
    'bytes': one.bytes,
    'in_loop_bytes': one.in_loop,
    'largest_bytes': one.largest,
    'where': one.where[-160:],
  }


class Reporter:
  """What all programs of one report share."""

  def __init__(self, config, run, chip, attention_utilisation, of_host):
    self.config, self.run, self.chip = config, run, chip
    self.attention_utilisation, self.of_host = attention_utilisation, of_host

  def program(self, one: Compiled) -> dict[str, Any]:
    """One program's part of the report."""
    devices, waiting = self.run.mesh.size, sum(one.program.waiting.values())
    out = {
      'compile_seconds': round(one.seconds, 1),
      'bytes': one.memory,
      'resident_beside': waiting,
      'bytes_in_phase': one.memory['peak'] + waiting,
      'flops': one.counted.flops,
      'flops_per_device': one.counted.flops / devices,
      'float32_flops': one.counted.wide_flops,
      'attention_flops': one.counted.attention_flops,
      'product_bytes': one.counted.bytes,
      'compiler_flops_loops_once': one.compiler_flops,
      'trips': one.program.trips,
    }
    if one.counted.pallas:
      out['pallas_flops'] = one.counted.pallas
    if one.refused:
      return out | {'refused': one.refused}
    module, trips = hlo.Module(one.text), one.program.trips
    moved, looped = traffic.of(module, trips)
    sent = collectives_lib.find(module, self.run.mesh, trips)
    time_ = roofline.seconds(
      self.chip,
      devices,
      one.counted,
      moved,
      sent,
      attention_utilisation=self.attention_utilisation,
      of_host=self.of_host,
    )
    out |= {
      'memory_traffic': moved,
      'collectives': [_collective(x) for x in sent],
      'seconds': dataclasses.asdict(time_) | {'total': time_.total},
      'bound': time_.bound,
    }
    if one.program.name == 'rollout':
      out['decode'] = self._decode(one, looped, sent)
    if one.program.name == 'update':
      out['mfu'] = self._mfu(time_.total)
      out['mfu_if_overlapped'] = self._mfu(time_.overlapped)
    return out

  def _mfu(self, seconds: float) -> float:
    section, cfg = self.config.rollout, self.run.cfgs['senior']
    n, t = section.prompts * section.group, section.max_response
    width = section.max_prompt + t
    flops = roofline.model_flops(cfg, n * width, width, n * t)
    flops *= self.config.learner.epochs
    return flops / (seconds * self.chip.flops * self.run.mesh.size)

  def _decode(self, one: Compiled, looped: float, sent) -> dict[str, Any]:
    trips, devices = one.program.trips, self.run.mesh.size
    step = count_lib.Count()
    step.add(one.counted, 1 / trips)
    step.add(one.before_loop, -1 / trips)
    network = 0.0
    for x in sent:
      network += (
        x.seconds(self.chip, self.of_host) * x.in_loop / x.bytes / trips
      )
    bounds = roofline.decode_step(
      self.config, self.run, self.chip, step, network
    )
    memory = looped / trips / self.chip.bandwidth
    floor = max(bounds.weights + bounds.cache, bounds.compute) + network
    rows = estimate.cache_slots(self.config.rollout)
    taken = max(memory, bounds.compute) + network
    return {
      'bound': bounds.bound,
      'step_seconds': dataclasses.asdict(bounds) | {'all_memory': memory},
      'flops_per_device_step': step.flops / devices,
      'gathered_bytes_per_step': audit.gathered_per_step(sent, trips),
      'tokens_per_second': rows / taken,
      'tokens_per_second_at_best': rows / floor,
    }


def run(
  config,
  topology: str,
  *,
  layers: int = 0,
  attention_utilisation: float = 0.5,
  rounds: int = 0,
  only: tuple[str, ...] = (),
  compiles: bool = True,
  leave: Callable[[str, str], None] = lambda name, text: None,
) -> dict[str, Any]:
  """Compiles and reports.

  Args:
    config: of the run; `targets.prepare(topology)` was called.
    topology: see targets.parse.
    layers: keeps so many layers of each model; 0: all.
    attention_utilisation: see roofline.seconds.
    rounds: see programs.rollout.
    only: names of programs; empty: all.
    compiles: False asks no compiler: `fits` is None, or False where what stays
      resident is too large already.
    leave: is given each program's name and compiled text, as they come.

  Raises:
    ValueError: the config or its mesh is refused, as training would; or the run
      has no program of that name.
  """
  build.check(config)
  kind, chip, sizes = targets.parse(topology)
  devices = targets.devices(topology)
  mesh = mesh_lib.make_mesh(**config.mesh, devices=devices)
  limits.check_mesh(config, mesh)
  run_ = shapes_lib.run(config, mesh, layers=layers)
  out = {
    'fits': None,
    'topology': topology,
    'devices': len(devices),
    'mesh': dict(mesh.shape),
    'model': _model(run_.cfgs),
    'layers_kept': layers or 'all',
    'memory_per_device': chip.memory,
    'estimate': estimate.report(config, run_, chip),
  }
  if not compiles:
    if out['estimate']['too_large']:
      out['fits'] = False
    return out
  of_host = sizes[2] if chip.platform == 'cuda' else 0
  reporter = Reporter(config, run_, chip, attention_utilisation, of_host)
  platform = 'tpu' if chip.platform == 'tpu' else 'gpu'
  todo = programs_lib.all_of(config, run_, platform=platform, rounds=rounds)
  names = [one.name for one in todo]
  if unknown := sorted(set(only) - set(names)):
    raise ValueError(
      f'only={",".join(unknown)}: no such program in this run; it has '
      f'{", ".join(names)}.'
    )
  todo = [one for one in todo if not only or one.name in only]
  parts, worst, compiled_s = {}, None, 0.0
  bar = tqdm.tqdm(todo, unit='program', disable=None)
  for program in bar:
    bar.set_description(program.name)
    one = compile_program(program)
    compiled_s += one.seconds
    leave(program.name, one.text)
    parts[program.name] = part = reporter.program(one)
    logging.info(
      '%s: %.0f s, %.2f GB while it runs%s',
      program.name,
      one.seconds,
      part['bytes_in_phase'] / 1e9,
      ', refused' if one.refused else f', bound by {part["bound"]}',
    )
    if worst is None or part['bytes_in_phase'] > worst[1]['bytes_in_phase']:
      worst = one, part
  refused = [name for name, part in parts.items() if 'refused' in part]
  peak = worst[1]['bytes_in_phase']
  fits = not refused and peak <= chip.memory
  out |= {
    'fits': fits,
    'peak_bytes_per_device': peak,
    'peak_phase': worst[0].program.name,
    'flops_per_device': sum(
      part['flops_per_device'] for part in parts.values()
    ),
    'compile_seconds': round(compiled_s, 1),
    'attention_utilisation': attention_utilisation,
    'programs': parts,
  }
  if not fits:
    out['largest'] = _contributors(worst[0])
  return out


def _model(cfgs: dict[str, types.ModelConfig]) -> dict[str, str]:
  return {
    role: f'{cfg.family}, {cfg.num_layers} layers of {cfg.dim}'
    for role, cfg in cfgs.items()
  }

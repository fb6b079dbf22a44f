"""Bytes per emitted token of each way to decode, at the paper's size, counted.

Decode is bound by bytes: each pass of a model reads its weights and cache, be
it over one token of every row or over k. Three accounts stand side by side:

  formula   weights, cache, logits of each pass, and what is copied to draft from;
            mean_fill is the same for a cache that is read as far as it is filled
  counted   operands and results of every product in the traced program
  compiled  what the chip's own compiler moves (with a topology)

The programs are those that training runs. They are traced and compiled with one
layer and with two, and what the second adds is taken for each of the others.
Nothing is timed, and what chips send each other is left out.
"""

from collections.abc import Iterator
from collections.abc import Sequence
import dataclasses
import time
from typing import Any

from absl import logging
import jax

from tandem.ahead import count as count_lib
from tandem.ahead import hlo
from tandem.ahead import targets
from tandem.ahead import traffic
from tandem.benchmark import byte_costs
from tandem.benchmark import models
from tandem.models import presets
from tandem.training import mesh as mesh_lib

CHIPS = ('H200', 'v5p')


def _measured(
  program: byte_costs.Program,
  size: byte_costs.Size,
  mesh,
  platform: str,
  attention: str,
  compiled: bool,
):
  """{account: (bytes, operations) of a round}, all chips; see the module."""
  found: dict[str, list] = {}
  for layers in (1, 2):
    start = time.monotonic()
    cfg = dataclasses.replace(size.cfg, num_layers=layers)
    cut = dataclasses.replace(size, cfg=cfg)
    traced = program.trace(cut, mesh, platform, attention)
    once, never = (count_lib.count(traced.jaxpr, trips) for trips in (1, 0))
    flops = once.flops - never.flops
    found.setdefault('counted', []).append((once.bytes - never.bytes, flops))
    if compiled:
      module = hlo.Module(traced.lower().compile().as_text())
      moved = traffic.of(module)[1] * mesh.size
      found.setdefault('compiled', []).append((moved, flops))
      took = time.monotonic() - start
      logging.info('%s, %d layers: %.0f s', program.name, layers, took)
  more = size.cfg.num_layers - 1
  return {
    name: tuple(float(a + (b - a) * more) for a, b in zip(one, two))
    for name, (one, two) in found.items()
  }


def _chosen(
  todo: dict[str, byte_costs.Program], only: Sequence[str]
) -> dict[str, byte_costs.Program]:
  """Those named, and solo, which the others are a share of."""
  unknown = set(only) - set(todo)
  if unknown:
    raise ValueError(
      f'programs={",".join(sorted(unknown))} are unknown; known are '
      f'{", ".join(todo)}.'
    )
  return {k: v for k, v in todo.items() if not only or k in ('solo', *only)}


def run(
  *,
  quick: bool = False,
  repeats: int = 1,
  topology: str | None = None,
  programs: Sequence[str] = (),
  attention: str = 'xla',
) -> Iterator[dict[str, Any]]:
  """Yields the inputs, then one line per program and acceptance.

  `value` is the throughput as a share of solo, by the last account there is.

  Args:
    quick: a toy's shapes.
    repeats: not read; nothing is timed.
    topology: compile for it too; `targets.prepare` was called.
    programs: names, of which solo is always one; empty: all.

    attention: that reads the cache: xla, pallas_tpu, pallas_gpu.

  Raises:
    ValueError: a program that is not known.
  """
  del repeats
  size = byte_costs.Size(presets.preset('qwen3-4b-instruct-2507'))
  if quick:
    size = byte_costs.Size(
      models.TINY, prompts=2, group=2, prompt=8, response=16
    )
  devices = targets.devices(topology) if topology else jax.devices()[:1]
  mesh = mesh_lib.make_mesh(data=1, tensor=-1, devices=devices)
  kind = targets.parse(topology)[0] if topology else None
  # Untold, count the program that a GPU would run, not this CPU's.
  platform = 'gpu'
  if kind and targets.CHIPS[kind].platform == 'tpu':
    platform = 'tpu'
  chips = {name: targets.CHIPS[name] for name in CHIPS}
  # Of a roofline, tensor-parallel.
  share = len(devices) if topology else 4
  todo = _chosen(
    byte_costs.known_programs(
      byte_costs.DRAFTS[:1] if quick else byte_costs.DRAFTS
    ),
    programs,
  )
  yield {
    'name': 'bytes/inputs',
    'model': dataclasses.asdict(size.cfg),
    **{k: getattr(size, k) for k in ('prompts', 'group', 'prompt', 'response')},
    'rows': size.rows,
    'topology': topology,
    'attention': attention,
    'tensor': share,
    'chips': {k: [c.bandwidth, c.flops] for k, c in chips.items()},
    'pass_of_1': byte_costs.one_pass(size, 1, size.response),
    'pass_of_1_mean_fill': byte_costs.one_pass(size, 1, size.response / 2),
    **{
      f'pass_of_{k}': byte_costs.one_pass(size, k, size.response)
      for k in byte_costs.DRAFTS
    },
  }
  base: dict[str, float] = {}
  for name, program in todo.items():
    accounts = {
      # Were only slots in use read: half of them, over a whole response.
      'mean_fill': byte_costs.formula(size, program, size.response / 2),
      'formula': byte_costs.formula(size, program, size.response),
    }
    accounts |= _measured(
      program, size, mesh, platform, attention, bool(topology)
    )
    seconds = {
      k: byte_costs.roofline(size, program, c, share) for k, c in chips.items()
    }
    costs = {k: one[0] for k, one in accounts.items()}
    costs |= {f'seconds_{k}': one[0] for k, one in seconds.items()}
    base = base or costs
    copy = byte_costs.copy_bytes(size, program)
    copies = dict.fromkeys(accounts, copy)
    copies['counted'] = 0.0  # which has products only
    copies |= {
      f'seconds_{k}': copy / share / chip.bandwidth for k, chip in chips.items()
    }
    for acceptance in program.acceptances:
      emitted = byte_costs.tokens_per_round(program, acceptance or 0.0)
      cost = {
        k: byte_costs.cost_at(program, acceptance or 0.0, costs[k], copies[k])
        for k in costs
      }
      of_solo = {k: base[k] * emitted / cost[k] for k in cost}
      text = '' if acceptance is None else f'/a{acceptance:g}'
      yield {
        'name': f'bytes/{name}{text}',
        'value': of_solo[list(accounts)[-1]],
        'unit': 'of solo',
        'acceptance': acceptance,
        'tokens_per_round': emitted,
        'of_solo': of_solo,
        'bytes_per_token': {k: cost[k] / emitted / size.rows for k in accounts},
        'flops_per_token': {
          k: one[1] / emitted / size.rows for k, one in accounts.items()
        },
        'bound': {k: one[1] for k, one in seconds.items()},
      }
    if program.draft > 1:
      yield {
        'name': f'bytes/{name}/needed',
        'unit': f'acceptance for {byte_costs.TARGET} of solo',
        'by': (
          by := {
            k: byte_costs.needed(base[k], costs[k], program, copies[k])
            for k in costs
          }
        ),
        'value': by['formula'],
      }

"""The programs of a step, lowered from shapes: the functions that training jits."""

from collections.abc import Callable
import dataclasses
from typing import Any

import jax
import numpy as np

from tandem.ahead import shapes as shapes_lib
from tandem.training import build
from tandem.training import decoding
from tandem.training import mesh as mesh_lib
from tandem.training import models
from tandem.training import programs as training
from tandem.training import step as step_lib


@dataclasses.dataclass(frozen=True)
class Program:
  """One program and what is on the devices while it runs.

  Attributes:
    name: decode_copy, rollout, score/<name>, update.
    function: jitted.
    args: shapes with shardings.
    kwargs: likewise, and what is static.
    trips: of a loop that ends on data.
    waiting: name -> bytes per device of what stays resident and is no argument.
    calls: how often a step runs it.
  """

  name: str
  function: Callable
  args: tuple
  kwargs: dict[str, Any]
  trips: int
  waiting: dict[str, float]
  calls: int = 1


def _waiting(run: shapes_lib.Run, without: set[str]) -> dict[str, float]:
  """What is resident beside a program's arguments, by name."""
  out, seen = {}, set()
  for name in without:
    if name in run.frozen:
      seen.add(id(run.frozen[name]))
  for name, tree in run.frozen.items():
    if name not in without and id(tree) not in seen:
      seen.add(id(tree))
      out[name] = shapes_lib.bytes_per_device(tree)
  parts = {
    'master weights': run.state.params,
    'optimizer': run.state.opt_state,
  }
  for name, tree in parts.items():
    if name not in without:
      out[name] = shapes_lib.bytes_per_device(tree)
  return out


def decode_copy(config, run: shapes_lib.Run) -> Program:
  """Master weights into what decodes; models.decode_copy's program."""
  return Program(
    name='decode_copy',
    function=models.decode_copy(
      run.cfgs['senior'], run.mesh, config.rollout.dtype
    ),
    args=(run.state.params,),
    kwargs={},
    trips=1,
    waiting=_waiting(run, {'senior', 'master weights'}),
  )


def rollout(
  config, run: shapes_lib.Run, *, platform: str, rounds: int = 0
) -> Program:
  """The decode program of a training step, as training.decoding chooses it.

  Args:
    config: of the run.
    run: its arrays.
    platform: of the target, `gpu` or `tpu`.
    rounds: passes of speculative decoding; 0: as many as lockstep's, as if no
      draft were accepted.
  """
  section, mesh = config.rollout, run.mesh
  pair = section.mode == 'tandem'
  rows = section.prompts * section.group
  senior, junior = run.cfgs['senior'], run.cfgs.get('junior')
  vocab = max(cfg.vocab for cfg in (senior, junior or senior))
  kwargs = dict(
    senior_cfg=senior,
    group=section.group,
    max_tokens=section.max_response,
    eos_ids=(vocab - 2, vocab - 1),  # which two changes no shape
    turns=build.turns(config),
    sampling=build.sampling(section),
    platform=platform,
  )
  how = decoding.from_config(config, mesh)
  choice = how.choose(
    pair,
    'junior' in run.frozen,
    rows,
    section.prompts,
    section.draft_tokens or max(how.choices(pair, kwargs['turns'])),
  )
  kwargs |= choice.options
  kwargs['junior_cfg'] = junior if choice.second else None
  trips = section.max_response
  if choice.counts:
    # Slots are refilled: the rows that wait come in rounds of their own.
    trips = rounds or trips * -(-rows // how.slots_of(rows))
  args = (
    run.frozen['senior'],
    run.frozen['junior'] if choice.second else None,
    shapes_lib.context(mesh, section.prompts, section.max_prompt),
    shapes_lib.row_keys(mesh, rows),
    jax.ShapeDtypeStruct(
      (vocab,), np.bool_, sharding=mesh_lib.replicated(mesh)
    ),
  )
  mine = {'senior', 'junior'} if choice.second else {'senior'}
  waiting = _waiting(run, mine)
  return Program('rollout', choice.function, args, kwargs, trips, waiting)


def scorings(config, run: shapes_lib.Run) -> list[Program]:
  """One program per frozen scoring that the loss declares."""
  variant, loss_cfg = build.loss(config)
  forward = training.forward(config, run.mesh, run.cfgs['senior'])
  batch, out = shapes_lib.step_batch(config, run.mesh), []
  for name in variant.scorings(loss_cfg):
    mine = name in ('old', 'privileged')
    cfg = run.cfgs['senior' if mine else name]
    own = name if name in ('teacher', 'privileged') else 'policy'
    params = run.state.params if mine else run.frozen[name]
    held = {'senior', 'master weights' if mine else name}
    waiting = _waiting(run, held)
    waiting['batch'] = shapes_lib.bytes_per_device(
      batch.replace(tokens=None, contexts={})
    )
    out.append(
      Program(
        name=f'score/{name}',
        function=step_lib.make_score(cfg, forward),
        args=(params, batch.contexts[own], batch.tokens),
        kwargs={},
        trips=1,
        waiting=waiting,
      )
    )
  return out


def update(config, run: shapes_lib.Run) -> Program:
  """The whole step's update; the state is donated."""
  senior = run.cfgs['senior']
  forward = training.forward(config, run.mesh, senior)
  function = training.update(
    config, senior, forward, run.state, run.cfgs.get('teacher')
  )
  teacher = training.to_teacher(config)
  held = {'senior', 'master weights', 'optimizer'}
  return Program(
    name='update',
    function=function,
    args=(
      run.state,
      shapes_lib.step_batch(config, run.mesh),
      run.frozen['teacher'] if teacher else None,
    ),
    kwargs={},
    trips=1,
    waiting=_waiting(run, held | ({'teacher'} if teacher else set())),
  )


def all_of(config, run: shapes_lib.Run, *, platform: str, rounds: int = 0):
  """Every program of a training step, in the order of the loop."""
  return [
    decode_copy(config, run),
    rollout(config, run, platform=platform, rounds=rounds),
    *scorings(config, run),
    update(config, run),
  ]

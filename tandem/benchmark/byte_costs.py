"""What a way to decode moves at each round, by hand: passes times their bytes."""

from collections.abc import Mapping
import dataclasses
import functools
from typing import Any
from typing import NamedTuple

import jax
import numpy as np

from tandem import types
from tandem.ahead import shapes
from tandem.models import cache as cache_lib
from tandem.rollout import draft_length
from tandem.rollout import drafters
from tandem.rollout import lockstep
from tandem.rollout import sampling as sampling_lib
from tandem.rollout import speculative
from tandem.rollout import turns as turns_lib
from tandem.training import mesh as mesh_lib

DRAFTS = (4, 8, 16)
# Of a draft by the junior: the verifier need agree only where it is author.
ACCEPTANCES = (1.0, 0.99, 0.985, 0.97, 0.95)
LOOKUPS = (0.7, 0.5, 0.3)
NEARS = (0.97, 0.95, 0.9, 0.85, 0.8)  # both models check these drafts
CONTEXTS = (256, 512)  # of drafts from a row's last tokens
TARGET = 0.85  # of solo
_BF16, _F32 = 2, 4


@dataclasses.dataclass(frozen=True)
class Size:
  """What is decoded: rows of a pair of equal models."""

  cfg: types.ModelConfig
  prompts: int = 16  # B
  group: int = 8  # G
  prompt: int = 1024  # P
  response: int = 3000  # T

  @property
  def rows(self) -> int:
    return self.prompts * self.group


class Pass(NamedTuple):
  """One pass of a model over each row."""

  tokens: int  # C, of each row
  slots: int | None = None  # of the row's own that are read; None: all


@dataclasses.dataclass(frozen=True)
class Program:
  """A way to decode.

  Attributes:
    name: as in the report.
    passes: of a round.
    function: the jitted decoder.
    pair: whether a junior writes too.
    options: more keyword arguments of it.
    draft: k, the positions of a round.
    bonus: the chance of one token more, where a draft stands.
    acceptances: at which it is told; None where there is no draft.
    copied: slots of each row that are copied now and then.
    every: tokens of each row between two copies.
  """

  name: str
  passes: tuple[Pass, ...]
  function: Any
  pair: bool
  options: Mapping[str, Any]
  draft: int = 1
  bonus: float = 0.0
  acceptances: tuple[float | None, ...] = (None,)
  copied: int = 0
  every: int = 1

  def trace(self, size: Size, mesh, platform: str, attention: str):
    cfg = size.cfg
    read = cache_lib.read
    if attention != 'xla':
      read = cache_lib.reader(attention, mesh)
    params = shapes.decode_params(cfg, mesh, 'bfloat16')
    return self.function.trace(
      params,
      params if self.pair else None,
      shapes.context(mesh, size.prompts, size.prompt),
      shapes.row_keys(mesh, size.rows),
      jax.ShapeDtypeStruct(
        (cfg.vocab,), np.bool_, sharding=mesh_lib.replicated(mesh)
      ),
      senior_cfg=cfg,
      junior_cfg=cfg if self.pair else None,
      group=size.group,
      max_tokens=size.response,
      eos_ids=(0,),
      turns=turns_lib.Turns(),
      sampling=sampling_lib.Sampling(temperature=0.6),
      platform=platform,
      read=read,
      **self.options,
    )


def known_programs(drafts=DRAFTS) -> dict[str, Program]:
  """By name, in the order of the report."""
  one, out = Pass(1), {}

  def add(name, passes, function, pair, options, **kwargs):
    out[name] = Program(name, passes, function, pair, options, **kwargs)

  add('solo', (one,), lockstep.lockstep, False, {})
  add('lockstep', (one, one), lockstep.lockstep, True, {})
  for k in drafts:
    drafted = functools.partial(add, function=speculative.counted, draft=k)
    options = {'draft_tokens': k, 'drafter': 'junior'}
    drafted(
      f'speculative_k{k}_junior',
      # The verifier reads one token more, for the token that it may add; the
      # drafter, which has not read that one, reads two at first.
      (Pass(2), *(one,) * (k - 1), Pass(k + 1)),
      pair=True,
      options=options,
      bonus=turns_lib.Turns().p,
      acceptances=ACCEPTANCES,
    )
    drafted(
      f'speculative_k{k}_lookup',
      (Pass(k), Pass(k)),
      pair=True,
      options=options | {'drafter': 'lookup'},
      acceptances=LOOKUPS,
    )
    for context in CONTEXTS:
      room = drafters.room(context, k)
      size = context + room
      near = (Pass(2, size), *(Pass(1, size),) * (k - 2))
      told = dict(acceptances=NEARS, copied=size, every=room)
      of_near = options | {'draft_context': context}
      drafted(
        f'speculative_k{k}_near{context}',
        (*near, Pass(k), Pass(k)),
        pair=True,
        options=of_near,
        **told,
      )
      drafted(
        f'solo_k{k}_near{context}',
        (*near, Pass(k)),
        pair=False,
        options=of_near | {'drafter': 'senior', 'solo': True},
        **told,
      )
  return out


def tokens_per_round(program: Program, acceptance: float) -> float:
  """Mean tokens of each row in a round."""
  return draft_length.expected_tokens(acceptance, program.draft, program.bonus)


def _token_bytes(cfg: types.ModelConfig) -> int:
  """Of one token's keys and values."""
  return _BF16 * 2 * cfg.num_kv_heads * cfg.head_dim * cfg.num_layers


def one_pass(size: Size, tokens: int, slots: float) -> dict[str, float]:
  """Bytes by part, and operations, of one pass of one model; all chips.

  Args:
    size: the rows.
    tokens: C, of each row.
    slots: suffix slots read of each row.
  """
  cfg, positions = size.cfg, size.rows * tokens
  heads, keys = (
    n * cfg.head_dim * cfg.num_layers for n in (cfg.num_heads, cfg.num_kv_heads)
  )
  layers = cfg.dim * (2 * heads + 2 * keys + 3 * cfg.hidden * cfg.num_layers)
  weights = layers + cfg.vocab * cfg.dim
  held = size.prompts * size.prompt + size.rows * slots
  return {
    'weights': _BF16 * weights,
    'cache': _token_bytes(cfg) * held,
    # Written once and read once; choice and sums are made in one reading.
    'logits': 2 * _F32 * positions * cfg.vocab,
    'flops': 2 * positions * (weights + 2 * heads * (size.prompt + slots)),
  }


def _passes(size: Size, program: Program, slots: float):
  """Yields (pass, its bytes, its operations)."""
  for each in program.passes:
    one = one_pass(size, each.tokens, min(each.slots or slots, slots))
    flops = one.pop('flops')
    yield each, sum(one.values()), flops


def copy_bytes(size: Size, program: Program) -> float:
  """Of a copy of the last tokens, read and written."""
  slots = min(program.copied, size.response)
  return 2 * size.rows * _token_bytes(size.cfg) * slots


def formula(size: Size, program: Program, slots: float) -> tuple[float, float]:
  """(bytes, operations) of a round, with a copy."""
  _, moved, flops = zip(*_passes(size, program, slots))
  return sum(moved) + copy_bytes(size, program), sum(flops)


def roofline(size: Size, program: Program, chip, devices: int):
  """(seconds of a round, what bounds each kind of pass), at vendors' rates."""
  rate, bound = devices * chip.bandwidth, {}
  total = copy_bytes(size, program) / rate
  for each, moved, flops in _passes(size, program, size.response):
    sides = {'bytes': moved / rate, 'flops': flops / devices / chip.flops}
    near = '' if each.slots is None else f' of {each.slots}'
    bound[f'{each.tokens}{near}'] = max(sides, key=sides.get)
    total += max(sides.values())
  return total, bound


def cost_at(
  program: Program, acceptance: float, cost: float, copy: float
) -> float:
  """The mean cost of a round, given that of one with a copy.

  A copy serves until a mean row has `every` more tokens. The loop copies for all
  rows when its fastest is so far, which is somewhat sooner.

  Args:
    program: whose round.
    acceptance: the chance that a drafted token stands.
    cost: of a round with a copy, in bytes or seconds.
    copy: of the copy alone, likewise.
  """
  emitted = tokens_per_round(program, acceptance)
  return cost - copy * (1 - min(emitted / program.every, 1))


def needed(
  base: float, cost: float, program: Program, copy: float = 0.0
) -> float | None:
  """The acceptance at which a round is worth TARGET of solo; None: no such."""

  def rate(a):
    each = cost_at(program, a, cost, copy)
    return base * tokens_per_round(program, a) / each

  if rate(1.0) < TARGET:
    return None
  low, high = 0.0, 1.0
  for _ in range(40):
    middle = (low + high) / 2
    low, high = (low, middle) if rate(middle) >= TARGET else (middle, high)
  return high

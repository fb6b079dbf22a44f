"""Bytes per emitted token of each way to decode, at the paper's size, counted.

Decode is bound by bytes: each pass of a model reads its weights and cache, be
it over one token of every row or over k. Three accounts stand side by side:

  formula   weights, cache, logits of each pass, and nothing else; mean_fill is
            the same for a cache that is read as far as it is filled
  counted   operands and results of every product in the traced program
  compiled  what the chip's own compiler moves (with a topology)

The programs are those that training runs. They are traced and compiled with one
layer and with two, and what the second adds is taken for each of the others.
Nothing is timed, and what chips send each other is left out.
"""

from collections.abc import Iterator
from collections.abc import Mapping
from collections.abc import Sequence
import dataclasses
import functools
import time
from typing import Any
from typing import NamedTuple

from absl import logging
import jax
import numpy as np

from tandem import types
from tandem.ahead import count as count_lib
from tandem.ahead import hlo
from tandem.ahead import shapes
from tandem.ahead import targets
from tandem.ahead import traffic
from tandem.benchmark import models
from tandem.models import cache as cache_lib
from tandem.models import presets
from tandem.rollout import draft_length
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
CHIPS = ('H200', 'v5p')
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
    copied: slots of each row that a round copies; it does so now and then, and
      every time here.
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
      size = context + max(context // 2, k)
      near = (Pass(2, size), *(Pass(1, size),) * (k - 2))
      told = dict(acceptances=NEARS, copied=size)
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


def _copied(size: Size, program: Program, slots: float) -> float:
  """Bytes of a round's copy of the last tokens, read and written."""
  return 2 * size.rows * _token_bytes(size.cfg) * min(program.copied, slots)


def formula(size: Size, program: Program, slots: float) -> tuple[float, float]:
  """(bytes, operations) of a round."""
  _, moved, flops = zip(*_passes(size, program, slots))
  return sum(moved) + _copied(size, program, slots), sum(flops)


def roofline(size: Size, program: Program, chip, devices: int):
  """(seconds of a round, what bounds each kind of pass), at vendors' rates."""
  rate, bound = devices * chip.bandwidth, {}
  total = _copied(size, program, size.response) / rate
  for each, moved, flops in _passes(size, program, size.response):
    sides = {'bytes': moved / rate, 'flops': flops / devices / chip.flops}
    near = '' if each.slots is None else f' of {each.slots}'
    bound[f'{each.tokens}{near}'] = max(sides, key=sides.get)
    total += max(sides.values())
  return total, bound


def _measured(
  program: Program,
  size: Size,
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
  todo: dict[str, Program], only: Sequence[str]
) -> dict[str, Program]:
  """Those named, and solo, which the others are a share of."""
  unknown = set(only) - set(todo)
  if unknown:
    raise ValueError(
      f'programs={",".join(sorted(unknown))} are unknown; known are '
      f'{", ".join(todo)}.'
    )
  return {k: v for k, v in todo.items() if not only or k in ('solo', *only)}


def needed(base: float, cost: float, program: Program) -> float | None:
  """The acceptance at which a round is worth TARGET of solo; None: no such."""
  rate = lambda a: base * tokens_per_round(program, a) / cost
  if rate(1.0) < TARGET:
    return None
  low, high = 0.0, 1.0
  for _ in range(40):
    middle = (low + high) / 2
    low, high = (low, middle) if rate(middle) >= TARGET else (middle, high)
  return high


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
  size = Size(presets.preset('qwen3-4b-instruct-2507'))
  if quick:
    size = Size(models.TINY, prompts=2, group=2, prompt=8, response=16)
  devices = targets.devices(topology) if topology else jax.devices()[:1]
  mesh = mesh_lib.make_mesh(data=1, tensor=-1, devices=devices)
  kind = targets.parse(topology)[0] if topology else None
  # Untold, count the program that a GPU would run, not this CPU's.
  platform = 'gpu'
  if kind and targets.CHIPS[kind].platform == 'tpu':
    platform = 'tpu'
  chips = {name: targets.CHIPS[name] for name in CHIPS}
  share = len(devices) if topology else 4  # of a roofline, tensor-parallel
  todo = _chosen(known_programs(DRAFTS[:1] if quick else DRAFTS), programs)
  yield {
    'name': 'bytes/inputs',
    'model': dataclasses.asdict(size.cfg),
    **{k: getattr(size, k) for k in ('prompts', 'group', 'prompt', 'response')},
    'rows': size.rows,
    'topology': topology,
    'attention': attention,
    'tensor': share,
    'chips': {k: [c.bandwidth, c.flops] for k, c in chips.items()},
    'pass_of_1': one_pass(size, 1, size.response),
    'pass_of_1_mean_fill': one_pass(size, 1, size.response / 2),
    **{f'pass_of_{k}': one_pass(size, k, size.response) for k in DRAFTS},
  }
  base: dict[str, float] = {}
  for name, program in todo.items():
    accounts = {
      # Were only slots in use read: half of them, over a whole response.
      'mean_fill': formula(size, program, size.response / 2),
      'formula': formula(size, program, size.response),
    }
    accounts |= _measured(
      program, size, mesh, platform, attention, bool(topology)
    )
    seconds = {k: roofline(size, program, c, share) for k, c in chips.items()}
    costs = {k: one[0] for k, one in accounts.items()}
    costs |= {f'seconds_{k}': one[0] for k, one in seconds.items()}
    base = base or costs
    for acceptance in program.acceptances:
      emitted = tokens_per_round(program, acceptance or 0.0)
      of_solo = {k: base[k] * emitted / costs[k] for k in costs}
      text = '' if acceptance is None else f'/a{acceptance:g}'
      yield {
        'name': f'bytes/{name}{text}',
        'value': of_solo[list(accounts)[-1]],
        'unit': 'of solo',
        'acceptance': acceptance,
        'tokens_per_round': emitted,
        'of_solo': of_solo,
        'bytes_per_token': {
          k: one[0] / emitted / size.rows for k, one in accounts.items()
        },
        'flops_per_token': {
          k: one[1] / emitted / size.rows for k, one in accounts.items()
        },
        'bound': {k: one[1] for k, one in seconds.items()},
      }
    if program.draft > 1:
      yield {
        'name': f'bytes/{name}/needed',
        'unit': f'acceptance for {TARGET} of solo',
        'value': needed(base['formula'], costs['formula'], program),
        'by': {k: needed(base[k], costs[k], program) for k in costs},
      }

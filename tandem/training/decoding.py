"""Which decode program serves a rollout, and with how many drafts."""

from collections.abc import Callable
import dataclasses
import math
import time
from typing import Any
from typing import NamedTuple

import jax

from tandem import types
from tandem.models import cache
from tandem.models import decoder as decoder_lib
from tandem.rollout import draft_length
from tandem.rollout import drafters
from tandem.rollout import lockstep
from tandem.rollout import resolve
from tandem.rollout import sampling as sampling_lib
from tandem.rollout import speculative
from tandem.training import mesh as mesh_lib
from tandem.training import step as step_lib

DECODERS = ('lockstep', 'speculative')

# Among these `draft_tokens=0` chooses: k, and whether a draft that stands may
# earn a token. 1 is lockstep. The verifier reads k or, with a bonus, k + 1
# positions of each row, powers of two: rows by positions fill the tiles of a
# product, and 20 rows cost a CPU what 32 do. What costs least per token differs
# with what binds a pass, bytes (few rows) or operations (many).
CHOICES = {1: False, 3: True, 4: False, 7: True}
# Where there is nobody to add a token.
PLAIN = dict.fromkeys((1, 4, 8), False)


class Choice(NamedTuple):
  """A decode program, before it is given anything."""

  function: Callable  # jitted: lockstep.lockstep or speculative.counted
  options: dict[str, Any]  # static, of this choice
  second: bool  # whether a second model is handed over
  counts: bool  # whether counts come back beside the rollout


@dataclasses.dataclass(frozen=True)
class Decoding:
  """How rows are decoded.

  Attributes:
    decoder: one of DECODERS.
    draft_tokens: k of speculative decoding; 0 takes one of `choices` by the
      acceptance and the times measured so far in this process.
    draft_bonus: whether a draft that stands may earn a token more; not read
      where draft_tokens is 0.
    draft_context: how many of its row's last tokens a model drafts from; 0:
      all.
    drafter: who drafts: one of drafters.DRAFTERS.
    slots: rows decoded at once, the others wait for a slot; 0: all.
    shards: of rows, on the mesh; each has a queue of waiting rows where slots
      and prompts divide.
    window: cache slots of the first loop; 0: one loop over all.
    cache_dtype: of stored keys and values; '' for the models'. Of these
      settings the one that may change tokens.
    read: cache.read, or what cache.reader makes.
    prompt_attention: of the prefill, see decoder.hidden.
    draw: of lockstep; sampling.drawer's, or None for XLA's.
    controllers: what has been measured, by program shape.
  """

  decoder: str = 'lockstep'
  draft_tokens: int = 7
  draft_bonus: bool = True
  draft_context: int = 0
  drafter: str = 'junior'
  slots: int = 0
  shards: int = 1
  window: int = 0
  cache_dtype: str = ''
  read: cache.Read = cache.read
  prompt_attention: decoder_lib.Attention = decoder_lib.xla_attention
  draw: Callable | None = None
  controllers: dict[Any, draft_length.Controller] = dataclasses.field(
    default_factory=dict
  )

  def slots_of(self, rows: int) -> int:
    """How many of that many rows are decoded at once."""
    return min(self.slots, rows) or rows

  def drafts(self, pair: bool, helper: bool) -> bool:
    """Whether anyone drafts: one that writes alone has none but a helper."""
    if self.decoder != 'speculative':
      return False
    alone = self.drafter == 'senior' and self.draft_context > 0
    helped = helper and self.drafter == 'junior'
    return pair or helped or alone or self.drafter == 'lookup'

  def choices(self, pair: bool, turns) -> dict[int, bool]:
    """By k, those of draft_tokens=0; whether a token may be added."""
    added = drafters.bonus(self.drafter, 2, pair, turns, self.draft_context)
    return CHOICES if added else PLAIN

  def choose(
    self, pair: bool, helper: bool, rows: int, prompts: int, k: int
  ) -> Choice:
    """The program of a rollout; what compile_ahead compiles, too.

    Args:
      pair: both models write.
      helper: there is a junior that may draft for a senior alone.
      rows: N.
      prompts: B.
      k: draft_tokens, of those where someone drafts.
    """
    slots = self.slots_of(rows)
    if not self.drafts(pair, helper):
      k = 1
    options = dict(
      window=self.window or None,
      cache_dtype=self.cache_dtype or None,
      read=self.read,
      prompt_attention=self.prompt_attention,
    )
    if k == 1 and slots == rows:
      draw = self.draw if pair else None  # a solo program is the baseline's
      options |= dict(draw=draw)
      return Choice(lockstep.lockstep, options, second=pair, counts=False)
    bonus = self.draft_bonus if self.draft_tokens else CHOICES.get(k, False)
    options |= dict(
      draft_tokens=k,
      draft_bonus=bonus,
      solo=not pair,
      slots=slots if slots < rows else None,
      lanes=math.gcd(self.shards, slots, prompts) if slots < rows else 1,
    )
    if k > 1:  # else nobody drafts, and any name would do
      options['drafter'] = self.drafter
      options['draft_context'] = self.draft_context or None
    second = pair or (k > 1 and helper and self.drafter == 'junior')
    return Choice(speculative.counted, options, second, counts=True)

  def __call__(
    self,
    senior,
    junior,
    helper,
    context,
    row_keys,
    boundary,
    *,
    turns,
    **options,
  ) -> tuple[types.Rollout, resolve.Counts | None]:
    """One rollout on the host, and its counts if there are any.

    Args:
      senior: a Speaker; who writes, alone where junior is None.
      junior: its partner, or None.
      helper: a Speaker that may draft for a senior that writes alone, or None.
      context: the prompts, placed.
      row_keys: placed.
      boundary: [V] bool.
      turns: the schedule.
      **options: of lockstep.
    """
    pair, rows = junior is not None, row_keys.shape[0]
    k, controller = self.draft_tokens, None
    if k == 0 and self.drafts(pair, helper is not None):
      shape = (pair, senior.cfg, rows, context.ids.shape[1])
      chance = drafters.bonus_chance(
        self.drafter, pair, turns, self.draft_context
      )
      choices = self.choices(pair, turns).items()
      controller = self.controllers.setdefault(
        shape,
        draft_length.Controller({k: chance * added for k, added in choices}),
      )
      # The lead's clock decides for all hosts: they run one program.
      k = mesh_lib.gather_json(controller.next())[0]
    prompts = context.ids.shape[0]
    choice = self.choose(pair, helper is not None, rows, prompts, k)
    second = (junior or helper) if choice.second else None
    start = time.monotonic()
    out = jax.block_until_ready(
      choice.function(
        senior.params,
        second.params if second else None,
        context,
        row_keys,
        boundary,
        senior_cfg=senior.cfg,
        junior_cfg=second.cfg if second else None,
        turns=turns,
        **choice.options,
        **options,
      )
    )
    seconds = time.monotonic() - start
    rollout, counts = mesh_lib.to_host(out if choice.counts else (out, None))
    if controller is not None:
      controller.record(
        k,
        seconds
        / max(int(counts.passes if counts else rollout.lengths.max()), 1),
        int(counts.tested.sum()) if counts else 0,
        int(counts.passed.sum()) if counts else 0,
      )
    return rollout, counts


def from_config(config, mesh: jax.sharding.Mesh) -> Decoding:
  """As config.rollout says."""
  section = config.rollout
  read = cache.read
  if section.attention != 'xla':
    read = cache.reader(section.attention, mesh)
  draw = None
  if section.sampler != 'xla':  # limits.check has held it against the rest
    draw = sampling_lib.drawer(section.sampler, mesh)
  return Decoding(
    decoder=section.decoder,
    draft_tokens=section.draft_tokens,
    draft_bonus=section.draft_bonus,
    draft_context=section.draft_context,
    drafter=section.drafter,
    slots=section.slots,
    shards=mesh_lib.row_shards(mesh),
    window=section.window,
    cache_dtype=section.cache_dtype,
    read=read,
    prompt_attention=step_lib.attention(config.model.attention, mesh),
    draw=draw,
  )

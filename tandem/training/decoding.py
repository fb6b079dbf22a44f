"""Which decode program serves a rollout, and with how many drafts."""

import dataclasses
import functools
import time
from typing import Any

import jax

from tandem import types
from tandem.models import cache
from tandem.rollout import draft_length
from tandem.rollout import lockstep
from tandem.rollout import resolve
from tandem.rollout import speculative
from tandem.training import mesh as mesh_lib

DECODERS = ('lockstep', 'speculative')

# Among these `draft_tokens=0` chooses; 1 is lockstep.
CHOICES = (1, 4, 8)


@dataclasses.dataclass(frozen=True)
class Decoding:
  """How rows are decoded.

  Attributes:
    decoder: one of DECODERS.
    draft_tokens: k of speculative decoding; 0 chooses among CHOICES by the
      acceptance and the times measured so far in this process.
    drafter: who drafts: one of drafters.DRAFTERS.
    slots: rows decoded at once, the others wait for a slot; 0: all.
    window: cache slots of the first loop; 0: one loop over all.
    cache_dtype: of stored keys and values; '' for the models'. Of these
      settings the one that may change tokens.
    read: cache.read, or what cache.reader makes.
    controllers: what has been measured, by program shape.
  """

  decoder: str = 'lockstep'
  draft_tokens: int = 8
  drafter: str = 'junior'
  slots: int = 0
  window: int = 0
  cache_dtype: str = ''
  read: cache.Read = cache.read
  controllers: dict[Any, draft_length.Controller] = dataclasses.field(
    default_factory=dict
  )

  def slots_of(self, rows: int) -> int:
    """How many of that many rows are decoded at once."""
    return min(self.slots, rows) or rows

  def _bonus(self, solo: bool, turns) -> float:
    """The chance that the verifier may add a token, for the controller."""
    named = turns.schedule != 'strict_word'
    if self.drafter not in ('senior', 'junior') or not (solo or named):
      return 0.0
    return 1.0 if solo else turns.p if self.drafter == 'junior' else 1 - turns.p

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
    solo = junior is None
    drafts = self.decoder == 'speculative'
    if solo and self.drafter == 'junior':
      junior = helper
    # One that writes alone is no one's drafter, and has none but a helper.
    drafts &= junior is not None or self.drafter == 'lookup'
    drafts &= not solo or self.drafter in ('junior', 'lookup')
    if not drafts and solo:
      junior = None
    rows = row_keys.shape[0]
    slots = self.slots_of(rows)
    shape = (solo, senior.cfg, rows, context.ids.shape[1])
    k, controller = (self.draft_tokens if drafts else 1), None
    if drafts and k == 0:
      controller = self.controllers.setdefault(
        shape, draft_length.Controller(CHOICES, self._bonus(solo, turns))
      )
      # The lead's clock decides for all hosts: they run one program.
      k = mesh_lib.gather_json(controller.next())[0]
    counts = k > 1 or slots < rows
    decode = lockstep.lockstep
    if counts:
      decode = functools.partial(
        speculative.counted,
        draft_tokens=k,
        drafter=self.drafter,
        solo=solo,
        slots=slots if slots < rows else None,
      )
    elif solo:
      junior = None
    start = time.monotonic()
    out = jax.block_until_ready(
      decode(
        senior.params,
        junior.params if junior else None,
        context,
        row_keys,
        boundary,
        senior_cfg=senior.cfg,
        junior_cfg=junior.cfg if junior else None,
        turns=turns,
        window=self.window or None,
        cache_dtype=self.cache_dtype or None,
        read=self.read,
        **options,
      )
    )
    seconds = time.monotonic() - start
    rollout, counts = mesh_lib.to_host(out if counts else (out, None))
    if controller is not None:
      controller.record(
        k,
        seconds
        / max(int(counts.passes if counts else rollout.lengths.max()), 1),
        int(counts.tested.sum()) if counts else 0,
        int(counts.passed.sum()) if counts else 0,
      )
    return rollout, counts

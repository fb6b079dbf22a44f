"""The definition of a tandem rollout: one row, plain Python, no cache.

Slow on purpose. `lockstep` and every faster loop must give these tokens and
these authors (DESIGN 4, near-ties excepted and counted).
"""

from collections.abc import Callable
from collections.abc import Sequence
import dataclasses

import jax
import numpy as np

from tandem.rollout import sampling as sampling_lib
from tandem.rollout import turns as turns_lib

# All tokens so far -> logits [V] of the next one.
NextLogits = Callable[[Sequence[int]], np.ndarray]


@dataclasses.dataclass
class Row:
  """One response. `gaps` holds, per position, by how much the emitted choice
  beats the runner-up of the same model (logit plus noise): below 1e-4 another
  program's rounding may choose otherwise."""

  tokens: list[int] = dataclasses.field(default_factory=list)
  author: list[bool] = dataclasses.field(default_factory=list)
  logp_senior: list[float] = dataclasses.field(default_factory=list)
  logp_junior: list[float] = dataclasses.field(default_factory=list)
  gaps: list[float] = dataclasses.field(default_factory=list)
  finish: str = 'length'


# Compiled one by one, only so that a test need not wait.
_law = jax.jit(sampling_lib.law, static_argnums=1)
_noise = jax.jit(sampling_lib.token_noise, static_argnums=2)
_coin = jax.jit(sampling_lib.coins, static_argnums=2)


class _Turns:
  """Who speaks, as METHODS 2.2 tells it. One row; `coin(t)` is a bool."""

  def __init__(self, rule: turns_lib.Turns, coin: Callable[[int], bool]):
    self.rule, self.coin, self.since = rule, coin, 0
    named = {'senior': True, 'junior': False}
    self.senior = named[rule.first] if rule.first in named else coin(0)

  def speaker(self, t: int, senior_starts: bool, junior_starts: bool) -> bool:
    # The partner takes a word over only if it too would begin one here.
    strict = self.rule.schedule == 'strict_word' and t > 0
    if strict and senior_starts and junior_starts:
      self.senior = self.coin(t)
    return self.senior

  def advance(self, t: int, boundary: bool) -> None:
    rule, schedule = self.rule, self.rule.schedule
    if schedule == 'strict_word':
      return
    if schedule == 'token':
      self.senior = self.coin(t + 1)
    elif schedule == 'alternating':
      self.senior = not self.senior
    elif schedule == 'step':
      if boundary:
        strict = rule.step_mode == 'strict'
        self.senior = not self.senior if strict else self.coin(t + 1)
    elif schedule == 'chunk':
      self.since += 1
      if self.since == rule.chunk:
        self.senior, self.since = not self.senior, 0
    else:  # word
      if rule.cap_rule == 'code':
        self.since += 1
        redraw = boundary or self.since >= rule.cap
      else:
        redraw = boundary or self.since >= rule.cap
        self.since += 1
      if redraw:
        self.senior, self.since = self.coin(t + 1), 0


def _gap(noisy: np.ndarray) -> float:
  second, first = np.sort(noisy)[-2:]
  return float(first - second)


def naive(
  senior: NextLogits,
  junior: NextLogits | None,
  prompt: Sequence[int],
  row_key: jax.Array,
  boundary: Sequence[bool],
  *,
  max_tokens: int,
  eos_ids: Sequence[int],
  turns: turns_lib.Turns,
  sampling: sampling_lib.Sampling,
) -> Row:
  """Writes one response.

  Args:
    senior: next-token logits of the whole sequence so far.
    junior: likewise, or None to let the senior write alone.
    prompt: token ids, not empty.
    row_key: [] typed key of the row.
    boundary: [V] bool.
    max_tokens: the length limit.
    eos_ids: any of these ends the row.
    turns: the schedule.
    sampling: temperature and filters.
  """
  keys = row_key[None]
  at = lambda t: np.full((1,), t, np.int32)
  coin = lambda t: bool(_coin(keys, at(t), turns.p)[0])
  turn = _Turns(turns, coin)
  ids, row = list(prompt), Row()
  for t in range(max_tokens):

    def propose(model, t=t):
      law = np.asarray(_law(np.asarray(model(ids), np.float32), sampling))
      noise = 0.0
      if not sampling.greedy:
        noise = np.asarray(_noise(keys, at(t), len(law)))[0]
      noisy = law + noise
      return law, noisy, int(np.argmax(noisy))

    law, noisy, token = propose(senior)
    laws, gap = {'senior': law}, _gap(noisy)
    if junior is not None:
      junior_law, junior_noisy, other = propose(junior)
      laws['junior'] = junior_law
      speaks = turn.speaker(t, bool(boundary[token]), bool(boundary[other]))
      row.author.append(speaks)
      if turns.schedule == 'strict_word':  # here either proposal decides
        gap = min(gap, _gap(junior_noisy))
      elif not speaks:
        gap = _gap(junior_noisy)
      if not speaks:
        token = other
      turn.advance(t, bool(boundary[token]))
    row.tokens.append(token)
    row.logp_senior.append(float(laws['senior'][token]))
    if junior is not None:
      row.logp_junior.append(float(laws['junior'][token]))
    row.gaps.append(gap)
    ids.append(token)
    if token in eos_ids:
      row.finish = 'eos'
      break
  return row

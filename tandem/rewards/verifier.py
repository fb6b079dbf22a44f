"""Batches through the grading processes, each item under its own limit."""

import collections
from collections.abc import Sequence
import contextlib
import functools
import math
import os
import signal
import sys
import threading
import time
from typing import TYPE_CHECKING

from tandem.rewards import answer as answer_lib
from tandem.rewards import extract
from tandem.rewards import pool as pool_lib
from tandem.rewards import worker

if TYPE_CHECKING:
  from tandem import types

JUDGE = 'tandem.rewards.equivalence:judge'
_AHEAD = 2  # requests a worker holds, so that it never waits for us
_RESTARTS = 3  # of the whole pool within one batch
_QUESTION_CHARS = 4000


class Verifier:
  """Grades batches of responses in worker processes.

  with Verifier(workers=4) as verifier:
    verdicts = verifier.grade(golds, responses)

  Workers start at construction and warm up while the caller goes on. `counts`
  holds how many items ended with each of REASONS so far, `replaced` how many
  killed or crashed workers were replaced. Calls from several threads are
  served one after the other.
  """

  def __init__(
    self,
    workers: int = 2,
    limit_s: float = 2.0,
    mode: str = 'strict',
    *,
    judge: str = JUDGE,
  ):
    """Starts the workers.

    Args:
      workers: number of processes, at least 1.
      limit_s: wall seconds that one item may take in its worker; up to twice
        as long where the machine is so loaded that the worker got less than a
        quarter of a core (a verdict should not depend on the neighbours).
      mode: one of extract.MODES.
      judge: 'module:function' run in the workers; tests put a stub here.

    Raises:
      ValueError: for a mode, count or limit that makes no sense.
    """
    if workers < 1:
      raise ValueError(
        f'workers is {workers}; allowed: 1 or more; use 1 on a small machine'
      )
    _check(mode, limit_s)
    self.limit_s = limit_s
    self.mode = mode
    self.counts = collections.Counter(dict.fromkeys(answer_lib.REASONS, 0))
    self.replaced = 0
    self._workers = workers
    self._judge = judge
    self._lock = threading.Lock()
    self._pool = pool_lib.Pool(workers, judge)

  def __enter__(self) -> 'Verifier':
    return self

  def __exit__(self, *_) -> None:
    self.close()

  def close(self) -> None:
    """Ends the workers; a second call does nothing."""
    if self._pool:
      self._pool.end()
    self._pool = None

  def grade(
    self,
    golds: Sequence[str],
    responses: Sequence[str],
    questions: Sequence[str] | None = None,
    *,
    mode: str | None = None,
    limit_s: float | None = None,
  ) -> 'list[types.Verdict]':
    """Grades each response against its gold answer.

    Args:
      golds: N answers.
      responses: N decoded responses.
      questions: N problem texts, or None; they settle conventions only (a
        percentage asked for, a base named).
      mode: this call's mode, where it is not the verifier's.
      limit_s: likewise the limit.

    Returns:
      N `types.Verdict`, in order.

    Raises:
      ValueError: if the lengths differ or the verifier is closed.
      RuntimeError: if the workers cannot start.
    """
    mode = self.mode if mode is None else mode
    limit_s = self.limit_s if limit_s is None else limit_s
    _check(mode, limit_s)
    questions = [None] * len(golds) if questions is None else questions
    if not len(golds) == len(responses) == len(questions):
      raise ValueError(
        f'got {len(golds)} golds, {len(responses)} responses, '
        f'{len(questions)} questions; allowed: equal numbers; repeat each gold '
        'once per sibling'
      )
    answers = [extract.extract(text, mode) for text in responses]
    reasons = [
      answer_lib.at_once(gold, answer, mode)
      for gold, answer in zip(golds, answers)
    ]
    jobs = {
      n: [golds[n], answers[n], (questions[n] or '')[:_QUESTION_CHARS], mode]
      for n, reason in enumerate(reasons)
      if reason is None
    }
    with self._lock:
      if jobs:
        self._run(jobs, limit_s, reasons)
      self.counts.update(reasons)
    return [_verdict(*pair) for pair in zip(reasons, answers)]

  def _run(self, jobs: dict, limit_s: float, reasons: list) -> None:
    if not self._pool:
      raise ValueError(
        'this verifier is closed; allowed: grading inside its `with` block; '
        'make a new one'
      )
    pending, suspects, restarts = collections.deque(jobs), set(), 0
    try:
      while pending or any(slot.held for slot in self._pool.slots):
        if self._step(pending, suspects, jobs, limit_s, reasons):
          continue
        restarts += 1
        if restarts > _RESTARTS:
          raise RuntimeError(
            'the grading processes die at once; they are run as '
            f'{sys.executable} -c ...: check that it imports '
            'tandem.rewards.worker, and the memory left'
          )
        for slot in self._pool.slots:
          pending.extendleft(reversed(slot.held))
        self._restart()
    except BaseException:
      # Answers to this batch must not be read as answers to the next.
      self._restart()
      raise

  def _restart(self) -> None:
    self._pool.end()
    self._pool = pool_lib.Pool(self._workers, self._judge)

  def _step(self, pending, suspects, jobs, limit_s, reasons) -> bool:
    """Sends what can be sent and takes what comes; False if the pool died."""
    pool = self._pool
    if pool.ready:
      for _ in range(_AHEAD):  # in turn, so that the last items spread
        for slot in pool.slots:
          if pending and len(slot.held) < _AHEAD:
            item = pending.popleft()
            pool.send(slot, item, limit_s, jobs[item])
    busy = [slot.deadline for slot in pool.slots if slot.held]
    messages = pool.messages(min(busy) if pool.ready else pool.deadline)
    if messages is None:
      return False
    for kind, *rest in messages:
      if kind == 'ready':
        pool.ready = True
      elif kind == 'failed':
        raise RuntimeError(
          'the grading processes could not start; they need math-verify and '
          f'sympy as setup.py names them:\n{rest[0]}'
        )
      else:
        slot = pool.slots[rest[0]]
        slot.deadline = time.monotonic() + pool_lib.IDLE_S
        if kind == 'born':
          slot.pid = rest[1]
        elif kind == 'took':
          slot.current, slot.cpu = rest[1:]
          slot.deadline = time.monotonic() + limit_s
          slot.last = time.monotonic() + worker.BACKSTOP * limit_s
        elif kind == 'done':
          item, reason = rest[1:]
          assert item == slot.held.popleft() == slot.current
          reasons[item], slot.current = reason, None
        else:
          self.replaced += 1
          self._blame(slot, rest[1], pending, suspects, reasons)
    if not pool.ready:
      return time.monotonic() < pool.deadline
    for slot in pool.slots:
      if slot.held and time.monotonic() > slot.deadline:
        if slot.current is None:
          return False  # its pipe was left in the middle of a message, perhaps
        if time.monotonic() < slot.last and slot.starved(limit_s):
          slot.deadline = time.monotonic() + limit_s / 4
          continue
        slot.overdue = True
        slot.deadline = math.inf
        with contextlib.suppress(ProcessLookupError):
          os.kill(slot.pid, signal.SIGKILL)
    return True

  def _blame(self, slot, by, pending, suspects, reasons) -> None:
    """A worker died: of a time-out, or of a crash that may not be its item's.

    What it held and had not taken waits in its pipe for the successor.
    """
    overdue, slot.overdue = slot.overdue, False
    item, slot.current = slot.current, None
    if item is None:
      return
    assert item == slot.held.popleft()
    if by == signal.SIGALRM or overdue:
      reasons[item] = 'timeout'
    elif item in suspects:
      reasons[item] = 'crashed'
    else:
      suspects.add(item)  # killed from outside, perhaps: once more
      pending.appendleft(item)


def _check(mode: str, limit_s: float) -> None:
  if mode not in extract.MODES:
    raise ValueError(
      f'grader mode {mode!r} is unknown; allowed: {extract.MODES}; use '
      '"strict" unless a paper is being reproduced'
    )
  if not limit_s > 0:
    raise ValueError(
      f'limit_s is {limit_s}; allowed: a positive number of seconds; '
      'the default is 2.0'
    )


@functools.cache
def _verdict_type():
  # Here and not at the top: `types` imports jax, and this package is imported
  # by the workers, which must start fast and touch no accelerator.
  from tandem import types

  return types.Verdict


def _verdict(reason: str, answer: str | None):
  return _verdict_type()(float(reason == 'equal'), reason, answer or '')


_shared: dict[int, Verifier] = {}
_shared_lock = threading.Lock()


def grade(
  gold: str,
  response: str,
  *,
  question: str | None = None,
  mode: str = 'strict',
  limit_s: float = 2.0,
) -> 'types.Verdict':
  """Grades one response; safe in any process and thread.

  The comparison runs in one worker process, started at the first call that
  needs it and ended with this process. For batches use `Verifier`.

  Args:
    gold: the right answer.
    response: the decoded response.
    question: the problem's text; settles conventions only.
    mode: one of extract.MODES.
    limit_s: wall seconds that the comparison may take.

  Returns:
    A `types.Verdict`.

  Raises:
    ValueError: for an unknown mode or a limit that is not positive.
  """
  _check(mode, limit_s)
  found = extract.extract(response, mode)
  reason = answer_lib.at_once(gold, found, mode)
  if reason is not None:
    return _verdict(reason, found)
  # A forked child has a copy of the parent's pipes: it needs its own worker.
  owner = os.getpid()
  with _shared_lock:
    if owner not in _shared:
      _shared[owner] = Verifier(workers=1)
    verifier = _shared[owner]
  verdicts = verifier.grade(
    [gold], [response], [question], mode=mode, limit_s=limit_s
  )
  return verdicts[0]

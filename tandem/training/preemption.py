"""SIGTERM: the loop saves and leaves after its step; set-up leaves at once."""

import signal

from absl import logging
import jax
from jax.experimental import multihost_utils
import numpy as np


class _Leave(BaseException):
  """Ends set-up; no Exception, so that no handler on the way takes it."""


class PreemptionGuard:
  """Context in which SIGTERM asks the run to leave instead of killing it.

      with PreemptionGuard() as guard:
        ...  # set-up: SIGTERM ends the context here, the rest is not run
        guard.wait_for_steps()
        for step in ...:
          ...
          if guard.should_leave():
            checkpoints.save(...)
            break

  Set-up may take longer than a scheduler waits, and holds nothing that is not
  saved or made again: there the context is left at once, through the exits of
  all that was entered in it, so that a save in flight is still committed. A
  second SIGTERM kills as usual. Signals reach the main thread only, so the
  context must be entered there.
  """

  def __init__(self, signals=(signal.SIGTERM,)):
    self._signals = signals
    self._old = {}
    self._in_steps = False
    self.requested = False  # on this host

  def __enter__(self):
    for number in self._signals:
      self._old[number] = signal.signal(number, self._handle)
    return self

  def __exit__(self, kind, *_):
    for number, handler in self._old.items():
      signal.signal(number, handler)
    self._old = {}
    return kind is _Leave

  def wait_for_steps(self) -> None:
    """From here on a request waits for `should_leave`."""
    if self.requested:  # raised where Python ignores it, as in a finaliser
      raise _Leave
    self._in_steps = True

  def _handle(self, number, frame):
    del frame
    self.requested = True
    logging.warning(
      '%s: the run %s.',
      signal.Signals(number).name,
      'saves and leaves after this step'
      if self._in_steps
      else 'leaves before its first step; what was saved stays, and the same '
      'command goes on from there',
    )
    signal.signal(number, signal.SIG_DFL)
    if not self._in_steps:
      raise _Leave

  def should_leave(self) -> bool:
    """True once any host was asked to leave; all hosts must call it together."""
    if jax.process_count() == 1:
      return self.requested
    flags = multihost_utils.process_allgather(np.int32(self.requested))
    return bool(np.any(flags))

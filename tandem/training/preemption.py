"""SIGTERM sets a flag; the loop saves and leaves at the end of its step."""

import signal

from absl import logging
import jax
from jax.experimental import multihost_utils
import numpy as np


class PreemptionGuard:
  """Context in which SIGTERM asks the loop to leave instead of killing it.

      with PreemptionGuard() as guard:
        for step in ...:
          ...
          if guard.should_leave():
            checkpoints.save(...)
            break

  A second SIGTERM kills as usual. Signals reach the main thread only, so the
  context must be entered there.
  """

  def __init__(self, signals=(signal.SIGTERM,)):
    self._signals = signals
    self._old = {}
    self.requested = False  # on this host

  def __enter__(self):
    for number in self._signals:
      self._old[number] = signal.signal(number, self._handle)
    return self

  def __exit__(self, *_):
    for number, handler in self._old.items():
      signal.signal(number, handler)
    self._old = {}

  def _handle(self, number, frame):
    del frame
    self.requested = True
    logging.warning(
      '%s: the run saves and leaves after this step.',
      signal.Signals(number).name,
    )
    signal.signal(number, signal.SIG_DFL)

  def should_leave(self) -> bool:
    """True once any host was asked to leave; all hosts must call it together."""
    if jax.process_count() == 1:
      return self.requested
    flags = multihost_utils.process_allgather(np.int32(self.requested))
    return bool(np.any(flags))

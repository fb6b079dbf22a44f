"""Child processes that a SIGTERM reaches too: each saves and leaves by itself.

Else a scheduler that tells only the parent would kill them unsaved, and one
that kills only the parent would leave them writing into their workdirs.
"""

import signal
import subprocess

_running: set[subprocess.Popen] = set()


def run(words: list[str]) -> int:
  """Runs a command to its end; its exit status. From any thread."""
  with subprocess.Popen(words) as child:
    _running.add(child)
    status = child.wait()
  _running.discard(child)
  return status


def pass_on_sigterm() -> None:
  """From here on SIGTERM ends the children, and this process after them."""

  def leave(number, frame):
    del number, frame
    for child in list(_running):
      child.terminate()
    raise SystemExit('SIGTERM: passed on; started again, this goes on.')

  signal.signal(signal.SIGTERM, leave)

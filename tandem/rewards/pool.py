"""The grading processes seen from the trainer: a start, pipes, an end.

Own code and not a library's process pool: `multiprocessing` (and what is built
on it) re-imports the caller's `__main__`, which would start a training script
again where it has no guard, cannot start from a daemonic process, and may fork
a trainer that has threads. Here the workers come of a plain new interpreter.
"""

import collections
import contextlib
import json
import os
import pathlib
import select
import signal
import subprocess
import sys
import time
import weakref

from tandem.rewards import worker

START_S = 120.0  # a start includes imports, perhaps on a loaded machine
IDLE_S = 20.0  # a worker takes what lies in its pipe long before
# First the place that this very package was imported from.
_PATHS = [str(pathlib.Path(__file__).parents[2])]
_BOOT = (
  'import json, sys; paths, judge, fds = json.loads(sys.argv[1]); '
  'sys.path[:] = paths; '
  'from tandem.rewards.worker import main; main(judge, fds)'
)


class Slot:
  """One worker as seen from here: its pipe, and what it holds in order."""

  def __init__(self, requests: int):
    self.requests = requests
    self.held = collections.deque()
    self.pid = None
    self.deadline = 0.0
    self.overdue = False
    self.current = None  # the item it works on
    self.cpu = 0.0  # CPU seconds its process had used when it took that
    self.last = 0.0  # when the item must have ended, starved or not

  def starved(self, limit_s: float) -> bool:
    """Whether the worker got under a quarter of a core for its item."""
    try:
      stat = pathlib.Path(f'/proc/{self.pid}/stat').read_text()
    except OSError:  # gone, or no Linux
      return False
    user, system = stat.rpartition(')')[2].split()[11:13]
    used = (int(user) + int(system)) / os.sysconf('SC_CLK_TCK') - self.cpu
    return used < limit_s / 4


class Pool:
  """The processes and the pipes to them."""

  def __init__(self, workers: int, judge: str):
    pipes = [os.pipe() for _ in range(workers)]
    ends = [reading for reading, _ in pipes]
    self.process = subprocess.Popen(
      [
        sys.executable,
        '-c',
        _BOOT,
        json.dumps([_PATHS + sys.path, judge, ends]),
      ],
      stdin=subprocess.DEVNULL,
      stdout=subprocess.PIPE,
      stderr=subprocess.DEVNULL,
      pass_fds=ends,
      # A terminal's Ctrl-C is for the trainer, which may want to finish.
      start_new_session=True,
      # sympy's order of terms follows hashes: the same item, the same path.
      env={**os.environ, 'PYTHONHASHSEED': '0'},
    )
    for reading in ends:
      os.close(reading)
    self.slots = [Slot(writing) for _, writing in pipes]
    self.ready = False
    self.deadline = time.monotonic() + START_S
    self.buffer = b''
    self.end = weakref.finalize(
      self, _end, os.getpid(), self.process, [w for _, w in pipes]
    )

  def send(self, slot: Slot, item: int, limit_s: float, job: list) -> None:
    body = json.dumps([item, limit_s, job]).encode()
    if not slot.held:
      slot.deadline = time.monotonic() + IDLE_S
    slot.held.append(item)
    # A broken pipe shows as the end of the answers, too: handled there.
    with contextlib.suppress(BrokenPipeError):
      message = worker.HEADER.pack(len(body)) + body
      while message:
        message = message[os.write(slot.requests, message) :]

  def messages(self, until: float) -> list | None:
    """What has come by a time; None if the processes are gone."""
    stdout = self.process.stdout
    wait = min(max(0.0, until - time.monotonic()), START_S)
    if not select.select([stdout], [], [], wait)[0]:
      return []
    chunk = os.read(stdout.fileno(), 1 << 16)
    if not chunk:
      return None
    *whole, self.buffer = (self.buffer + chunk).split(b'\n')
    return [json.loads(line) for line in whole]


def _end(owner: int, process: subprocess.Popen, pipes: list[int]) -> None:
  """Ends the processes of a pool; not from a fork of its owner."""
  if owner != os.getpid():
    return
  with contextlib.suppress(ProcessLookupError, PermissionError):
    os.killpg(process.pid, signal.SIGKILL)
  process.wait()
  process.stdout.close()
  for pipe in pipes:
    os.close(pipe)

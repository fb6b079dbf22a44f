"""The grading processes: a warm parent, and one forked child per slot.

The parent is a fresh interpreter started by `verifier.py`: it shares no lock,
thread or `__main__` with the trainer, imports neither jax nor transformers,
imports sympy once, and has one thread, so forking from it is safe and a killed
child is replaced in milliseconds.

The trainer kills a child whose item is over its limit. Should it not look, the
kernel does at twice the limit: an interval timer whose signal has no handler
ends the child wherever it is, in a C loop that holds the interpreter lock too.
"""

import contextlib
import importlib
import json
import os
import resource
import signal
import struct
import sys
import time
import traceback

MEMORY_BYTES = 4 << 30  # address space of a child; a bomb is a MemoryError
BACKSTOP = 2.0  # limits after which the kernel ends an item by itself
RECURSION = 30_000  # deep but finite nesting is legal input
HEADER = struct.Struct('>I')  # the length of the request that follows


def main(judge_path: str, request_fds: list[int]) -> None:
  """Serves until the trainer closes its ends of the request pipes.

  Requests come on one pipe per slot: a header, then JSON `[item, limit_s,
  arguments]`. All that goes out is lines of JSON on stdout, each one atomic
  write: `["ready"]` or `["failed", why]` once; `["born", slot, pid]`;
  `["took", slot, item, cpu]`; `["done", slot, item, reason]`; `["died", slot,
  signal]` (0: by itself).

  Args:
    judge_path: 'module:function', called with a request's arguments.
    request_fds: one descriptor per slot.
  """
  out = os.dup(1)
  os.dup2(2, 1)  # what a library prints must not fall into the protocol
  signal.signal(signal.SIGALRM, signal.SIG_DFL)
  sys.setrecursionlimit(RECURSION)

  def tell(*message):
    os.write(out, json.dumps(message).encode() + b'\n')

  try:
    module, _, name = judge_path.partition(':')
    judge = getattr(importlib.import_module(module), name)
    getattr(sys.modules[module], 'warm', lambda: None)()
  except Exception:
    tell('failed', traceback.format_exc()[-2000:])
    return
  tell('ready')

  slots = {}
  for slot, fd in enumerate(request_fds):
    slots[_fork(judge, slot, fd, tell)] = slot
  while slots:
    pid, status = os.wait()
    slot = slots.pop(pid)
    if os.waitstatus_to_exitcode(status) == 0:
      continue  # its pipe was closed
    tell('died', slot, os.WTERMSIG(status) if os.WIFSIGNALED(status) else 0)
    slots[_fork(judge, slot, request_fds[slot], tell)] = slot


def _fork(judge, slot: int, fd: int, tell) -> int:
  pid = os.fork()
  if pid:
    return pid
  code = 1
  try:
    _limit()
    tell('born', slot, os.getpid())
    _serve(judge, slot, fd, tell)
    code = 0
  finally:
    os._exit(code)


def _limit() -> None:
  resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
  # macOS has no such limit; the time limit still holds there.
  with contextlib.suppress(ValueError, OSError):
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))


def _serve(judge, slot: int, fd: int, tell) -> None:
  while True:
    # Unbuffered, so that a successor finds the next request whole.
    header = _read(fd, HEADER.size)
    if header is None:
      return
    item, limit_s, arguments = json.loads(_read(fd, *HEADER.unpack(header)))
    tell('took', slot, item, time.process_time())
    signal.setitimer(signal.ITIMER_REAL, BACKSTOP * limit_s)
    try:
      reason = judge(*arguments)
    except RecursionError:
      reason = 'refused'
    except Exception:
      reason = 'crashed'
    signal.setitimer(signal.ITIMER_REAL, 0.0)
    tell('done', slot, item, reason)


def _read(fd: int, size: int) -> bytes | None:
  parts = []
  while size:
    part = os.read(fd, size)
    if not part:
      return None
    parts.append(part)
    size -= len(part)
  return b''.join(parts)

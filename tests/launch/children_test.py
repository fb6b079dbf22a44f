"""SIGTERM to the parent: its children end first, and no new one begins."""

import signal
import subprocess
import sys

from tests import small_run

# Two points, one at a time; a child says that it began, and that it was asked.
CHILD = """
import signal, sys, time
def asked(*_):
  print('asked', sys.argv[1], flush=True)
  sys.exit(0)
signal.signal(signal.SIGTERM, asked)
print('began', sys.argv[1], flush=True)
time.sleep(60)
"""
PARENT = """
import concurrent.futures, sys
from launch import children
children.pass_on_sigterm()
with concurrent.futures.ThreadPoolExecutor(1) as pool:
  list(pool.map(
    children.run,
    [[sys.executable, '-c', sys.argv[1], name] for name in 'ab'],
  ))
print('not reached')
"""


def test_sigterm_is_passed_on():
  with subprocess.Popen(
    [sys.executable, '-c', PARENT, CHILD],
    cwd=small_run.ROOT,
    stdout=subprocess.PIPE,
    stderr=subprocess.PIPE,
    text=True,
  ) as parent:
    assert parent.stdout.readline() == 'began a\n'
    parent.send_signal(signal.SIGTERM)
    out, error = parent.communicate(timeout=300)
  assert out == 'asked a\n'
  assert parent.returncode == 1 and error.startswith('SIGTERM: passed on')


def test_the_status_is_the_child_s():
  from launch import children

  assert children.run([sys.executable, '-c', 'raise SystemExit(3)']) == 3

"""One target, one process: python -m tandem.kernels.compile_table.worker v5e.

Its environment is `targets.environment`'s; `spawn` starts it. Prints a JSON
object per case: case, target, compiler, seconds, then temporary_bytes,
argument_bytes and calls (kernels in the compiled text), or refused (the
compiler's reason).
"""

import importlib.metadata
import json
import os
import re
import sys
import tempfile
import time

import jax

from tandem.kernels.compile_table import case
from tandem.kernels.compile_table import targets

# How compiled programs name a kernel: Mosaic TPU, Triton, Mosaic GPU.
CALLS = ('tpu_custom_call', '__gpu$xla.gpu.triton', 'mosaic_gpu')
COMPILER = {'tpu': 'libtpu', 'gpu': 'jax-cuda13-plugin'}


def compiler(platform: str) -> str:
  """Whose answer it is, with its version."""
  name = COMPILER[platform]
  return f'{name} {importlib.metadata.version(name)}'


def temporary_bytes(memory) -> int:
  """The most beside arguments and results, of a program's memory_analysis.

  A TPU's `temp_size` leaves out what lies where a result will be: the peak does
  not.
  """
  ends = memory.argument_size_in_bytes + memory.output_size_in_bytes
  beyond = memory.peak_memory_in_bytes - ends + memory.alias_size_in_bytes
  return max(memory.temp_size_in_bytes, beyond)


class _Stderr:
  """What the compiler writes past Python: the exception often has no reason."""

  def __enter__(self):
    sys.stderr.flush()
    self._kept, self._file = os.dup(2), tempfile.TemporaryFile('w+')
    os.dup2(self._file.fileno(), 2)
    return self

  def __exit__(self, *_):
    os.dup2(self._kept, 2)
    os.close(self._kept)

  def errors(self) -> str:
    self._file.seek(0)
    found = re.findall(r'\berror: (.*)', self._file.read())
    return '; '.join(dict.fromkeys(found))


def compile_one(one: case.Case, target: str, mesh: jax.sharding.Mesh) -> dict:
  """What the compiler says of one case."""
  answer = {'case': one.name, 'target': target}
  everywhere = jax.NamedSharding(mesh, jax.P())

  def place(x):
    return x if x.sharding else x.update(sharding=everywhere)

  start = time.perf_counter()
  with _Stderr() as said:
    try:
      function, arguments = one.build(mesh)
      lowered = jax.jit(function).lower(*jax.tree.map(place, arguments))
      program = lowered.compile()
    except Exception as error:  # whatever a compiler raises is its answer
      reason = f'{type(error).__name__}: {error}; {said.errors()}'
      answer['refused'] = ' '.join(reason.split())
    else:
      memory, text = program.memory_analysis(), program.as_text()
      answer['temporary_bytes'] = temporary_bytes(memory)
      answer['argument_bytes'] = memory.argument_size_in_bytes
      answer['calls'] = sum(
        text.count(f'custom_call_target="{name}') for name in CALLS
      )
  answer['seconds'] = round(time.perf_counter() - start, 2)
  return answer


def main(target: str, size: str = 'small', prefix: str = ''):
  """`size`: 'small' or 'full'; `prefix` of the cases' names."""
  mesh, platform = targets.mesh(target), targets.platform(target)
  told = {'compiler': compiler(platform)}
  for one in case.discover():
    if (
      one.platform == platform
      and one.full == (size == 'full')
      and one.name.startswith(prefix)
    ):
      print(json.dumps(compile_one(one, target, mesh) | told), flush=True)


if __name__ == '__main__':
  main(*sys.argv[1:])

"""What a decode step must at least cost here: bytes, operations, dots.

`decode/limit/b{N}`: a step reads every weight of the model and the cache once,
and multiplies every weight once per row; at the rates measured in the same run
that takes the longer of the two times. `decode/dots/b{N}`: the step's products
with weights as XLA computes them, and nothing else.
"""

from collections.abc import Iterator
from collections.abc import Sequence
import statistics
from typing import Any

import jax
import jax.numpy as jnp

from tandem.benchmark import decode_case
from tandem.benchmark import timing
from tandem.models import decoder


def step_bytes(case: decode_case.Case, rows: int, size: int = 4) -> int:
  """Bytes read by a step: the weights, and keys and values half way.

  Args:
    case: the model and lengths.
    rows: N.
    size: bytes of a number.
  """
  cfg = case.cfg
  slots = case.prompt + case.response // 2
  cache = 2 * cfg.num_layers * rows * slots * cfg.num_kv_heads * cfg.head_dim
  return size * (_weights(case) + cache)


def step_operations(case: decode_case.Case, rows: int) -> int:
  """Multiplications and additions of a step: weights, and attention."""
  cfg = case.cfg
  slots = case.prompt + case.response // 2
  attention = 4 * cfg.num_layers * cfg.num_heads * cfg.head_dim * slots
  return rows * (2 * _weights(case) + attention)


def _weights(case) -> int:
  """Numbers that a step multiplies; the embedding is the head."""
  leaves = jax.tree.leaves(case.params)
  untied = 0 if case.cfg.tied else case.params['embed'].size
  return sum(leaf.size for leaf in leaves) - untied


def rates(quick: bool) -> dict[str, float]:
  """This machine's gigabytes read per second and GFLOP/s, float32."""
  words, side = (1 << 16, 64) if quick else (1 << 27, 2048)
  threads = 8  # XLA parts the outer axis among its threads
  x = jnp.ones((threads, words // threads))
  a = jnp.ones((side, side))
  read, dot = jax.jit(lambda x: x.sum(1)), jax.jit(lambda a: a @ a)
  programs = {'read': lambda: read(x), 'dot': lambda: dot(a)}
  seconds = timing.interleaved(programs, 5)
  # The best of five: what the machine can do.
  return {
    'gigabytes_per_second': 4e-9 * words / min(seconds['read']),
    'gflop_per_second': 2e-9 * side**3 / min(seconds['dot']),
  }


def lines(
  case: decode_case.Case, *, repeats: int, batches: Sequence[int]
) -> Iterator[dict[str, Any]]:
  """Yields the limit and the dots of each batch."""
  measured = rates(case.quick)
  cfg = case.cfg
  senior = decoder.decode_params(case.params, cfg, flip=True)

  @jax.jit
  def dots(senior, x):
    """Every product with a weight of a step; the rest is a sum or two."""
    for layer in senior['layers']:
      # [out, in], and rows of x as columns: the faster of the two on a CPU.
      kv = (layer['k'] @ x).sum(0) + (layer['v'] @ x).sum(0)
      x = x + layer['o'] @ (layer['q'] @ x) + kv[None]
      x = x + layer['down'] @ (layer['gate'] @ x * (layer['up'] @ x))
      x = x / jnp.abs(x).max()
    x = x.T
    return decoder.logits_of(senior, cfg, x).argmax(-1)

  for rows in batches:
    nbytes, operations = step_bytes(case, rows), step_operations(case, rows)
    times = {
      'bytes': nbytes / (1e9 * measured['gigabytes_per_second']),
      'operations': operations / (1e9 * measured['gflop_per_second']),
    }
    bound = max(times, key=times.get)
    yield timing.line(
      f'decode/limit/b{rows}',
      [times[bound]],
      'tokens/s',
      work=rows,
      bound=bound,
      step_bytes=nbytes,
      step_operations=operations,
      **measured,
    )
    x = jax.random.normal(jax.random.key(4), (cfg.dim, rows))
    program = lambda x=x: dots(senior, x)
    seconds = timing.interleaved({'': program}, 4 * repeats)['']
    yield timing.line(
      f'decode/dots/b{rows}',
      seconds,
      'tokens/s',
      work=rows,
      of_limit=times[bound] / statistics.median(seconds),
    )

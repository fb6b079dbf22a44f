"""Fair timing: programs take turns, so that a busy minute hits all of them."""

from collections.abc import Callable
from collections.abc import Mapping
import statistics
import time
from typing import Any

import jax


def interleaved(
  programs: Mapping[str, Callable[[], Any]], repeats: int
) -> dict[str, list[float]]:
  """Seconds of each run of each program, all once before any twice.

  Every program is run once before, untimed, to compile and to warm up.
  """
  for program in programs.values():
    jax.block_until_ready(program())
  seconds = {name: [] for name in programs}
  for _ in range(repeats):
    for name, program in programs.items():
      start = time.perf_counter()
      jax.block_until_ready(program())
      seconds[name].append(time.perf_counter() - start)
  return seconds


def ratio(base: list[float], seconds: list[float]) -> dict[str, float]:
  """How many times as fast as `base`: the median over turns, and the spread.

  Each repeat is compared with the base's of the same turn, which a busy minute
  hit as well.
  """
  each = [a / b for a, b in zip(base, seconds)]
  return {
    'value': statistics.median(each),
    'low': min(each),
    'high': max(each),
  }


def line(
  name: str,
  seconds: list[float],
  unit: str,
  *,
  work: float | None = None,
  **more,
) -> dict[str, Any]:
  """One line of output: the median, and the whole spread as low and high.

  Args:
    name: what was measured.
    seconds: of each repeat.
    unit: of the value.
    work: how much was done in one run, where the value is work per second;
      None where it is the time itself, in `s` or `ms`.
    **more: further fields.
  """
  scale = {'s': 1.0, 'ms': 1e3}
  if work is None:
    values = [scale[unit] * x for x in seconds]
  else:
    values = [work / x for x in seconds]
  return {
    'name': name,
    'value': statistics.median(values),
    'unit': unit,
    'low': min(values),
    'high': max(values),
    'repeats': len(values),
    **more,
  }

"""Flags, timing and the printed line of a kernel's bench."""

from collections.abc import Callable
import json
import statistics
import sys
import time
from typing import Any

from absl import app
from absl import flags
import jax


class Bench:
  """One bench: `flags` takes its own beside those that all have.

  They are absl's only in a run of that bench, since the benches share names.
  """

  def __init__(
    self,
    peak: str = 'peak_tflops',
    peak_help: str = 'Of the device, in this dtype.',
  ):
    """Defines the flags that all benches have.

    Args:
      peak: name of the flag with the device's rate, in 10^12 a second.
      peak_help: what it says in --help.
    """
    own = self.flags = flags.FlagValues()
    self._implementations = flags.DEFINE_list(
      'implementations',
      ['reference', 'xla'],
      'Among api.IMPLEMENTATIONS.',
      flag_values=own,
    )
    self._repeats = flags.DEFINE_integer(
      'repeats', 3, 'Timed runs.', lower_bound=1, flag_values=own
    )
    self._peak = flags.DEFINE_float(peak, None, peak_help, flag_values=own)
    self._gbytes = flags.DEFINE_float(
      'gbytes', None, 'Memory GB/s of the device.', flag_values=own
    )

  @property
  def implementations(self) -> list[str]:
    """Those asked for."""
    return self._implementations.value

  def timed(self, function: Callable, arguments: tuple) -> tuple[float, int]:
    """(seconds of a run, the median; bytes of temporaries) of a program."""
    program = jax.jit(function).lower(*arguments).compile()
    jax.block_until_ready(program(*arguments))
    seconds = []
    for _ in range(self._repeats.value):
      start = time.perf_counter()
      jax.block_until_ready(program(*arguments))
      seconds.append(time.perf_counter() - start)
    temporary = program.memory_analysis().temp_size_in_bytes
    return statistics.median(seconds), temporary

  def tell(
    self,
    name: str,
    seconds: float,
    operations: float,
    moved: float,
    /,
    **told,
  ) -> None:
    """Prints a line: milliseconds, `told`, and the share of the roofline.

    Args:
      name: of what was measured.
      seconds: of a run.
      operations: that any program must spend.
      moved: bytes, likewise.
      **told: further fields.
    """
    line: dict[str, Any] = {'name': name, 'value': seconds * 1e3, 'unit': 'ms'}
    line |= told
    if self._peak.value and self._gbytes.value:
      bound = max(
        operations / self._peak.value / 1e12, moved / self._gbytes.value / 1e9
      )
      line['of_roofline'] = bound / seconds
    print(json.dumps(line), flush=True)

  def run(self, main: Callable[[], None]) -> None:
    """The command: main() under the flags; says what it does not know."""

    def told(argv):
      if len(argv) > 1:
        raise app.UsageError(f'unexpected arguments {argv[1:]}; see --help')
      main()

    flags.FLAGS.append_flag_values(self.flags)
    self.flags.mark_as_parsed()
    for name in self.flags:  # --help lists the flags of the command's file
      flags.FLAGS.register_key_flag_for_module(sys.argv[0], self.flags[name])
    app.run(told)

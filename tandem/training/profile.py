"""A profile of named steps, for TensorBoard or Perfetto."""

import pathlib

import jax


def steps(text: str) -> tuple[int, int] | None:
  """(first, last) of '10-12', '10', or None of ''.

  Raises:
    ValueError: anything else.
  """
  if not text:
    return None
  first, _, last = str(text).partition('-')
  try:
    first, last = int(first), int(last or first)
  except ValueError as error:
    raise ValueError(
      f'log.profile_steps={text!r} is no range of steps; write 10-12 for '
      'three steps, 10 for one, or leave it empty.'
    ) from error
  if not 0 <= first <= last:
    raise ValueError(f'log.profile_steps={text!r} runs backwards.')
  return first, last


class Profiler:
  """Traces steps `first` to `last` of a run into DIR/profile."""

  def __init__(self, workdir, text: str):
    """`text` is as `steps` reads it; nothing is traced if it is empty."""
    self._directory = pathlib.Path(workdir) / 'profile'
    self._running = False
    self._first, self._last = steps(text) or (None, None)

  def at(self, step: int) -> None:
    """To be called before each step."""
    if self._running and step > self._last:
      self._stop()
    wanted = self._first is not None and self._first <= step <= self._last
    if wanted and not self._running:
      jax.profiler.start_trace(str(self._directory))
      self._running = True

  def _stop(self) -> None:
    jax.profiler.stop_trace()
    self._running = False

  def __enter__(self):
    return self

  def __exit__(self, *_):
    if self._running:
      self._stop()

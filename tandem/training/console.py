"""What a run says on the terminal: ours in full, libraries' warnings only."""

import pathlib

from absl import logging

_OURS = str(pathlib.Path(__file__).resolve().parents[1])


def quiet_libraries() -> None:
  """Keeps INFO lines of other packages out of the log (Orbax: 30 a save)."""
  logging.set_verbosity(logging.INFO)

  def keep(record) -> bool:
    ours = record.pathname.startswith(_OURS)
    return ours or record.levelno >= logging.converter.absl_to_standard(
      logging.WARNING
    )

  handler = logging.get_absl_handler()
  handler.addFilter(keep)

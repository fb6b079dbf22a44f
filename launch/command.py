"""What the commands share: reading flags, and telling bad input in a paragraph.

A trace helps whoever debugs: --verbosity=1 shows it.
"""

from collections.abc import Callable

from absl import app
from absl import flags
from absl import logging

from launch import config_flag


def run(main: Callable[[], None], *required: str) -> None:
  """Runs `main` as an absl app; the flags named `required` must be set."""

  def told(argv):
    try:
      if len(argv) > 1:
        raise ValueError(f'unexpected arguments {argv[1:]}; use --flags.')
      main()
    except ValueError as error:
      if logging.vlog_is_on(1):
        raise
      raise SystemExit(f'error: {error}') from error

  flags.mark_flags_as_required(required)
  app.run(told, flags_parser=parse)


def parse(argv: list[str]) -> list[str]:
  """Flags from a command line; what is wrong is told in one paragraph."""
  config_flag.check_file(argv)
  try:
    return flags.FLAGS(argv)
  except (AttributeError, KeyError, TypeError) as error:
    # ml_collections has no better word for it.
    message = config_flag.unknown_key(argv)
    if not message:
      raise
    cause = error
  except flags.Error as error:
    # An error in a config file comes with its whole trace; the last line says
    # what it was.
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    message = lines[-1] if 'Traceback' in str(error) else ' '.join(lines)
    message = message.removeprefix('ValueError: ')
    cause = error
  raise SystemExit(f'error: {message}') from cause

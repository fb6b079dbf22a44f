"""What the commands share: reading flags, and telling bad input in a paragraph.

A trace helps whoever debugs: --verbosity=1 shows it.
"""

from collections.abc import Callable
import os
import pathlib

from absl import app
from absl import flags
from absl import logging

_CONFIGS = pathlib.Path(__file__).parents[1] / 'configs'


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
  _check_config_file(argv)
  try:
    return flags.FLAGS(argv)
  except (AttributeError, KeyError, TypeError) as error:
    message = _unknown_key(argv)  # ml_collections has no better word for it
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


def _check_config_file(argv: list[str]) -> None:
  """SystemExit where --config names no file."""
  for argument in argv[1:]:
    name, _, value = argument.lstrip('-').partition('=')
    path = value.partition(':')[0]
    if name == 'config' and not os.path.isfile(path):
      names = {path.name for path in _CONFIGS.glob('*.py')}
      names -= {'common.py', 'sweeps.py'}
      raise SystemExit(
        f'error: --config={value}: no file {path!r} here ({os.getcwd()}); '
        f'configs/ has {", ".join(sorted(names))}.'
      )


def _unknown_key(argv: list[str]) -> str:
  """Which --config.a.b of the command line is no key, and which there are."""
  config = None
  for argument in argv[1:]:
    name, _, value = argument.lstrip('-').partition('=')
    section, *path = name.split('.')
    if name == 'config':
      config = flags.FLAGS['config'].parser.parse(value)
    if section != 'config' or config is None:
      continue
    node = config
    for part in path:
      if not hasattr(node, 'keys') or part not in node:
        known = 'which is one value'
        if hasattr(node, 'keys'):
          known = f'which has {", ".join(sorted(node.keys()))}'
        return (
          f'--{name} is no key of the config: there is no {part!r} in {section}, '
          f'{known}.'
        )
      section, node = f'{section}.{part}', node[part]
  return ''

"""What is wrong with --config and the --config.a.b of a command line."""

import os
import pathlib

from absl import flags

_CONFIGS = pathlib.Path(__file__).parents[1] / 'configs'


def _given(argv: list[str]):
  """(name, value) of each flag of a command line, `--config FILE` included."""
  for argument, following in zip(argv[1:], [*argv[2:], '']):
    name, equals, value = argument.lstrip('-').partition('=')
    if name == 'config' and not equals:
      value = following
    if argument.startswith('-'):
      yield name, value


def check_file(argv: list[str]) -> None:
  """SystemExit where --config names no file."""
  for name, value in _given(argv):
    path = value.partition(':')[0]
    if name == 'config' and not os.path.isfile(path):
      names = {path.name for path in _CONFIGS.glob('*.py')}
      names -= {'common.py', 'sweeps.py'}
      raise SystemExit(
        f'error: --config={value}: no file {path!r} here ({os.getcwd()}); '
        f'configs/ has {", ".join(sorted(names))}.'
      )


def unknown_key(argv: list[str]) -> str:
  """Which --config.a.b of the command line is no key, and which there are."""
  config = None
  for name, value in _given(argv):
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

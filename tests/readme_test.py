"""README and what it speaks of: paths, commands, config keys, extras."""

import importlib
import pathlib
import re

import pytest

from configs import common
from tandem import losses
from tandem.training import resume

ROOT = pathlib.Path(__file__).resolve().parents[1]
TEXT = (ROOT / 'README.md').read_text()
MAP = TEXT.split('## Map')[1].split('```')[1]


def test_the_two_commands_stand_there():
  assert (
    'pip install -e . && python -m launch.train --config=configs/quickstart.py '
    '--workdir=runs/quickstart'
  ) in TEXT
  assert "pip install -e '.[test]' && pytest" in TEXT


def test_links_and_files_exist():
  links = re.findall(r'\]\(([^)#:]+)\)', TEXT)
  named = re.findall(
    r'(?:tandem|configs|tests|kernels|launch|docs)/[\w/]+(?:\.py|/)', TEXT
  )
  examples = {'configs/X.py', 'tandem/losses/mine.py'}
  gone = {path for path in [*links, *named] if not (ROOT / path).exists()}
  gone -= examples
  if '<!-- The picture' in TEXT:
    gone.discard('docs/quickstart_curves.png')  # made later
  assert len(named) > 20
  assert not gone


def test_commands_exist():
  commands = set(re.findall(r'python -m launch\.(\w+)', TEXT))
  assert {'train', 'evaluate', 'generate', 'view', 'convert'} <= commands
  for name in commands:
    assert (ROOT / 'launch' / f'{name}.py').exists(), name


def test_map_names_every_folder():
  for folder in ('tandem', 'kernels', '.'):
    for path in (ROOT / folder).iterdir():
      holds = (
        path.is_dir() and not path.is_symlink() and any(path.glob('**/*.py'))
      )
      hidden = path.name.startswith(('.', '_')) or path.name in (
        'runs',
        'build',
      )
      if holds and not hidden:
        assert f'{path.name}/' in MAP, path
  for path in (ROOT / 'tandem').glob('[a-z]*.py'):
    assert path.name in MAP, path


def test_config_keys_exist():
  base = common.base().to_dict()
  sections = [name for name, value in base.items() if isinstance(value, dict)]
  found = re.findall(rf'\b((?:{"|".join(sections)})\.\w+)', TEXT)
  keys = {name for name in found if not name.endswith(('.py', '.jsonl'))}
  files = {'data.problems', 'eval.json'}
  unknown = {
    name
    for name in keys - files
    if name.split('.')[1] not in base[name.split('.')[0]]
  }
  assert len(keys) > 25
  assert not unknown


def test_extras_are_those_of_setup():
  setup = (ROOT / 'setup.py').read_text()
  block = setup.split('EXTRAS = {')[1].split("EXTRAS['test']")[0]
  extras = set(re.findall(r"^  '([\w-]+)': \[", block, re.MULTILINE)) | {'test'}
  told = TEXT.split('## Extras')[1].split('##')[0]
  assert extras == set(re.findall(r'`([\w-]+)`', told))


@pytest.mark.parametrize(
  'key', ['num_steps', 'eval', 'log', 'checkpoint', 'mesh']
)
def test_what_a_resumed_run_may_change(key):
  assert key in resume.FREE


def test_every_loss_has_a_row():
  table = TEXT.split('## Methods')[1].split('##')[0]
  for name, variant in losses.LOSSES.items():
    file = f'{variant.config.__module__.replace(".", "/")}.py'
    assert f'({file})' in table, name


def test_arguments_of_configs_are_legal():
  found = re.findall(r'`(?:configs/(\w+)\.py)?:([\w,=.]+)`', TEXT)
  assert len(found) > 10
  for name, arg in found:
    if arg != 'tiny':  # of every config
      name = name or 'quickstart'
      importlib.import_module(f'configs.{name}').get_config(arg)

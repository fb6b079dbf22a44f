"""Who may import whom, and how long a file may be; read from the source."""

import ast
import functools
import pathlib
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[1]
MAX_LINES = 400
MAX_LAUNCH_LINES = 80

# A file may import from its own package and from earlier rows; inside a row
# only along SAME_ROW.
ROWS = (
  ('tandem.types', 'tandem.kernels'),
  ('tandem.text', 'tandem.data', 'tandem.rewards', 'tandem.envs'),
  ('tandem.models',),
  ('tandem.rollout', 'tandem.losses'),
  ('tandem.training', 'tandem.analysis'),
  ('tandem.ahead',),
  ('tandem.train', 'tandem.evaluate', 'tandem.generate', 'tandem.benchmark'),
  ('launch',),
)
SAME_ROW = {
  ('tandem.data', 'tandem.text'),  # prompts are rendered where rows are read
  ('tandem.envs', 'tandem.rewards'),  # an environment may grade an answer
  ('tandem.train', 'tandem.evaluate'),  # evaluation steps of the loop
  ('tandem.generate', 'tandem.evaluate'),  # who speaks under which name
}
RANK = {name: rank for rank, row in enumerate(ROWS) for name in row}

# Host-side packages that worker processes and data loaders start by.
NO_JAX = ('tandem.data', 'tandem.rewards')
JAX = {'jax', 'jaxlib', 'flax', 'optax', 'orbax', 'chex'}

# Required by jax and by sympy.
TRANSITIVE = {'jaxlib', 'mpmath', 'numpy', 'scipy'}
# What an install without extras has, besides the standard library (CASES 28).
CORE = JAX | {
  'absl',
  'jinja2',
  'math_verify',
  'ml_collections',
  *TRANSITIVE,
  'safetensors',
  'sympy',
  'tokenizers',
  'tqdm',
  'transformers',
}


@functools.cache
def sources():
  """[(module name, path)] of all our files, once each."""
  found = []
  for folder in ('tandem', 'kernels', 'launch', 'configs', 'tests'):
    for path in sorted((ROOT / folder).rglob('*.py')):
      parts = path.relative_to(ROOT).with_suffix('').parts
      if parts[:2] == ('tandem', 'kernels'):
        continue  # the checkout's link to kernels/
      if parts[0] == 'kernels':
        parts = ('tandem', *parts)
      found.append(('.'.join(parts).removesuffix('.__init__'), path))
  return found


def imported(node):
  """Full names that an import statement may bind, most exact first."""
  if isinstance(node, ast.Import):
    return [alias.name for alias in node.names]
  if isinstance(node, ast.ImportFrom):
    if node.level:
      return ['.relative']
    return [f'{node.module}.{alias.name}' for alias in node.names]
  return []


def all_imports(tree):
  return [name for node in ast.walk(tree) for name in imported(node)]


def top_imports(tree):
  """Imports that run when the module is imported: not those in functions."""
  names = []
  stack = list(tree.body)
  while stack:
    node = stack.pop()
    if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)):
      continue
    names += imported(node)
    stack += list(ast.iter_child_nodes(node))
  return names


def package_of(name):
  """The entry of RANK that a module name belongs to, or None."""
  parts = name.split('.')
  for length in (2, 1):
    head = '.'.join(parts[:length])
    if head in RANK:
      return head
  return None


def order_faults(module, names):
  """What is wrong with a module's imports, as messages."""
  faults = []
  package = package_of(module)
  for name in names:
    root = name.split('.')[0]
    target = package_of(name)
    if root == '.relative' or root == '':
      faults.append(f'{module}: relative import; write the full name')
    elif module.split('.')[0] == 'configs':
      if root not in ('ml_collections', 'configs', *sys.stdlib_module_names):
        faults.append(f'{module} imports {name}; configs stand alone')
    elif module.split('.')[0] == 'tests':
      continue
    elif root == 'configs' and module.startswith('launch.'):
      continue  # both run from the checkout only
    elif root in ('configs', 'tests'):
      faults.append(f'{module} imports {name}, which is not installed')
    elif package and target and target != package:
      later = RANK[target] > RANK[package]
      same = RANK[target] == RANK[package]
      if later or (same and (package, target) not in SAME_ROW):
        faults.append(f'{module} imports {name} of a later row')
    if package in NO_JAX and root in JAX:
      faults.append(f'{module} imports {name}; this side of the house has none')
  return faults


def parse(path):
  return ast.parse(path.read_text(encoding='utf-8'), str(path))


def test_order():
  faults = [
    fault
    for module, path in sources()
    for fault in order_faults(module, all_imports(parse(path)))
  ]
  assert not faults, '\n'.join(faults)


@pytest.mark.parametrize(
  'module, line, fault',
  [
    ('tandem.losses.grpo', 'from tandem.rollout import turns', True),
    ('tandem.rollout.lockstep', 'from tandem.losses import grpo', True),
    ('tandem.models.decoder', 'import tandem.rollout.turns', True),
    ('tandem.training.step', 'from tandem import train', True),
    ('tandem.training.step', 'from tandem.analysis import passk', True),
    ('tandem.train', 'from launch import train', True),
    ('tandem.train', 'from configs import quickstart', True),
    ('tandem.kernels.token_logprob.api', 'from tandem import models', True),
    ('tandem.rewards.worker', 'import jax.numpy as jnp', True),
    ('tandem.data.batches', 'def f():\n  from flax import nnx', True),
    ('tandem.losses.grpo', 'from . import masked', True),
    ('configs.quickstart', 'from tandem import types', True),
    ('configs.quickstart', 'import jax', True),
    ('configs.quickstart', 'from ml_collections import config_dict', False),
    ('configs.quickstart', 'from configs import common', False),
    ('tandem.train', 'from tandem.training import step', False),
    ('tandem.losses.grpo', 'from tandem.losses import masked', False),
    ('tandem.data.prompts', 'from tandem.text import tokenizer', False),
    ('launch.train', 'from tandem import train', False),
    ('launch.sweep', 'from configs import sweeps', False),
    ('launch.sweep', 'from tests import fakes', True),
  ],
)
def test_the_checker_sees(module, line, fault):
  assert bool(order_faults(module, all_imports(ast.parse(line)))) == fault


def test_extras_are_imported_inside_functions():
  faults = []
  for module, path in sources():
    if module.split('.')[0] == 'tests':
      continue
    for name in top_imports(parse(path)):
      root = name.split('.')[0]
      ours = {'tandem', 'launch', 'configs'}
      if root not in CORE | ours | set(sys.stdlib_module_names):
        faults.append(f'{module}: {name} is no core dependency')
  assert not faults, '\n'.join(faults)


def test_the_core_list_is_what_setup_installs():
  names = {'absl': 'absl-py', 'orbax': 'orbax-checkpoint'}
  text = (ROOT / 'setup.py').read_text().split('install_requires')[1]
  for module in CORE - TRANSITIVE:
    package = names.get(module, module).replace('_', '-')
    assert f"'{package}" in text, package


def test_length_and_names_of_files():
  faults = []
  for _, path in sources():
    name = path.relative_to(ROOT)
    lines = len(path.read_text(encoding='utf-8').splitlines())
    limit = MAX_LAUNCH_LINES if name.parts[0] == 'launch' else MAX_LINES
    if lines > limit:
      faults.append(f'{name} has {lines} lines, over {limit}')
    if 'util' in name.stem:
      faults.append(f'{name}: say what it holds')
  assert not faults, '\n'.join(faults)


def test_tests_mirror_the_tree():
  modules = {module for module, _ in sources()}
  folders = {'.'.join(module.split('.')[:2]) for module in modules}
  faults = [
    f'{path.relative_to(ROOT)} tests no folder of ours'
    for module, path in sources()
    if module.startswith('tests.') and module.count('.') > 1
    if f'tandem.{module.split(".")[1]}' not in folders
    and module.split('.')[1] not in ('launch', 'configs')
  ]
  assert not faults, '\n'.join(faults)


def test_root_has_no_kernels_package():
  # A package named `kernels` is on PyPI and transformers looks for it.
  assert not (ROOT / 'kernels' / '__init__.py').exists()

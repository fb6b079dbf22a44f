"""Configs load, say how they are run, and hold no key that nobody reads."""

import ast
import dataclasses
import importlib
import inspect
import pathlib
import types as python_types
import typing

import pytest

from configs import common
from configs import gr_opd
from tandem import losses
from tandem.rollout import sampling
from tandem.rollout import turns
from tandem.training import build
from tandem.training import mesh

ROOT = pathlib.Path(__file__).resolve().parents[1]
NAMES = sorted(
  path.stem
  for path in (ROOT / 'configs').glob('*.py')
  if 'get_config' in path.read_text()
)
VARIANTS = (
  'grpo_qwen3_4b:g16',
  'grpo_qwen3_4b:kl_reg,beta=0.001',
  'smollm2_135m:chain_sum',
  *(f'grpo_qwen3_4b:{name}' for name in common.GRPO_LINE),
  *(f'gr_opd:pair={pair}' for pair in gr_opd.PAIRS),
  'opd:pair=i4',
  'opd:full',
  'opd:top_k=16',
  'craft:sdar_program',
  'sdar:opsd',
  'sdar:grpo_opsd',
  'cringe:token',
  'cringe:adaptive',
  'unlikelihood:row',
)


def load(name):
  name, _, arg = name.partition(':')
  return importlib.import_module(f'configs.{name}').get_config(arg or None)


@pytest.mark.parametrize('name', NAMES)
def test_docstring_has_the_command(name):
  text = importlib.import_module(f'configs.{name}').__doc__
  assert f'python -m launch.train --config=configs/{name}.py' in text
  assert ':tiny' in text


@pytest.mark.parametrize(
  'name',
  [
    *(*NAMES, *VARIANTS),
    *(f'{name}:tiny' for name in NAMES),
    *(f'{name},tiny' for name in VARIANTS),
  ],
)
def test_every_config_is_a_legal_one(name):
  config = load(name)
  build.check(config)
  # A mistyped name in a config file would be a new key, read by nobody.
  base = common.base().to_dict()
  assert all_keys(config.to_dict()).keys() == all_keys(base).keys()


@pytest.mark.parametrize('name', NAMES)
def test_tiny_needs_no_download(name):
  config = load(f'{name}:tiny')
  assert config.model.source == 'random'
  assert config.model.tokenizer == 'quickstart'
  assert config.junior.source == 'same'
  assert config.teacher.source in ('', 'warm_start')
  assert config.data.kind == 'quickstart'
  assert config.num_steps == 2
  # The same family and arithmetic as the config it stands for.
  for key in ('family', 'dtype', 'remat'):
    assert config.model[key] == load(name).model[key]


@pytest.mark.parametrize('name', ['trl_qwen3_4b', 'grpo_qwen3_4b'])
def test_table_4(name):
  """The settings of arXiv 2606.28166, Table 4, and of its released script."""
  config = load(name)
  assert config.model.source == 'Qwen/Qwen3-4B-Instruct-2507'
  assert config.junior.source == 'same'
  assert (config.rollout.prompts, config.rollout.group) == (16, 8)
  assert (config.rollout.max_prompt, config.rollout.max_response) == (
    1024,
    3000,
  )
  law = build.sampling(config.rollout)
  assert law == sampling.Sampling(temperature=0.6, top_k=0, top_p=1.0)
  assert (config.learner.mini_prompts, config.learner.epochs) == (8, 1)
  _, loss = build.loss(config)
  assert (loss.eps_low, loss.eps_high, loss.dual_clip) == (0.2, 0.2, 3.0)
  assert (loss.agg, loss.kl_to, loss.entropy_coef) == ('token-mean', 'none', 0)
  assert loss.scale_by_std
  section = config.optimizer
  assert (section.learning_rate, section.schedule) == (1e-6, 'constant')
  assert (section.weight_decay, section.clip_norm) == (0.01, 1.0)
  assert section.warmup_steps == 0
  assert (config.data.held_out, config.data.held_out_seed) == (1000, 0)
  assert (config.eval.every_steps, config.checkpoint.every_steps) == (20, 20)
  assert config.num_steps == 4913  # 2 epochs of 39,309 problems, 16 a step


def test_trl_schedule():
  config = load('trl_qwen3_4b')
  assert config.rollout.mode == 'tandem'
  rule = build.turns(config)
  assert (rule.schedule, rule.p, rule.cap) == ('word', 0.5, 32)
  assert (rule.cap_rule, rule.first) == ('code', 'coin')
  _, loss = build.loss(config)
  assert (loss.denom, loss.lambda_jun_policy) == ('senior', 0.0)
  assert loss.lambda_jun_imitation == 0.0


def test_grpo_baselines():
  assert load('grpo_qwen3_4b').rollout.mode == 'solo'
  assert load('grpo_qwen3_4b:g16').rollout.group == 16
  _, loss = build.loss(load('grpo_qwen3_4b:kl_reg,beta=0.003'))
  assert (loss.kl_to, loss.kl_coef, loss.kl_estimator) == (
    'reference',
    0.003,
    'k3',
  )


@pytest.mark.parametrize('arg', ['kl_reg', 'beta=0.001', 'beta=x', 'nonsense'])
def test_an_argument_that_would_do_nothing_is_refused(arg):
  with pytest.raises(ValueError, match='beta|unknown'):
    load(f'grpo_qwen3_4b:{arg}')


# ---- The fields of the losses ------------------------------------------------


def test_loss_fields_are_those_of_the_variants():
  found = {}
  for variant in losses.LOSSES.values():
    hints = typing.get_type_hints(variant.config)
    for field in dataclasses.fields(variant.config):
      kind = hints[field.name]
      if isinstance(kind, python_types.UnionType):
        (kind,) = set(typing.get_args(kind)) - {type(None)}
      found.setdefault(field.name, set()).add(kind)
  assert {name: {kind} for name, kind in common.LOSS_FIELDS.items()} == found


# ---- Every key has a reader --------------------------------------------------


def paths(source, keys):
  """Key paths, as tuples, that a file's source reads from a config.

  Sections may have other names there (`rollout = config.rollout`); a section
  or a leaf counts as read where its whole path is loaded.
  """
  tree = ast.parse(source)
  names = {'config': {()}}

  def path_of(node):
    """All paths that an expression may stand for."""
    if isinstance(node, ast.Name):
      return names.get(node.id, set())
    if isinstance(node, ast.Attribute):
      found = {(*path, node.attr) for path in path_of(node.value)}
      return {path for path in found if path in keys}
    return set()

  functions = {
    node.name: [arg.arg for arg in node.args.args]
    for node in ast.walk(tree)
    if isinstance(node, ast.FunctionDef)
  }

  def bindings(node):
    """(name, expression) pairs of an assignment or of a call in this file."""
    if isinstance(node, ast.Assign):
      for target in node.targets:
        pairs = [(target, node.value)]
        if isinstance(target, ast.Tuple) and isinstance(node.value, ast.Tuple):
          pairs = zip(target.elts, node.value.elts)
        for left, right in pairs:
          if isinstance(left, ast.Name):
            yield left.id, right
    elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
      yield from zip(functions.get(node.func.id, ()), node.args)

  for _ in range(3):  # an alias of an alias
    for node in ast.walk(tree):
      for name, value in bindings(node):
        names.setdefault(name, set()).update(path_of(value))
  found = set()
  for node in ast.walk(tree):
    if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Load):
      found |= path_of(node)
  return found


def all_keys(tree):
  """{path: is it a leaf} of a config as a plain dict."""
  found = {}

  def walk(node, path):
    for name, value in node.items():
      found[(*path, name)] = not hasattr(value, 'items')
      if hasattr(value, 'items'):
        walk(value, (*path, name))

  walk(tree, ())
  return found


def fields(cls):
  return {field.name for field in dataclasses.fields(cls)}


def read_whole():
  """Leaves that are read by the names of a signature or of a dataclass."""
  law, schedule = fields(sampling.Sampling), fields(turns.Turns)
  axes = inspect.signature(mesh.make_mesh).parameters
  return (
    {('mesh', name) for name in axes}
    | {('rollout', name) for name in law | schedule}
    | {('eval', name) for name in law}
    | {('loss', name) for name in common.LOSS_FIELDS}
  )


def read_anywhere():
  keys = set(all_keys(common.base().to_dict()))
  files = [*(ROOT / 'launch').glob('*.py'), *(ROOT / 'tandem').glob('*.py')]
  files += (ROOT / 'tandem' / 'training').glob('*.py')
  return set.union(*(paths(path.read_text(), keys) for path in files))


def test_every_key_is_read():
  keys = all_keys(common.base().to_dict())
  wanted = {path for path, leaf in keys.items() if leaf}
  unread = wanted - read_whole() - read_anywhere()
  assert not unread, sorted('.'.join(path) for path in unread)


def test_the_sections_read_whole_are():
  text = (ROOT / 'tandem/training/setup.py').read_text()
  assert 'make_mesh(**config.mesh)' in text
  text = (ROOT / 'tandem/train.py').read_text()
  assert 'build.sampling(config.rollout)' in text
  assert 'build.sampling(config.eval)' in text


def test_the_reader_sees():
  keys = {('a',), ('a', 'x'), ('a', 'y'), ('b',), ('b', 'z'), ('s',)}
  source = """
def f(config):
  a, other = config.a, 3
  b = config.b
  b.z = 1
  return a.x + config.s + array.y + g(config.c)

def g(part):
  return part.w
"""
  keys |= {('c',), ('c', 'w'), ('c', 'v')}
  assert paths(source, keys) == {
    ('a',),
    ('b',),
    ('c',),
    ('a', 'x'),
    ('s',),
    ('c', 'w'),
  }

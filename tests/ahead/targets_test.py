"""Which machines may be named, and what is said of one that may not."""

import subprocess
import sys

import pytest

from tandem.ahead import targets


@pytest.mark.parametrize(
  'topology, kind, sizes',
  [
    ('v5p:2x2x1', 'v5p', (2, 2, 1)),
    ('v5e:4x4', 'v5e', (4, 4)),
    ('H200:1x1x8', 'H200', (1, 1, 8)),
    ('cpu:8', 'cpu', (8,)),
  ],
)
def test_parse(topology, kind, sizes):
  found, chip, got = targets.parse(topology)
  assert (found, got) == (kind, sizes)
  assert chip is targets.CHIPS[kind]


@pytest.mark.parametrize(
  'topology',
  ['v9:2x2', 'v5p', 'v5p:', 'v5p:2x0x1', 'H200:8', 'cpu:2x2', 'v5e:a'],
)
def test_unknown_topologies_are_refused(topology):
  with pytest.raises(ValueError, match='v5e, v5p'):
    targets.parse(topology)


def run(code):
  return subprocess.run(
    [sys.executable, '-c', code], capture_output=True, text=True
  )


def test_a_missing_compiler_names_its_extra():
  code = """
import importlib.util
found = importlib.util.find_spec
importlib.util.find_spec = lambda name: None if 'libtpu' in name else found(name)
from tandem.ahead import targets
targets.prepare('v5p:2x2x1')
"""
  done = run(code)
  assert done.returncode
  assert "pip install '.[ahead-tpu]'" in done.stderr


def test_prepare_sets_the_variables_before_jax():
  code = """
import os, sys
from tandem.ahead import targets
assert 'jax' not in sys.modules
targets.prepare('cpu:3')
print(os.environ['JAX_PLATFORMS'], os.environ['JAX_NUM_CPU_DEVICES'])
import jax
assert len(targets.devices('cpu:3')) == 3
targets.prepare('cpu:3')
"""
  done = run(code)
  assert done.stdout == 'cpu 3\n'
  assert 'jax is imported already' in done.stderr


def test_products_are_not_cut_over_k_and_given_flags_stay():
  code = """
import importlib.util, os
importlib.util.find_spec = lambda name: name
from tandem.ahead import targets
os.environ['XLA_FLAGS'] = '--xla_gpu_autotune_level=0'
targets.prepare('H200:1x1x8')
print(os.environ['XLA_FLAGS'])
"""
  done = run(code)
  assert done.stdout == (
    '--xla_gpu_autotune_level=0 --xla_gpu_experimental_force_split_k=1\n'
  ), done.stderr

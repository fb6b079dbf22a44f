"""Strictness for the whole suite, set before jax starts."""

import os

os.environ.setdefault('JAX_PLATFORMS', 'cpu')
# Tests compile far more than they run, so code generation is kept cheap: no
# optimisation, and the older, lighter emitters. A quarter of the time.
os.environ.setdefault(
  'XLA_FLAGS',
  '--xla_backend_optimization_level=0 --xla_cpu_use_fusion_emitters=false',
)
os.environ.setdefault('TOKENIZERS_PARALLELISM', 'false')

import jax
import pytest

jax.config.update('jax_num_cpu_devices', 8)
jax.config.update('jax_numpy_rank_promotion', 'raise')


@pytest.fixture
def key():
  return jax.random.key(0)

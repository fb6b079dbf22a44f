"""What of a model lies on the devices, by what it is there for."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tandem.ahead import shapes
from tandem.models import decoder
from tandem.training import mesh as mesh_lib
from tandem.training import models
from tandem.training import setup
from tandem.training import sharding
from tests import small_run


@pytest.mark.parametrize('dtype', ['bfloat16', 'float32'])
def test_a_scoring_copy_outlives_what_it_was_made_of(key, dtype):
  mesh = mesh_lib.make_mesh(data=2, fsdp=2, tensor=2)
  config = small_run.config(**{'model.num_kv_heads': 2})
  cfg = models.model_config(config, range(64))
  init = lambda key: decoder.init_params(key, cfg)
  params = sharding.init_sharded(init, mesh, key)
  before = jax.tree.map(np.asarray, params)
  copy = models.scoring_copy(params, dtype)
  gate = copy['layers']['gate']
  assert gate.dtype == dtype
  # A quarter of it on each device: cut over fsdp, as in the update.
  assert gate.sharding.shard_shape(gate.shape)[1:] == (8, 8)
  jax.jit(lambda x: jax.tree.map(jnp.negative, x), donate_argnums=0)(params)
  for mine, old in zip(jax.tree.leaves(copy), jax.tree.leaves(before)):
    np.testing.assert_array_equal(mine, old.astype(dtype))


@pytest.mark.parametrize(
  ('values', 'decodes'),
  [
    ({}, False),
    ({'eval.every_steps': 1, 'eval.models': ('senior',)}, False),
    ({'eval.every_steps': 1, 'eval.models': ('junior',)}, True),
    ({'rollout.decoder': 'speculative'}, True),
    ({'rollout.mode': 'tandem'}, True),
  ],
)
def test_layers_lie_apart_only_for_those_who_decode(tmp_path, values, decodes):
  """And are counted ahead of time as they will lie."""
  values = {
    'rollout.mode': 'solo',
    'loss.kl_to': 'reference',
    'loss.kl_coef': 0.1,
    'mesh.fsdp': 2,
  } | values
  config = small_run.config(**values)
  evaluates = bool(config.eval.every_steps)
  parts = setup.setup(config, tmp_path, None, evaluates=evaluates)
  assert isinstance(parts.reference.params['layers'], list) == decodes
  counted = shapes.run(config, parts.mesh).frozen['reference']
  there, ahead = parts.reference.params, counted
  assert jax.tree.structure(there) == jax.tree.structure(ahead)
  for mine, shape in zip(jax.tree.leaves(there), jax.tree.leaves(ahead)):
    assert (mine.shape, mine.dtype) == (shape.shape, shape.dtype)
    assert mine.sharding.is_equivalent_to(shape.sharding, mine.ndim)

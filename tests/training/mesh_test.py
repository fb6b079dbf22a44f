"""The mesh from config, and rows on it."""

import jax
from jax.sharding import AxisType
import numpy as np
import pytest

from tandem.training import keys
from tandem.training import mesh as meshes

SHAPES = [(2, 2, 2), (8, 1, 1), (1, 2, 4)]


@pytest.mark.parametrize('shape', SHAPES)
def test_axes_and_types(shape):
  mesh = meshes.make_mesh(*shape)
  assert mesh.axis_names == ('data', 'fsdp', 'tensor')
  assert tuple(mesh.shape.values()) == shape
  assert mesh.axis_types == (AxisType.Auto,) * 3


def test_minus_one_takes_the_rest():
  assert meshes.make_mesh(-1, 2, 2).shape['data'] == 2
  assert meshes.make_mesh(1, -1, 4).shape['fsdp'] == 2
  assert meshes.make_mesh(2, 2, -1).shape['tensor'] == 2
  some = meshes.make_mesh(-1, 1, 1, devices=jax.devices()[:2])
  assert some.shape['data'] == 2


@pytest.mark.parametrize(
  'shape, words',
  [
    ((3, 1, 1), ['data=3', '8 devices', '[1, 2, 4, 8]']),
    ((-1, 3, 1), ['fsdp=3', '8 devices', '[1, 2, 4, 8]']),
    ((2, 2, 1), ['data=2', '8 devices', 'must be 8']),
    ((-1, -1, 1), ['data and fsdp', 'at most one']),
    ((0, 1, 8), ['mesh.data=0', 'positive']),
  ],
)
def test_wrong_sizes_say_what_is_legal(shape, words):
  with pytest.raises(ValueError) as error:
    meshes.make_mesh(*shape)
  for word in words:
    assert word in str(error.value)


@pytest.mark.parametrize('shape', SHAPES)
def test_rows_are_split_over_data_and_fsdp(shape):
  mesh = meshes.make_mesh(*shape)
  rows = {'ids': np.arange(16).reshape(8, 2), 'sample': np.arange(8)}
  put = meshes.put_rows(mesh, rows)
  each = 8 // (shape[0] * shape[1])
  for name, x in put.items():
    assert {s.data.shape[0] for s in x.addressable_shards} == {each}
    np.testing.assert_array_equal(meshes.to_host(x), rows[name])
  whole = meshes.put_replicated(mesh, rows)
  assert whole['ids'].is_fully_replicated
  assert whole['ids'].sharding == meshes.replicated(mesh)


def test_keys_are_rows_too():
  mesh = meshes.make_mesh(4, 2, 1)
  rows = keys.row_keys(0, 'train', 1, np.arange(8), np.zeros(8, int))
  put = meshes.put_rows(mesh, rows)
  np.testing.assert_array_equal(
    jax.random.key_data(put), jax.random.key_data(rows)
  )
  assert put.sharding.is_equivalent_to(meshes.row_sharding(mesh), 1)


def test_rows_that_do_not_split_are_refused():
  with pytest.raises(ValueError, match='multiple of 8'):
    meshes.put_rows(meshes.make_mesh(4, 2, 1), np.zeros((12, 3)))

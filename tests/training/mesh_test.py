"""The mesh from config, and rows on it."""

import dataclasses

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


@dataclasses.dataclass(frozen=True)
class Card:
  """What of a GPU or TPU is read where it finds its place."""

  id: int
  platform: str
  slice_index: int = 0
  coords: tuple[int, ...] = ()
  core_on_chip: int = 0
  device_kind: str = 'TPU v5'
  process_index: int = 0


@pytest.mark.parametrize(
  'sizes', [(1, 4, 4), (2, 2, 4), (4, 1, 4), (2, 4, 2), (4, 2, 2)]
)
def test_tensor_stays_within_a_host_of_gpus(sizes):
  cards = [Card(i, 'gpu', i // 4) for i in reversed(range(16))]
  found = meshes.arranged(sizes, cards)
  assert found.shape == sizes
  assert sorted(card.id for card in found.flat) == list(range(16))
  for group in found.reshape(-1, sizes[2]):
    assert len({card.slice_index for card in group}) == 1
  if sizes[0] > 1:  # hosts that train copies first
    assert {x.slice_index for x in found[0].flat} != {0, 1, 2, 3}


def test_tensor_between_hosts_is_refused():
  cards = [Card(i, 'gpu', i // 4) for i in range(16)]
  with pytest.raises(ValueError, match='multiple of 4'):
    meshes.arranged((1, 2, 8), cards)


def test_a_torus_is_cut_where_no_axis_fits():
  """4,096 chips are 16 x 16 x 16; here 4 x 4 x 4, tensor=8."""
  at = list(np.ndindex(4, 4, 4))
  chips = [Card(i, 'tpu', 0, xyz) for i, xyz in enumerate(at)]
  found = meshes.arranged((1, 8, 8), chips)
  assert len({chip.id for chip in found.flat}) == 64
  # Neighbours: no group is wider than 4 x 2, on whatever axes.
  for group in found.reshape(8, 8):
    spans = [len({chip.coords[axis] for chip in group}) for axis in range(3)]
    assert sorted(spans) == [1, 2, 4]


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

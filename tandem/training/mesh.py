"""One mesh, axes `data`, `fsdp`, `tensor`, and how rows lie on it.

Rows are split over `data` and `fsdp` together; `tensor` sees every row. Hosts
all hold the same numpy rows unless they say otherwise, so each takes from them
what its own devices need, and nothing here asks how many hosts there are.
"""

from collections.abc import Sequence
import json
import math

import jax
from jax.experimental import mesh_utils
from jax.experimental import multihost_utils
from jax.sharding import AxisType
from jax.sharding import Mesh
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P
import numpy as np

AXES = ('data', 'fsdp', 'tensor')
ROWS = ('data', 'fsdp')  # the axes that together split the rows of a batch


def make_mesh(data=-1, fsdp=1, tensor=1, *, devices=None) -> Mesh:
  """A mesh over all devices, with Auto axes.

  Args:
    data: copies of the model that see different rows; -1 takes the rest.
    fsdp: shards of weights, moments and rows; -1 takes the rest.
    tensor: shards of heads, hidden and vocabulary; -1 takes the rest.
    devices: the devices to use, or None for all of `jax.devices()`.

  Raises:
    ValueError: a size is not positive (or -1), two are -1, or the product is
      not the number of devices.
  """
  devices = list(jax.devices() if devices is None else devices)
  sizes = dict(zip(AXES, (data, fsdp, tensor)))
  shown = ', '.join(f'{axis}={size}' for axis, size in sizes.items())
  for axis, size in sizes.items():
    if size != -1 and size < 1:
      raise ValueError(
        f'mesh.{axis}={size} is no size; it must be a positive number, or -1 '
        'for the devices that the other axes leave.'
      )
  rest = [axis for axis, size in sizes.items() if size == -1]
  if len(rest) > 1:
    raise ValueError(
      f'mesh ({shown}) leaves {" and ".join(rest)} open; at most one size may '
      'be -1. Give a number for all but one of them.'
    )
  given = 1
  for size in sizes.values():
    given *= 1 if size == -1 else size
  count = len(devices)
  if rest and count % given == 0:
    sizes[rest[0]] = count // given
  elif rest or given != count:
    divisors = [n for n in range(1, count + 1) if count % n == 0]
    raise ValueError(
      f'mesh ({shown}) does not fit the {count} devices found '
      f'({devices[0].device_kind}): data * fsdp * tensor must be {count}, so '
      f'each size is one of {divisors}, or -1 for one of them. Set mesh.data, '
      'mesh.fsdp and mesh.tensor, or JAX_NUM_CPU_DEVICES on a CPU.'
    )
  # A mesh has Explicit axes unless told otherwise (jax 0.10).
  return Mesh(
    arranged(tuple(sizes.values()), devices),
    AXES,
    axis_types=(AxisType.Auto,) * len(AXES),
  )


def arranged(sizes: tuple[int, int, int], devices: Sequence) -> np.ndarray:
  """Devices as [data, fsdp, tensor], the busier an axis the nearer.

  Between slices (hosts of GPUs, or TPU slices) only `data` and then `fsdp` go:
  jax.make_mesh takes one slice. It also leaves a torus's axes whole, of which
  16 x 16 x 16 has none for tensor=8.

  Raises:
    ValueError: `tensor` would have to go between slices.
  """
  slices = len({getattr(device, 'slice_index', 0) for device in devices})
  if slices == 1:
    return mesh_utils.create_device_mesh(
      sizes, devices, allow_split_physical_axes=True
    )
  data, fsdp, tensor = sizes
  over_data = math.gcd(data, slices)
  over_fsdp = slices // over_data
  if fsdp % over_fsdp:
    raise ValueError(
      f'mesh.data={data} and mesh.fsdp={fsdp} do not cut {slices} slices '
      f'(hosts of GPUs, or TPU slices) of {len(devices) // slices} devices '
      'apart, and mesh.tensor does not go between them, where the network is '
      f'slow; make data * fsdp a multiple of {slices}.'
    )
  return mesh_utils.create_hybrid_device_mesh(
    (data // over_data, fsdp // over_fsdp, tensor),
    (over_data, over_fsdp, 1),
    devices,
    allow_split_physical_axes=True,
  )


def row_sharding(mesh: Mesh) -> NamedSharding:
  """Axis 0 over `data` and `fsdp`, all other axes whole; for any rank >= 1."""
  return NamedSharding(mesh, P(ROWS))


def replicated(mesh: Mesh) -> NamedSharding:
  """A whole copy on every device."""
  return NamedSharding(mesh, P())


def row_shards(mesh: Mesh) -> int:
  """Number of pieces the rows are split into."""
  return mesh.shape['data'] * mesh.shape['fsdp']


def check_rows(rows: int, mesh: Mesh) -> None:
  """Raises ValueError unless `rows` splits evenly over the mesh."""
  shards = row_shards(mesh)
  if rows % shards:
    raise ValueError(
      f'{rows} rows do not split over data={mesh.shape["data"]} x '
      f'fsdp={mesh.shape["fsdp"]}; rows must be a multiple of {shards}. Change '
      'prompts per step, the group size or the micro-batch, or move devices '
      'to mesh.tensor.'
    )


def put_rows(mesh: Mesh, tree, *, local: bool = False):
  """Host rows onto the mesh, split along axis 0.

  Args:
    mesh: from `make_mesh`.
    tree: arrays that lead with N; typed PRNG keys are welcome.
    local: False: every host passes all N rows and they are equal everywhere.
      True: a host passes only its own rows, in order of process index.

  Returns:
    The same tree of global arrays, sharded as `row_sharding(mesh)`.

  Raises:
    ValueError: N does not split evenly over the mesh.
  """
  sharding = row_sharding(mesh)

  def put(x):
    if isinstance(x, jax.Array) and jax.dtypes.issubdtype(
      x.dtype, jax.dtypes.prng_key
    ):
      data = put(jax.random.key_data(x))
      return jax.random.wrap_key_data(data, impl=jax.random.key_impl(x))
    x = np.asarray(x)
    check_rows(x.shape[0] * (jax.process_count() if local else 1), mesh)
    if local:
      return jax.make_array_from_process_local_data(sharding, x)
    return jax.make_array_from_callback(x.shape, sharding, lambda at: x[at])

  return jax.tree.map(put, tree)


def put_replicated(mesh: Mesh, tree):
  """Equal host arrays onto every device of the mesh, whole."""
  sharding = replicated(mesh)

  def put(x):
    x = np.asarray(x)
    return jax.make_array_from_callback(x.shape, sharding, lambda at: x[at])

  return jax.tree.map(put, tree)


def to_host(tree):
  """Global arrays as whole numpy arrays, on every host."""

  def get(x):
    if not isinstance(x, jax.Array) or x.is_fully_addressable:
      return np.asarray(x)
    if x.is_fully_replicated:
      return np.asarray(x.addressable_data(0))
    return np.asarray(multihost_utils.process_allgather(x, tiled=True))

  return jax.tree.map(get, tree)


def gather_json(value) -> list:
  """What each host says, by process index, on every host.

  Args:
    value: this host's; anything JSON holds. All hosts must call it together.
  """
  if jax.process_count() == 1:
    return [value]
  data = np.frombuffer(json.dumps(value).encode(), np.uint8)
  sizes = multihost_utils.process_allgather(np.int32(data.size))
  padded = np.zeros(sizes.max(), np.uint8)
  padded[: data.size] = data
  said = multihost_utils.process_allgather(padded)
  return [json.loads(x[:size].tobytes()) for x, size in zip(said, sizes)]


def is_lead() -> bool:
  """True on the one process that writes files."""
  return jax.process_index() == 0

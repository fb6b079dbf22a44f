"""How a mesh cuts a kernel's arrays, and for what platform.

The partitioner cannot cut a Pallas call, so a kernel runs in a shard_map over
all axes of the mesh: one axis (`tensor`) cuts heads or vocabulary, all others
cut rows.
"""

import math
from typing import NamedTuple

import jax


class Cuts(NamedTuple):
  """The mesh as a kernel sees it."""

  mesh: jax.sharding.Mesh | jax.sharding.AbstractMesh
  platform: str  # 'cpu', 'tpu' or 'gpu'
  names: frozenset[str]  # the axes that are not manual already
  row_axes: tuple[str, ...]  # those of size above 1 that cut rows
  rows: int  # devices over rows
  inner: int  # devices over the one other axis

  @property
  def whole(self) -> bool:
    """True where nothing is cut."""
    return not self.row_axes and self.inner == 1

  def shard_map(self, function, in_specs, out_specs):
    """`function` on each device's part."""
    return jax.shard_map(
      function,
      mesh=self.mesh,
      in_specs=in_specs,
      out_specs=out_specs,
      # Of size 1 too: neither Mosaic nor the interpreter takes a partial cut.
      axis_names=set(self.names),
      check_vma=False,
    )


def of_mesh(mesh: jax.sharding.Mesh | None, inner_axis: str) -> Cuts:
  """The cuts of `mesh`, or of the active one where that is None.

  Axes that are manual, as inside a caller's own shard_map, cut nothing more.
  """
  mesh = mesh or jax.sharding.get_abstract_mesh()
  kinds = dict(zip(mesh.axis_names, mesh.axis_types))
  manual = jax.sharding.AxisType.Manual
  sizes = {k: mesh.shape[k] for k, kind in kinds.items() if kind != manual}
  names = frozenset(sizes)
  inner = sizes.pop(inner_axis, 1)
  row_axes = tuple(k for k, size in sizes.items() if size > 1)
  rows = math.prod(sizes.values())
  return Cuts(mesh, platform_of(mesh), names, row_axes, rows, inner)


def platform_of(mesh) -> str:
  """The platform of the mesh's devices, or the default one's.

  A mesh of described devices is a compile for a machine that is not here.
  """
  if isinstance(mesh, jax.sharding.Mesh) and not mesh.empty:
    device = mesh.devices.flat[0]
  else:
    device = getattr(mesh, 'abstract_device', None)
  platform = device.platform if device else jax.default_backend()
  return 'gpu' if platform in ('cuda', 'rocm') else platform

"""Where each weight lies: one table of (path regex, PartitionSpec).

A spec is written for one layer's leaf and covers its *last* dimensions, so the
same line serves the stacked tree ([L, ...], L whole), the per-layer trees of
decoding, and the moments of the optimizer, whose paths end as their
parameter's does. The model knows nothing of this but one hook, `constrain`.
"""

from collections.abc import Callable
from collections.abc import Sequence
import functools
import re

from absl import logging
import jax
from jax.sharding import Mesh
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

from tandem.training import mesh as meshes

Table = Sequence[tuple[str, P]]

# What is not a weight: a loss's controller and other small state.
_STATE = (r'(^|/)loss_state/.*$', P())
# One path of a layer's leaf, in a stack (`layers/q`) or a list (`layers/3/q`).
_LAYER = r'(^|/)layers/(\d+/)?'

# Update: `fsdp` splits D, `tensor` splits heads, hidden and vocabulary, so a
# matrix product needs one reduction per block and no weight is held twice.
PARAMS: Table = (
  _STATE,
  (r'(^|/)embed$', P('tensor', 'fsdp')),  # [V, D]
  (r'(^|/)head$', P('fsdp', 'tensor')),  # [D, V]
  (_LAYER + r'[qkv]$', P('fsdp', 'tensor', None)),  # [D, Q|K, H]
  (_LAYER + r'[qkv]_bias$', P('tensor', None)),  # [Q|K, H]
  (_LAYER + r'o$', P('tensor', None, 'fsdp')),  # [Q, H, D]
  (_LAYER + r'(gate|up)$', P('fsdp', 'tensor')),  # [D, F]
  (_LAYER + r'down$', P('tensor', 'fsdp')),  # [F, D]
  (r'(^|/)\w*norm$', P(None)),  # [D] or [H]
)

# Rollout: whole over `fsdp`, because a shard there would be gathered again for
# every token; memory is divided by `tensor` only.
DECODE: Table = tuple(
  (path, P(*(axis if axis == 'tensor' else None for axis in spec)))
  for path, spec in PARAMS
)

# Hidden states between blocks, and what has one number per token.
ACTIVATIONS = {
  'btd': P(meshes.ROWS, None, None),  # [N, S, D]
  'bt': P(meshes.ROWS, None),  # [N, S]
}


@functools.cache
def _say_once(message: str) -> None:
  logging.warning('%s', message)


def _axis_size(axis, mesh: Mesh) -> int:
  size = 1
  for name in (axis,) if isinstance(axis, str) else axis or ():
    size *= mesh.shape[name]
  return size


def spec_for(path: str, shape: tuple[int, ...], mesh: Mesh, table: Table) -> P:
  """The spec of one leaf; an axis that does not divide is left out.

  Args:
    path: keys joined by '/', as `opt_state/1/mu/layers/q`.
    shape: the leaf's shape.
    mesh: from `make_mesh`.
    table: (regex, spec of the last dimensions); the first match serves.

  Raises:
    ValueError: no line matches, or the spec is longer than the shape.
  """
  if not shape:
    return P()
  found = ((re.search(regex, path), spec) for regex, spec in table)
  match, spec = next((one for one in found if one[0]), (None, None))
  if match is None:
    raise ValueError(
      f'no line of the sharding table matches {path!r} of shape {shape}; known '
      f'paths: {[regex for regex, _ in table]}. Add a line to the table in '
      'tandem/training/sharding.py.'
    )
  if len(spec) > len(shape):
    raise ValueError(
      f'{path!r} has shape {shape} but its line in the sharding table names '
      f'{len(spec)} dimensions, {spec}; mend the table or the leaf.'
    )
  axes = [None] * (len(shape) - len(spec)) + list(spec)
  name = re.sub(r'/\d+/', '/', match.group().strip('/'))
  for at, axis in enumerate(axes):
    size = _axis_size(axis, mesh)
    if shape[at] % size:
      axes[at] = None
      _say_once(
        f'{name}: dimension {at - len(shape)} of size {shape[at]} does not '
        f'divide over {axis}={size}; it is held whole on that axis.'
      )
  return P(*axes)


def shardings_for(tree, mesh: Mesh, table: Table = PARAMS):
  """A NamedSharding for every leaf of a tree of arrays or shapes.

  Args:
    tree: arrays or `jax.ShapeDtypeStruct`s: parameters (stacked or a list of
      layers), an optimizer state, or a whole TrainState.
    mesh: from `make_mesh`.
    table: PARAMS to train, DECODE to roll out.

  Raises:
    ValueError: a leaf that no line of the table matches.
  """

  def one(path, leaf):
    path = jax.tree_util.keystr(path, simple=True, separator='/')
    return NamedSharding(mesh, spec_for(path, leaf.shape, mesh, table))

  return jax.tree_util.tree_map_with_path(one, tree)


def with_shardings(shapes, shardings):
  """ShapeDtypeStructs that carry their sharding: what a restore is given."""
  return jax.tree.map(
    lambda x, s: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=s),
    shapes,
    shardings,
  )


def init_sharded(init: Callable, mesh: Mesh, *args, table: Table = PARAMS):
  """Runs `init(*args)` so that each leaf is born on its own shards."""
  shapes = jax.eval_shape(init, *args)
  return jax.jit(init, out_shardings=shardings_for(shapes, mesh, table))(*args)


def constrain(mesh: Mesh) -> Callable[[jax.Array, str], jax.Array]:
  """The hook that models take: `constrain(x, 'btd')` pins x's layout.

  Raises (the hook): ValueError on a name that is not in ACTIVATIONS.
  """

  def hook(x: jax.Array, name: str) -> jax.Array:
    if name not in ACTIVATIONS:
      raise ValueError(
        f'no activation layout named {name!r}; known: {sorted(ACTIVATIONS)}.'
      )
    return jax.lax.with_sharding_constraint(
      x, NamedSharding(mesh, ACTIVATIONS[name])
    )

  return hook

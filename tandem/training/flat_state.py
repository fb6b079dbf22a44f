"""A state as {path: array}, which is how it is stored."""

from collections.abc import Mapping

import jax


def _is_key(x) -> bool:
  return jax.dtypes.issubdtype(x.dtype, jax.dtypes.prng_key)


def flatten(tree) -> dict:
  """{path joined by '.': leaf}; ValueError if two leaves have one path."""
  leaves, _ = jax.tree_util.tree_flatten_with_path(tree)
  flat = {
    jax.tree_util.keystr(path, simple=True, separator='.'): leaf
    for path, leaf in leaves
  }
  if len(flat) != len(leaves):
    raise ValueError('two leaves of the state have one path; rename a key.')
  return flat


def stored(tree) -> dict:
  """What is written: plain arrays; typed keys as their words."""
  return {
    name: jax.random.key_data(x) if _is_key(x) else x
    for name, x in flatten(tree).items()
  }


def wanted(abstract) -> dict:
  """What to ask for: shape, dtype and sharding of each stored array.

  Raises:
    ValueError: a typed key that is not whole on every device.
  """

  def one(x):
    sharding = getattr(x, 'sharding', None)
    if sharding is None:
      sharding = jax.sharding.SingleDeviceSharding(jax.local_devices()[0])
    if _is_key(x):
      x = jax.eval_shape(jax.random.key_data, x)
      if not sharding.is_fully_replicated:
        raise ValueError('a sharded typed key cannot be restored; store seeds.')
    return jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=sharding)

  return {name: one(x) for name, x in flatten(abstract).items()}


def unflatten(abstract, flat: Mapping):
  """The tree of `abstract` again, from what was stored."""
  treedef = jax.tree.structure(abstract)
  leaves = [
    jax.random.wrap_key_data(flat[name], impl=jax.random.key_impl(x))
    if _is_key(x)
    else flat[name]
    for name, x in flatten(abstract).items()
  ]
  return jax.tree.unflatten(treedef, leaves)

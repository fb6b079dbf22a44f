"""A cache made longer, and the end of one."""

from collections.abc import Callable

import jax
import jax.numpy as jnp

from tandem.models import cache as cache_lib

TILE = 16  # rows of a bfloat16 tile


def _axis(layer: cache_lib.LayerCache) -> int:
  return 1 if layer.layout == 'slots' else 2


def _suffixes(
  layer: cache_lib.LayerCache, change: Callable[[jax.Array, int], jax.Array]
) -> cache_lib.LayerCache:
  """The layer with change(x, axis of its slots) for each x of its suffix."""
  axis = _axis(layer)
  names, scales = ('suffix_k', 'suffix_v'), layer.scales
  if scales is not None:
    scales = scales | {name: change(scales[name], axis) for name in names}
  new = {name: change(getattr(layer, name), axis) for name in names}
  return layer.replace(**new, scales=scales)


def grow(cache: cache_lib.Cache, slots: int) -> cache_lib.Cache:
  """The same with `slots` suffix slots per row; the new ones are empty.

  One copy of every suffix. A loop reads all slots that there are, so a decode
  program whose responses may be long runs as a chain of loops, each over a
  larger cache than the last, and short responses never pay for the long ones.

  Raises:
    ValueError: fewer slots than there are.
  """

  def padded(x, axis):
    more = slots - x.shape[axis]
    if more < 0:
      raise ValueError(
        f'slots={slots} is fewer than the {x.shape[axis]} that the cache has; '
        'a cache only grows.'
      )
    return jnp.pad(x, [(0, more if i == axis else 0) for i in range(x.ndim)])

  layers = tuple(_suffixes(layer, padded) for layer in cache.layers)
  return cache.replace(layers=layers)


def tail(
  cache: cache_lib.Cache, end: jax.Array, last: int, more: int
) -> cache_lib.Cache:
  """A copy in which each row has its prompt and its last tokens only.

  For drafts, which need be likely and not exact: after 3,000 tokens, a pass
  over the last 256 of each row reads a twelfth of the cache. It may serve while
  `fits` says so: what is written into it need not be exact either.

  Args:
    cache: where no row has been cut off yet.
    end: [N] int32; tokens that each row has.
    last: how many of them are kept, at least.
    more: slots after them, to be written.

  Source: the window and the first tokens are those of StreamingLLM (arXiv
  2309.17453); drafting with them is MagicDec's (arXiv 2408.11049).
  """

  def cut(x, axis):
    take = lambda row, first: jax.lax.dynamic_slice_in_dim(
      row, first, size, axis - 1
    )
    return jax.vmap(take)(x, first)

  layer, size = cache.layers[0], last + more
  if layer.layout == 'slots':
    # Else a TPU copies what its kernel reads, in every pass.
    size = -(-size // TILE) * TILE
  slots = layer.suffix_k.shape[_axis(layer)]
  size = min(size, slots)
  first = jnp.clip(end + more - size, 0, slots - size)
  layers = tuple(_suffixes(layer, cut) for layer in cache.layers)
  return cache.replace(layers=layers, first=first)


def fits(
  tail: cache_lib.Cache, slots: int, at: jax.Array, count: int
) -> jax.Array:
  """[N] bool: whether a row's next `count` tokens, from `at` [N] on, fit a tail.

  True, too, where the tail ends with the cache that it was cut from, which has
  `slots`: no other tail could hold more.
  """
  size = tail.layers[0].suffix_k.shape[_axis(tail.layers[0])]
  return (at + count <= tail.first + size) | (tail.first + size >= slots)

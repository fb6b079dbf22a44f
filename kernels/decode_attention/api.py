"""Attention of a few queries a row over prompt and suffix; see `parts`."""

import functools

import chex
import jax
import jax.numpy as jnp

from tandem.kernels.decode_attention import pallas_gpu
from tandem.kernels.decode_attention import pallas_tpu
from tandem.kernels.decode_attention import parts
from tandem.kernels.decode_attention import reference
from tandem.kernels.decode_attention import xla
from tandem.kernels.placement import cuts as cuts_lib

Array = jax.Array

LAYOUTS = ('heads', 'slots')
PLATFORMS = ('tpu', 'gpu')
IMPLEMENTATIONS = (
  'xla',
  'pallas_tpu',
  'pallas_tpu_interpret',
  'pallas_gpu',
  'pallas_gpu_interpret',
  'reference',
)


def decode_attention(
  q: Array,
  prefix_k: Array,
  prefix_v: Array,
  suffix_k: Array,
  suffix_v: Array,
  prefix_lengths: Array,
  slots: Array,
  *,
  layout: str,
  owner: Array | None = None,
  lanes: int = 1,
  implementation: str | None = None,
  mesh: jax.sharding.Mesh | None = None,
  head_axis: str = 'tensor',
) -> Array:
  """Softmax attention over a row's prompt and its own suffix.

  Shapes of keys and values are those of layout `heads`; in layout `slots` axes
  1 and 2 are exchanged. Under a mesh (active, or `mesh`) a Pallas kernel runs
  on each device's part: heads cut over `head_axis`, rows and prompts over all
  other axes. With `owner` each device needs all prompts, unless lanes keep those
  of its rows on it: they are gathered, in every call, unless they lie whole on
  every device. XLA needs no telling.

  Args:
    q: [N, C, Q, H], rotated; heads of one key head adjacent.
    prefix_k, prefix_v: [B, K, P, H] the prompts'.
    suffix_k, suffix_v: [N, K, S, H] the rows' own, those of q written.
    prefix_lengths: [B] int32; visible slots of each prompt.
    slots: [N, C] int32; a query sees suffix slots up to its own.
    layout: one of LAYOUTS.
    owner: [N] int32, the prompt of each row, the nearest where there is none;
      None where the rows of a prompt are adjacent and N / B in number. Then a
      prompt is read once for them.
    lanes: L; rows and prompts are cut into L equal runs, and the owner of a row
      is a prompt of its own run.
    implementation: one of IMPLEMENTATIONS, or None: XLA's. The Pallas kernels
      are checked by interpreter and compiler only, so they run where they are
      asked for by name.
    mesh: the mesh, where none is active.
    head_axis: the mesh axis over which heads are cut.

  Returns:
    [N, C, Q, H] in q's dtype; zero where a query sees nothing.

  Raises:
    ValueError: shapes disagree, or an unknown layout or implementation.
    NotImplementedError: the implementation named cannot run here.
  """
  if implementation not in (None, *IMPLEMENTATIONS):
    raise ValueError(
      f'implementation={implementation!r} is unknown; it may be None, '
      f'{", ".join(map(repr, IMPLEMENTATIONS))}.'
    )
  _check_shapes(
    q, prefix_k, suffix_k, prefix_lengths, slots, owner, layout=layout
  )
  chex.assert_equal_shape([prefix_k, prefix_v])
  chex.assert_equal_shape([suffix_k, suffix_v])
  arrays = q, prefix_k, prefix_v, suffix_k, suffix_v, prefix_lengths, slots
  if implementation == 'reference':
    if layout == 'heads':
      arrays = (q, *(jnp.swapaxes(x, 1, 2) for x in arrays[1:5]), *arrays[5:])
    if owner is None:
      b = prefix_lengths.shape[0]
      owner = jnp.repeat(jnp.arange(b), q.shape[0] // b)
    return reference.decode_attention(*arrays, owner).astype(q.dtype)
  if implementation in (None, 'xla'):
    return _attend(xla.partial, layout, *arrays, owner)
  interpret = implementation.endswith('interpret')
  kernel = pallas_gpu if implementation.startswith('pallas_gpu') else pallas_tpu
  partial = functools.partial(kernel.partial, interpret=interpret)
  return _on_shards(
    partial, layout, arrays, owner, lanes, implementation, mesh, head_axis
  )


def _check_shapes(q, prefix, suffix, lengths, slots, owner, *, layout):
  if layout not in LAYOUTS:
    raise ValueError(
      f'layout={layout!r} is unknown; one of {", ".join(LAYOUTS)}.'
    )
  head_axis = 2 if layout == 'slots' else 1
  rows, heads, kv = q.shape[0], q.shape[2], suffix.shape[head_axis]
  fits = (
    prefix.shape[head_axis] == kv
    and heads % kv == 0
    and suffix.shape[0] == rows
    and prefix.shape[0] == lengths.shape[0]
    and slots.shape == q.shape[:2]
    and q.shape[3] == prefix.shape[3] == suffix.shape[3]
    and (owner.shape == (rows,) if owner is not None else True)
    and (owner is not None or rows % lengths.shape[0] == 0)
  )
  if not fits:
    raise ValueError(
      f'q {q.shape} [N, C, Q, H], prompts {prefix.shape}, rows {suffix.shape} '
      f'of layout {layout!r}, lengths {lengths.shape} [B], slots {slots.shape} '
      f'[N, C], owner {None if owner is None else owner.shape} [N] do not fit '
      'each other; Q must be a multiple of K, and without owner N one of B.'
    )


def _attend(
  partial,
  layout,
  q,
  prefix_k,
  prefix_v,
  suffix_k,
  suffix_v,
  lengths,
  slots,
  owner,
):
  prefix = partial(
    parts.of_prefix(q, lengths, owner), prefix_k, prefix_v, layout=layout
  )
  suffix = partial(parts.of_suffix(q, slots), suffix_k, suffix_v, layout=layout)
  return parts.merge(prefix, suffix, q.shape, q.dtype)


def _on_shards(
  partial, layout, arrays, owner, lanes, implementation, mesh, head_axis
) -> Array:
  """`_attend` by a Pallas call, which the partitioner cannot cut."""
  cuts = cuts_lib.of_mesh(mesh, head_axis)
  k, lengths = arrays[1], arrays[5]
  kv = k.shape[2 if layout == 'slots' else 1]

  def refuse(reason):
    raise NotImplementedError(
      f'implementation={implementation!r} cannot run: {reason}; take None or '
      "'xla'."
    )

  if kv % cuts.inner:
    refuse(f'K={kv} heads do not divide over {head_axis}={cuts.inner}')
  cut_entries = {'B': lengths.shape[0]} if owner is None else {}
  for name, size in (cut_entries | {'N': arrays[0].shape[0]}).items():
    if size % cuts.rows:
      refuse(f'{name}={size} does not divide over {cuts.row_axes}')
  reasons = []
  if implementation in ('pallas_tpu', 'pallas_gpu'):
    wanted = implementation.removeprefix('pallas_')
    if cuts.platform != wanted:
      reasons.append(
        f'it is compiled for {wanted}, and the arrays are on {cuts.platform}'
      )
  if arrays[0].dtype != k.dtype:
    reasons.append(f'queries are {arrays[0].dtype} and the cache is {k.dtype}')
  devices = cuts.rows * cuts.inner
  if implementation.startswith('pallas_gpu'):
    reasons += [pallas_gpu.unfit(x, devices, layout) for x in arrays[1:4:2]]
  else:
    whole_tiles = implementation == 'pallas_tpu'
    reasons += [
      pallas_tpu.unfit(x, kv // cuts.inner, layout, whole_tiles)
      for x in arrays[1:4:2]
    ]
  for reason in filter(None, reasons):
    refuse(reason)
  attend = functools.partial(_attend, partial, layout)
  if cuts.whole:
    return attend(*arrays, owner)
  rows = cuts.row_axes or None
  entries = lengths.shape[0]
  apart = owner is not None and not (lanes % cuts.rows or entries % cuts.rows)
  if apart:  # each device's rows own prompts that it has
    owner = jnp.clip(owner, 0, entries - 1) % (entries // cuts.rows)
  heads = head_axis if cuts.inner > 1 else None
  queries = jax.P(rows, None, heads)

  def keys(cut):
    by_slots = layout == 'slots'
    return jax.P(cut, None, heads) if by_slots else jax.P(cut, heads)

  prompts = rows if owner is None or apart else None
  specs = (
    queries,
    *[keys(prompts)] * 2,
    *[keys(rows)] * 2,
    jax.P(prompts),
    jax.P(rows),
    jax.P(rows),
  )
  return cuts.shard_map(attend, specs, queries)(*arrays, owner)

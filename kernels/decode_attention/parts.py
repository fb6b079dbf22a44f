"""What the backends share: attention over one store of keys, and the merge.

A query's keys lie in two stores, its prompt's and its row's own. A backend is
one function `partial` over a single store, called for each; the two results
are merged by their log-sum-exp. So a prompt is read once for all its rows: in
the call over the prompts, the queries of a whole group are one batch entry.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp

Array = jax.Array

# Largest score before any is seen: finite, as inf - inf would be a NaN.
START = -1e30
# A score that weighs exp(MASKED - START) = 0 even where nothing is visible.
MASKED = -2e30


class Queries(NamedTuple):
  """X batch entries of R queries each, against one store of X' entries."""

  q: Array  # [X, R, H]; a query's head is its row modulo Q
  limits: Array  # [X, R] int32; a query sees slots below its limit
  owner: (
    Array | None
  )  # [X] int32; the store's entry that each reads, or its own
  heads: int  # Q


class Part(NamedTuple):
  """A softmax in pieces: sum_s exp(score_s - top) v_s, and its like for 1."""

  out: Array  # [X, R, H] float32
  top: Array  # [X, R] float32
  total: Array  # [X, R] float32


def of_prefix(q: Array, prefix_lengths: Array, owner: Array | None) -> Queries:
  """The queries [N, C, Q, H] as they meet the prompts; see Queries."""
  n, c, heads, h = q.shape
  entries, limits = prefix_lengths.shape[0], prefix_lengths
  if owner is not None:
    # A kernel would read beyond the store.
    owner = jnp.clip(owner, 0, entries - 1)
    entries, limits = n, prefix_lengths[owner]
  q = q.reshape(entries, n // entries * c * heads, h)
  limits = jnp.broadcast_to(limits[:, None], q.shape[:2])
  return Queries(q, limits, owner, heads)


def of_suffix(q: Array, slots: Array) -> Queries:
  """The queries [N, C, Q, H] as they meet their rows' own slots."""
  n, c, heads, h = q.shape
  limits = jnp.repeat(slots + 1, heads, axis=1)
  return Queries(q.reshape(n, c * heads, h), limits, None, heads)


def merge(a: Part, b: Part, shape: tuple[int, ...], dtype) -> Array:
  """The attention over both stores, of `shape` [N, C, Q, H]; 0 of nothing."""
  rows = lambda x: x.reshape(shape[:-1])
  top = jnp.maximum(rows(a.top), rows(b.top))
  out, total = 0.0, 0.0
  for part in (a, b):
    weight = jnp.exp(rows(part.top) - top)
    out += part.out.reshape(shape) * weight[..., None]
    total += rows(part.total) * weight
  total = total[..., None]
  out = jnp.where(total > 0, out / jnp.where(total > 0, total, 1.0), 0.0)
  return out.astype(dtype)

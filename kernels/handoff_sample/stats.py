"""What one pass over the vocabulary leaves, and what is made of it.

A part of the vocabulary, be it a tile, a program's share or a device's, leaves
per row and model the numbers of `Stats`. Two parts join to those of both, so
no order of parts, and no second pass, is needed: the token is not known before
the end, but it is the proposal of one of the two models, and each proposal
carries both models' logits.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp

Array = jax.Array

# Largest score before any is seen: finite, as inf - inf would be a NaN.
START = -1e30


class Stats(NamedTuple):
  """One model over a part of the vocabulary; arrays of one shape, float32."""

  best: Array  # largest score + noise
  token: Array  # int32; where it is, the first of equals
  own: Array  # this model's logit there
  other: Array  # the other model's
  top: Array  # largest logit, and
  total: Array  # sum of exp(logit - top)
  law_top: Array  # the same of the scores
  law_total: Array


class Rule(NamedTuple):
  """What is static."""

  temperature: float  # 0: greedy
  filtered: bool  # logits below `least` are left out
  vocab: int  # V of the (local) logits

  @property
  def plain(self) -> bool:
    """True where the law is the logits' own."""
    return self.temperature in (0, 1) and not self.filtered


FIELDS = len(Stats._fields)


def start(shape: tuple[int, ...]) -> Stats:
  """Of nothing."""
  zero, low = jnp.zeros(shape), jnp.full(shape, START)
  best = jnp.full(shape, -jnp.inf)
  token = jnp.zeros(shape, jnp.int32)
  return Stats(best, token, zero, zero, low, zero, low, zero)


def score(rule: Rule, logits: Array, least: Array | None) -> Array:
  """Tempered logits, -inf where they are not kept."""
  scores = logits
  if rule.temperature not in (0, 1):
    scores = logits / rule.temperature
  return (
    jnp.where(logits >= least, scores, -jnp.inf) if rule.filtered else scores
  )


def _sums(x: Array) -> tuple[Array, Array]:
  top = jnp.maximum(x.max(-1, keepdims=True), START)
  return top, jnp.exp(x - top).sum(-1, keepdims=True)


def of_tile(
  rule: Rule,
  logits: Array,
  other: Array,
  least: Array | None,
  noise: Array | None,
  column: Array,
  inside: Array | None,
) -> Stats:
  """Stats of [R, C] entries, each [R, 1].

  Args:
    rule: what is static.
    logits: [R, C] float32 of this model.
    other: [R, C] float32 of the other one.
    least: [R, 1] float32, the least logit that is kept; None without filters.
    noise: [R, C] float32, or None where greedy.
    column: [R, C] int32, the vocabulary entry.
    inside: [R, C] bool; False past the end of the vocabulary. None: all True.
  """
  if inside is not None:
    logits = jnp.where(inside, logits, -jnp.inf)
  scores = score(rule, logits, least)
  noisy = scores if noise is None else scores + noise
  best = noisy.max(-1, keepdims=True)
  # The least entry, in float32, which holds it exactly: a TPU reduces no
  # integers over lanes.
  entry = column.astype(jnp.float32)
  token = jnp.where(noisy == best, entry, jnp.inf).min(-1, keepdims=True)
  chosen = entry == token
  at = lambda x: jnp.where(chosen, x, 0.0).sum(-1, keepdims=True)
  top, total = _sums(logits)
  law_top, law_total = (top, total) if rule.plain else _sums(scores)
  token = token.astype(jnp.int32)
  return Stats(
    best, token, at(logits), at(other), top, total, law_top, law_total
  )


def _join_sums(top, total, top2, total2):
  most = jnp.maximum(top, top2)
  return most, total * jnp.exp(top - most) + total2 * jnp.exp(top2 - most)


def join(rule: Rule, a: Stats, b: Stats) -> Stats:
  """Of two parts, `a` of the lower entries."""
  later = b.best > a.best
  pick = lambda x, y: jnp.where(later, y, x)
  sums = _join_sums(a.top, a.total, b.top, b.total)
  law = sums
  if not rule.plain:
    law = _join_sums(a.law_top, a.law_total, b.law_top, b.law_total)
  return Stats(*map(pick, a[:4], b[:4]), *sums, *law)


def fold(rule: Rule, stats: Stats) -> Stats:
  """Of parts [parts, ...] in ascending order: [...]."""
  part = lambda i: jax.tree.map(lambda x: x[i], stats)
  out = part(0)
  for i in range(1, stats.best.shape[0]):
    out = join(rule, out, part(i))
  return out

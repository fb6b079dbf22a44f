"""Slots: who sits where while more rows wait than decode at once.

A fixed batch of M slots serves N rows. When a row ends, the next waiting one
takes its slot in the same compiled loop, so no slot waits for the slowest row.
Noise belongs to a row and its position, so where and when a row is decoded
changes none of its tokens.
"""

import chex
from flax import struct
import jax
import jax.numpy as jnp


@struct.dataclass
class Seats:
  """The state of M slots."""

  row: jax.Array  # [M] int32; the row in each slot, N where there is none
  waiting: jax.Array  # [] int32; the first row that has not been seated


def seat(slots: int) -> Seats:
  """The first M rows, each in the slot of its number."""
  return Seats(jnp.arange(slots, dtype=jnp.int32), jnp.asarray(slots))


def refill(seats: Seats, free: jax.Array, rows: int) -> tuple[Seats, jax.Array]:
  """Gives free slots to waiting rows, in order.

  Args:
    seats: as they are.
    free: [M] bool; slots whose row has ended, or that had none.
    rows: N.

  Returns:
    The seats, and [M] bool: True where a row has just sat down.
  """
  chex.assert_equal_shape([seats.row, free])
  new = seats.waiting + jnp.cumsum(free) - 1
  fresh = free & (new < rows)
  row = jnp.where(free, jnp.minimum(new, rows), seats.row)
  return Seats(row.astype(jnp.int32), seats.waiting + fresh.sum()), fresh

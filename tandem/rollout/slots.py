"""Slots: who sits where while more rows wait than decode at once.

A fixed batch of M slots serves N rows. When a row ends, the next waiting one
takes its slot in the same compiled loop, so no slot waits for the slowest row.
Noise belongs to a row and its position, so where and when a row is decoded
changes none of its tokens.

Prompts, rows and slots may be cut into lanes, each with a queue of its own. On
a mesh that cuts rows, a row then only ever sits on the devices that hold its
prompt; with one queue for all, prompts travel in every layer of every step.
"""

import chex
from flax import struct
import jax
import jax.numpy as jnp


@struct.dataclass
class Seats:
  """The state of M slots in L lanes; a lane's slots, and rows, are adjacent."""

  row: jax.Array  # [M] int32; the row in each slot, N where there is none
  waiting: jax.Array  # [L] int32; rows of each lane that have been seated

  def rows(self, total: int) -> jax.Array:
    """[M] int32: the row in each slot, of N; its lane's last where none is."""
    slots, lanes = self.row.shape[0], self.waiting.shape[0]
    lane = jnp.arange(slots, dtype=jnp.int32) // (slots // lanes)
    return jnp.minimum(self.row, (lane + 1) * (total // lanes) - 1)


def seat(slots: int, prompts: int, group: int, lanes: int = 1) -> Seats:
  """The first rows of each lane, in its slots.

  Raises:
    ValueError: lanes does not divide slots and prompts.
  """
  if slots % lanes or prompts % lanes:
    raise ValueError(
      f'lanes={lanes} must divide slots={slots} and prompts={prompts}; 1 always '
      'does.'
    )
  rows = prompts * group
  first = jnp.arange(lanes, dtype=jnp.int32)[:, None] * (rows // lanes)
  row = first + jnp.arange(slots // lanes, dtype=jnp.int32)[None]
  return Seats(row.reshape(-1), jnp.full((lanes,), slots // lanes))


def refill(seats: Seats, free: jax.Array, rows: int) -> tuple[Seats, jax.Array]:
  """Gives free slots to waiting rows of their lane, in order.

  Args:
    seats: as they are.
    free: [M] bool; slots whose row has ended, or that had none.
    rows: N.

  Returns:
    The seats, and [M] bool: True where a row has just sat down.
  """
  chex.assert_equal_shape([seats.row, free])
  lanes = seats.waiting.shape[0]
  each = rows // lanes
  free = free.reshape(lanes, -1)
  new = seats.waiting[:, None] + jnp.cumsum(free, 1) - 1
  fresh = free & (new < each)
  new = jnp.where(fresh, jnp.arange(lanes)[:, None] * each + new, rows)
  row = jnp.where(free, new, seats.row.reshape(free.shape)).astype(jnp.int32)
  waiting = seats.waiting + fresh.sum(1)
  return Seats(row.reshape(-1), waiting), fresh.reshape(-1)

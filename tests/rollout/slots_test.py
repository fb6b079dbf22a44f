"""Every row gets a seat once, in its own lane, as soon as there is one."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tandem.rollout import slots as slots_lib


@pytest.mark.parametrize(
  'slots,prompts,group,lanes',
  [(3, 5, 2, 1), (4, 6, 3, 2), (6, 6, 2, 3), (2, 2, 5, 2), (8, 8, 1, 8)],
)
def test_a_queue_for_each_lane(slots, prompts, group, lanes):
  rows = prompts * group
  left = np.random.default_rng(0).integers(1, 6, rows)  # tokens of each row
  want = left.sum()
  queues = [
    list(range(lane * rows // lanes, (lane + 1) * rows // lanes))
    for lane in range(lanes)
  ]
  seated = [queues[i * lanes // slots].pop(0) for i in range(slots)]
  seats, served = slots_lib.seat(slots, prompts, group, lanes), 0
  refill = jax.jit(slots_lib.refill, static_argnums=2)
  while left.any():
    np.testing.assert_array_equal(
      seats.row, [rows if row is None else row for row in seated]
    )
    # Without a row, one of the same lane stands in for it.
    lane = np.asarray(seats.rows(rows)) // (rows // lanes)
    np.testing.assert_array_equal(lane, np.arange(slots) * lanes // slots)
    free, fresh = np.zeros(slots, bool), np.zeros(slots, bool)
    for i, row in enumerate(seated):
      if row is not None:
        left[row] -= 1
        served += 1
      if row is None or left[row] == 0:
        free[i], queue = True, queues[i * lanes // slots]
        fresh[i] = bool(queue)
        seated[i] = queue.pop(0) if queue else None
    seats, new = refill(seats, jnp.asarray(free), rows)
    np.testing.assert_array_equal(new, fresh)
  assert served == want and not any(queues)


def test_lanes_divide():
  with pytest.raises(ValueError, match='lanes=2 must divide slots=3 and prom'):
    slots_lib.seat(3, 4, 2, lanes=2)
  with pytest.raises(ValueError, match='lanes=4 must divide .* prompts=6'):
    slots_lib.seat(4, 6, 2, lanes=4)

"""Order is a function of (seed, cursor); padding is told by lengths."""

import numpy as np
import pytest

from tandem import types
from tandem.data import batches
from tandem.data import prompts


def some(count, lengths=(3,)):
  return [
    prompts.Prompt(
      types.Problem(id=str(n), text='', answer='1'),
      '',
      tuple(range(1, 1 + lengths[n % len(lengths)])),
    )
    for n in range(count)
  ]


def order(seed, start, stop, num):
  return [batches.problem_index(seed, c, num) for c in range(start, stop)]


def test_every_epoch_is_another_permutation():
  epochs = [order(0, 20 * e, 20 * e + 20, 20) for e in range(4)]
  for epoch in epochs:
    assert sorted(epoch) == list(range(20))
  assert len({tuple(epoch) for epoch in epochs}) == 4
  assert order(1, 0, 20, 20) != epochs[0]


def test_order_needs_no_history():
  whole = order(3, 0, 100, 7)
  for cursor in (99, 0, 50, 13, 51):
    batches._permutation.cache_clear()
    assert batches.problem_index(3, cursor, 7) == whole[cursor]


def test_resuming_at_a_cursor_reads_what_would_have_been_read():
  rows = some(7, lengths=(2, 5, 3))
  draw = lambda cursor, count: batches.draw(
    rows, seed=5, cursor=cursor, count=count, max_prompt=8
  )
  whole = draw(0, 18)  # across two ends of an epoch
  parts = [draw(cursor, 6) for cursor in (0, 6, 12)]
  for name in ('index', 'cursor', 'ids', 'lengths'):
    joined = np.concatenate([getattr(part, name) for part in parts])
    np.testing.assert_array_equal(joined, getattr(whole, name))
  assert whole.cursor.tolist() == list(range(18))
  assert [int(p.problem.id) for p in whole.prompts] == whole.index.tolist()


def test_a_batch_wider_than_the_data_repeats_it():
  batch = batches.draw(some(3), seed=0, cursor=0, count=6, max_prompt=4)
  assert sorted(batch.index[:3]) == sorted(batch.index[3:]) == [0, 1, 2]


def test_rows_are_padded_on_the_right():
  ids, lengths = batches.pad([[7, 8], [9], [0, 0, 1]], max_prompt=5)
  assert ids.dtype == lengths.dtype == np.int32
  assert ids.tolist() == [[7, 8, 0, 0, 0], [9, 0, 0, 0, 0], [0, 0, 1, 0, 0]]
  assert lengths.tolist() == [2, 1, 3]


@pytest.mark.parametrize(
  'longest, bucket, expected',
  [(1, 4, 4), (4, 4, 4), (5, 4, 8), (9, 4, 10), (10, 4, 10), (3, 0, 10)],
)
def test_padded_lengths_are_bucketed(longest, bucket, expected):
  assert (
    batches.padded_length(longest, max_prompt=10, bucket=bucket) == expected
  )


def test_what_cannot_be_drawn_is_refused():
  with pytest.raises(ValueError, match='cursor=-1'):
    batches.problem_index(0, -1, 5)
  with pytest.raises(ValueError, match='num_problems=0'):
    batches.draw([], seed=0, cursor=0, count=1, max_prompt=4)
  with pytest.raises(ValueError, match='11 tokens, more than the limit of 10'):
    batches.pad([[1] * 11], max_prompt=10, bucket=4)
  with pytest.raises(ValueError, match='each needs one'):
    batches.pad([[1], []], max_prompt=10)
  with pytest.raises(ValueError, match='bucket=-1'):
    batches.padded_length(3, max_prompt=10, bucket=-1)

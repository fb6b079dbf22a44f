"""A row's key is a function of its names alone (CASES 1)."""

import jax
import numpy as np
import pytest

from tandem.training import keys


def data(x):
  return np.asarray(jax.random.key_data(x))


def rows(draw, sample, purpose='train', step=3, seed=0):
  return data(
    keys.row_keys(seed, purpose, step, np.asarray(draw), np.asarray(sample))
  )


def test_split_and_order_of_the_batch_do_not_matter():
  draw = np.repeat(np.arange(4), 2)
  sample = np.tile(np.arange(2), 4)
  whole = rows(draw, sample)
  parts = [rows(draw[i : i + 2], sample[i : i + 2]) for i in range(0, 8, 2)]
  np.testing.assert_array_equal(whole, np.concatenate(parts))
  np.testing.assert_array_equal(whole[::-1], rows(draw[::-1], sample[::-1]))


def test_every_name_makes_a_difference():
  base = rows([5], [2])
  others = [
    rows([2], [5]),
    rows([5], [3]),
    rows([6], [2]),
    rows([5], [2], step=4),
    rows([5], [2], seed=1),
    *(rows([5], [2], purpose=p) for p in keys.PURPOSES if p != 'train'),
  ]
  for at, one in enumerate(others):
    assert (one != base).any(), at
  assert len({one.tobytes() for one in others}) == len(others)


def test_it_is_fold_in_and_nothing_else():
  want = jax.random.key(7)
  for number in (keys.PURPOSES['eval'], 11, 4, 1):
    want = jax.random.fold_in(want, number)
  got = rows([4], [1], purpose='eval', step=11, seed=7)
  np.testing.assert_array_equal(got[0], data(want))


def test_numbers_are_history():
  assert keys.PURPOSES['train'] == 0 and keys.PURPOSES['eval'] == 1
  assert len(set(keys.PURPOSES.values())) == len(keys.PURPOSES)


def test_no_retrace_on_the_next_step():
  rows([1, 2], [0, 1], step=1)
  before = keys._rows._cache_size()
  rows([3, 4], [0, 1], step=2)
  assert keys._rows._cache_size() == before


def test_unknown_purpose_and_bad_seed():
  with pytest.raises(ValueError, match='warm_start'):
    keys.root_key(0, 'training')
  with pytest.raises(ValueError, match='seed=-1'):
    keys.root_key(-1, 'train')

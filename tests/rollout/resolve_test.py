"""The walk along a draft, on scripted models, against one token at a time."""

import functools
import hashlib

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tandem.rollout import naive as naive_lib
from tandem.rollout import resolve as resolve_lib
from tandem.rollout import sampling as sampling_lib
from tandem.rollout import turns as turns_lib
from tests import fakes
from tests.rollout import lockstep_test

VOCAB, EOS, LIMIT, ROWS, DRAFT = 7, 6, 24, 6, 4
BOUNDARY = np.array([0, 1, 0, 1, 0, 0, 0], bool)


@functools.cache
def script(row, prefix):
  """(senior, junior, look-up) at one position: they agree now and then."""
  draw = lambda salt: int.from_bytes(
    hashlib.sha1(repr((row, prefix, salt)).encode()).digest()[:4], 'big'
  )
  s, j = draw('s') % 100, draw('j') % 100
  senior = EOS if s < 3 else s % (VOCAB - 1)
  junior = senior if j < 75 else (EOS if j > 96 else j % (VOCAB - 1))
  return senior, junior, senior if draw('l') % 3 else 0


def one_at_a_time(turns, row, key):
  def model(which):
    return lambda ids: np.eye(VOCAB)[script(row, tuple(ids[1:]))[which]]

  return naive_lib.naive(
    model(0),
    model(1),
    [0],
    key,
    BOUNDARY,
    max_tokens=LIMIT,
    eos_ids=(EOS,),
    turns=turns,
    sampling=sampling_lib.Sampling(temperature=0),
  )


def in_rounds(turns, keys, drafter, bonus=None):
  """Rounds of DRAFT positions; `drafter` indexes the script's three.

  With a bonus the other of the pair speaks at one more, the drafter nonsense.
  """
  width = DRAFT + (bonus is not None)
  coin = jax.jit(sampling_lib.coins, static_argnums=2)
  coins = np.stack(
    [
      np.asarray(coin(keys, np.full(ROWS, t, np.int32), turns.p))
      for t in range(LIMIT + width + 1)
    ],
    1,
  )
  resolve = jax.jit(
    functools.partial(resolve_lib.resolve, bonus=bonus), static_argnums=0
  )
  state = turns_lib.start(turns, jnp.asarray(coins[:, 0]))
  tokens, authors = [[] for _ in keys], [[] for _ in keys]
  done, rounds = np.zeros(ROWS, bool), np.zeros(ROWS, int)
  while not done.all():
    said = np.zeros((4, ROWS, width), np.int32)  # inputs, senior, junior, guess
    for row in range(ROWS):
      path = tuple(tokens[row])
      for i in range(width):
        said[0, row, i] = path[-1] if path else 0
        said[1:, row, i] = script(row, path)
        path += (int(said[1 + drafter, row, i]),)
      if bonus:
        said[1 + drafter, row, -1] = EOS
    t = np.array([len(x) for x in tokens], np.int32)
    got = resolve(
      turns,
      state,
      jnp.asarray(~done),
      jnp.asarray(LIMIT - t),
      *map(jnp.asarray, said[:3]),
      jnp.asarray(BOUNDARY),
      jnp.asarray([EOS]),
      jnp.asarray(np.stack([c[i : i + width + 1] for c, i in zip(coins, t)])),
    )
    emit = np.asarray(got.emit)
    for row in range(ROWS):
      size = int(emit[row].sum())
      assert emit[row, :size].all() and (size > 0) == (not done[row])
      tokens[row] += np.asarray(got.tokens)[row, :size].tolist()
      authors[row] += np.asarray(got.author)[row, :size].tolist()
    if bonus:  # its drafter has the record of the token still to make
      last = emit[:, -1]
      assert not (np.asarray(got.ended) & last).any()
      assert (t + emit.sum(1) < LIMIT)[last].all()
    rounds += ~done
    np.testing.assert_array_equal(got.counts.rounds, ~done)
    done |= np.asarray(got.ended) | (t + emit.sum(1) >= LIMIT)
    state = got.turn
  return tokens, authors, rounds


@pytest.mark.parametrize('name', lockstep_test.SCHEDULES)
def test_equals_one_at_a_time(name):
  turns, keys = lockstep_test.SCHEDULES[name], fakes.row_keys(ROWS)
  expected = [one_at_a_time(turns, row, keys[row]) for row in range(ROWS)]
  for drafter in range(3):
    tokens, authors, rounds = in_rounds(turns, keys, drafter)
    assert tokens == [row.tokens for row in expected]
    assert authors == [row.author for row in expected]
    # Drafts are taken, and are not all taken.
    sizes = np.array([len(row.tokens) for row in expected])
    assert (rounds < sizes).any() and (rounds > -(-sizes // DRAFT)).any()


@pytest.mark.parametrize(
  'name', sorted({*lockstep_test.SCHEDULES} - {'strict_word'})
)
def test_a_bonus_is_the_holders(name):
  turns, keys = lockstep_test.SCHEDULES[name], fakes.row_keys(ROWS)
  expected = [one_at_a_time(turns, row, keys[row]) for row in range(ROWS)]
  saved = 0
  for drafter, bonus in ((0, 'junior'), (1, 'senior')):
    tokens, authors, rounds = in_rounds(turns, keys, drafter, bonus)
    assert tokens == [row.tokens for row in expected]
    assert authors == [row.author for row in expected]
    saved += (in_rounds(turns, keys, drafter)[2] - rounds).sum()
  # Where turns alternate, four positions on it is the same one's turn.
  assert saved > 0 or name == 'alternating'

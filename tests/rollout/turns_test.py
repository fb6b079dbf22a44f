"""Turns: against a plain-Python machine, and METHODS 8's identities."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tandem.rollout import sampling
from tandem.rollout import turns as turns_lib

Turns = turns_lib.Turns
CAPS = (1, 2, 5, 32)
RULES = tuple(
  [Turns('word', cap=k, cap_rule=r) for k in CAPS for r in ('code', 'paper')]
  + [Turns('chunk', chunk=k) for k in CAPS]
  + [Turns('step', step_mode=m) for m in ('strict', 'stochastic')]
  + [Turns(s) for s in ('strict_word', 'token', 'alternating')]
  + [
    Turns(s, first=f) for s in turns_lib.SCHEDULES for f in ('senior', 'junior')
  ]
)


def naive_turns(rule, senior_starts, junior_starts, coins):
  """One row's authors, written from METHODS 2.2 alone; plain lists."""
  first = {'coin': coins[0], 'senior': True, 'junior': False}[rule.first]
  authors = []
  holder, c = first, 0
  for t in range(len(coins)):
    coin_next = coins[t + 1] if t + 1 < len(coins) else False
    if rule.schedule == 'strict_word':
      if t > 0:
        own, partner = senior_starts[t], junior_starts[t]
        if not holder:
          own, partner = partner, own
        # A hand-over that the partner cannot begin a word with is declined.
        if own and coins[t] != holder and partner:
          holder = coins[t]
      authors.append(holder)
      continue
    authors.append(holder)
    boundary = senior_starts[t] if holder else junior_starts[t]
    if rule.schedule == 'word' and rule.cap_rule == 'code':
      c += 1
      if boundary or c >= rule.cap:
        holder, c = coin_next, 0
    elif rule.schedule == 'word':
      if boundary or c >= rule.cap:
        holder, c = coin_next, 0
      else:
        c += 1
    elif rule.schedule == 'token':
      holder = coin_next
    elif rule.schedule == 'alternating':
      holder = not holder
    elif rule.schedule == 'chunk':
      holder = ((t + 1) // rule.chunk) % 2 == (0 if first else 1)
    elif boundary:  # step
      holder = (not holder) if rule.step_mode == 'strict' else coin_next
  return authors


@functools.partial(jax.jit, static_argnums=0)
def run(rules, senior_starts, junior_starts, coins):
  """Each rule over two models' proposals: authors and `since`, [N, T].

  One loop carries all the rules, since what costs time here is compiling.
  """

  def step(states, xs):
    senior, junior, coin, coin_next = xs
    new, out = [], []
    for rule, state in zip(rules, states):
      author = turns_lib.speaker(rule, state, senior, junior, coin)
      boundary = jnp.where(author, senior, junior)
      state = turns_lib.advance(rule, state, author, boundary, coin_next)
      new.append(state)
      out.append((author, state.since))
    return new, out

  xs = (senior_starts.T, junior_starts.T, coins.T, jnp.roll(coins.T, -1, 0))
  states = [turns_lib.start(rule, coins[:, 0]) for rule in rules]
  _, out = jax.lax.scan(step, states, xs)
  return [(authors.T, since.T) for authors, since in out]


flips = jax.jit(sampling.coins)
replay = jax.jit(turns_lib.replay, static_argnums=0)


def random_rows(n=24, t=90, seed=0):
  """Boundaries of differing density per row, from none to nearly all."""
  rng = np.random.default_rng(seed)
  density = np.linspace(0, 0.9, n)[:, None]
  senior = rng.random((n, t)) < density
  junior = rng.random((n, t)) < density
  return senior, junior, rng.random((n, t)) < 0.5


def test_the_machine_equals_plain_python():
  rows = random_rows()
  lists = [x.tolist() for x in rows]
  for rule, (authors, _) in zip(RULES, run(RULES, *rows)):
    expected = [naive_turns(rule, *row) for row in zip(*lists)]
    np.testing.assert_array_equal(authors, expected, err_msg=str(rule))


def test_a_row_does_not_depend_on_its_neighbours():
  rows = random_rows()
  # Row 5 moves to place 0, among rows that are all different.
  others = [np.roll(~x, 3, axis=0) for x in rows]
  for other, row in zip(others, rows):
    other[0] = row[5]
  for rule, (authors, _), (moved, _) in zip(
    RULES, run(RULES, *rows), run(RULES, *others)
  ):
    np.testing.assert_array_equal(moved[0], authors[5], err_msg=str(rule))


@pytest.mark.parametrize(
  'rule', [Turns(s) for s in turns_lib.SCHEDULES], ids=str
)
def test_replay_takes_both_proposals_to_be_the_given_token(rule):
  given, _, coins = random_rows()
  expected = [
    naive_turns(rule, row, row, coin)
    for row, coin in zip(given.tolist(), coins.tolist())
  ]
  np.testing.assert_array_equal(replay(rule, given, coins), expected)


@pytest.mark.parametrize('p', (0.0, 1.0))
def test_certain_coins_leave_one_author(p):
  senior, junior, _ = random_rows()
  certain = np.full(senior.shape, bool(p))  # as `sampling.coins` gives them
  for rule, (authors, _) in zip(RULES, run(RULES, senior, junior, certain)):
    if rule.first == 'coin' and not rule.toggles:
      assert np.all(np.asarray(authors) == bool(p)), rule


@pytest.mark.parametrize('cap', CAPS)
def test_word_changes_author_only_after_a_boundary_or_the_cap(cap):
  senior, _, coins = random_rows(seed=1)
  rule = Turns('word', cap=cap)
  authors = np.asarray(replay(rule, senior, jnp.asarray(coins)))
  for boundary, author in zip(senior, authors):
    since = 0
    for t in range(len(author) - 1):
      since += 1
      allowed = boundary[t] or since >= cap
      assert allowed or author[t + 1] == author[t]
      since = 0 if allowed else since
  assert np.any(authors[:, 1:] != authors[:, :-1])


@pytest.mark.parametrize('cap', CAPS)
def test_redraws_are_one_plus_the_boundary_and_cap_events(cap):
  # A position redraws if and only if flipping its coin alone flips its author:
  # row i of the batch has coin i flipped.
  rng = np.random.default_rng(cap)
  steps = 70
  boundary = rng.random(steps) < 0.1
  coins = rng.random(steps) < 0.5
  events, since = 0, 0
  for t in range(steps - 1):
    since += 1
    if boundary[t] or since == cap:
      events, since = events + 1, 0
  rule = Turns('word', cap=cap)
  rows = np.broadcast_to(boundary, (steps, steps))
  flipped = replay(
    rule,
    jnp.asarray(rows),
    jnp.asarray(coins[None] ^ np.eye(steps, dtype=bool)),
  )
  base = replay(rule, jnp.asarray(rows[:1]), jnp.asarray(coins[None]))
  redraws = int(np.sum(np.diagonal(np.asarray(flipped)) != np.asarray(base)[0]))
  assert redraws == 1 + events


def test_cap_one_is_a_coin_per_token():
  senior, _, coins = random_rows()
  authors = replay(Turns('word', cap=1), senior, jnp.asarray(coins))
  np.testing.assert_array_equal(authors, coins)
  authors = replay(Turns('token'), senior, jnp.asarray(coins))
  np.testing.assert_array_equal(authors, coins)


def test_the_two_cap_rules_by_hand():
  # No boundary, K=3, coins 1 0 0 0 1 ...: the code redraws for positions 3, 6;
  # the paper's listing one token later, for 4 and 8.
  coins = jnp.array([[1, 0, 0, 0, 1, 1, 1, 0, 0, 1]], bool)
  boundary = jnp.zeros_like(coins)
  code = replay(Turns('word', cap=3), boundary, coins)
  paper = replay(Turns('word', cap=3, cap_rule='paper'), boundary, coins)
  assert code[0].astype(int).tolist() == [1, 1, 1, 0, 0, 0, 1, 1, 1, 1]
  assert paper[0].astype(int).tolist() == [1, 1, 1, 1, 1, 1, 1, 1, 0, 0]


def test_word_may_part_a_word_and_strict_word_never_does():
  # " un|believ|able| x|y": the coins after each piece name the other model.
  starts = jnp.array([[1, 0, 0, 1, 0]], bool)
  coins = jnp.array([[1, 0, 1, 0, 1]], bool)
  word = replay(Turns('word'), starts, coins)
  strict = replay(Turns('strict_word'), starts, coins)
  assert word[0].astype(int).tolist() == [1, 0, 0, 0, 1]
  assert strict[0].astype(int).tolist() == [1, 1, 1, 0, 0]


def test_strict_word_declines_a_hand_over_inside_the_partners_word():
  # Position 1: the senior begins a word, the junior does not: declined.
  # Position 2: the junior alone begins one: not its turn to be asked.
  # Position 3: both begin one: the coin's junior takes over.
  senior = jnp.array([[1, 1, 0, 1, 0]], bool)
  junior = jnp.array([[1, 0, 1, 1, 0]], bool)
  coins = jnp.array([[1, 0, 0, 0, 1]], bool)
  [(authors, since)] = run((Turns('strict_word'),), senior, junior, coins)
  assert authors[0].astype(int).tolist() == [1, 1, 1, 0, 0]
  assert since[0].tolist() == [1, 1, 2, 1, 2]
  # first='senior' holds although coin 0 names the junior and both begin words.
  [(authors, _)] = run(
    (Turns('strict_word', first='senior'),), senior, junior, ~coins
  )
  assert bool(authors[0, 0])


def test_strict_word_hands_over_only_where_both_begin_a_word():
  senior, junior, coins = random_rows(seed=2)
  [(authors, _)] = run((Turns('strict_word'),), senior, junior, coins)
  authors = np.asarray(authors)
  changed = authors[:, 1:] != authors[:, :-1]
  assert changed.sum() > 100
  assert np.all((senior & junior)[:, 1:][changed])


def test_step_reads_double_newlines_as_the_hand_off_evaluation():
  ends = jnp.array([[0, 1, 0, 0, 1, 1, 0]], bool)
  coins = jnp.array([[0, 0, 1, 0, 0, 1, 1]], bool)
  strict = replay(Turns('step', first='senior'), ends, coins)
  # The senior speaks where the count of double newlines so far is even.
  assert strict[0].astype(int).tolist() == [1, 1, 0, 0, 0, 1, 0]
  stochastic = replay(
    Turns('step', first='senior', step_mode='stochastic'), ends, coins
  )
  assert stochastic[0].astype(int).tolist() == [1, 1, 1, 1, 1, 1, 1]


@pytest.mark.parametrize('p', (0.3, 0.5))
@pytest.mark.parametrize('schedule', ('word', 'token'))
def test_senior_share_is_within_binomial_limits(schedule, p):
  # Given the boundaries, turns are a fixed cut of the row and each is the
  # senior's with chance p, so the share's deviation is known exactly. Limit 4
  # deviations: false alarm 6e-5 per case, none with these fixed keys.
  n, t = 64, 64
  rng = np.random.default_rng(3)
  boundary = rng.random((n, t)) < 0.3
  keys = jnp.repeat(jax.random.split(jax.random.key(7), n), t)
  position = jnp.tile(jnp.arange(t), n)
  coins = flips(keys, position, p).reshape(n, t)
  rule = Turns(schedule, p=p)
  authors = replay(rule, jnp.asarray(boundary), coins)
  lengths = []
  for row in boundary:
    length = 0
    for is_boundary in row:
      length += 1
      if is_boundary or length == rule.cap or schedule == 'token':
        lengths.append(length)
        length = 0
    lengths.append(length)
  deviation = np.sqrt(p * (1 - p) * np.sum(np.square(lengths))) / (n * t)
  assert abs(float(authors.mean()) - p) < 4 * deviation


@pytest.mark.parametrize(
  ('fields', 'words'),
  (
    ({'schedule': 'words'}, ('words', *turns_lib.SCHEDULES)),
    ({'cap_rule': 'vllm'}, ('vllm', 'code', 'paper')),
    ({'first': 'teacher'}, ('teacher', 'coin', 'senior', 'junior')),
    ({'step_mode': 'soft'}, ('soft', 'strict', 'stochastic')),
    ({'p': 1.5}, ('turns.p=1.5', 'from 0')),
    ({'p': float('nan')}, ('turns.p=nan',)),
    ({'cap': 0}, ('turns.cap=0', 'at least 1')),
    ({'chunk': -2}, ('turns.chunk=-2', 'at least 1')),
  ),
)
def test_a_wrong_rule_is_refused_with_the_allowed_ones(fields, words):
  with pytest.raises(ValueError) as error:
    Turns(**fields)
  assert all(word in str(error.value) for word in words)


def test_schedules_name_the_boundaries_they_read():
  kinds = {name: Turns(name).boundaries for name in turns_lib.SCHEDULES}
  assert kinds == {
    'word': 'word',
    'strict_word': 'word',
    'step': 'step',
    'token': None,
    'chunk': None,
    'alternating': None,
  }

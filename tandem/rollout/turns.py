"""Who speaks: a pure state machine on `(author, since)` per row.

One position of a rollout asks two questions, in this order:

    author = speaker(turns, state, senior_starts, junior_starts, coin)
    state = advance(turns, state, author, boundary, coin_next)

`speaker` names whose proposal is emitted; `advance` reads the emitted token and
decides who holds the turn afterwards. Position t has one coin per row, a
Bernoulli(p) that says "senior", made by `sampling.coins`. A redraw after token
t reads the coin of t + 1, the position it speaks for; so every decode order
(one token at a time, k at once, from a refilled slot) reads the same coins.

What each schedule does after an emitted token:

    word         boundary, or the cap: author = coin. A boundary is a token
                 that begins a word, so the coin decides who goes on AFTER the
                 word's first piece; the pieces of a word may part.
    strict_word  hand-overs only between words; see `speaker`. No cap.
    token        author = coin, every token.
    chunk        toggle after each `chunk` tokens.
    alternating  toggle after each token.
    step         boundary: toggle (strict) or coin (stochastic). A boundary is
                 here a token whose text ends in a double newline. No cap.

A redraw may name the same author again; only `chunk`, `alternating` and strict
`step` toggle. A row that has ended may be advanced further without harm: its
state is its own and nobody reads it.

Source: Tandem RL (arXiv 2606.28166), Algorithm 1, and the authors' released
sampler, as read in METHODS 2.2.
"""

import dataclasses

import chex
from flax import struct
import jax
import jax.numpy as jnp

SCHEDULES = ('word', 'strict_word', 'token', 'chunk', 'alternating', 'step')
CAP_RULES = ('code', 'paper')
FIRSTS = ('coin', 'senior', 'junior')
STEP_MODES = ('strict', 'stochastic')

# Which tokens a schedule calls boundaries; None where it reads no token.
_BOUNDARIES = {'word': 'word', 'strict_word': 'word', 'step': 'step'}


def _check_member(field, value, allowed):
  if value not in allowed:
    raise ValueError(
      f'turns.{field}={value!r} is unknown; choose one of {", ".join(allowed)}.'
    )


@dataclasses.dataclass(frozen=True)
class Turns:
  """The rule of turns; hashable, so static under jit.

  Attributes:
    schedule: one of SCHEDULES.
    p: P(next author = senior) of every coin, in [0, 1].
    cap: K, the most tokens without a redraw; read by `word` only.
    cap_rule: `code` redraws after the K-th token since the last redraw, as the
      authors' sampler; `paper` after the (K+1)-th, as the paper's listing.
    first: author of position 0: its coin, or one model by name. The hand-off
      evaluation starts with the senior.
    chunk: tokens per side; read by `chunk` only.
    step_mode: `strict` alternates at each boundary, `stochastic` asks the coin;
      read by `step` only.

  Raises:
    ValueError: an unknown name, p outside [0, 1], cap or chunk below 1.
  """

  schedule: str = 'word'
  p: float = 0.5
  cap: int = 32
  cap_rule: str = 'code'
  first: str = 'coin'
  chunk: int = 16
  step_mode: str = 'strict'

  def __post_init__(self):
    _check_member('schedule', self.schedule, SCHEDULES)
    _check_member('cap_rule', self.cap_rule, CAP_RULES)
    _check_member('first', self.first, FIRSTS)
    _check_member('step_mode', self.step_mode, STEP_MODES)
    if not 0 <= self.p <= 1:
      raise ValueError(
        f'turns.p={self.p} is no probability; give the chance that the next '
        'author is the senior, from 0 (junior only) to 1 (senior only).'
      )
    for field in ('cap', 'chunk'):
      value = getattr(self, field)
      if value < 1:
        raise ValueError(
          f'turns.{field}={value} allows no token; it must be at least 1.'
        )

  @property
  def boundaries(self) -> str | None:
    """Which boundary set the schedule reads: `word`, `step`, or None."""
    return _BOUNDARIES.get(self.schedule)

  @property
  def toggles(self) -> bool:
    """True where a turn's end hands over for certain, without a coin."""
    strict_step = self.schedule == 'step' and self.step_mode == 'strict'
    return self.schedule in ('chunk', 'alternating') or strict_step


@struct.dataclass
class TurnState:
  """What a row carries from one position to the next.

  `strict_word` keeps in `author` the author of the running word and in `since`
  the word's tokens so far; 0 only before the first token.
  """

  author: jax.Array  # [N] bool; True where the senior holds the turn
  since: jax.Array  # [N] int32; tokens emitted since the last redraw or toggle


def start(turns: Turns, coin: jax.Array) -> TurnState:
  """The state before position 0.

  Args:
    turns: the rule.
    coin: [N] bool. The coin of position 0; read only where first='coin'.

  Returns:
    TurnState of N rows.
  """
  chex.assert_rank(coin, 1)
  chex.assert_type(coin, bool)
  if turns.first == 'coin':
    author = coin
  else:
    author = jnp.full_like(coin, turns.first == 'senior')
  return TurnState(author=author, since=jnp.zeros_like(coin, jnp.int32))


def speaker(
  turns: Turns,
  state: TurnState,
  senior_starts: jax.Array,
  junior_starts: jax.Array,
  coin: jax.Array,
) -> jax.Array:
  """Who emits at this position.

  The holder of the turn, on every schedule but `strict_word`. There the author
  of the running word proposes. If its proposal begins a new word, the coin of
  this position names who writes that word; a hand-over is made only if the
  partner's own proposal here begins a word too, and is declined otherwise. Both
  conditions together come to: where both proposals begin a word the coin
  decides, and elsewhere the running author goes on. Position 0 belongs to the
  first author whatever the proposals.

  Authorship under `strict_word` thus depends on the pair's samples at the
  position itself. The author is not fixed before the token is drawn, so the
  law of a response is not exactly the mixture of the two models under authors
  drawn beforehand, which all other schedules have.

  Args:
    turns: the rule.
    state: of this position, from `start` or `advance`.
    senior_starts: [N] bool. True where the senior's proposed token is a
      boundary (begins a word).
    junior_starts: [N] bool. The same of the junior's proposal.
    coin: [N] bool. The coin of this position.

  Returns:
    [N] bool; True where the senior's proposal is emitted.
  """
  chex.assert_equal_shape([state.author, senior_starts, junior_starts, coin])
  if turns.schedule != 'strict_word':
    return state.author
  open_word = senior_starts & junior_starts & (state.since > 0)
  return jnp.where(open_word, coin, state.author)


def advance(
  turns: Turns,
  state: TurnState,
  author: jax.Array,
  boundary: jax.Array,
  coin_next: jax.Array,
) -> TurnState:
  """The state after an emitted token.

  Args:
    turns: the rule.
    state: of the token's position.
    author: [N] bool. What `speaker` said for that position.
    boundary: [N] bool. True where the emitted token is a boundary of the kind
      that `turns.boundaries` names; ignored where that is None.
    coin_next: [N] bool. The coin of the position after the token.

  Returns:
    TurnState of the next position.
  """
  chex.assert_equal_shape([state.author, author, boundary, coin_next])
  count = state.since + 1
  if turns.schedule == 'strict_word':
    return TurnState(author=author, since=jnp.where(boundary, 1, count))
  if turns.schedule == 'word':
    counted = count if turns.cap_rule == 'code' else state.since
    ends = boundary | (counted >= turns.cap)
  elif turns.schedule == 'step':
    ends = boundary
  elif turns.schedule == 'chunk':
    ends = count >= turns.chunk
  else:
    ends = jnp.ones_like(author)
  successor = ~author if turns.toggles else coin_next
  return TurnState(
    author=jnp.where(ends, successor, author),
    since=jnp.where(ends, 0, count),
  )


def replay(turns: Turns, boundary: jax.Array, coins: jax.Array) -> jax.Array:
  """Authors of given tokens under given coins, teacher-forced.

  Under `strict_word` both proposals are taken to be the given token, so no
  hand-over is declined.

  Args:
    turns: the rule.
    boundary: [N, T] bool. True where the token is a boundary.
    coins: [N, T] bool. The coin of each position.

  Returns:
    [N, T] bool; True where the senior spoke. Past a row's end it goes on as if
    the row had not ended; mask by the row's length.
  """
  chex.assert_rank(boundary, 2)
  chex.assert_equal_shape([boundary, coins])
  chex.assert_type([boundary, coins], bool)

  def step(state, position):
    starts, coin, coin_next = position
    author = speaker(turns, state, starts, starts, coin)
    return advance(turns, state, author, starts, coin_next), author

  # What the roll brings to the last column speaks for a position past the end.
  coins = coins.T
  positions = (boundary.T, coins, jnp.roll(coins, -1, axis=0))
  _, authors = jax.lax.scan(step, start(turns, coins[0]), positions)
  return authors.T

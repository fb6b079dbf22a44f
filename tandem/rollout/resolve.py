"""Which tokens of a draft stand, and who wrote them."""

import chex
from flax import struct
import jax
import jax.numpy as jnp

from tandem.rollout import turns as turns_lib


@struct.dataclass
class Counts:
  """How drafting went, per row; acceptance is passed.sum() / tested.sum()."""

  rounds: jax.Array  # [N] int32; rounds until the row ended
  tested: jax.Array  # [N] int32; emitted tokens after which a draft waited
  passed: jax.Array  # [N] int32; those equal to the draft, so that it went on
  last: jax.Array  # [N] int32; the loop's round in which the row ended, from 1

  @property
  def passes(self) -> jax.Array:
    """[] int32: rounds of the loop, whoever took part."""
    return self.last.max()

  def idle(self, slots: int) -> jax.Array:
    """[] float32: the share of slot-rounds in which a slot had no row."""
    return 1 - self.rounds.sum() / (self.passes * slots)


@struct.dataclass
class Resolved:
  """A round's outcome. `emit` [N, C] is a prefix of True in each row."""

  tokens: jax.Array  # [N, C] int32
  author: jax.Array  # [N, C] bool
  emit: jax.Array  # [N, C] bool
  turn: turns_lib.TurnState  # of the next position
  ended: jax.Array  # [N] bool; an emitted token was EOS
  counts: Counts  # of this round


def resolve(
  turns: turns_lib.Turns,
  state: turns_lib.TurnState,
  live: jax.Array,
  room: jax.Array,
  inputs: jax.Array,
  senior: jax.Array,
  junior: jax.Array,
  boundary: jax.Array,
  eos: jax.Array,
  coins: jax.Array,
  *,
  bonus: str | None = None,
) -> Resolved:
  """Who emits what along a draft, and how much of it stands.

  A proposal is real where every earlier token of the round was the one that
  both models had read; there it is what lockstep's step would have proposed.

  Args:
    turns: the schedule.
    state: of the round's first position.
    live: [N] bool; rows still writing. Others emit nothing and keep `state`.
    room: [N] int32; positions left before the length limit.
    inputs: [N, C] int32; the token read at each position: the last one emitted,
      then the draft.
    senior: [N, C] int32; its proposals.
    junior: [N, C] int32; its proposals.
    boundary: [>= V] bool.
    eos: [E] int32; ids that end a row.
    coins: [N, C + 1] bool; of the round's positions and the one after.
    bonus: who alone was asked for the last position, `senior` or `junior`, or
      `either` where authors do not matter. Its token stands only if it holds
      the turn there and the row goes on after it. None: both were asked.

  Returns:
    Resolved; a live row emits at least one token.
  """
  chex.assert_equal_shape([inputs, senior, junior])
  count = inputs.shape[1]
  chex.assert_shape(coins, (inputs.shape[0], count + 1))
  chex.assert_equal_shape([live, room, state.author])
  # All that is looked up is looked up here; the scan is of booleans, which
  # unrolled are one fused kernel against a dozen launches per position.
  ends_row = lambda ids: (ids[..., None] == eos[None, None]).any(-1)
  index = jnp.arange(count)
  waits = (index[None] + 1 < room[:, None]) & (index[None] + 1 < count)
  drafted = jnp.roll(inputs, -1, 1)  # none waits after the last column
  asked = (index[None] + 1 < count) | jnp.full((1, count), bonus is None)
  more = index[None] + 1 < room[:, None]
  per_model = [
    (boundary[ids], ends_row(ids), ids == drafted) for ids in (senior, junior)
  ]

  def step(carry, at):
    state, live = carry
    senior, junior, waits, asked, more, coin, coin_next = at
    author = turns_lib.speaker(turns, state, senior[0], junior[0], coin)
    starts, is_eos, as_drafted = (
      jnp.where(author, s, j) for s, j in zip(senior, junior)
    )
    speaks = author == (bonus == 'senior') if bonus != 'either' else True
    live &= asked | (speaks & ~is_eos & more)
    new = turns_lib.advance(turns, state, author, starts, coin_next)
    state = jax.tree.map(lambda a, b: jnp.where(live, a, b), new, state)
    tested = live & ~is_eos & waits
    passed = tested & as_drafted
    return (state, passed), (author, live, live & is_eos, tested, passed)

  asked = jnp.broadcast_to(asked, more.shape)
  at = (*per_model, waits, asked, more, coins[:, :-1], coins[:, 1:])
  at = jax.tree.map(jnp.transpose, at)
  (state, _), out = jax.lax.scan(step, (state, live), at, unroll=True)
  author, emit, ended, tested, passed = (x.T for x in out)
  took_part = live.astype(jnp.int32)
  return Resolved(
    tokens=jnp.where(author, senior, junior),
    author=author,
    emit=emit,
    turn=state,
    ended=ended.any(1),
    counts=Counts(took_part, tested.sum(1), passed.sum(1), took_part),
  )

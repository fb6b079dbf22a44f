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

  Returns:
    Resolved; a live row emits at least one token.
  """
  chex.assert_equal_shape([inputs, senior, junior])
  count = inputs.shape[1]
  chex.assert_shape(coins, (inputs.shape[0], count + 1))
  chex.assert_equal_shape([live, room, state.author])
  drafted = jnp.roll(inputs, -1, 1)  # no draft waits after the last column

  def step(carry, at):
    state, live = carry
    i, senior, junior, drafted, coin, coin_next = at
    author = turns_lib.speaker(
      turns, state, boundary[senior], boundary[junior], coin
    )
    token = jnp.where(author, senior, junior)
    new = turns_lib.advance(turns, state, author, boundary[token], coin_next)
    state = jax.tree.map(lambda a, b: jnp.where(live, a, b), new, state)
    is_eos = (token[:, None] == eos[None]).any(-1)
    tested = live & ~is_eos & (i + 1 < room) & (i + 1 < count)
    passed = tested & (token == drafted)
    return (state, passed), (token, author, live, is_eos, tested, passed)

  at = (jnp.arange(count), senior.T, junior.T, drafted.T)
  at += (coins[:, :-1].T, coins[:, 1:].T)
  # Unrolled: a few hundred operations on [N], which fuse, against k launches.
  (state, _), out = jax.lax.scan(step, (state, live), at, unroll=True)
  token, author, emit, is_eos, tested, passed = (x.T for x in out)
  return Resolved(
    tokens=token,
    author=author,
    emit=emit,
    turn=state,
    ended=(emit & is_eos).any(1),
    counts=Counts(live.astype(jnp.int32), tested.sum(1), passed.sum(1)),
  )

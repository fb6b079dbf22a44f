"""Speculative tandem decoding: one model runs ahead, the other checks it.

`lockstep` reads the weights of both models once per token. Here a round is
k tokens written by the drafter alone and one pass of the verifier over all of
them. Noise and coins belong to a position (DESIGN 4), so at every position the
two passes say what each model would emit there, just as lockstep would have
found it, up to the first token that differs from the draft. `resolve` walks the
k positions, and the tokens and authors are lockstep's.

Both models write their caches as they read. After m < k emitted tokens, the
slots of the rejected rest are rewritten by the next round before any query
reads them (the contract of `cache`), so nothing is rolled back or copied.

Where the whole draft stands, the verifier has one position more to offer: if it
holds the turn there, its token is the round's last. The drafter has then not
read the token before it, and reads it with the next; so a row never ends on
such a token, which the next round finds again.

Rows stand each at a position of its own, so the same loop fills the slots of
ended rows with waiting ones (`slots`); with k=1 that is lockstep with refill.

Source: speculative decoding (arXiv 2211.17192), with noise shared between the
models in place of rejection sampling, so that authors stay those of the turns.
"""

import functools

from flax import struct
import jax
import jax.numpy as jnp

from tandem import types
from tandem.models import cache as cache_lib
from tandem.models import cache_size
from tandem.models import decoder
from tandem.rollout import drafters
from tandem.rollout import frame
from tandem.rollout import lookup
from tandem.rollout import proposals
from tandem.rollout import resolve as resolve_lib
from tandem.rollout import sampling as sampling_lib
from tandem.rollout import slots as slots_lib
from tandem.rollout import turns as turns_lib


@struct.dataclass
class _Carry:
  """The loop's state: M slots, each at a position of its own, and N rows."""

  seats: slots_lib.Seats
  t: jax.Array  # [M] int32; emitted tokens, the position about to be written
  token: jax.Array  # [M] int32; the last token, not yet in the caches
  before: jax.Array  # [M] int32; the one before it
  late: jax.Array  # [M] bool; the drafter's record of `token` is not made yet
  turn: turns_lib.TurnState
  live: jax.Array  # [M] bool
  caches: dict[str, cache_lib.Cache]
  text: jax.Array | None  # [M, P + T] int32; where drafts are looked up
  out: dict[str, jax.Array]  # name -> [N, T]
  lengths: jax.Array  # [N] int32
  eos: jax.Array  # [N] bool; ended by EOS
  counts: resolve_lib.Counts
  passes: jax.Array  # [] int32; rounds of the loop so far


@functools.partial(
  jax.jit,
  static_argnames=(
    'senior_cfg',
    'junior_cfg',
    'group',
    'max_tokens',
    'eos_ids',
    'turns',
    'sampling',
    'draft_tokens',
    'draft_bonus',
    'draft_context',
    'drafter',
    'solo',
    'slots',
    'lanes',
    'window',
    'cache_dtype',
    'read',
    'prompt_attention',
    'platform',
  ),
)
def counted(
  senior: decoder.Params,
  junior: decoder.Params | None,
  prompts: types.Context,
  row_keys: jax.Array,
  boundary: jax.Array,
  *,
  senior_cfg: types.ModelConfig,
  junior_cfg: types.ModelConfig | None = None,
  group: int,
  max_tokens: int,
  eos_ids: tuple[int, ...],
  turns: turns_lib.Turns,
  sampling: sampling_lib.Sampling,
  draft_tokens: int = 7,
  draft_bonus: bool = True,
  draft_context: int | None = None,
  drafter: str = 'junior',
  solo: bool = False,
  slots: int | None = None,
  lanes: int = 1,
  window: int | None = None,
  cache_dtype: str | None = None,
  read: cache_lib.Read = cache_lib.read,
  prompt_attention: decoder.Attention = decoder.xla_attention,
  platform: str | None = None,
) -> tuple[types.Rollout, resolve_lib.Counts]:
  """Writes one response per row: lockstep's, in fewer passes.

  Args:
    senior: decode_params (a list of layers).
    junior: decode_params; None where the senior writes and drafts by look-up.
    prompts: ids [B, P], lengths [B], padded on the right.
    row_keys: [N] typed keys; N = B * group, siblings adjacent.
    boundary: [>= V] bool; token ids after which the schedule may redraw.
    senior_cfg: shapes of the senior.
    junior_cfg: shapes of the junior; it may be of another size.
    group: G.
    max_tokens: T, the length limit of a response.
    eos_ids: any of these ends a row.
    turns: the schedule.
    sampling: temperature and filters, the same for both models.
    draft_tokens: k, positions of a round. 1 is lockstep.
    draft_bonus: a draft that stands may earn one token more (drafters.bonus), at
      the price of a position more in the verifier's pass and in the drafter's
      first: worth it where passes are bound by bytes, not by operations.
    draft_context: the drafter attends to the prompt and to so many of its row's
      last tokens, in a copy of that part of its cache (`near`), and then reads
      its draft like the other model: more passes, few of which read a whole
      cache. Worth it for long rows. There is no bonus then. None: it reads all.
    drafter: who runs ahead, `junior` or `senior`; `holder`, in each round the
      model that holds the turn in most rows, while the other catches up in one
      pass, for schedules of long turns; or `lookup`, which repeats what the row
      wrote before, and both models read the draft in one pass.
    solo: the senior writes alone, and a junior, if given, only drafts; with a
      draft_context the senior may, too.
    slots: M, rows decoded at once; the others wait for a slot. None: all. With
      fewer slots than rows a slot's prompt is looked up among those of its
      lane, at the price said in `cache.read`.
    lanes: queues, see `slots`; divides slots and prompts. A mesh asks for one
      on each of its shards of rows.
    window: cache slots of the first loop, see frame.windows.
    cache_dtype: of stored keys and values, see cache.allocate.
    read: cache.read, or what cache.reader makes.
    prompt_attention: of the prefill, see decoder.hidden.
    platform: that the program is for, `cpu`, `gpu` or `tpu`: its cache's layout
      and what is worth keeping; None for the backend at hand.

  Returns:
    A Rollout of N rows by T positions, and how drafting went.

  Raises:
    ValueError: as lockstep; or an unknown drafter, no draft, no slot, a
      context that no model has, or a drafter that is not there.
  """
  drafters.check(junior, draft_tokens, drafter, draft_context, solo, slots)
  pair = junior is not None and not solo
  vocab = frame.check(
    senior_cfg, junior_cfg if pair else None, prompts, row_keys, group, boundary
  )
  n, k = row_keys.shape[0], draft_tokens
  m = min(slots or n, n)
  models = {'senior': (senior, senior_cfg)}
  if junior is not None and (pair or drafter == 'junior'):
    models['junior'] = (junior, junior_cfg)
  writers = ('senior', 'junior') if pair else ('senior',)
  bonus = drafters.bonus(drafter, k, pair, turns, draft_context)
  bonus = bonus if draft_bonus else None
  near = draft_context if k > 1 else None
  eos = jnp.asarray(eos_ids, jnp.int32)
  # Drawing once costs a CPU less than for each model; elsewhere a draw is fused
  # into the choice and is never in memory, which is what runs short there.
  keep = (platform or jax.default_backend()) == 'cpu'
  first = frame.last_tokens(prompts)

  def begin(row):
    """(token, turn) of rows [M] at position 0; of no row: anything."""
    coin = sampling_lib.coins(row_keys[row], jnp.zeros_like(row), turns.p)
    return first[row // group], turns_lib.start(turns, coin)

  def whole(row):
    """[M, P + T], the prompts of rows and room for their responses."""
    return jnp.pad(prompts.ids, ((0, 0), (0, max_tokens)))[row // group]

  def speak(c: _Carry, drafter: str, row, at) -> proposals.Spoken:
    sampler = proposals.Sampler(row_keys[row], sampling, vocab, read)
    if drafter == 'lookup':
      end = prompts.lengths[row // group] + c.t
      drafter = lookup.draft(c.text, end, k - 1)
    return proposals.speak(
      sampler,
      models,
      c.caches,
      drafter,
      c.token,
      c.before,
      at,
      near=bool(near),
      bonus=bool(bonus),
      keep=keep,
    )

  def body(c: _Carry) -> _Carry:
    # A slot without a row has words, too; they are not written anywhere.
    row = c.seats.rows(n) if m < n else jnp.arange(n)
    at = c.t[:, None] + jnp.arange(k + bool(bonus))[None]
    if drafter == 'holder':
      held = (c.live & c.turn.author).sum() * 2 > c.live.sum()
      spoken = jax.lax.cond(
        held,
        lambda: speak(c, 'senior', row, at),
        lambda: speak(c, 'junior', row, at),
      )
    else:
      # At k=1 nobody drafts.
      who = drafter if drafter in models or drafter == 'lookup' else 'senior'
      spoken = speak(c, who, row, at)
    inputs, said, before, caches = spoken
    coin = lambda t: sampling_lib.coins(row_keys[row], t, turns.p)
    coins = jax.vmap(coin, 1, 1)(
      c.t[:, None] + jnp.arange(at.shape[1] + 1)[None]
    )
    got = resolve_lib.resolve(
      turns,
      c.turn,
      c.live,
      max_tokens - c.t,
      inputs,
      said['senior'].choice,
      said[writers[-1]].choice,
      boundary,
      eos,
      coins,
      bonus=bonus,
    )
    values = {'tokens': got.tokens, 'author': got.author}
    for name in writers:
      values[f'logp_{name}'], values[f'raw_{name}'] = proposals.record(
        *models[name], said[name], got.tokens, sampling
      )

    def put(buffer, rows, values, at, where=got.emit):
      at = jnp.where(where, at, buffer.shape[1])
      return buffer.at[rows[:, None], at].set(values, mode='drop')

    text, seats = c.text, c.seats
    if text is not None:
      place = prompts.lengths[row // group][:, None] + at
      text = put(text, jnp.arange(m), got.tokens, place)
    emitted = got.emit.sum(1)
    last = jnp.maximum(emitted - 1, 0)[:, None]
    token = jnp.take_along_axis(got.tokens, last, 1)[:, 0]
    token, turn, t = jnp.where(c.live, token, c.token), got.turn, c.t + emitted
    out = {a: put(b, row, values[a], at) for a, b in c.out.items()}
    previous = c.token
    if near or bonus:
      one_back = jnp.take_along_axis(got.tokens, jnp.maximum(last - 1, 0), 1)
      previous = jnp.where(emitted > 1, one_back[:, 0], c.token)
    if bonus and pair:
      for name, value in zip(
        (f'logp_{drafter}', f'raw_{drafter}'),
        proposals.record(*models[drafter], before, c.token[:, None], sampling),
      ):
        due = (c.late & c.live)[:, None]
        out[name] = put(out[name], row, value, c.t[:, None] - 1, due)
    live = c.live & ~got.ended & (t < max_tokens)
    add = lambda total, new: total.at[row].add(new)
    carry = _Carry(
      seats=seats,
      t=t,
      token=token,
      before=jnp.where(c.live, previous, c.before),
      late=emitted > k,
      turn=turn,
      live=live,
      caches=caches,
      text=text,
      out=out,
      lengths=add(c.lengths, emitted),
      eos=c.eos.at[row].max(got.ended),
      counts=resolve_lib.Counts(
        *(
          add(getattr(c.counts, x), getattr(got.counts, x))
          for x in ('rounds', 'tested', 'passed')
        ),
        last=c.counts.last.at[row].max(jnp.where(c.live, c.passes + 1, 0)),
      ),
      passes=c.passes + 1,
    )
    return seated(carry) if m < n else carry

  def seated(c: _Carry) -> _Carry:
    """Ended rows give way to waiting ones; their cache is simply rewritten."""
    seats, fresh = slots_lib.refill(c.seats, ~c.live, n)
    row = seats.rows(n)
    token, turn = begin(row)
    new = lambda a, b: jnp.where(fresh, a, b)
    text = c.text
    if text is not None:
      text = jnp.where(fresh[:, None], whole(row), text)

    def owned(x):
      # In a cut cache, too, a new row begins at slot 0.
      first = None if x.first is None else new(0, x.first)
      return x.replace(owner=row // group, first=first)

    return c.replace(
      seats=seats,
      t=new(0, c.t),
      token=new(token, c.token),
      before=new(token, c.before),
      late=c.late & ~fresh,
      turn=jax.tree.map(new, turn, c.turn),
      live=c.live | fresh,
      caches={name: owned(x) for name, x in c.caches.items()},
      text=text,
    )

  sizes = frame.windows(window, max_tokens)
  lanes = lanes if m < n else 1
  seats = slots_lib.seat(m, n // group, group, lanes)
  row = seats.rows(n)
  owner = row // group if m < n else None
  token, turn = begin(row)
  start = functools.partial(
    frame.start_cache,
    prompts=prompts,
    group=group,
    slots=sizes[0],
    dtype=cache_dtype,
    layout=cache_lib.default_layout(platform),
    attention=prompt_attention,
    owner=owner,
    lanes=lanes,
  )
  zeros = jnp.zeros((n,), jnp.int32)
  carry = _Carry(
    seats=seats,
    t=jnp.zeros((m,), jnp.int32),
    token=token,
    before=token,  # there is none; what its slot gets is never read
    late=jnp.zeros((m,), jnp.bool_),
    turn=turn,
    live=jnp.ones((m,), jnp.bool_),
    caches={name: start(*model) for name, model in models.items()},
    text=whole(row) if drafter == 'lookup' else None,
    out=frame.buffers(n, max_tokens, pair),
    lengths=zeros,
    eos=zeros > 0,
    counts=resolve_lib.Counts(zeros, zeros, zeros, zeros),
    passes=jnp.asarray(0),
  )
  for size in sizes:
    # A round writes so many slots from each row's position on.
    room = size - k - bool(bonus) if size < max_tokens else max_tokens
    carry = carry.replace(
      caches={
        name: cache_size.grow(carry.caches[name], size) for name in models
      }
    )
    goes_on = lambda c, room=room: (
      c.live.any() & (jnp.where(c.live, c.t, 0).max() <= room)
    )
    if not near:
      carry = jax.lax.while_loop(goes_on, body, carry)
      continue

    def cut(c):
      """With `near` made anew; it serves until a row finds no room in it."""
      more = drafters.room(near, k)
      tail = cache_size.tail(c.caches[drafter], c.t, near, more)
      return c.replace(caches=c.caches | {'near': tail})

    def fits(c, size=size):
      return (cache_size.fits(c.caches['near'], size, c.t, k) | ~c.live).all()

    carry = jax.lax.while_loop(
      goes_on,
      lambda c: jax.lax.while_loop(
        lambda c: goes_on(c) & fits(c),  # noqa: B023
        body,
        cut(c),  # noqa: B023
      ),
      cut(carry),
    )
  return frame.rollout(carry.out, carry.lengths, carry.eos), carry.counts


def speculative(*args, **kwargs) -> types.Rollout:
  """`counted` without its counts: takes lockstep's place."""
  return counted(*args, **kwargs)[0]

"""The hand-off sampler: one jitted loop over both models.

Per step: both models read the last token, both laws meet the same noise, the
author's choice is emitted and fed to both caches, and the coin names the next
author. `naive.py` is the definition; this is the same, batched and compiled.
"""

from collections.abc import Callable
import functools

from flax import struct
import jax
import jax.numpy as jnp

from tandem import types
from tandem.kernels.handoff_sample import api as handoff
from tandem.models import cache as cache_lib
from tandem.models import cache_size
from tandem.models import decoder
from tandem.rollout import frame
from tandem.rollout import sampling as sampling_lib
from tandem.rollout import turns as turns_lib


@struct.dataclass
class _Carry:
  """The loop's state. N rows; a model's cache is None where it is absent."""

  t: jax.Array  # [] int32; the position about to be written
  token: jax.Array  # [N] int32; the last token, not yet in the caches
  turn: turns_lib.TurnState
  done: jax.Array  # [N] bool
  senior: cache_lib.Cache
  junior: cache_lib.Cache | None
  out: dict[str, jax.Array]  # name -> [N, T]
  lengths: jax.Array  # [N] int32


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
    'window',
    'cache_dtype',
    'read',
    'prompt_attention',
    'draw',
    'platform',
  ),
)
def lockstep(
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
  window: int | None = None,
  cache_dtype: str | None = None,
  read: cache_lib.Read = cache_lib.read,
  prompt_attention: decoder.Attention = decoder.xla_attention,
  draw: Callable[..., handoff.Handoff] | None = None,
  platform: str | None = None,
) -> types.Rollout:
  """Writes one response per row.

  Noise at a position depends on the row's key and the position alone, so a
  row's response does not depend on its neighbours, on padding, or on how rows
  are spread over devices.

  Args:
    senior: decode_params (a list of layers).
    junior: decode_params, or None to let the senior write alone.
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
    window: cache slots of the first loop, see frame.windows.
    cache_dtype: of stored keys and values, see cache.allocate.
    read: cache.read, or what cache.reader makes.
    prompt_attention: of the prefill, see decoder.hidden.
    draw: what sampling.drawer makes, for a pair; None for XLA's own program.
    platform: that the program is for, `cpu`, `gpu` or `tpu`: the cache's layout;
      None for the backend at hand.

  Returns:
    A Rollout of N rows by T positions.

  Raises:
    ValueError: keys, group and prompts do not fit each other, or the boundary
      table is shorter than the vocabulary.
  """
  pair = junior is not None
  vocab = frame.check(
    senior_cfg, junior_cfg, prompts, row_keys, group, boundary
  )
  n, rows = row_keys.shape[0], jnp.arange(row_keys.shape[0])
  eos = jnp.asarray(eos_ids, jnp.int32)

  def step(params, cfg, cache, c):
    slots = jnp.full((n, 1), c.t)
    x, cache = decoder.decode_step(
      params, cfg, cache, c.token[:, None], slots, read=read
    )
    return decoder.logits_of(params, cfg, x[:, 0])[:, :vocab], cache

  def coin(t):
    position = jnp.full((n,), t, jnp.int32)
    return sampling_lib.coins(row_keys, position, turns.p)

  def by_kernel(c, logits):
    strict = turns.schedule == 'strict_word'
    out = draw(
      *logits.values(),
      row_keys,
      jnp.full((n,), c.t, jnp.int32),
      boundary,
      c.turn.author,
      sampling=sampling,
      coin=coin(c.t) if strict else None,
      may_change=c.turn.since > 0 if strict else None,
    )._asdict()
    del out['boundary']
    return {'tokens': out.pop('token')} | out

  def by_xla(c, logits):
    noise = None
    if not sampling.greedy:
      position = jnp.full((n,), c.t, jnp.int32)
      noise = sampling_lib.token_noise(row_keys, position, vocab)
    scores = {k: sampling_lib.filtered(z, sampling) for k, z in logits.items()}
    token = sampling_lib.choose(scores['senior'], noise)
    author = None
    if pair:
      other = sampling_lib.choose(scores['junior'], noise)
      author = turns_lib.speaker(
        turns, c.turn, boundary[token], boundary[other], coin(c.t)
      )
      token = jnp.where(author, token, other)
    values = {'tokens': token, 'author': author}
    for name in logits:
      values[f'logp_{name}'] = sampling_lib.gather_logp(scores[name], token)
      values[f'raw_{name}'] = sampling_lib.gather_logp(logits[name], token)
    return values

  def body(c: _Carry) -> _Carry:
    logits, senior_cache = step(senior, senior_cfg, c.senior, c)
    logits, junior_cache, turn = {'senior': logits}, None, c.turn
    if pair:
      logits['junior'], junior_cache = step(junior, junior_cfg, c.junior, c)
    values = (by_kernel if pair and draw else by_xla)(c, logits)
    token = values['tokens']
    if pair:
      turn = turns_lib.advance(
        turns, c.turn, values['author'], boundary[token], coin(c.t + 1)
      )
    out = {
      name: buffer.at[rows, c.t].set(
        jnp.where(c.done, jnp.zeros((), buffer.dtype), values[name])
      )
      for name, buffer in c.out.items()
    }
    ends = (token[:, None] == eos[None]).any(-1)
    return _Carry(
      t=c.t + 1,
      token=token,
      turn=turn,
      done=c.done | ends,
      senior=senior_cache,
      junior=junior_cache,
      out=out,
      lengths=c.lengths + ~c.done,
    )

  sizes = frame.windows(window, max_tokens)
  start = functools.partial(
    frame.start_cache,
    prompts=prompts,
    group=group,
    slots=sizes[0],
    dtype=cache_dtype,
    layout=cache_lib.default_layout(platform),
    attention=prompt_attention,
  )
  carry = _Carry(
    t=jnp.zeros((), jnp.int32),
    token=jnp.repeat(frame.last_tokens(prompts), group),
    turn=turns_lib.start(turns, coin(0)),
    done=jnp.zeros((n,), jnp.bool_),
    senior=start(senior, senior_cfg),
    junior=start(junior, junior_cfg) if pair else None,
    out=frame.buffers(n, max_tokens, pair),
    lengths=jnp.zeros((n,), jnp.int32),
  )
  for size in sizes:
    grow = lambda cache: cache and cache_size.grow(cache, size)  # noqa: B023
    carry = carry.replace(senior=grow(carry.senior), junior=grow(carry.junior))
    carry = jax.lax.while_loop(
      lambda c: (c.t < size) & ~c.done.all(),  # noqa: B023
      body,
      carry,
    )
  return frame.rollout(carry.out, carry.lengths, carry.done)

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

Source: speculative decoding (arXiv 2211.17192), with noise shared between the
models in place of rejection sampling, so that authors stay those of the turns.
"""

import functools

from flax import struct
import jax
import jax.numpy as jnp

from tandem import types
from tandem.models import cache as cache_lib
from tandem.models import decoder
from tandem.rollout import lockstep as lockstep_lib
from tandem.rollout import lookup
from tandem.rollout import resolve as resolve_lib
from tandem.rollout import sampling as sampling_lib
from tandem.rollout import turns as turns_lib

DRAFTERS = ('junior', 'senior', 'lookup')

# How far below the least kept score a recomputed one may lie by rounding.
_NEAR_TIE = 1e-4


@struct.dataclass
class _Said:
  """What a model says at each position, without its [.., V] logits."""

  choice: jax.Array  # [...] int32; its proposal
  x: jax.Array  # [..., D]; the final hidden state
  total: jax.Array  # [...] float32; logsumexp of the filtered scores
  raw_total: jax.Array  # [...] float32; logsumexp of the logits
  least: jax.Array | None  # [...] float32; least kept score, where filtered


@struct.dataclass
class _Carry:
  """The loop's state. N rows; each at a position of its own."""

  t: jax.Array  # [N] int32; emitted tokens, the position about to be written
  token: jax.Array  # [N] int32; the last token, not yet in the caches
  turn: turns_lib.TurnState
  done: jax.Array  # [N] bool
  eos: jax.Array  # [N] bool; done by EOS
  caches: dict[str, cache_lib.Cache]
  out: dict[str, jax.Array]  # name -> [N, T]
  text: jax.Array | None  # [N, P + T] int32; where drafts are looked up
  counts: resolve_lib.Counts


def _listen(params, cfg, x, noise, sampling, vocab) -> _Said:
  """What the model says at hidden states x [..., D]; noise [..., >= V]."""
  logits = decoder.logits_of(params, cfg, x)[..., :vocab]
  scores = sampling_lib.filtered(logits, sampling)
  flat = lambda a: a.reshape((-1, a.shape[-1]))
  if noise is not None:
    noise = flat(noise[..., : scores.shape[-1]])
  choice = sampling_lib.choose(flat(scores), noise)
  least = None
  if not sampling.full_law:
    least = jnp.where(scores > -jnp.inf, scores, jnp.inf).min(-1)
  return _Said(
    choice=choice.reshape(x.shape[:-1]),
    x=x,
    total=jax.nn.logsumexp(scores, -1),
    raw_total=jax.nn.logsumexp(logits, -1),
    least=least,
  )


def _record(params, cfg, said: _Said, tokens, sampling):
  """Log-probs of tokens [...] under the law and raw, each [...] float32."""
  logit = decoder.logits_at(params, cfg, said.x, tokens)
  raw = jnp.minimum(logit - said.raw_total, 0)  # a sum's rounding aside, <= 0
  if sampling.greedy:
    return jnp.where(tokens == said.choice, 0.0, -jnp.inf), raw
  score = logit / sampling.temperature
  logp = jnp.minimum(score - said.total, 0)
  if said.least is not None:
    logp = jnp.where(score >= said.least - _NEAR_TIE, logp, -jnp.inf)
  return logp, raw


def _check(junior, draft_tokens, drafter, solo):
  if drafter not in DRAFTERS:
    raise ValueError(
      f'drafter={drafter!r} is unknown; one of {", ".join(DRAFTERS)}.'
    )
  if draft_tokens < 1:
    raise ValueError(
      f'draft_tokens={draft_tokens} must be at least 1, which is lockstep.'
    )
  if junior is None and drafter != 'lookup':
    raise ValueError(
      f'drafter={drafter!r} needs two models, but junior is None; give one, or '
      "draft with drafter='lookup'."
    )
  if solo and drafter == 'senior':
    raise ValueError(
      'the senior cannot draft for itself; in solo mode the drafter is '
      "'junior' or 'lookup'."
    )


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
    'drafter',
    'solo',
    'layout',
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
  draft_tokens: int = 8,
  drafter: str = 'junior',
  solo: bool = False,
  layout: str | None = None,
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
    drafter: who runs ahead, `junior` or `senior`; or `lookup`, which repeats
      what the row wrote before, and both models read the draft in one pass.
    solo: the senior writes alone, and a junior, if given, only drafts.
    layout: of the cache; None for the backend's own.

  Returns:
    A Rollout of N rows by T positions, and how drafting went.

  Raises:
    ValueError: as lockstep; or an unknown drafter, no draft, or a drafter that
      is not there.
  """
  _check(junior, draft_tokens, drafter, solo)
  pair = junior is not None and not solo
  vocab = lockstep_lib.check(
    senior_cfg, junior_cfg if pair else None, prompts, row_keys, group, boundary
  )
  models = {'senior': (senior, senior_cfg)}
  if pair or drafter == 'junior':
    models['junior'] = (junior, junior_cfg)
  writers = ('senior', 'junior') if pair else ('senior',)
  n, k = row_keys.shape[0], draft_tokens
  rows = jnp.arange(n)[:, None]
  eos = jnp.asarray(eos_ids, jnp.int32)
  prompt_lengths = jnp.repeat(prompts.lengths, group)

  def start(params, cfg):
    # The last prompt token is left to the loop, as in lockstep.
    prefix = decoder.prefill(params, cfg, prompts.ids)
    lengths = prompts.lengths - 1
    return cache_lib.allocate(
      cfg, prefix, lengths, group=group, slots=max_tokens, layout=layout
    )

  def noise(at):
    """[N, C] positions -> [N, C, V]; used within one pass, then forgotten."""
    if sampling.greedy:
      return None
    draw = lambda t: sampling_lib.token_noise(row_keys, t, vocab)
    return jax.vmap(draw, 1, 1)(at)

  def read(name, cache, ids, at):
    """One pass of a model over ids [N, C] at positions `at` [N, C]."""
    params, cfg = models[name]
    x, cache = decoder.decode_step(params, cfg, cache, ids, at)
    return _listen(params, cfg, x, noise(at), sampling, vocab), cache

  def run_ahead(cache, token, at):
    """The drafter alone: k tokens, one by one."""

    def step(carry, t):
      token, cache = carry
      said, cache = read(drafter, cache, token[:, None], t[:, None])
      said = jax.tree.map(lambda a: a[:, 0], said)
      return (said.choice, cache), (token, said)

    (_, cache), out = jax.lax.scan(step, (token, cache), at.T)
    inputs, said = jax.tree.map(lambda a: jnp.swapaxes(a, 0, 1), out)
    return inputs, said, cache

  def body(c: _Carry) -> _Carry:
    at = c.t[:, None] + jnp.arange(k)[None]
    caches, said = dict(c.caches), {}
    if drafter == 'lookup':
      guess = lookup.draft(c.text, prompt_lengths + c.t, k - 1)
      inputs = jnp.concatenate([c.token[:, None], guess], 1)
    else:
      inputs, said[drafter], caches[drafter] = run_ahead(
        caches[drafter], c.token, at
      )
    for name in models:
      if name != drafter:
        said[name], caches[name] = read(name, caches[name], inputs, at)
    coin = lambda t: sampling_lib.coins(row_keys, t, turns.p)
    coins = jax.vmap(coin, 1, 1)(c.t[:, None] + jnp.arange(k + 1)[None])
    got = resolve_lib.resolve(
      turns,
      c.turn,
      ~c.done,
      max_tokens - c.t,
      inputs,
      said['senior'].choice,
      said[writers[-1]].choice,
      boundary,
      eos,
      coins,
    )
    values = {'tokens': got.tokens, 'author': got.author}
    for name in writers:
      values[f'logp_{name}'], values[f'raw_{name}'] = _record(
        *models[name], said[name], got.tokens, sampling
      )

    def put(buffer, values, at):
      at = jnp.where(got.emit, at, buffer.shape[1])
      return buffer.at[rows, at].set(values, mode='drop')

    text = c.text
    if text is not None:
      text = put(text, got.tokens, prompt_lengths[:, None] + at)
    emitted = got.emit.sum(1)
    last = jnp.maximum(emitted - 1, 0)[:, None]
    token = jnp.take_along_axis(got.tokens, last, 1)[:, 0]
    t = c.t + emitted
    return _Carry(
      t=t,
      token=jnp.where(c.done, c.token, token),
      turn=got.turn,
      done=c.done | got.ended | (t >= max_tokens),
      eos=c.eos | got.ended,
      caches=caches,
      out={name: put(b, values[name], at) for name, b in c.out.items()},
      text=text,
      counts=jax.tree.map(jnp.add, c.counts, got.counts),
    )

  types_of = {'tokens': jnp.int32} | ({'author': jnp.bool_} if pair else {})
  for name in writers:
    types_of |= {f'logp_{name}': jnp.float32, f'raw_{name}': jnp.float32}
  zeros, text = jnp.zeros((n,), jnp.int32), None
  if drafter == 'lookup':
    text = jnp.pad(prompts.ids, ((0, 0), (0, max_tokens)))
    text = jnp.repeat(text, group, 0)
  last = jnp.take_along_axis(prompts.ids, prompts.lengths[:, None] - 1, 1)
  carry = _Carry(
    t=zeros,
    token=jnp.repeat(last[:, 0], group),
    turn=turns_lib.start(turns, sampling_lib.coins(row_keys, zeros, turns.p)),
    done=zeros > 0,
    eos=zeros > 0,
    caches={name: start(*model) for name, model in models.items()},
    out={a: jnp.zeros((n, max_tokens), d) for a, d in types_of.items()},
    text=text,
    counts=resolve_lib.Counts(zeros, zeros, zeros),
  )
  carry = jax.lax.while_loop(lambda c: ~c.done.all(), body, carry)
  finish = jnp.where(
    carry.eos, types.FINISH.index('eos'), types.FINISH.index('length')
  )
  out = types.Rollout(
    tokens=carry.out['tokens'],
    lengths=carry.t,
    author=carry.out.get('author'),
    logp_senior=carry.out['logp_senior'],
    logp_junior=carry.out.get('logp_junior'),
    raw_senior=carry.out['raw_senior'],
    raw_junior=carry.out.get('raw_junior'),
    finish=finish.astype(jnp.int8),
  )
  return out, carry.counts


def speculative(*args, **kwargs) -> types.Rollout:
  """`counted` without its counts: takes lockstep's place."""
  return counted(*args, **kwargs)[0]

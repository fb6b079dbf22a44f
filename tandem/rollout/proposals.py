"""What a model says at given positions, and the record of what was emitted."""

import dataclasses
from typing import NamedTuple

from flax import struct
import jax
import jax.numpy as jnp

from tandem import types
from tandem.models import cache as cache_lib
from tandem.models import decoder
from tandem.rollout import sampling as sampling_lib

Model = tuple[decoder.Params, types.ModelConfig]  # decode_params, their shapes

# How far below the least kept score a recomputed one may lie by rounding.
_NEAR_TIE = 1e-4


@struct.dataclass
class Said:
  """A model at each position, without its [..., V] logits."""

  choice: jax.Array  # [...] int32; its proposal
  x: jax.Array  # [..., D]; the final hidden state
  total: jax.Array  # [...] float32; logsumexp of the filtered scores
  raw_total: jax.Array  # [...] float32; logsumexp of the logits
  least: jax.Array | None  # [...] float32; least kept score, where filtered


@dataclasses.dataclass(frozen=True)
class Sampler:
  """How proposals are drawn; the same for both models.

  Attributes:
    keys: [M] typed keys, of the rows in the slots.
    sampling: the law's settings.
    vocab: V, of the writers.
    attend: cache.read, or what cache.reader makes.
  """

  keys: jax.Array
  sampling: sampling_lib.Sampling
  vocab: int
  attend: cache_lib.Read = cache_lib.read

  def noise(self, at: jax.Array) -> jax.Array | None:
    """[M, C] positions -> [M, C, V] float32; None for a greedy law."""
    if self.sampling.greedy:
      return None
    draw = lambda t: sampling_lib.token_noise(self.keys, t, self.vocab)
    return jax.vmap(draw, 1, 1)(at)


def _logits(sampler: Sampler, model: Model, x: jax.Array) -> jax.Array:
  return decoder.logits_of(*model, x)[..., : sampler.vocab]


def _heard(sampler: Sampler, x, logits, noise) -> Said:
  """What [M, C, V] logits say at hidden states x [M, C, D]; noise as logits."""
  sampling = sampler.sampling
  scores = sampling_lib.filtered(logits, sampling)
  flat = lambda a: a.reshape((-1, a.shape[-1]))
  if noise is not None:
    noise = flat(noise)
  choice = sampling_lib.choose(flat(scores), noise)
  least = None
  if not sampling.full_law:
    least = jnp.where(scores > -jnp.inf, scores, jnp.inf).min(-1)
  return Said(
    choice=choice.reshape(x.shape[:-1]),
    x=x,
    total=jax.nn.logsumexp(scores, -1),
    raw_total=jax.nn.logsumexp(logits, -1),
    least=least,
  )


def read(
  sampler: Sampler,
  model: Model,
  cache: cache_lib.Cache,
  ids: jax.Array,
  at: jax.Array,
  noise: jax.Array | None = None,
) -> tuple[Said, cache_lib.Cache]:
  """One pass of a model over ids [M, C] at positions `at` [M, C].

  Args:
    sampler: how proposals are drawn.
    model: who reads.
    cache: its cache; written.
    ids: the tokens read.
    at: their positions.
    noise: [M, C, V] of these positions if it was kept; else it is drawn.
  """
  x, cache = decoder.decode_step(*model, cache, ids, at, read=sampler.attend)
  noise = sampler.noise(at) if noise is None else noise
  return _heard(sampler, x, _logits(sampler, model, x), noise), cache


@struct.dataclass
class Ahead:
  """What a drafter has written."""

  inputs: jax.Array  # [M, C] int32; the tokens read
  said: Said  # at each of them
  guess: jax.Array  # [M] int32; its last proposal, which it has not read
  before: Said | None  # [M, 1]; at the token before them, read again


def run_ahead(
  sampler: Sampler,
  model: Model,
  cache: cache_lib.Cache,
  token: jax.Array,
  at: jax.Array,
  before: jax.Array | None = None,
  noise: jax.Array | None = None,
) -> tuple[Ahead, cache_lib.Cache]:
  """The drafter alone: it reads its own words one by one.

  Args:
    sampler: how proposals are drawn.
    model: the drafter.
    cache: its cache; written.
    token: [M] int32; the first token read.
    at: [M, C] int32; positions.
    before: [M] int32, the token before it, if the drafter may not have read it
      yet: then the first pass reads both.
    noise: as in `read`.
  """

  def step(carry, now):
    token, cache = carry
    said, cache = read(
      sampler, model, cache, token[:, None], *(x[:, None] for x in now)
    )
    said = jax.tree.map(lambda a: a[:, 0], said)
    return (said.choice, cache), (token, said)

  now = (at,) if noise is None else (at, noise)
  if before is None:
    (guess, cache), out = jax.lax.scan(step, (token, cache), _swapped(now))
    return Ahead(*_swapped(out), guess, None), cache
  ids = jnp.stack([before, token], 1)
  x, cache = decoder.decode_step(
    *model,
    cache,
    ids,
    jnp.stack([at[:, 0] - 1, at[:, 0]], 1),
    read=sampler.attend,
  )
  logits = _logits(sampler, model, x)
  last = _heard(sampler, x[:, :1], logits[:, :1], None)
  drawn = sampler.noise(at[:, :1]) if noise is None else noise[:, :1]
  first = _heard(sampler, x[:, 1:], logits[:, 1:], drawn)
  rest = _swapped(tuple(x[:, 1:] for x in now))
  (guess, cache), out = jax.lax.scan(step, (first.choice[:, 0], cache), rest)
  inputs, said = jax.tree.map(
    lambda a, b: jnp.concatenate([a, b], 1),
    (token[:, None], first),
    _swapped(out),
  )
  return Ahead(inputs, said, guess, last), cache


def _swapped(tree):
  """[C, M, ...] leaves as [M, C, ...], or the other way."""
  return jax.tree.map(lambda a: jnp.swapaxes(a, 0, 1), tree)


class Spoken(NamedTuple):
  """A round's words."""

  inputs: jax.Array  # [M, C] int32; what was read: a token, then its draft
  said: dict[str, Said]  # [M, C]; by model
  before: Said | None  # [M, 1]; of the drafter at the token before; for a bonus
  caches: dict[str, cache_lib.Cache]


def speak(
  sampler: Sampler,
  models: dict[str, Model],
  caches: dict[str, cache_lib.Cache],
  drafter: str | jax.Array,
  token: jax.Array,
  before: jax.Array,
  at: jax.Array,
  *,
  near: bool,
  bonus: bool,
  keep: bool,
) -> Spoken:
  """A draft, and what each model says along it.

  Args:
    sampler: how proposals are drawn.
    models: by name.
    caches: by the same names; and `near`, which the drafter then drafts from.
    drafter: its name, or drafts [M, C - 1] of nobody.
    token: [M] int32; the last token of each row, which nobody has read.
    before: [M] int32; the one before it.
    at: [M, C] int32; the positions.
    near: both read the draft, that the drafter wrote from a cut cache.
    bonus: the last position is for the other model alone.
    keep: noise is drawn for the round, not by each model.
  """
  caches, said, prior = dict(caches), {}, None
  noise = sampler.noise(at) if keep else None
  if not isinstance(drafter, str):
    inputs = jnp.concatenate([token[:, None], drafter], 1)
  else:
    mine, count = 'near' if near else drafter, at.shape[1] - (near or bonus)
    ahead, caches[mine] = run_ahead(
      sampler,
      models[drafter],
      caches[mine],
      token,
      at[:, :count],
      before if near or bonus else None,
      noise[:, :count] if noise is not None else None,
    )
    inputs, prior = ahead.inputs, ahead.before
    if near or bonus:
      inputs = jnp.concatenate([inputs, ahead.guess[:, None]], 1)
    if not near:
      said[drafter] = ahead.said
    if bonus:
      # Its word at the last position is not known; any, then.
      said[drafter] = jax.tree.map(
        lambda a: jnp.concatenate([a, a[:, -1:]], 1), said[drafter]
      )
  for name in models:
    if name not in said:
      said[name], caches[name] = read(
        sampler, models[name], caches[name], inputs, at, noise
      )
  return Spoken(inputs, said, prior, caches)


def record(
  params: decoder.Params,
  cfg: types.ModelConfig,
  said: Said,
  tokens: jax.Array,
  sampling: sampling_lib.Sampling,
) -> tuple[jax.Array, jax.Array]:
  """Log-probs of tokens [M, C] under the law and raw, each [M, C] float32."""
  logit = decoder.logits_at(params, cfg, said.x, tokens)
  raw = jnp.minimum(logit - said.raw_total, 0)  # a sum's rounding aside, <= 0
  if sampling.greedy:
    return jnp.where(tokens == said.choice, 0.0, -jnp.inf), raw
  score = logit / sampling.temperature
  logp = jnp.minimum(score - said.total, 0)
  if said.least is not None:
    logp = jnp.where(score >= said.least - _NEAR_TIE, logp, -jnp.inf)
  return logp, raw

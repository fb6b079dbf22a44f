"""Log-probs of given responses: the one forward behind every scorer.

Rollout records aside, each log-prob in the system (old, current, reference,
junior, teacher) is made here, from hidden states and never from stored logits.
"""

import functools
import re

import chex
from flax import struct
import jax
import jax.numpy as jnp

from tandem import types
from tandem.kernels.token_logprob import api as token_logprob
from tandem.models import decoder

STATS = ('logp', 'entropy', 'contrast', 'kl_teacher', 'kl_teacher_top<K>')
_TOP_KL = re.compile(r'kl_teacher_top([1-9]\d*)')
# Most [rows, V] logits held at once where whole laws are needed: 80 MiB.
_BLOCK_ELEMENTS = 5 * 2**22


@struct.dataclass
class Teacher:
  """A frozen model that reads the same responses under its own prompt."""

  params: decoder.Params  # stacked, or decode_params
  context: types.Context  # ids [N, P'], lengths [N]
  cfg: types.ModelConfig = struct.field(pytree_node=False)


def pack(
  context: types.Context, tokens: jax.Array
) -> tuple[jax.Array, jax.Array]:
  """Each row as prompt then response, without a gap between them.

  Args:
    context: ids [N, P], lengths [N].
    tokens: [N, T] int32.

  Returns:
    ids [N, P + T]: the response starts at column `lengths[i]`; what follows
    it is filler that causality hides. And at [N, T]: the column whose hidden
    state predicts token t, `lengths[i] - 1 + t`.
  """
  n, p = context.ids.shape
  t = tokens.shape[1]
  chex.assert_shape(context.lengths, (n,))
  chex.assert_shape(tokens, (n, t))
  column = jnp.arange(p + t)[None]
  start = context.lengths[:, None]
  prompt = jnp.pad(context.ids, ((0, 0), (0, t)))
  response = jnp.take_along_axis(tokens, jnp.clip(column - start, 0, t - 1), 1)
  ids = jnp.where(column < start, prompt, response)
  return ids, start - 1 + jnp.arange(t)[None]


def score(
  params: decoder.Params,
  cfg: types.ModelConfig,
  context: types.Context,
  tokens: jax.Array,
  *,
  temperature: float = 1.0,
  stats: tuple[str, ...] = ('logp',),
  dtype=None,
  remat: str = 'none',
  constrain=lambda x, name: x,
  attention: decoder.Attention = decoder.xla_attention,
  implementation: str | None = None,
  teacher: Teacher | None = None,
  vocab_mesh: jax.sharding.Mesh | None = None,
) -> dict[str, jax.Array]:
  """Per-token statistics of `params` on the responses.

    logp[i, t] = log softmax(logits(prompt_i, tokens[i, :t]) / temperature)
                 [tokens[i, t]]

  entropy: of that law. contrast: the label's logit over temperature less the
  likeliest other token's (CRINGE's s- - s+). kl_teacher: KL(policy || teacher)
  over the whole vocabulary; kl_teacher_top<K>: the same sum over the policy's K
  likeliest tokens only. All are differentiable in params.

  Values at and after a row's length are finite and mean nothing: mask them.

  Args:
    params: layers stacked.
    cfg: the model.
    context: the prompt this scorer reads, ids [N, P] and lengths [N].
    tokens: [N, T] int32.
    temperature: of the law, above zero; the same on both sides of a ratio.
    stats: among STATS.
    dtype: of the forward; log-probs are float32 whatever it is.
    remat: see decoder.hidden.
    constrain: activation-sharding hook.
    attention: see decoder.hidden.
    implementation: of the token_logprob kernel; None lets it choose. Full
      `kl_teacher` has XLA's program alone.
    teacher: whom the kl_teacher statistics are taken to.
    vocab_mesh: a mesh whose `tensor` axis cuts the vocabulary, so that each
      device reads its own part of the head; None lets XLA gather it.

  Returns:
    {stat: [N, T] float32}.

  Raises:
    ValueError: an unknown statistic, one that lacks its teacher, or a
      temperature not above zero.
  """
  unknown = [s for s in stats if s not in STATS and not _TOP_KL.fullmatch(s)]
  if unknown:
    raise ValueError(f'Statistics {unknown} are unknown; known: {STATS}.')
  if temperature <= 0:
    raise ValueError(
      f'temperature={temperature} leaves no log-probs to score; it must be '
      'above 0. Greedy decoding is for evaluation only.'
    )
  to_teacher = [s for s in stats if s.startswith('kl_teacher')]
  if to_teacher and teacher is None:
    raise ValueError(
      f'Statistics {to_teacher} need a teacher; set config.teacher.source.'
    )
  n, t = tokens.shape
  forward = dict(
    dtype=dtype, remat=remat, constrain=constrain, attention=attention
  )
  x = _states(params, cfg, context, tokens, **forward)
  head, targets = _head(params, cfg, x), tokens.reshape(-1)
  found = {}
  if to_teacher:
    y = _states(teacher.params, teacher.cfg, teacher.context, tokens, **forward)
    y = jax.lax.stop_gradient(y)
    head2 = _head(teacher.params, teacher.cfg, y)
  if 'kl_teacher' in stats:
    out = token_logprob.pair_stats(
      x,
      head,
      y,
      head2,
      targets,
      temperature=temperature,
      entropy='entropy' in stats,
      overlap=False,
      vocab_first=cfg.tied,
      vocab_first2=teacher.cfg.tied,
      mesh=vocab_mesh,
    )
    found['kl_teacher'] = out.kl
  else:
    out = token_logprob.token_logprob(
      x,
      head,
      targets,
      vocab_first=cfg.tied,
      temperature=temperature,
      entropy='entropy' in stats,
      implementation=implementation,
      mesh=vocab_mesh,
    )
  found |= {'logp': out.logp, 'entropy': out.entropy}
  at = functools.partial(_logits_at, params, cfg, x, temperature)
  tops = [s for s in to_teacher if s != 'kl_teacher']
  if tops:
    # One pass over the vocabulary gives each law's normaliser, the label's
    # logit less its log-prob; the K likeliest logits are then gathered.
    law2 = token_logprob.token_logprob(
      y,
      head2,
      targets,
      vocab_first=teacher.cfg.tied,
      temperature=temperature,
      mesh=vocab_mesh,
    )
    at2 = functools.partial(
      _logits_at, teacher.params, teacher.cfg, y, temperature
    )
    norm, norm2 = at(targets) - out.logp, at2(targets) - law2.logp

    def term(ids):
      mine, theirs = at(ids) - norm, at2(ids) - norm2
      return jnp.exp(mine) * (mine - jax.lax.stop_gradient(theirs))

    for name in tops:
      top = _top(x, head, cfg.tied, int(_TOP_KL.fullmatch(name)[1]))
      # One of the K at a time, also in the backward pass: [M, D] of columns.
      found[name] = jax.lax.map(jax.checkpoint(term), top.T).sum(0)
  if 'contrast' in stats:
    rival = _top(x, head, cfg.tied, 1, without=targets)[:, 0]
    found['contrast'] = at(targets) - at(rival)
  return {name: found[name].reshape(n, t) for name in stats}


def _states(params, cfg, context, tokens, **forward) -> jax.Array:
  """[N * T, D]: hidden states that predict the response's tokens."""
  ids, at = pack(context, tokens)
  x = decoder.hidden(params, cfg, ids, **forward)
  x = jnp.take_along_axis(x, at[:, :, None], 1)  # [N, T, D]
  return x.reshape(-1, x.shape[-1])


def _head(params, cfg, x) -> jax.Array:
  """[V, D] when tied, else [D, V]; in x's dtype."""
  # The embedding itself: XLA would copy all of its transpose.
  return params['embed' if cfg.tied else 'head'].astype(x.dtype)


def _logits_at(params, cfg, x, temperature, ids) -> jax.Array:
  """[M]: the logit of one id per row, over the temperature."""
  return decoder.logits_at(params, cfg, x, ids) / temperature


def _top(x, head, tied: bool, k: int, without=None) -> jax.Array:
  """[M, k] ids of the largest logits, by blocks of rows; no gradient."""
  x, head = jax.lax.stop_gradient((x, head))
  m, vocab = x.shape[0], head.shape[0 if tied else 1]
  size = max(1, min(m, _BLOCK_ELEMENTS // vocab))
  without = jnp.full(m, -1) if without is None else without

  def block(row):
    x, skip = row
    spec = 'd,vd->v' if tied else 'd,dv->v'
    logits = jnp.einsum(spec, x, head, preferred_element_type=jnp.float32)
    logits = jnp.where(jnp.arange(vocab) == skip, -jnp.inf, logits)
    return jax.lax.top_k(logits, k)[1]

  return jax.lax.map(block, (x, without), batch_size=size)

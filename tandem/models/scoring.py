"""Log-probs of given responses: the one forward behind every scorer.

Rollout records aside, each log-prob in the system (old, current, reference,
junior, teacher) is made here, from hidden states and never from stored logits.
"""

import chex
import jax
import jax.numpy as jnp

from tandem import types
from tandem.kernels.token_logprob import api as token_logprob
from tandem.models import decoder

STATS = ('logp', 'entropy')


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
  implementation: str | None = None,
) -> dict[str, jax.Array]:
  """Per-token statistics of `params` on the responses.

    logp[i, t] = log softmax(logits(prompt_i, tokens[i, :t]) / temperature)
                 [tokens[i, t]]

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
    implementation: of the token_logprob kernel; None lets it choose.

  Returns:
    {stat: [N, T] float32}.

  Raises:
    ValueError: an unknown statistic, or a temperature not above zero.
  """
  unknown = sorted(set(stats) - set(STATS))
  if unknown:
    raise ValueError(f'Statistics {unknown} are unknown; known: {STATS}.')
  if temperature <= 0:
    raise ValueError(
      f'temperature={temperature} leaves no log-probs to score; it must be '
      'above 0. Greedy decoding is for evaluation only.'
    )
  n, t = tokens.shape
  ids, at = pack(context, tokens)
  x = decoder.hidden(
    params, cfg, ids, dtype=dtype, remat=remat, constrain=constrain
  )
  x = jnp.take_along_axis(x, at[:, :, None], 1)  # [N, T, D]
  out = token_logprob.token_logprob(
    x.reshape(n * t, -1),
    # The embedding itself: XLA would copy all of its transpose.
    params['embed' if cfg.tied else 'head'].astype(x.dtype),
    tokens.reshape(-1),
    vocab_first=cfg.tied,
    temperature=temperature,
    entropy='entropy' in stats,
    implementation=implementation,
  )
  found = {'logp': out.logp, 'entropy': out.entropy}
  return {name: found[name].reshape(n, t) for name in stats}

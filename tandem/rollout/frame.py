"""What the decode loops share: checks, first tokens, caches, buffers, results."""

import chex
import jax
import jax.numpy as jnp

from tandem import types
from tandem.models import cache as cache_lib
from tandem.models import decoder


def check(
  senior_cfg: types.ModelConfig,
  junior_cfg: types.ModelConfig | None,
  prompts: types.Context,
  row_keys: jax.Array,
  group: int,
  boundary: jax.Array,
) -> int:
  """V, the vocabulary that the writers share; raises where shapes disagree."""
  n = row_keys.shape[0]
  b = prompts.ids.shape[0]
  if b * group != n:
    raise ValueError(
      f'{b} prompts with group={group} are {b * group} rows, but {n} row keys '
      'were given; give one key per row, siblings adjacent.'
    )
  vocab = senior_cfg.vocab
  if junior_cfg is not None:
    vocab = min(vocab, junior_cfg.vocab)
  if boundary.shape[0] < vocab:
    raise ValueError(
      f'The boundary table has {boundary.shape[0]} entries for a vocabulary of '
      f'{vocab}; build it with text.boundaries.boundary_table(tokenizer, '
      'vocab=...).'
    )
  chex.assert_shape(prompts.lengths, (b,))
  return vocab


def last_tokens(prompts: types.Context) -> jax.Array:
  """[B] int32, the last token of each prompt.

  It is left to the loop, whose first step reads it; so the prefill makes keys
  and values only, and the loop is uniform.
  """
  at = prompts.lengths[:, None] - 1
  return jnp.take_along_axis(prompts.ids, at, 1)[:, 0]


def start_cache(
  params: decoder.Params,
  cfg: types.ModelConfig,
  prompts: types.Context,
  attention: decoder.Attention = decoder.xla_attention,
  **options,
) -> cache_lib.Cache:
  """A cache that has read the prompts but for their last tokens.

  Args:
    params: decode_params.
    cfg: the model.
    prompts: ids [B, P], lengths [B].
    attention: see decoder.hidden.
    **options: of cache.allocate.
  """
  prefix = decoder.prefill(params, cfg, prompts.ids, attention)
  return cache_lib.allocate(cfg, prefix, prompts.lengths - 1, **options)


def windows(first: int | None, max_tokens: int) -> tuple[int, ...]:
  """Cache sizes of a chain of loops, each twice the last, up to max_tokens.

  A loop reads every slot that its cache has, so a short response should not
  meet a cache made for the longest. Each loop is compiled.

  Args:
    first: slots of the first; None for one loop with all.
    max_tokens: T.

  Raises:
    ValueError: first is below 1.
  """
  if first is not None and first < 1:
    raise ValueError(
      f'window={first} must be at least 1 slot; None is one loop over all.'
    )
  sizes, size = [], first or max_tokens
  while size < max_tokens:
    sizes.append(size)
    size *= 2
  return (*sizes, max_tokens)


def buffers(rows: int, max_tokens: int, pair: bool) -> dict[str, jax.Array]:
  """Zeroed [N, T] arrays of a Rollout, by field; both models' or one's."""
  kinds = {'tokens': jnp.int32} | ({'author': jnp.bool_} if pair else {})
  for name in ('senior', 'junior') if pair else ('senior',):
    kinds |= {f'logp_{name}': jnp.float32, f'raw_{name}': jnp.float32}
  return {k: jnp.zeros((rows, max_tokens), d) for k, d in kinds.items()}


def rollout(
  out: dict[str, jax.Array], lengths: jax.Array, eos: jax.Array
) -> types.Rollout:
  """The loop's buffers as a Rollout.

  Args:
    out: by field, [N, T].
    lengths: [N] int32.
    eos: [N] bool; ended by EOS, the rest by the length limit.
  """
  finish = jnp.where(
    eos, types.FINISH.index('eos'), types.FINISH.index('length')
  )
  return types.Rollout(
    tokens=out['tokens'],
    lengths=lengths,
    author=out.get('author'),
    logp_senior=out['logp_senior'],
    logp_junior=out.get('logp_junior'),
    raw_senior=out['raw_senior'],
    raw_junior=out.get('raw_junior'),
    finish=finish.astype(jnp.int8),
  )

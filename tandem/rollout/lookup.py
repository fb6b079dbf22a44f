"""Drafts without a model: what followed when the row last wrote this.

The last tokens of a row (up to three) are sought in its own prompt and
response, the longest and latest earlier match is taken, and the tokens after it
are the draft. Worth its nothing where text repeats: names, numbers, restated
problems, code.

Source: prompt lookup decoding (Saxena, 2023), which is n-gram drafting for
speculative decoding (arXiv 2211.17192).
"""

import chex
import jax
import jax.numpy as jnp


def draft(
  text: jax.Array, end: jax.Array, count: int, *, longest: int = 3
) -> jax.Array:
  """The next tokens of each row, guessed from its own text.

  A match so late that fewer than `count` tokens follow it is a repetition of
  that period, and is gone on with.

  Args:
    text: [N, W] int32; the row's prompt and response without a gap.
    end: [N] int32, at least 1; tokens of the row so far. What lies after is
      not read.
    count: tokens to draft.
    longest: most tokens that a match may have; more change nothing.

  Returns:
    [N, count] int32. Where nothing matches, the row's last token again.
  """
  chex.assert_rank([text, end], [2, 1])
  width = text.shape[1]
  index = jnp.arange(width)[None]
  last = end[:, None] - 1  # [N, 1]
  earlier = index < last  # [N, W]; here a match may end
  alike, run = earlier, jnp.zeros(text.shape, jnp.int32)
  for back in range(longest):
    wanted = jnp.take_along_axis(text, jnp.maximum(last - back, 0), 1)
    alike &= (jnp.roll(text, back, 1) == wanted) & (index >= back)
    run += alike
  # Longest first, then latest; with no match the place before the last token.
  best = jnp.argmax(jnp.where(earlier, run * width + index, -1), 1)[:, None]
  period = jnp.maximum(last - best, 1)
  ahead = jnp.where(last > 0, best + 1 + jnp.arange(count)[None] % period, 0)
  return jnp.take_along_axis(text, ahead, 1)

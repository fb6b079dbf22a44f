"""The definition, on whole rows: noise in memory, log-softmax, then a choice."""

import jax
import jax.numpy as jnp

Array = jax.Array


def noise(keys: Array, vocab: int) -> Array:
  """[N, V] float32 Gumbel noise of keys [N, 2] uint32."""

  def row(key):
    key = jax.random.wrap_key_data(key, impl='threefry2x32')
    return jax.random.bits(key, (vocab,), jnp.uint32)

  uniform = (jax.vmap(row)(keys).astype(jnp.float32) + 0.5) * 2.0**-32
  return -jnp.log(-jnp.log1p(-jnp.minimum(uniform, 1 - 2.0**-24)))


def scores(logits: Array, least: Array | None, temperature: float) -> Array:
  """Tempered logits [N, V], -inf where logits are below the least kept."""
  logits = logits.astype(jnp.float32)
  if temperature == 0:
    first = jnp.argmax(logits, 1)[:, None] == jnp.arange(logits.shape[1])[None]
    return jnp.where(first, 0.0, -jnp.inf)
  scores = logits / temperature if temperature != 1 else logits
  if least is None:
    return scores
  return jnp.where(logits >= least[:, None], scores, -jnp.inf)


def handoff_sample(
  senior: Array,
  junior: Array,
  keys: Array,
  boundary: Array,
  author: Array,
  coin: Array | None,
  may_change: Array | None,
  least: tuple[Array | None, Array | None],
  temperature: float,
) -> tuple[Array, ...]:
  """token, author, starts_word, logp x 2, raw x 2; see api.handoff_sample."""
  gumbel = 0.0 if temperature == 0 else noise(keys, senior.shape[1])
  laws = [scores(z, x, temperature) for z, x in zip((senior, junior), least)]
  mine, other = (jnp.argmax(s + gumbel, 1).astype(jnp.int32) for s in laws)
  if coin is not None:
    open_word = boundary[mine] & boundary[other] & may_change
    author = jnp.where(open_word, coin, author)
  token = jnp.where(author, mine, other)
  at = lambda x: jnp.take_along_axis(
    jax.nn.log_softmax(x.astype(jnp.float32)), token[:, None], 1
  )[:, 0]
  return (token, author, boundary[token], *map(at, (*laws, senior, junior)))

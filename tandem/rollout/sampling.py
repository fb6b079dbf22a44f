"""What is drawn: the noise of a position, the law of a token, and the choice.

The noise of a token is a function of its row's key and its position, and of
nothing else: not of the batch row, the neighbours, padding, sharding, or how
the batch was split. Rows come with one key each (`training.keys`); a stream
constant and the position are folded in, and no key is ever split. Position
counts emitted tokens of the episode, never cache slots.

A token is the argmax of filtered, tempered logits plus Gumbel noise. Senior and
junior read the same noise at a position; only one of the two samples is ever
emitted, and (but for `strict_word`) its author is fixed before, so each token
follows its author's law exactly.
"""

from collections.abc import Callable
import dataclasses
import math

import chex
import jax
import jax.numpy as jnp

from tandem.kernels.handoff_sample import api as kernel
from tandem.kernels.handoff_sample import noise as noise_lib

# Streams under a row's key: a coin must not be made of a token's noise.
_TOKEN_STREAM = 0
_COIN_STREAM = 1

# Places of the two infinities in the order of float32, see `_as_float`.
_MINUS_INFINITY = -0x7F800001
_INFINITY = 0x7F800000


@dataclasses.dataclass(frozen=True)
class Sampling:
  """How a token is drawn from logits; hashable, so static under jit.

  The order is temperature, top-k, top-p, each on what the one before left.

  Attributes:
    temperature: logits are divided by it; 0 is greedy, the first of the
      largest logits for certain.
    top_k: keep the k largest logits and all equal to the k-th; 0 is off, and
      -1 is read as 0.
    top_p: keep the smallest set of most likely ids whose mass reaches top_p,
      and all as likely as its last; 1 is off.

  Raises:
    ValueError: a negative or infinite temperature, top_k below -1, top_p
      outside (0, 1].
  """

  temperature: float = 1.0
  top_k: int = 0
  top_p: float = 1.0

  def __post_init__(self):
    if not (math.isfinite(self.temperature) and self.temperature >= 0):
      raise ValueError(
        f'sampling.temperature={self.temperature} must be finite and at least '
        '0; 0 is greedy, 1 the model as it is.'
      )
    if self.top_k < -1:
      raise ValueError(
        f'sampling.top_k={self.top_k} must be a count of ids to keep; 0 or -1 '
        'keeps all.'
      )
    if not 0 < self.top_p <= 1:
      raise ValueError(
        f'sampling.top_p={self.top_p} must be in (0, 1]; 1 keeps all ids. For '
        'greedy choice set temperature to 0.'
      )
    # One spelling of "off", so that equal laws are equal and compile once.
    object.__setattr__(self, 'top_k', max(self.top_k, 0))

  @property
  def greedy(self) -> bool:
    """True where the choice reads no noise."""
    return self.temperature == 0

  @property
  def full_law(self) -> bool:
    """True where every id keeps a positive probability; training needs it."""
    return not self.greedy and self.top_k == 0 and self.top_p == 1


def _fold(row_keys, stream, position):
  """[N] keys of one stream at one position per row."""
  chex.assert_rank([row_keys, position], 1)
  chex.assert_equal_shape([row_keys, position])
  implementation = str(jax.random.key_impl(row_keys))
  if implementation != 'threefry2x32':
    # `rbg` under vmap draws for the whole batch from its first key.
    raise ValueError(
      f'row keys are of the {implementation} generator, whose draws under vmap '
      'depend on the batch; make them with '
      "jax.random.key(seed, impl='threefry2x32')."
    )

  def one(key, t):
    return jax.random.fold_in(jax.random.fold_in(key, stream), t)

  return jax.vmap(one)(row_keys, position)


def token_noise(
  row_keys: jax.Array, position: jax.Array, vocab: int
) -> jax.Array:
  """Standard Gumbel noise of one position per row.

    u = (bits + 1/2) / 2^32,   noise = -log(-log(1 - u))

  The largest values, which decide who wins, come from u near 0, where a
  float32 keeps all 32 bits. `jax.random.gumbel` takes them from u near 1, in
  steps of 2^-23: an id less likely than about 1e-7 is then hardly ever drawn,
  and a vocabulary of 150,000 often ties at the top. Always finite.

  Args:
    row_keys: [N] typed threefry keys, one per row; folded, not consumed.
    position: [N] int32. Emitted tokens of the episode before this one.
    vocab: V.

  Returns:
    [N, V] float32.

  Raises:
    ValueError: keys of a generator whose draws depend on the batch.
  """
  keys = jax.random.key_data(_fold(row_keys, _TOKEN_STREAM, position))
  entry = jnp.arange(vocab, dtype=jnp.uint32)[None]
  # The bits of jax.random.bits(key, (V,)), in one expression: XLA makes jax's
  # own on a CPU in loops over whole arrays.
  return noise_lib.gumbel(noise_lib.bits(keys[:, :1], keys[:, 1:], entry))


def coins(row_keys: jax.Array, position: jax.Array, p: float) -> jax.Array:
  """One Bernoulli(p) of one position per row, in a stream of its own.

  Args:
    row_keys: [N] typed threefry keys, one per row; folded, not consumed.
    position: [N] int32. The position whose author the coin may name.
    p: chance of True (senior); 0 and 1 are certain.

  Returns:
    [N] bool.

  Raises:
    ValueError: keys of a generator whose draws depend on the batch.
  """
  keys = _fold(row_keys, _COIN_STREAM, position)
  return jax.vmap(lambda key: jax.random.bernoulli(key, p))(keys)


def _as_float(order):
  """The float32 at a place in the floats' order: int32 to float32."""
  # Bit patterns order as the floats do, backwards below zero.
  bits = jnp.where(order < 0, order ^ 0x7FFFFFFF, order)
  return jax.lax.bitcast_convert_type(bits, jnp.float32)


def _cut(values, weight, limit):
  """Keeps an entry if those strictly greater weigh less than `limit`.

  No sort: the weight above a threshold falls as the threshold rises, so the
  smallest threshold with less than `limit` above it is found by halving, over
  all floats in their order. That is exact in 32 sums and never parts equals;
  at 151,936 ids on a CPU a sort or `lax.top_k` takes 17 to 42 times as long.

  Args:
    values: [..., V] float32.
    weight: [..., V] of what an entry adds, as float32.
    limit: above zero.

  Returns:
    [..., V] bool.
  """
  rows = values.shape[:-1] + (1,)
  below = jnp.full(rows, _MINUS_INFINITY, jnp.int32)
  enough = jnp.full(rows, _INFINITY, jnp.int32)

  def halve(_, bounds):
    below, enough = bounds  # only above `enough` there is less than `limit`
    # The average, rounded down, of two numbers whose sum may overflow; it
    # stays at `below` once the two are neighbours.
    middle = (below & enough) + ((below ^ enough) >> 1)
    above = jnp.where(values > _as_float(middle), weight, 0)
    fits = above.sum(-1, keepdims=True) < limit
    return jnp.where(fits, below, middle), jnp.where(fits, middle, enough)

  _, enough = jax.lax.fori_loop(0, 32, halve, (below, enough))
  return values >= _as_float(enough)


def filtered(logits: jax.Array, sampling: Sampling) -> jax.Array:
  """Tempered, filtered logits: the law up to a constant per row.

  Args:
    logits: [..., V] float32 or lower; -inf is allowed, not in a whole row.
    sampling: the law's settings.

  Returns:
    [..., V] float32; -inf where an id is not kept. Greedy: 0 at the first
    largest logit and -inf elsewhere.
  """
  logits = logits.astype(jnp.float32)
  if sampling.greedy:
    best = _first_largest(logits)
    chosen = jax.nn.one_hot(best, logits.shape[-1], dtype=bool)
    return jnp.where(chosen, 0.0, -jnp.inf)
  # A division by 1 is left out so that the plain law is the logits' own bits.
  if sampling.temperature != 1:
    logits = logits / sampling.temperature
  if sampling.top_k:
    kept = _cut(logits, jnp.ones_like(logits), sampling.top_k)
    logits = jnp.where(kept, logits, -jnp.inf)
  if sampling.top_p < 1:
    probs = jax.nn.softmax(logits, axis=-1)
    logits = jnp.where(_cut(probs, probs, sampling.top_p), logits, -jnp.inf)
  return logits


def law(logits: jax.Array, sampling: Sampling) -> jax.Array:
  """Log-probabilities from which a token is drawn; kept ones sum to 1.

  Args:
    logits: [..., V] float32 or lower.
    sampling: the law's settings.

  Returns:
    [..., V] float32; -inf where an id is not kept.
  """
  return jax.nn.log_softmax(filtered(logits, sampling), axis=-1)


def choose(scores: jax.Array, noise: jax.Array | None) -> jax.Array:
  """The token drawn: argmax of scores and noise, the first of equals.

  Args:
    scores: [N, V] float32. What `filtered` or `law` returns; the two differ by
      a constant per row, hence in rounding only, so one program family should
      use one of them.
    noise: [N, V] float32 from `token_noise`; None for a greedy law, which the
      noise could not move anyway.

  Returns:
    [N] int32.
  """
  chex.assert_rank(scores, 2)
  if noise is not None:
    chex.assert_equal_shape([scores, noise])
    scores = scores + noise
  return _first_largest(scores)


def _first_largest(x: jax.Array) -> jax.Array:
  """argmax of x [..., V] over V, int32."""

  def two_passes(x):
    # One by one, a CPU's argmax also takes the noise's logarithms so. Made
    # first, then reduced twice, all is vectors: a quarter of the time.
    x = jax.lax.optimization_barrier(x)
    size = x.shape[-1]
    index = jax.lax.broadcasted_iota(jnp.int32, x.shape, x.ndim - 1)
    largest = x == x.max(-1, keepdims=True)
    # Where a NaN is the largest, nothing equals it: any id, but an id.
    return jnp.where(largest, index, size - 1).min(-1)

  argmax = lambda x: jnp.argmax(x, axis=-1).astype(jnp.int32)
  return jax.lax.platform_dependent(x, cpu=two_passes, default=argmax)


def gather_logp(scores: jax.Array, tokens: jax.Array) -> jax.Array:
  """Log-prob of given tokens, without a normalised [.., V] array.

  Args:
    scores: [..., V] unnormalised: raw logits, or what `filtered` returns.
    tokens: [...] int32.

  Returns:
    [...] float32; -inf where the law does not keep the token, as may happen to
    the model that did not speak.
  """
  chex.assert_equal_shape_prefix([scores, tokens], tokens.ndim)
  scores = scores.astype(jnp.float32)
  taken = jnp.take_along_axis(scores, tokens[..., None], axis=-1)[..., 0]
  return taken - jax.nn.logsumexp(scores, axis=-1)


def drawer(
  implementation: str, mesh: jax.sharding.Mesh | None = None
) -> Callable[..., kernel.Handoff]:
  """A function that draws for a pair by a kernel of kernels.handoff_sample.

  The token, its author and the record are those of `filtered`, `choose`,
  `turns.speaker` and `gather_logp`, in one pass over both models' logits. A
  filter costs its own passes, as there.

  Args:
    implementation: among those of handoff_sample.
    mesh: the mesh that cuts rows and vocabulary, where none is active.
  """

  def draw(
    senior, junior, row_keys, position, boundary, author, *, sampling, **turn
  ):
    least = (None, None)
    if not sampling.greedy and not sampling.full_law:
      # The threshold that a filter comes to.
      least = tuple(
        jnp.where(filtered(z, sampling) > -jnp.inf, z, jnp.inf).min(-1)
        for z in (senior, junior)
      )
    return kernel.handoff_sample(
      senior,
      junior,
      jax.random.key_data(_fold(row_keys, _TOKEN_STREAM, position)),
      boundary,
      author,
      least=least,
      temperature=sampling.temperature,
      implementation=implementation,
      mesh=mesh,
      **turn,
    )

  return draw

"""Arguments of token_logprob, a run of it, and the comparison with the dense one."""

import jax
import jax.numpy as jnp
import numpy as np

from tandem.kernels.token_logprob import api

# What is summed in float32, whatever the inputs' dtype.
VALUES = ('kl', 'overlap', 'logp', 'entropy')


def make(m, d, v, dtype=jnp.float32):
  """hidden, head, targets, two cotangents; logits of order 1."""
  rng = np.random.default_rng(m * 1000 + v)
  normal = lambda *shape: rng.standard_normal(shape, np.float32)
  hidden = jnp.asarray(normal(m, d), dtype)
  head = jnp.asarray(normal(d, v) / d**0.5, dtype)
  targets = rng.integers(0, v, m, np.int32)
  targets[-1] = v - 1  # the very end of the tail
  return hidden, head, jnp.asarray(targets), normal(2, m)


def close(got, want, tolerance):
  got, want = np.asarray(got, np.float64), np.asarray(want, np.float64)
  assert got.shape == want.shape
  error = np.abs(got - want).max() / max(np.abs(want).max(), 1e-30)
  assert error <= tolerance, f'{error:.3g} of the largest value'


def run(name, hidden, head, targets, g, *, entropy, vocab_first, **kwargs):
  """TokenStats and (d hidden, d head [D, V]) of an implementation."""

  def f(hidden, head):
    return api.token_logprob(
      hidden,
      head.T if vocab_first else head,
      targets,
      entropy=entropy,
      vocab_first=vocab_first,
      implementation=name,
      **kwargs,
    )

  stats, vjp = jax.vjp(f, hidden, head)
  return stats, vjp(api.TokenStats(g[0], g[1] if entropy else None))

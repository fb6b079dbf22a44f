"""One whole step of a variant, for tests of its terms."""

import jax

from tandem import losses
from tests.losses import batches


def credit(name, batch, state=None, **fields):
  """(Credit, state, metrics) as the variant's own state begins, or `state`."""
  variant, cfg = losses.get(name), losses.make_config(name, **fields)
  state = variant.init_state(cfg) if state is None else state
  return variant.credit(batch, state, cfg)


def terms(name, batch, stats, state=None, **fields):
  """{term: (sum, count, gradient of the sum by statistic)}."""
  paid, _, _ = credit(name, batch, state, **fields)
  variant, cfg = losses.get(name), losses.make_config(name, **fields)

  def sums(stats):
    out = variant.objective(stats, paid, cfg)
    return {term: total for term, (total, _) in out.items()}, out

  _, pull, out = jax.vjp(sums, stats, has_aux=True)
  zeros = dict.fromkeys(out, 0.0)
  return {term: (*out[term], *pull(zeros | {term: 1.0})) for term in out}


def gradient(name, batch, stats, state=None, **fields):
  """Gradient of the whole loss by statistic."""
  paid, _, _ = credit(name, batch, state, **fields)
  variant, cfg = losses.get(name), losses.make_config(name, **fields)
  loss = lambda stats: batches.loss(variant.objective(stats, paid, cfg))
  return jax.grad(loss)(stats)

"""A policy of two steps over three symbols, small enough to enumerate."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np

from tandem import losses
from tests.losses import batches

VOCAB, STEPS = 3, 2
SEQUENCES = np.array(list(itertools.product(range(VOCAB), repeat=STEPS)))


def tables(seed):
  """A law for the first token, and one for the second after each first."""
  rng = np.random.default_rng(seed)
  return {
    'first': jnp.asarray(rng.normal(size=VOCAB)),
    'second': jnp.asarray(rng.normal(size=(VOCAB, VOCAB))),
  }


def logp(policy, tokens):
  """[N, 2] log-probs of tokens [N, 2]."""
  first, second = jax.tree.map(jax.nn.log_softmax, policy).values()
  first = first[tokens[:, 0]]
  return jnp.stack([first, second[tokens[:, 0], tokens[:, 1]]], axis=1)


def position_kl(policy, teacher, tokens):
  """[N, 2] KL(policy || teacher) of the whole law at each position."""
  laws = [jax.tree.map(jax.nn.log_softmax, x) for x in (policy, teacher)]
  kl = jax.tree.map(lambda p, q: jnp.sum(jnp.exp(p) * (p - q), axis=-1), *laws)
  first = jnp.broadcast_to(kl['first'], tokens.shape[:1])
  return jnp.stack([first, kl['second'][tokens[:, 0]]], axis=1)


def sequence_kl(policy, teacher):
  """K = E[log p(y) - log q(y)] over all sequences."""
  p, q = (jnp.sum(logp(x, SEQUENCES), axis=1) for x in (policy, teacher))
  return jnp.sum(jnp.exp(p) * (p - q))


def batch(policy, teacher, tokens, group):
  """Those tokens as a step, scored by both."""
  n = tokens.shape[0]
  old = logp(policy, tokens)
  return batches.step_batch((STEPS,) * n, group=group, width=STEPS).replace(
    tokens=tokens,
    scores={'old': old, 'teacher': logp(teacher, tokens)},
  )


def distil(name, policy, teacher, *, steps=50, rate=0.5, **fields):
  """Exact K after each of `steps` sampled updates, [steps]."""
  variant, cfg = losses.get(name), losses.make_config(name, **fields)

  def sample(key, policy):
    one, two = jax.random.split(key)
    first = jax.random.categorical(one, policy['first'], shape=(64,))
    second = jax.random.categorical(two, policy['second'][first])
    return jnp.stack([first, second], axis=1)

  def update(carry, key):
    policy, state = carry
    step = batch(policy, teacher, sample(key, policy), 8)
    credit, state, _ = variant.credit(step, state, cfg)

    def loss(policy):
      stats = {
        'logp': logp(policy, step.tokens),
        'kl_teacher': position_kl(policy, teacher, step.tokens),
      }
      return batches.loss(variant.objective(stats, credit, cfg))

    grads = jax.grad(loss)(policy)
    policy = jax.tree.map(lambda p, g: p - rate * g, policy, grads)
    return (policy, state), sequence_kl(policy, teacher)

  keys = jax.random.split(jax.random.key(0), steps)
  start = policy, variant.init_state(cfg)
  return jax.jit(lambda c, k: jax.lax.scan(update, c, k)[1])(start, keys)

"""The senior-only score gradient is the mixture's, by enumeration.

A pair of policies over four symbols (one ends the response, one is a
boundary) writes up to three tokens; a coin falls at the start, after a
boundary, and at the cap. Every response with every course of authors is a row
here, so expectations are sums, in float64.
"""

import functools
import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tandem import losses
from tests.losses import batches
from tests.losses import two_step

EOS, BOUNDARY, VOCAB = 0, 1, 4
P, CAP = 0.3, 2


def paths(steps):
  """Every (tokens, authors, probability of the authors given the tokens)."""
  out = []

  def extend(tokens, authors, since, coins, author):
    if tokens and (tokens[-1] == EOS or len(tokens) == steps):
      out.append((tokens, authors, coins))
      return
    turn = ((True, P), (False, 1 - P)) if author is None else ((author, 1.0),)
    for speaker, chance in turn:
      for token in range(VOCAB):
        again = token == BOUNDARY or since + 1 >= CAP
        extend(
          (*tokens, token),
          (*authors, speaker),
          0 if again else since + 1,
          coins * chance,
          None if again else speaker,
        )

  extend((), (), 0, 1.0, None)
  return out


class Pair:
  """Both policies' tables, the paths, and what depends on the senior."""

  def __init__(self, steps):
    rng = np.random.default_rng(steps)
    rows = paths(steps)
    shape = (len(rows), steps)
    self.tokens, self.author, self.valid = (
      np.zeros(shape, int),
      np.zeros(shape, bool),
      np.zeros(shape, bool),
    )
    for i, (tokens, authors, _) in enumerate(rows):
      self.tokens[i, : len(tokens)] = tokens
      self.author[i, : len(tokens)] = authors
      self.valid[i, : len(tokens)] = True
    self.coins = np.array([coins for *_, coins in rows])
    # A law per position and previous token; its last row begins a response.
    table = (steps, VOCAB + 1, VOCAB)
    self.senior = jnp.asarray(rng.normal(size=table))
    self.junior = jnp.asarray(rng.normal(size=table))
    self.previous = np.concatenate(
      [np.full((len(rows), 1), VOCAB), self.tokens[:, :-1]], axis=1
    )
    by_tokens = {}
    for tokens in self.tokens:  # a reward of the text, whoever wrote it
      by_tokens.setdefault(tuple(tokens), rng.normal())
    self.rewards = np.array([by_tokens[tuple(t)] for t in self.tokens])

  def logp(self, table):
    """[rows, steps] log-probs of the tokens under one policy."""
    law = jax.nn.log_softmax(table, axis=-1)
    return law[np.arange(self.tokens.shape[1]), self.previous, self.tokens]

  def probability(self, senior):
    spoken = jnp.where(self.author, self.logp(senior), self.logp(self.junior))
    return self.coins * jnp.exp(jnp.where(self.valid, spoken, 0).sum(axis=1))

  def reward(self, senior):
    return jnp.sum(self.probability(senior) * self.rewards)

  def batch(self, index, rewards, group):
    old = self.logp(self.senior)
    n = len(index)
    base = batches.step_batch((1,) * n, group=group, width=old.shape[1])
    return base.replace(
      tokens=jnp.asarray(self.tokens[index]),
      valid=jnp.asarray(self.valid[index]),
      author=jnp.asarray(self.author[index]),
      rewards=jnp.asarray(rewards),
      scores={'old': old[index]},
    )

  def gradient(self, batch, index, row_weight, name='tandem', **fields):
    """Gradient in the senior's table of the objective's weighted rows."""
    cfg = losses.make_config(
      name, scale_by_std=False, agg='seq-mean-token-sum', **fields
    )
    variant = losses.get(name)
    credit, _, _ = variant.credit(batch, {}, cfg)
    # Rows of a mean over samples come as often as they are likely.
    paid = credit.rows['advantage'] * row_weight
    credit = credit.replace(rows=credit.rows | {'advantage': paid})

    def total(senior):
      terms = variant.objective({'logp': self.logp(senior)[index]}, credit, cfg)
      return terms['policy'][0]

    return -jax.jit(jax.grad(total))(self.senior)


@functools.cache
def pair(steps):
  return Pair(steps)


def test_score_gradient_is_the_gradient_of_expected_reward():
  """A = R: groups of one. The reward may depend on the junior's tokens too."""
  with jax.enable_x64(True):
    two = pair(3)
    index = np.arange(len(two.tokens))
    batch = two.batch(index, two.rewards, 1)
    weight = two.probability(two.senior)
    np.testing.assert_allclose(weight.sum(), 1)  # no path is missing
    truth = jax.jit(jax.grad(two.reward))(two.senior)
    got = two.gradient(batch, index, weight)
    np.testing.assert_allclose(got, truth, atol=1e-12)
    # Without the gate the junior's choices would be credited to the senior.
    ungated = two.gradient(batch, index, weight, name='grpo')
    assert np.abs(ungated - truth).max() > 1e-3


def test_group_baseline_scales_by_one_less_than_the_group():
  """Over all ordered pairs of siblings: (1 - 1/G) of the gradient, G = 2."""
  with jax.enable_x64(True):
    two = pair(2)
    count = len(two.tokens)
    index = np.array(list(itertools.product(range(count), repeat=2))).reshape(
      -1
    )
    chance = np.asarray(two.probability(two.senior))
    both = np.repeat(chance[index[::2]] * chance[index[1::2]], 2)
    batch = two.batch(index, two.rewards[index], 2)
    # Each sample of two is averaged over its rows.
    got = two.gradient(batch, index, both / 2)
    truth = jax.grad(two.reward)(two.senior)
    np.testing.assert_allclose(got, truth / 2, atol=1e-12)


@pytest.mark.parametrize('scaled', [False, True])
def test_surrogate_of_grpo_at_ratio_one(scaled):
  """Two steps, three symbols, groups of two: half the score gradient.

  With the division by the deviation each pair that differs pays +-.707, and
  what is climbed is another function than the expected reward.
  """
  with jax.enable_x64(True):
    policy = two_step.tables(3)
    rewards = np.random.default_rng(4).normal(size=len(two_step.SEQUENCES))
    index = np.array(list(itertools.product(range(9), repeat=2))).reshape(-1)
    tokens = jnp.asarray(two_step.SEQUENCES[index])
    batch = two_step.batch(policy, policy, tokens, 2)
    batch = batch.replace(rewards=jnp.asarray(rewards[index]))
    variant = losses.get('grpo')
    cfg = losses.make_config(
      'grpo', agg='seq-mean-token-sum', scale_by_std=scaled
    )
    credit, _, _ = variant.credit(batch, {}, cfg)
    chance = jnp.exp(two_step.logp(policy, two_step.SEQUENCES).sum(axis=1))
    both = jnp.repeat(chance[index[::2]] * chance[index[1::2]], 2)
    # Each sample of two is averaged over its rows, and comes as it is likely.
    paid = credit.rows['advantage'] * both / 2
    credit = credit.replace(rows=credit.rows | {'advantage': paid})

    def surrogate(policy):
      stats = {'logp': two_step.logp(policy, tokens)}
      return variant.objective(stats, credit, cfg)['policy'][0]

    def reward(policy):
      logp = two_step.logp(policy, two_step.SEQUENCES).sum(axis=1)
      return jnp.sum(jnp.exp(logp) * rewards)

    got = jax.jit(jax.grad(surrogate))(policy)
    truth = jax.jit(jax.grad(reward))(policy)
    gap = jax.tree.map(lambda g, w: np.abs(g + w / 2).max(), got, truth)
    if scaled:
      assert min(gap.values()) > 1e-3
    else:
      assert max(gap.values()) < 1e-12


def test_imitation_pulls_towards_the_junior():
  """-E[log senior] on the junior's tokens: grad KL(junior || senior) there."""
  with jax.enable_x64(True):
    two = pair(3)
    index = np.arange(len(two.tokens))
    batch = two.batch(index, np.zeros(len(index)), 1)
    cfg = losses.make_config(
      'tandem', lambda_jun_imitation=1.0, agg='seq-mean-token-sum'
    )
    variant = losses.get('tandem')
    credit, _, _ = variant.credit(batch, {}, cfg)
    weight = two.probability(two.senior)

    def term(senior):
      # One row at a time, each as often as it is likely.
      values = jax.vmap(
        lambda logp, junior: variant.objective(
          {'logp': logp[None]},
          credit.replace(
            rows=jax.tree.map(lambda x: x[:1], credit.rows)
            | {'junior': junior[None]}
          ),
          cfg,
        )['imitation'][0]
      )(two.logp(senior), credit.rows['junior'])
      return jnp.sum(weight * values)

    # Chance that the junior speaks after each prefix, from the enumeration.
    visits = np.zeros(two.senior.shape[:2])
    for i, chance in enumerate(np.asarray(weight)):
      for t in np.flatnonzero(two.valid[i] & ~two.author[i]):
        visits[t, two.previous[i, t]] += chance

    def truth(senior):
      law, other = (
        jax.nn.log_softmax(table, axis=-1) for table in (senior, two.junior)
      )
      return jnp.sum(visits * jnp.sum(jnp.exp(other) * (other - law), axis=-1))

    got, want = (jax.jit(jax.grad(f))(two.senior) for f in (term, truth))
    np.testing.assert_allclose(got, want, atol=1e-12)

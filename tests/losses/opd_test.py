import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tandem import losses
from tandem.losses import gr_opd
from tandem.losses import opd
from tests.losses import batches
from tests.losses import two_step


def test_returns_by_hand():
  feedback = jnp.array([[1.0, 2, 4, 9], [1, jnp.nan, jnp.nan, jnp.nan]])
  valid = jnp.array([[1, 1, 1, 0], [1, 0, 0, 0]], bool)
  for discount, want in (
    (0.0, [[1, 2, 4, 0], [1, 0, 0, 0]]),
    (0.5, [[3, 4, 4, 0], [1, 0, 0, 0]]),
    (1.0, [[7, 6, 4, 0], [1, 0, 0, 0]]),
  ):
    got = opd.returns_to_go(feedback, valid, discount=discount)
    np.testing.assert_allclose(got, want, rtol=1e-6)


def finite_difference(policy, teacher, size=1e-5):
  """Gradient of the sequence KL, central differences in float64 numpy."""

  def logp(tables):
    norm = lambda x: np.log(np.exp(x).sum(axis=-1, keepdims=True))
    first, second = (x - norm(x) for x in tables.values())
    return first[:, None] + second  # of the nine sequences

  def kl(tables):
    return np.sum(np.exp(logp(tables)) * (logp(tables) - logp(teacher)))

  policy, teacher = jax.tree.map(np.asarray, (policy, teacher))
  out = {}
  for name, table in policy.items():
    out[name] = np.zeros(table.shape)
    for index in np.ndindex(table.shape):
      ends = np.stack([table, table])
      ends[(0, *index)] += size
      ends[(1, *index)] -= size
      up, down = (kl(policy | {name: end}) for end in ends)
      out[name][index] = (up - down) / (2 * size)
  return out


def test_which_credits_are_the_gradient_of_the_sequence_kl():
  """METHODS §3.2 (3), by finite differences of an enumerated K."""
  with jax.enable_x64(True):
    policy, teacher = two_step.tables(0), two_step.tables(1)
    tokens = jnp.asarray(two_step.SEQUENCES)
    batch = two_step.batch(policy, teacher, tokens, 9)
    chance = jnp.exp(jnp.sum(batch.scores['old'], axis=1))
    np.testing.assert_allclose(chance.sum(), 1)
    variant = losses.get('opd')
    cfg = losses.make_config(
      'opd', feedback_clip=None, discount=1.0, agg='seq-mean-token-sum'
    )
    to_go, _, _ = variant.credit(batch, {}, cfg)
    local, _, _ = variant.credit(
      batch, {}, losses.make_config('opd', feedback_clip=None)
    )
    gap = batch.scores['teacher'] - batch.scores['old']
    total = two_step.STEPS * gr_opd.sequence_scores(
      gap, batch.valid, gamma=1.0, feedback_clip=None
    )
    broadcast = jnp.broadcast_to(total[:, None], gap.shape)

    @jax.jit
    def gradient(paid):
      # Rows of a mean over samples come as often as they are likely.
      rows = to_go.rows | {'advantage': chance[:, None] * paid}
      credit = to_go.replace(rows=rows)

      def loss(policy):
        stats = {'logp': two_step.logp(policy, tokens)}
        return variant.objective(stats, credit, cfg)['policy'][0]

      return jax.grad(loss)(policy)

    truth = finite_difference(policy, teacher)
    close = lambda got, **kw: jax.tree.map(
      lambda g, w: np.testing.assert_allclose(g, w, **kw), got, truth
    )
    close(gradient(to_go.rows['advantage']), atol=1e-8)
    close(gradient(broadcast), atol=1e-8)
    astray = gradient(local.rows['advantage'])
    assert np.abs(astray['first'] - truth['first']).max() > 1e-2
    # The last token has no future to leave out.
    np.testing.assert_allclose(astray['second'], truth['second'], atol=1e-8)


def test_clipped_feedback_is_the_advantage():
  batch = batches.step_batch()
  cfg = losses.make_config('opd', feedback_clip=0.1)
  credit, _, metrics = opd.credit(batch, {}, cfg)
  gap = np.asarray(batch.scores['teacher'] - batch.scores['old'])
  want = np.where(batch.valid, np.clip(gap, -0.1, 0.1), 0)
  np.testing.assert_allclose(credit.rows['advantage'], want, atol=1e-6)
  valid = np.asarray(batch.valid)
  clipped = (np.abs(gap) > 0.1)[valid].mean()
  np.testing.assert_allclose(metrics['feedback/clipped'], clipped, rtol=1e-5)


@pytest.mark.parametrize(
  'fields', [{}, {'discount': 1.0}, {'feedback': 'full'}], ids=str
)
def test_fifty_steps_lower_the_exact_kl(fields):
  """CASES 19."""
  student, teacher = two_step.tables(0), two_step.tables(1)
  before = two_step.sequence_kl(student, teacher)
  after = two_step.distil('opd', student, teacher, **fields)
  assert after[-1] < before / 3


def objective_loss(variant, cfg, credit, stats):
  return batches.loss(variant.objective(stats, credit, cfg))


def test_the_teacher_has_nothing_to_learn():
  batch = batches.step_batch()
  batch = batch.replace(scores=batch.scores | {'teacher': batch.scores['old']})
  for name in ('opd', 'gr_opd'):
    variant, cfg = losses.get(name), losses.make_config(name)
    stats = batches.statistics(batch, ('logp',))
    credit, _, _ = variant.credit(batch, {}, cfg)
    loss = functools.partial(objective_loss, variant, cfg, credit)
    value, grads = jax.value_and_grad(loss)(stats)
    assert value == 0
    assert not np.any(grads['logp'])


def test_full_and_top_k_are_statistics():
  batch = batches.step_batch()
  for fields, name in (
    ({'feedback': 'full'}, 'kl_teacher'),
    ({'feedback': 'top_k', 'top_k': 16}, 'kl_teacher_top16'),
  ):
    variant, cfg = losses.get('opd'), losses.make_config('opd', **fields)
    assert variant.stats(cfg) == ('logp', name)
    assert variant.scorings(cfg) == ()
    stats = batches.statistics(batch, variant.stats(cfg))
    terms, _ = batches.run(variant, cfg, batch, stats)
    rows = np.where(batch.valid, stats[name], 0).sum(axis=1)
    want = (rows / np.asarray(batches.LENGTHS)).sum()
    np.testing.assert_allclose(terms['kl_teacher'], (want, 8), rtol=1e-5)


@pytest.mark.parametrize(
  'fields,message',
  [
    ({'feedback': 'dense'}, 'sampled'),
    ({'discount': 1.5}, 'outside'),
    ({'top_k': 16}, 'belongs to'),
    ({'feedback': 'top_k'}, 'top_k=None'),
    ({'feedback': 'top_k', 'top_k': 0}, 'at least 1'),
    ({'feedback': 'full', 'discount': 0.5}, 'no surrogate'),
    ({'feedback': 'full', 'eps_low': 0.1}, 'no surrogate'),
    ({'advantage_eps': 1e-3}, 'no effect'),
  ],
)
def test_contradictory_settings_raise(fields, message):
  with pytest.raises(ValueError, match=message):
    losses.make_config('opd', **fields)

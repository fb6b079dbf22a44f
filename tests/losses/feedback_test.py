import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats

from tandem import losses
from tandem.losses import feedback
from tests.losses import batches


def test_moments_of_groups():
  # Groups (1, 2, 6) and (4, 4, 4): means 3 and 4; deviations by ddof.
  scores = jnp.array([1.0, 2, 6, 4, 4, 4])
  mean, std, size = feedback.group_moments(scores, group=3)
  np.testing.assert_allclose(mean, [3, 3, 3, 4, 4, 4])
  np.testing.assert_allclose(std, [np.sqrt(14 / 2)] * 3 + [0] * 3, rtol=1e-6)
  _, std, _ = feedback.group_moments(scores, group=3, ddof=0)
  np.testing.assert_allclose(std[0], np.sqrt(14 / 3), rtol=1e-6)
  order = jnp.array([3, 0, 4, 1, 2, 5])
  ragged = feedback.group_moments(
    scores[order], group_id=jnp.array([9, 2, 9, 2, 2, 9])
  )
  np.testing.assert_allclose(ragged[0], mean[order], rtol=1e-6)
  np.testing.assert_array_equal(ragged[2], size[order])


def test_equal_scores_have_no_deviation_at_all():
  mean, std, _ = feedback.group_moments(jnp.full(7, 0.1), group=7)
  np.testing.assert_array_equal(mean, np.float32(0.1))
  np.testing.assert_array_equal(std, 0)


def test_scores_beside_lengths_and_verdicts():
  """METHODS §3.4, figure 4: over the whole batch, ties by average ranks."""
  batch = batches.step_batch()
  scores = np.array([-3.0, 0.5, 2, -1, 0, -2, 1, -2.5], np.float32)
  got = feedback.correlations(batch, jnp.asarray(scores))
  for name, other in (
    ('length', batches.LENGTHS),
    ('reward', np.asarray(batch.rewards)),
  ):
    for kind, by_hand in (
      ('pearson', scipy.stats.pearsonr),
      ('spearman', scipy.stats.spearmanr),
    ):
      want = by_hand(scores, other).statistic
      assert abs(want) > 0.05
      np.testing.assert_allclose(
        got[f'feedback/{kind}_{name}'], want, atol=1e-6
      )


@pytest.mark.parametrize('name', ['opd', 'gr_opd'])
def test_diagnostics_are_of_every_step(name):
  variant, cfg = losses.get(name), losses.make_config(name)
  batch = batches.step_batch()
  _, _, metrics = variant.credit(batch, variant.init_state(cfg), cfg)
  assert feedback.correlations(batch, jnp.ones(8)).keys() <= metrics.keys()


def test_collapse_needs_ten_steps_in_a_row():
  cfg = losses.make_config('gr_opd', collapse_max_tokens=6)
  long = batches.step_batch((6, 6, 6, 4) * 2)  # 5.5 of 6, above .9
  poor = long.replace(rewards=jnp.zeros(8))
  state, tags = feedback.init_state(cfg), []
  for batch in [poor] * 9 + [long] + [poor] * 11:
    state, metrics = feedback.collapse(batch, state, cfg)
    tags.append(float(metrics['collapse/tag']))
  assert tags == [0] * 10 + [0] * 9 + [1, 1]
  short = batches.step_batch((6, 5, 5, 5) * 2).replace(rewards=jnp.zeros(8))
  state, metrics = feedback.collapse(short, state, cfg)  # 5.25, below 5.4
  assert metrics['collapse/steps'] == 0


@pytest.mark.parametrize('name', ['opd', 'gr_opd'])
def test_unbounded_teacher_is_clipped_and_counted(name):
  batch = batches.step_batch()
  teacher = batch.scores['teacher'].at[0, 0].set(-jnp.inf)
  batch = batch.replace(scores=batch.scores | {'teacher': teacher})
  variant, cfg = losses.get(name), losses.make_config(name)
  credit, _, metrics = variant.credit(batch, {}, cfg)
  assert np.isfinite(credit.rows['advantage']).all()
  np.testing.assert_allclose(
    metrics['feedback/clipped'], 1 / sum(batches.LENGTHS), rtol=1e-6
  )


@pytest.mark.parametrize('name', ['opd', 'gr_opd'])
@pytest.mark.parametrize(
  'fields,message',
  [
    ({'feedback_clip': 0.0}, 'feedback_clip=0.0'),
    ({'scale_by_std': False}, 'rewards do not'),
    ({'overlong_max_tokens': 6, 'overlong_buffer_tokens': 2}, 'rewards do not'),
    ({'collapse_steps': 3}, 'collapse_max_tokens'),
    ({'collapse_max_tokens': 0}, 'at least 1'),
    ({'collapse_max_tokens': 9, 'collapse_length': 1.5}, 'outside'),
  ],
)
def test_contradictory_settings_raise(name, fields, message):
  with pytest.raises(ValueError, match=message):
    losses.make_config(name, **fields)


@pytest.mark.parametrize('name', ['opd', 'gr_opd'])
def test_without_a_teacher_it_is_refused(name):
  """CASES 19: distillation wired to nothing."""
  batch = batches.step_batch()
  scores = {k: v for k, v in batch.scores.items() if k != 'teacher'}
  variant, cfg = losses.get(name), losses.make_config(name)
  assert 'teacher' in variant.scorings(cfg)
  with pytest.raises(ValueError, match="needs log-probs 'teacher'"):
    variant.credit(batch.replace(scores=scores), {}, cfg)
  with pytest.raises(ValueError, match="credit the junior's tokens"):
    variant.check(cfg, 'tandem', 8)

import jax.numpy as jnp
import numpy as np
import pytest

from tandem import losses
from tandem.losses import gr_opd
from tests.losses import batches
from tests.losses import two_step

FLAT = np.full((8, 6), -0.1, np.float32)


def random_rows(n=8, t=6, seed=0):
  rng = np.random.default_rng(seed)
  lengths = rng.integers(1, t + 1, n)
  valid = np.arange(t)[None] < lengths[:, None]
  feedback = rng.normal(-0.3, 1.0, (n, t)).astype(np.float32)
  return feedback, valid


def test_scores_by_hand():
  feedback = np.array([[1, 2, 9], [-np.inf, 1, np.nan], [3, np.nan, np.nan]])
  valid = np.array([[1, 1, 1], [1, 1, 0], [0, 0, 0]], bool)
  scores = gr_opd.sequence_scores(feedback, valid, gamma=0.5)
  # (1 + .5 * 2 + .25 * 5) / 1.75, the 9 clipped; (-5 + .5) / 1.5; no token.
  np.testing.assert_allclose(scores, [3.25 / 1.75, -3, 0], rtol=1e-6)


@pytest.mark.parametrize('gamma', [1.0, 0.99, 0.5])
def test_constant_feedback_is_its_own_score(gamma):
  """METHODS §8, GR-OPD (iii)."""
  _, valid = random_rows()
  scores = gr_opd.sequence_scores(np.full((8, 6), -0.7), valid, gamma=gamma)
  np.testing.assert_allclose(scores, -0.7, rtol=1e-6)


def test_padding_moves_no_score():
  """METHODS §8, GR-OPD (ii)."""
  feedback, valid = random_rows()
  wide = np.pad(feedback, ((0, 0), (0, 3)), constant_values=np.nan)
  more = np.pad(valid, ((0, 0), (0, 3)))
  got = gr_opd.sequence_credit(wide, more, group=4)
  np.testing.assert_allclose(
    got, gr_opd.sequence_credit(feedback, valid, group=4), rtol=1e-6
  )


def test_weight_beyond_a_horizon():
  """Tail after H of L: (g^H - g^L) / (1 - g^L): .366 after 100, .0065 at 500."""
  late = np.where(np.arange(28_000) >= np.array([[100], [500]]), 1.0, 0.0)
  scores = gr_opd.sequence_scores(late, np.ones_like(late, bool), gamma=0.99)
  np.testing.assert_allclose(scores, [0.366, 0.00657], rtol=1e-3)


@pytest.mark.parametrize('retain', [0.0, 0.25, 1.0])
def test_group_mean_and_gaps(retain):
  """METHODS §8, GR-OPD (i), (iv)."""
  feedback, valid = random_rows()
  scores, advantages = gr_opd.sequence_credit(
    feedback, valid, group=4, lambda_retain=retain, adv_clip=None
  )
  scores, advantages = (np.reshape(x, (2, 4)) for x in (scores, advantages))
  scale = scores.std(axis=1, ddof=1, keepdims=True) + 1e-6
  mean = scores.mean(axis=1, keepdims=True)
  np.testing.assert_allclose(
    advantages.mean(axis=1, keepdims=True), retain * mean / scale, atol=1e-6
  )
  gaps = lambda x: x[:, :, None] - x[:, None, :]
  np.testing.assert_allclose(
    gaps(advantages), gaps(scores) / scale[:, :, None], atol=1e-5
  )
  if retain == 1:
    np.testing.assert_allclose(advantages, scores / scale, rtol=1e-5)


def test_deviations_and_clips():
  feedback = np.array([[0.0], [0], [0], [0], [0], [0], [0], [4]])
  valid = np.ones_like(feedback, bool)
  _, sample = gr_opd.sequence_credit(feedback, valid, group=8)
  _, population = gr_opd.sequence_credit(feedback, valid, group=8, std_ddof=0)
  # The sample deviation is sqrt(8 / 7) = 1.069 times the population's.
  np.testing.assert_allclose(population / sample, 1.069, rtol=1e-3)
  _, clipped = gr_opd.sequence_credit(feedback, valid, group=8, adv_clip=0.5)
  assert np.abs(clipped).max() == 0.5
  scores, _ = gr_opd.sequence_credit(feedback, valid, group=8, feedback_clip=1)
  assert scores[-1] == 1


@pytest.mark.parametrize(
  'retain,zero_std,want',
  [(0.0, 'clip', 0), (0.25, 'clip', -5), (0.25, 'zero', 0)],
)
def test_groups_without_deviation(retain, zero_std, want):
  _, valid = random_rows()
  for groups in ({'group': 4}, {'group': 1}):
    _, advantages = gr_opd.sequence_credit(
      FLAT, valid, lambda_retain=retain, zero_std=zero_std, **groups
    )
    np.testing.assert_array_equal(advantages, want)


def test_ragged_groups_are_the_same_groups():
  feedback, valid = random_rows()
  want = gr_opd.sequence_credit(feedback, valid, group=4, lambda_retain=0.5)
  order = np.array([5, 0, 1, 4, 7, 3, 2, 6])
  got = gr_opd.sequence_credit(
    feedback[order], valid[order], group_id=order // 4, lambda_retain=0.5
  )
  np.testing.assert_allclose(got, np.asarray(want)[:, order], rtol=1e-5)


def test_the_variant_pays_what_the_function_says():
  batch = batches.step_batch()
  fields = {'gamma': 0.9, 'lambda_retain': 0.25, 'adv_clip': 1.0}
  cfg = losses.make_config('gr_opd', **fields)
  credit, _, metrics = gr_opd.credit(batch, {}, cfg)
  gap = batch.scores['teacher'] - batch.scores['old']
  scores, want = gr_opd.sequence_credit(gap, batch.valid, group=4, **fields)
  np.testing.assert_allclose(credit.rows['advantage'], want, rtol=1e-5)
  s = np.reshape(scores, (2, 4)).std(axis=1, ddof=1)
  pressure = abs(np.mean(scores)) / (s.mean() + 1e-8)
  np.testing.assert_allclose(metrics['gr_opd/pressure'], pressure, rtol=1e-4)
  np.testing.assert_allclose(
    metrics['gr_opd/pressure_retained'], pressure / 4, rtol=1e-4
  )
  assert metrics['gr_opd/clipped'] == np.mean(np.abs(want) == 1.0) > 0
  assert metrics['gr_opd/zero_std'] == 0
  # Two rows of four agree with the teacher: one prompt of two is flat.
  teacher = batch.scores['teacher'].at[:4].set(batch.scores['old'][:4])
  flat = batch.replace(scores=batch.scores | {'teacher': teacher})
  _, _, metrics = gr_opd.credit(flat, {}, cfg)
  assert metrics['gr_opd/zero_std'] == 0.5


def test_local_feedback_prefers_the_wrong_first_action():
  """GR-OPD's figure 1 (a): A costs at once and pays later, B the reverse.

  Teacher's feedback of A: -1, then 0, 0; of B: +.5, then -3, -3.
  """
  feedback = jnp.array([[-1.0, 0, 0], [0.5, -3, -3]] * 4)
  feedback = jnp.pad(feedback, ((0, 0), (0, 3)))
  batch = batches.step_batch((3,) * 8)
  scores = {'old': jnp.zeros_like(feedback), 'teacher': feedback}
  batch = batch.replace(scores=scores)
  first = {}
  for name, fields in (
    ('opd', {}),
    ('gr_opd', {}),
    ('opd', {'discount': 1.0, 'feedback_clip': None}),
  ):
    cfg = losses.make_config(name, **fields)
    credit, _, _ = losses.get(name).credit(batch, {}, cfg)
    paid = credit.rows['advantage'].reshape(8, -1)[:, 0]
    first[name, len(fields)] = float(paid[0] - paid[1])
  assert first['opd', 0] < 0  # -1 against .5: local feedback takes B
  assert first['gr_opd', 0] > 0  # means -.33 and -1.83: pooled takes A
  assert first['opd', 2] > 0  # -1 against -5.5


def test_fifty_steps_lower_the_exact_kl():
  """CASES 19."""
  student, teacher = two_step.tables(0), two_step.tables(1)
  before = two_step.sequence_kl(student, teacher)
  after = two_step.distil('gr_opd', student, teacher)
  assert after[-1] < before / 3


@pytest.mark.parametrize(
  'fields,message',
  [
    ({'lambda_retain': 1.5}, r'lambda_retain=1.5 lies outside \[0.0, 1.0\]'),
    ({'lambda_retain': -0.1}, 'lambda_retain'),
    ({'gamma': 0.0}, 'gamma=0.0'),
    ({'gamma': 1.01}, 'gamma=1.01'),
    ({'adv_clip': 0.0}, 'adv_clip=0.0'),
    ({'std_ddof': 2}, 'std_ddof=2'),
    ({'zero_std': 'skip'}, 'clip'),
  ],
)
def test_numbers_outside_their_range_raise(fields, message):
  with pytest.raises(ValueError, match=message):
    losses.make_config('gr_opd', **fields)
  feedback, valid = random_rows()
  with pytest.raises(ValueError, match=message):
    gr_opd.sequence_credit(feedback, valid, group=4, **fields)


def test_a_group_of_one_is_refused():
  cfg = losses.make_config('gr_opd')
  gr_opd.check(cfg, 'solo', 2)
  with pytest.raises(ValueError, match='group=1.*at least 2'):
    gr_opd.check(cfg, 'solo', 1)

"""J_H and AUROC by hand, and what degenerate groups add."""

import numpy as np
import pytest

from tandem.analysis import feedback


def test_scores_are_means_of_clipped_prefixes():
  told = np.array([[1.0, -9.0, 3.0], [2.0, 7.0, 9.0]])
  # (1 - 5) / 2 and, of one token only, 2.
  got = feedback.prefix_scores(told, np.array([3, 1]), 2)
  np.testing.assert_allclose(got, [-2.0, 2.0])
  long = feedback.prefix_scores(told, np.array([3, 1]), 99)
  np.testing.assert_allclose(long, [(1 - 5 + 3) / 3, 2.0])


def test_j_h_by_hand():
  # S = 0, 1, 2, 3 (mean 1.5, population sd sqrt(1.25)), C = 0, 0, 1, 1:
  # Cov = (-1.5*0 - .5*0 + .5 + 1.5) / 4 = .5
  want = 0.5 / np.sqrt(1.25)
  assert feedback.j_h([0, 1, 2, 3], [0, 0, 1, 1], group=4) == pytest.approx(
    want
  )
  assert feedback.j_h([0, 1, 2, 3], [1, 1, 0, 0], group=4) == pytest.approx(
    -want
  )


@pytest.mark.parametrize(
  'scores,correct',
  [([2, 2, 2, 2], [0, 1, 0, 1]), ([0, 1, 2, 3], [1, 1, 1, 1])],
  ids=['scores alike', 'verdicts alike'],
)
def test_degenerate_groups_add_zero_and_stay_in_the_mean(scores, correct):
  assert feedback.j_h(scores, correct, group=4) == 0.0
  both = feedback.j_h([0, 1, 2, 3, *scores], [0, 0, 1, 1, *correct], group=4)
  alone = feedback.j_h([0, 1, 2, 3], [0, 0, 1, 1], group=4)
  assert both == pytest.approx(alone / 2)


def test_auroc_against_all_pairs():
  rng = np.random.default_rng(0)
  scores, correct = rng.integers(0, 5, 40), rng.integers(0, 2, 40)
  pairs = [
    (a > b) + 0.5 * (a == b)
    for a in scores[correct == 1]
    for b in scores[correct == 0]
  ]
  assert feedback.auroc(scores, correct) == pytest.approx(np.mean(pairs))
  with pytest.raises(ValueError, match='40 right and 0 wrong'):
    feedback.auroc(scores, np.ones(40))


def test_bad_input_is_named():
  with pytest.raises(ValueError, match='horizon=0'):
    feedback.prefix_scores(np.zeros((1, 2)), np.array([1]), 0)
  with pytest.raises(ValueError, match='group=3'):
    feedback.j_h([0, 1], [0, 1], group=3)

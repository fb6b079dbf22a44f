import jax.numpy as jnp
import numpy as np
import scipy.stats

from tandem.losses import ranks


def test_ties_share_the_mean_of_their_ranks():
  x = jnp.array([0.0, 1.0, 1.0, 0.0, 1.0, 7.0])
  np.testing.assert_allclose(ranks.average_ranks(x), [1.5, 4, 4, 1.5, 4, 6])


def test_spearman_of_a_score_with_a_binary_verdict():
  """METHODS §8, GR-OPD (vii): Pearson of average ranks."""
  rng = np.random.default_rng(0)
  verdict = rng.integers(0, 2, 40).astype(np.float32)
  score = (rng.normal(size=40) + verdict).astype(np.float32)
  got = ranks.spearman(jnp.asarray(score), jnp.asarray(verdict))
  want = scipy.stats.spearmanr(score, verdict).statistic
  np.testing.assert_allclose(got, want, atol=1e-6)
  # By hand: ranks 1 2 3 4 against 3.5 3.5 1.5 1.5; ties broken by position
  # (3 4 1 2) would give -.6.
  got = ranks.spearman(jnp.array([1.0, 2, 3, 4]), jnp.array([1.0, 1, 0, 0]))
  np.testing.assert_allclose(got, -2 / np.sqrt(5), rtol=1e-6)


def test_pearson_under_a_mask_is_pearson_of_what_is_left():
  rng = np.random.default_rng(1)
  x, y = rng.normal(size=(2, 5, 8)).astype(np.float32)
  mask = rng.random((5, 8)) < 0.6
  stirred = jnp.where(mask, x, jnp.nan)
  got = ranks.pearson(stirred, jnp.asarray(y), jnp.asarray(mask))
  want = scipy.stats.pearsonr(x[mask], y[mask]).statistic
  np.testing.assert_allclose(got, want, atol=1e-6)


def test_a_constant_correlates_with_nothing():
  x = jnp.full(7, 0.1)  # whose mean is not exactly 0.1 in float32
  y = jnp.arange(7.0)
  assert ranks.pearson(x, y) == 0
  assert ranks.spearman(y, x) == 0
  assert ranks.pearson(y, y, jnp.zeros(7, bool)) == 0

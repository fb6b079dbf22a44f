"""CASES 10: what each estimator's gradient is, by enumeration."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tandem.losses import grpo
from tandem.losses import kl
from tests.losses import two_step

POLICY = jnp.array([0.2, -0.7, 1.1, 0.4])
REFERENCE = jax.nn.log_softmax(jnp.array([-0.5, 0.3, 0.9, -0.2]))


def expected_gradient(estimator):
  """sum_v pi(v) grad estimator(v): sampling frozen, as a loss term is."""
  weight = jax.nn.softmax(POLICY)

  def loss(logits):
    logp = jax.nn.log_softmax(logits)
    values = estimator(logp[None, :], REFERENCE[None, :])[0]
    return jnp.sum(weight * values)

  return jax.grad(loss)(POLICY)


def reverse(logits):
  logp = jax.nn.log_softmax(logits)
  return jnp.sum(jnp.exp(logp) * (logp - REFERENCE))


def forward(logits):
  logp = jax.nn.log_softmax(logits)
  return jnp.sum(jnp.exp(REFERENCE) * (REFERENCE - logp))


@pytest.mark.parametrize(
  'estimator,truth',
  [
    ('k2', reverse),
    ('k3+', reverse),
    ('k3', forward),
    (grpo.Config().kl_estimator, reverse),
  ],
)
def test_expected_gradient(estimator, truth):
  got = expected_gradient(lambda a, b: kl.penalty(estimator, a, b))
  np.testing.assert_allclose(got, jax.grad(truth)(POLICY), atol=1e-5)


@pytest.mark.parametrize(
  'estimator,direction', [('k2', 1), ('k3+', 1), ('k3', -1), ('k1', 0)]
)
def test_expected_gradient_over_two_steps(estimator, direction):
  """Of each position's law under the histories as they come: no future in it.

  So even the exact ones are not the gradient of the sequence's KL.
  """
  with jax.enable_x64(True):
    policy, reference = two_step.tables(0), two_step.tables(1)
    tokens = two_step.SEQUENCES
    chance = jnp.exp(two_step.logp(policy, tokens).sum(axis=1))

    def estimate(policy):
      pair = two_step.logp(policy, tokens), two_step.logp(reference, tokens)
      k1 = estimator == 'k1'
      values = kl.k1(*pair) if k1 else kl.penalty(estimator, *pair)
      return jnp.sum(chance[:, None] * values)

    def local(policy):
      laws = (policy, reference)[::direction] if direction else (policy,) * 2
      values = two_step.position_kl(*laws, tokens)
      return jnp.sum(chance[:, None] * values)

    got, want, whole = (
      jax.jit(jax.grad(f))(policy)
      for f in (estimate, local, lambda x: two_step.sequence_kl(x, reference))
    )
    jax.tree.map(
      lambda g, w: np.testing.assert_allclose(g, w, atol=1e-8), got, want
    )
    assert np.abs(got['first'] - whole['first']).max() > 1e-2


def test_k3_is_not_the_reverse_direction():
  gap = expected_gradient(kl.k3) - jax.grad(reverse)(POLICY)
  assert np.abs(gap).max() > 0.05


def test_k1_has_no_expected_gradient_and_is_refused():
  np.testing.assert_allclose(expected_gradient(kl.k1), 0, atol=1e-6)
  with pytest.raises(ValueError, match='expected gradient'):
    kl.penalty('k1', POLICY[None], REFERENCE[None])
  with pytest.raises(ValueError, match="'k4' is unknown"):
    kl.penalty('k4', POLICY[None], REFERENCE[None])


def test_values():
  logp, reference = jnp.array([[-1.0]]), jnp.array([[-1.5]])
  # x = .5: k2 = .125, k3 = e^-.5 + .5 - 1 = .1065307
  np.testing.assert_allclose(kl.k1(logp, reference), [[0.5]])
  np.testing.assert_allclose(kl.k2(logp, reference), [[0.125]])
  np.testing.assert_allclose(kl.k3(logp, reference), [[0.1065307]], rtol=1e-5)
  np.testing.assert_allclose(
    kl.k3_plus(logp, reference), kl.k3(logp, reference)
  )


def test_k1_and_k3_are_unbiased_in_value():
  weight = jax.nn.softmax(POLICY)
  logp = jax.nn.log_softmax(POLICY)[None]
  for estimator in (kl.k1, kl.k3, kl.k3_plus):
    got = jnp.sum(weight * estimator(logp, REFERENCE[None])[0])
    np.testing.assert_allclose(got, reverse(POLICY), rtol=1e-5)


def test_clamps():
  far = kl.k3(jnp.array([[-50.0, 50.0]]), jnp.array([[0.0, 0.0]]))
  np.testing.assert_array_equal(far, [[10.0, 10.0]])
  grad = jax.grad(lambda x: kl.k3(x, jnp.zeros((1, 1))).sum())
  assert grad(jnp.array([[-500.0]])) == 0


def test_no_gradient_into_the_reference():
  for name in kl.ESTIMATORS:
    f = lambda r, name=name: kl.penalty(name, POLICY[None], r).sum()
    assert not jax.grad(f)(REFERENCE[None]).any()

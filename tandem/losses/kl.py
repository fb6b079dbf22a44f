"""Estimates of KL(policy || reference) from one sample per position.

With x = logp - logp_ref at a token drawn from the policy:

  name  value               expected gradient, on-policy, per position
  k1    x                   0, since E[grad logp] = 0: refused as a loss term
  k2    x^2 / 2             grad KL(policy || reference), exactly
  k3    exp(-x) + x - 1     grad KL(reference || policy), the *other* direction
  k3+   k3's                k2's: grad KL(policy || reference)

None of them carries the effect of a token on the states after it; that part
of the sequence KL's gradient needs KL in the reward. Off-policy (a second
update on the same rollouts) no importance ratio corrects them.
"""

import chex
import jax
import jax.numpy as jnp

INNER = 20.0
OUTER = 10.0


def k1(logp: jax.Array, reference: jax.Array) -> jax.Array:
  """x, an unbiased estimate of the value; for metrics and rewards only.

  Differentiated in a loss it is a random push of mean zero, not a KL penalty:
  E[grad x] = E[grad logp] = 0. `penalty` refuses it.
  """
  chex.assert_equal_shape([logp, reference])
  return logp - reference


def k2(logp: jax.Array, reference: jax.Array) -> jax.Array:
  """x^2 / 2. Value biased; E[x grad logp] = grad KL(policy || reference)."""
  chex.assert_equal_shape([logp, reference])
  return (logp - reference) ** 2 / 2


def k3(logp: jax.Array, reference: jax.Array) -> jax.Array:
  """exp(-x) + x - 1, -x clamped to +-20 in the exponent and all to +-10.

  Unbiased and never negative in value. Its gradient (1 - exp(-x)) grad logp
  has the mean grad KL(reference || policy) (over softmax logits: policy minus
  reference): where the policy has mass that the reference lacks it pulls with
  strength 1 at most, where k2 grows with x. No gradient past the clamp.
  """
  chex.assert_equal_shape([logp, reference])
  x = logp - reference
  value = jnp.exp(jnp.clip(-x, -INNER, INNER)) + x - 1
  return jnp.clip(value, -OUTER, OUTER)


def k3_plus(logp: jax.Array, reference: jax.Array) -> jax.Array:
  """k3's value with k2's gradient: both unbiased for KL(policy||reference)."""
  gradient = k2(logp, reference)
  value = k3(logp, reference)
  return jax.lax.stop_gradient(value - gradient) + gradient


ESTIMATORS = {'k2': k2, 'k3': k3, 'k3+': k3_plus}


def penalty(name: str, logp: jax.Array, reference: jax.Array) -> jax.Array:
  """The named estimate per token, to be minimised.

  Args:
    name: one of ESTIMATORS.
    logp: [n, T] float, the current policy's; carries the gradient.
    reference: [n, T] float; carries none.

  Returns:
    [n, T] float.

  Raises:
    ValueError: k1, with the reason; or an unknown name.

  Source: Schulman, "Approximating KL divergence" (2020) for k1, k2, k3; the
    clamps and k3+ as METHODS §1 found in verl; expected gradients by algebra,
    enumerated in tests/losses/kl_test.py.
  """
  check(name)
  return ESTIMATORS[name](logp, jax.lax.stop_gradient(reference))


def check(name: str) -> None:
  """Raises ValueError where `name` cannot be a loss term."""
  if name == 'k1':
    raise ValueError(
      "kl_estimator='k1' is refused as a loss term: the expected gradient of "
      'logp - logp_ref is zero, so it would push at random and regularise '
      f'nothing; use one of {tuple(ESTIMATORS)} (k3+ has the exact gradient), '
      'or put k1 into the reward'
    )
  if name not in ESTIMATORS:
    raise ValueError(
      f'kl_estimator={name!r} is unknown; use one of {tuple(ESTIMATORS)}'
    )

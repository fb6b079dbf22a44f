import jax.numpy as jnp
import numpy as np
import pytest

from tandem.losses import controller

FIELDS = controller.Fields()


def close(got, want):
  np.testing.assert_allclose(got, want, rtol=1e-5)


def run(rates, cfg=FIELDS):
  """(lambda, mu) that each step uses, rates being what it measures."""
  state, used = controller.init_state(), []
  for rate in rates:
    used.append(controller.coefficients(state['rho'], cfg))
    state = controller.update(state, jnp.float32(rate), cfg)
  return np.array(used), state


def test_warm_up_stays_in_the_middle():
  used, state = run([1.0] * 10)
  close(used, 0.0125)
  assert state['rho'] == 0.5


def test_what_a_step_measures_acts_on_the_next():
  used, _ = run([1.0] * 12)
  close(used[10], 0.0125)  # the 11th step is the first to move rho
  # rho = .95 * .5 + .05 = .525: lambda .005 + .015 * .525, mu with .475.
  close(used[11], [0.012875, 0.012125])


def test_moving_average_in_closed_form():
  """METHODS §4.3: the exponent is n - n0 + 1, not the paper's n - n0."""
  rates = np.random.default_rng(0).random(25)
  _, state = run(rates)
  first, n = 11, 25
  want = 0.95 ** (n - first + 1) * 0.5 + 0.05 * sum(
    0.95 ** (n - k) * rates[k - 1] for k in range(first, n + 1)
  )
  close(state['rho'], want)


def test_welfare_of_either_law():
  """F-e: W = lambda rho + mu (1 - rho) has its minimum at 1/2 as printed."""
  rho = np.array([0.0, 0.25, 0.5, 0.75, 1.0], np.float32)
  lam, mu = controller.coefficients(rho, FIELDS)
  close(lam * rho + mu * (1 - rho), [0.02, 0.014375, 0.0125, 0.014375, 0.02])
  opposite = controller.Fields(controller_law='welfare')
  lam, mu = controller.coefficients(rho, opposite)
  close(lam, [0.02, 0.01625, 0.0125, 0.00875, 0.005])
  close(lam * rho + mu * (1 - rho), [0.005, 0.010625, 0.0125, 0.010625, 0.005])


def test_coefficients_keep_to_their_ranges():
  cfg = controller.Fields(
    lambda_min=0.1, lambda_max=0.3, mu_min=0.0, mu_max=0.2
  )
  lam, mu = controller.coefficients(np.linspace(0, 1, 5), cfg)
  close(lam, [0.1, 0.15, 0.2, 0.25, 0.3])
  np.testing.assert_allclose(mu, [0.2, 0.15, 0.1, 0.05, 0], atol=1e-7)


def test_maps_of_the_operating_point():
  rho = np.array([0.0, 0.1, 0.2, 0.6, 1.0], np.float32)
  for kind, want in (
    ('shift', [0.3, 0.4, 0.5, 0.9, 1.0]),
    ('piecewise', [0, 0.25, 0.5, 0.75, 1.0]),
  ):
    cfg = controller.Fields(rho_target=0.2, rho_map=kind)
    np.testing.assert_allclose(
      controller.recentred(rho, cfg), want, atol=1e-6, err_msg=kind
    )
    middle = controller.Fields(rho_map=kind)
    np.testing.assert_allclose(
      controller.recentred(rho, middle), rho, atol=1e-7
    )


@pytest.mark.parametrize(
  'fields,message',
  [
    ({'lambda_min': 0.03}, 'lambda_min=0.03, lambda_max=0.02'),
    ({'lambda_max': 1.5}, r'lie in \[0, 1\]'),
    ({'mu_min': -0.1}, 'mu_min=-0.1'),
    ({'ema': 1.0}, 'ema=1.0'),
    ({'warmup_steps': -1}, 'at least 0'),
    ({'rho_target': 0.0}, 'rho_target=0.0'),
    ({'rho_map': 'cubic'}, 'piecewise'),
    ({'controller_law': 'concave'}, 'welfare'),
  ],
)
def test_numbers_that_make_no_controller(fields, message):
  with pytest.raises(ValueError, match=message):
    controller.check(controller.Fields(**fields))

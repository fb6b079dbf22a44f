import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tandem.losses import masked

LOSS = jnp.array([[1.0, 2.0, 3.0], [4.0, 100.0, 100.0], [7.0, 7.0, 7.0]])
MASK = jnp.array([[1, 1, 1], [1, 0, 0], [0, 0, 0]], bool)


@pytest.mark.parametrize(
  'mode,length,total,count',
  [
    ('token-mean', None, 1 + 2 + 3 + 4, 3 + 1),
    ('seq-mean-token-sum', None, 6 + 4, 2),
    ('seq-mean-token-mean', None, 6 / 3 + 4 / 1, 2),
    ('seq-mean-token-sum-norm', 5, 6 / 5 + 4 / 5, 2),
  ],
)
def test_hand_values(mode, length, total, count):
  got = masked.aggregate(LOSS, MASK, mode, length=length)
  np.testing.assert_allclose(got, (total, count), rtol=1e-6)


def test_denominator_of_another_mask():
  # The gate lets 2 of 3 and 0 of 1 tokens through; all emitted are divided by.
  gate = jnp.array([[1, 0, 1], [0, 0, 0], [0, 0, 0]], bool)
  values = {
    'token-mean': (1 + 3, 4),
    'seq-mean-token-sum': (1 + 3, 2),
    'seq-mean-token-mean': ((1 + 3) / 3, 2),
  }
  for mode, want in values.items():
    got = masked.aggregate(LOSS, gate, mode, denom_mask=MASK)
    np.testing.assert_allclose(got, want, rtol=1e-6)
  got = masked.aggregate(LOSS, gate, 'seq-mean-token-sum')
  np.testing.assert_allclose(got, (1 + 3, 1))  # the second row is now empty


def test_float_weights():
  weight = jnp.array([[1.0, 0.25, 0.0], [0.25, 0.0, 0.0], [0.0, 0.0, 0.0]])
  # 1*1 + .25*2 + .25*4 = 2.5 over 1.5
  got = masked.aggregate(LOSS, weight, 'token-mean')
  np.testing.assert_allclose(got, (2.5, 1.5))
  # (1.5 / 1.25) + (1 / .25) over 2 rows
  got = masked.aggregate(LOSS, weight, 'seq-mean-token-mean')
  np.testing.assert_allclose(got, (1.2 + 4, 2), rtol=1e-6)


def test_normaliser_of_long_and_short_rows():
  """CASES 16: rows of 10 and 1000 tokens, 1 a token in either."""
  lengths = jnp.array([10, 1000])
  mask = jnp.arange(1000)[None, :] < lengths[:, None]

  def weights(mode):
    def mean(scale):
      return masked.divide(*masked.aggregate(mask * scale[:, None], mask, mode))

    return jax.grad(mean)(jnp.ones(2))

  np.testing.assert_allclose(
    weights('token-mean'), (10 / 1010, 1000 / 1010), rtol=1e-5
  )
  np.testing.assert_allclose(
    weights('seq-mean-token-mean'), (0.5, 0.5), rtol=1e-5
  )


@pytest.mark.parametrize('mode', masked.MODES)
def test_duplicated_batch_changes_nothing(mode):
  length = 4 if mode == 'seq-mean-token-sum-norm' else None
  once = masked.aggregate(LOSS, MASK, mode, length=length)
  twice = masked.aggregate(
    jnp.tile(LOSS, (2, 1)), jnp.tile(MASK, (2, 1)), mode, length=length
  )
  np.testing.assert_allclose(
    masked.divide(*once), masked.divide(*twice), rtol=1e-6
  )


@pytest.mark.parametrize('mode', masked.MODES)
@pytest.mark.parametrize('tokens', [0, 1, 3])
def test_what_the_mask_hides_cannot_leak(mode, tokens):
  """CASES 11: 0, 1 or n valid tokens, NaN and inf under the mask."""
  length = 4 if mode == 'seq-mean-token-sum-norm' else None
  mask = jnp.zeros((3, 3), bool).at[0, :tokens].set(True)
  bad = jnp.array([[1.0, 2, 3], [jnp.nan, jnp.inf, -jnp.inf], [0, 0, 0]])

  def mean(x):
    return masked.divide(*masked.aggregate(x, mask, mode, length=length))

  value, grad = jax.value_and_grad(mean)(bad)
  assert np.isfinite(value)
  assert np.isfinite(grad).all()
  assert not np.asarray(grad)[~np.asarray(mask)].any()
  if tokens == 0:
    assert value == 0
    assert not grad.any()
  else:
    assert grad.any()


def test_hiding_the_input_keeps_an_infinite_slope_out():
  mask = jnp.array([True, False])
  f = lambda x: jnp.sum(masked.hide(jnp.log(masked.hide(x, mask, 1.0)), mask))
  np.testing.assert_allclose(jax.grad(f)(jnp.array([2.0, 0.0])), (0.5, 0.0))


def test_count_has_no_gradient():
  for mode in masked.MODES:
    length = 4 if mode == 'seq-mean-token-sum-norm' else None
    count = lambda x, mode=mode, length=length: masked.aggregate(
      x, MASK, mode, length=length
    )[1]
    assert not jax.grad(count)(LOSS).any()


def test_refusals():
  with pytest.raises(ValueError, match='token-mean'):
    masked.aggregate(LOSS, MASK, 'mean')
  with pytest.raises(ValueError, match='agg_length'):
    masked.aggregate(LOSS, MASK, 'seq-mean-token-sum-norm')
  with pytest.raises(ValueError, match='agg_length'):
    masked.aggregate(LOSS, MASK, 'token-mean', length=3)
  with pytest.raises(AssertionError):
    masked.aggregate(LOSS, MASK[:, :2], 'token-mean')


def test_low_precision_losses_are_counted_exactly():
  ones = jnp.ones((2, 700), jnp.bfloat16)  # bfloat16 cannot hold 1400 or 257
  got = masked.aggregate(ones, ones.astype(bool), 'token-mean')
  np.testing.assert_array_equal(got, (1400, 1400))
  assert {x.dtype for x in got} == {jnp.dtype('float32')}

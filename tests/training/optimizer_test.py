"""AdamW by hand, schedules, durations, and the skipped step."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from tandem.training import optimizer

PARAMS = {
  'embed': jnp.array([[1.0, -2.0]]),
  'layers': {'q_bias': jnp.array([[0.5]]), 'attn_norm': jnp.array([[2.0]])},
}
GRADS = {
  'embed': jnp.array([[0.3, -0.4]]),
  'layers': {'q_bias': jnp.array([[0.0]]), 'attn_norm': jnp.array([[0.0]])},
}


def run(tx, grads_list, params=PARAMS):
  state = tx.init(params)
  step = jax.jit(lambda g, s, p: optimizer.apply_or_skip(tx, g, s, p))
  logs = []
  for grads in grads_list:
    params, state, metrics = step(grads, state, params)
    logs.append(metrics)
  return params, state, logs


def test_first_step_by_hand():
  # Adam's first step is g / (|g| + eps), so +-1 for a gradient and 0 for none.
  # embed 1: 1 - 0.1 * (1 + 0.01 * 1) = 0.899; embed -2: -2 - 0.1 * (-1 - 0.02)
  # = -1.898; the norm decays only: 2 - 0.1 * 0.01 * 2 = 1.998.
  tx = optimizer.make_optimizer(0.1, weight_decay=0.01)
  params, _, logs = run(tx, [GRADS])
  np.testing.assert_allclose(params['embed'], [[0.899, -1.898]], rtol=1e-5)
  np.testing.assert_allclose(params['layers']['attn_norm'], [[1.998]])
  np.testing.assert_allclose(params['layers']['q_bias'], [[0.4995]])
  np.testing.assert_allclose(logs[0]['grad_norm'], 0.5, rtol=1e-6)


def test_decay_of_matrices_spares_norms_and_biases():
  tx = optimizer.make_optimizer(0.1, weight_decay=0.01, decay='matrices')
  params, _, _ = run(tx, [GRADS])
  np.testing.assert_allclose(params['embed'], [[0.899, -1.898]], rtol=1e-5)
  assert params['layers']['attn_norm'] == 2.0
  assert params['layers']['q_bias'] == 0.5


def test_clip_is_by_the_global_norm():
  # Adam forgets scale, so look at its first moment: norm 0.5 clipped to 0.1
  # leaves 0.1 * 0.3 / 0.5 * (1 - b1) = 0.006.
  tx = optimizer.make_optimizer(0.1, clip_norm=0.1)
  _, state, logs = run(tx, [GRADS])
  mu = state[1].mu['embed']
  np.testing.assert_allclose(mu, [[0.006, -0.008]], rtol=1e-5)
  np.testing.assert_allclose(logs[0]['grad_norm'], 0.5, rtol=1e-6)
  _, state, _ = run(optimizer.make_optimizer(0.1, clip_norm=None), [GRADS])
  np.testing.assert_allclose(state[0].mu['embed'], [[0.03, -0.04]], rtol=1e-5)


@pytest.mark.parametrize('bad', [jnp.nan, jnp.inf, -jnp.inf])
def test_a_bad_gradient_changes_nothing_and_is_counted(bad):
  schedule = optimizer.make_schedule('linear', 0.1, total_steps=10)
  tx = optimizer.make_optimizer(schedule)
  broken = {**GRADS, 'embed': jnp.array([[bad, 0.1]])}
  clean, clean_state, _ = run(tx, [GRADS, GRADS])
  got, state, logs = run(tx, [GRADS, broken, GRADS])
  jax.tree.map(np.testing.assert_array_equal, got, clean)
  jax.tree.map(np.testing.assert_array_equal, state, clean_state)
  assert [int(log['skipped']) for log in logs] == [0, 1, 0]
  counts = [
    part.count for part in state if isinstance(part, optax.ScaleByScheduleState)
  ]
  assert [int(count) for count in counts] == [2]
  # Had the schedule moved, the third update would have been smaller.
  moved, _, _ = run(tx, [GRADS, GRADS, GRADS])
  assert float(jnp.abs(moved['embed'] - got['embed']).max()) > 0.01


def test_moment_dtype():
  tx = optimizer.make_optimizer(0.1, mu_dtype='bfloat16')
  _, state, _ = run(tx, [GRADS, GRADS])
  assert state[1].mu['embed'].dtype == jnp.bfloat16
  assert state[1].nu['embed'].dtype == jnp.float32


def test_schedules_by_hand():
  make = optimizer.make_schedule
  values = lambda s, at: [float(s(i)) for i in at]
  flat = make('constant', 2.0, total_steps=10, warmup_steps=4)
  assert values(flat, range(6)) == [0.5, 1.0, 1.5, 2.0, 2.0, 2.0]
  line = make('linear', 1.0, total_steps=10, end_factor=0.5)
  assert values(line, [0, 4, 10, 99]) == pytest.approx([1.0, 0.8, 0.5, 0.5])
  # Half-way from 2 to 10 the cosine stands at one half.
  cosine = make('cosine', 1.0, total_steps=10, warmup_steps=2)
  assert values(cosine, [0, 1, 6, 10]) == pytest.approx([0.5, 1.0, 0.5, 0.0])


def test_matches_optax_adamw():
  grads = [optax.tree.scale(s, GRADS) for s in (0.1, -0.7, 2.0)]
  ours, _, _ = run(
    optimizer.make_optimizer(0.05, weight_decay=0.1, clip_norm=None), grads
  )
  theirs, _, _ = run(optax.adamw(0.05, weight_decay=0.1), grads)
  jax.tree.map(
    lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-6), ours, theirs
  )


def test_wrong_names_list_the_right_ones():
  with pytest.raises(ValueError, match='cosine'):
    optimizer.make_schedule('cos', 1.0, total_steps=3)
  with pytest.raises(ValueError, match='matrices'):
    optimizer.make_optimizer(0.1, decay='none')
  with pytest.raises(ValueError, match='warmup of 5'):
    optimizer.make_schedule('linear', 1.0, total_steps=5, warmup_steps=5)
  with pytest.raises(ValueError, match='clip_norm=0'):
    optimizer.make_optimizer(0.1, clip_norm=0)

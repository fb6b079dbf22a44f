"""The update: splits change nothing, and what is masked does not move it."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tandem import losses
from tandem import types
from tandem.training import mesh as mesh_lib
from tandem.training import optimizer
from tandem.training import sharding
from tandem.training import step as step_lib
from tests import fakes

CFG = fakes.TINY
LENGTHS = (5, 1, 7, 3, 7, 2, 6, 4)  # ragged rows, two groups of four


def batch(seed=0, group=4, width=7):
  rng = np.random.default_rng(seed)
  n = len(LENGTHS)
  valid = np.arange(width)[None] < np.asarray(LENGTHS)[:, None]
  real = lambda: jnp.asarray(rng.normal(size=(n, width)) - 2, jnp.float32)
  prompts = fakes.prompts((3, 2, 4, 1, 2, 2, 3, 4), seed=seed)
  return types.StepBatch(
    tokens=jnp.asarray(rng.integers(0, fakes.VOCAB, (n, width)), jnp.int32),
    valid=jnp.asarray(valid),
    author=jnp.asarray(rng.random((n, width)) < 0.5),
    rewards=jnp.asarray([1, 0, 0, 1, 0, 1, 0, 0], jnp.float32),
    group_id=jnp.arange(n, dtype=jnp.int32) // group,
    episode_id=jnp.arange(n, dtype=jnp.int32),
    turn=jnp.zeros(n, jnp.int32),
    truncated=jnp.zeros(n, bool),
    contexts={'policy': prompts},
    scores={'rollout': real(), 'rollout_junior': real()},
    group=group,
  )


def rescored(data, params, temperature=1.0, cfg=CFG):
  score = step_lib.make_score(cfg, step_lib.Forward(temperature=temperature))
  old = score(params, data.contexts['policy'], data.tokens)
  return data.replace(scores=data.scores | {'old': old})


def grads_of(
  data,
  params,
  *,
  micro_rows=0,
  name='tandem',
  forward=None,
  model=CFG,
  **fields,
):
  variant = losses.LOSSES[name]
  cfg = losses.make_config(name, **fields)
  credit, _, _ = variant.credit(data, {}, cfg)
  run = lambda params: step_lib.gradients(
    params,
    credit,
    data.contexts['policy'],
    data.tokens,
    model_cfg=model,
    variant=variant,
    loss_cfg=cfg,
    forward=forward or step_lib.Forward(micro_rows=micro_rows),
  )
  return jax.jit(run)(params)


def relative(a, b):
  """|a - b| over |b|, global norms."""
  norm = lambda tree: float(
    jnp.sqrt(sum(jnp.sum(x * x) for x in jax.tree.leaves(tree)))
  )
  return norm(jax.tree.map(jnp.subtract, a, b)) / norm(b)


@pytest.fixture(scope='module')
def params():
  # Flat laws: log-probs near -3, whose float32 grain is below the 1e-6 asked.
  return fakes.params(sharpness=1.0)


@pytest.fixture(scope='module')
def data(params):
  return rescored(batch(), params)


@pytest.fixture(scope='module')
def whole(data, params):
  return grads_of(data, params)


@pytest.mark.parametrize('micro_rows', [4, 1])
def test_micro_batches_add_exactly(data, params, whole, micro_rows):
  # Case 17: 1 x 8, 2 x 4 and 8 x 1 ragged rows.
  grads, terms = grads_of(data, params, micro_rows=micro_rows)
  assert relative(grads, whole[0]) < 1e-6
  np.testing.assert_allclose(terms['loss'], whole[1]['loss'], atol=1e-6)


@pytest.mark.parametrize('shape', [(2, 2, 2), (8, 1, 1), (1, 2, 4)])
def test_devices_change_no_gradient(data, params, whole, shape):
  mesh = mesh_lib.make_mesh(*shape)
  placed = jax.device_put(params, sharding.shardings_for(params, mesh))
  rows = mesh_lib.put_rows(mesh, data)
  grads, _ = grads_of(rows, placed)
  assert relative(jax.device_get(grads), jax.device_get(whole[0])) < 1e-6


def test_a_cut_vocabulary_changes_no_gradient(data):
  # V = 20 over tensor=4, each device on its own part of the head.
  cfg = dataclasses.replace(CFG, vocab=20)
  mesh = mesh_lib.make_mesh(1, 2, 4)
  assert step_lib.vocab_mesh(mesh, cfg) is mesh
  assert step_lib.vocab_mesh(mesh, CFG) is None  # 17 does not divide
  params = fakes.params(cfg, sharpness=1.0)
  data = rescored(data, params, cfg=cfg)
  want, _ = grads_of(data, params, model=cfg)
  got, _ = grads_of(
    mesh_lib.put_rows(mesh, data),
    jax.device_put(params, sharding.shardings_for(params, mesh)),
    model=cfg,
    forward=step_lib.Forward(vocab_mesh=mesh),
  )
  assert relative(jax.device_get(got), jax.device_get(want)) < 1e-6


def test_first_ratio_is_one_at_any_temperature(params):
  # Case 14: at T=0.6 on both sides the loss at ratio 1 is -mean(A); with T on
  # one side only the ratios were 2.
  data = rescored(batch(), params, temperature=0.6)
  forward = step_lib.Forward(temperature=0.6)
  cfg = losses.make_config('grpo')
  credit, _, _ = losses.LOSSES['grpo'].credit(data, {}, cfg)
  _, terms = grads_of(data, params, name='grpo', forward=forward)
  paid = np.where(data.valid, credit.rows['advantage'][:, None], 0)
  want = -paid.sum() / np.sum(data.valid)
  assert abs(want) > 0.01
  np.testing.assert_allclose(terms['loss/policy'], want, atol=1e-5)


def test_micro_scoring_equals_whole(data, params):
  score = step_lib.make_score(CFG, step_lib.Forward(micro_rows=2))
  parts = score(params, data.contexts['policy'], data.tokens)
  np.testing.assert_allclose(parts, data.scores['old'], atol=2e-6)


def test_juniors_tokens_do_not_move_the_senior(data, params, whole):
  # Case 3: other log-probs and records where the junior spoke, same gradient.
  def disturb(name):
    noise = jnp.where(data.author, 0.0, 3.0)
    return data.scores[name] + noise

  scores = {name: disturb(name) for name in data.scores}
  grads, _ = grads_of(data.replace(scores=scores), params)
  assert relative(grads, whole[0]) == 0


def test_prompt_padding_changes_no_gradient(data, params, whole):
  context = data.contexts['policy']
  wide = context.replace(
    ids=jnp.pad(context.ids, ((0, 0), (0, 9)), constant_values=5)
  )
  grads, _ = grads_of(data.replace(contexts={'policy': wide}), params)
  assert relative(grads, whole[0]) < 1e-6


def make_update(tx, **kwargs):
  return jax.jit(
    step_lib.make_update(
      model_cfg=CFG,
      variant=losses.LOSSES['tandem'],
      loss_cfg=losses.make_config('tandem'),
      tx=tx,
      forward=step_lib.Forward(),
      **kwargs,
    )
  )


def state_of(params, tx):
  return types.TrainState(params, tx.init(params), {}, jnp.zeros((), jnp.int32))


def test_update_learns_and_reports(data, params):
  tx = optimizer.make_optimizer(1e-2)
  update, state = make_update(tx), state_of(params, tx)
  first = None
  for _ in range(5):
    state, metrics = update(state, data)
    first = first or metrics
  assert float(metrics['loss']) < float(first['loss'])
  assert {'grad_norm', 'loss', 'loss/policy', 'mismatch/logp_max'} <= set(first)
  assert int(state.skipped) == 0


def test_mini_batches_are_whole_prompts(data, params):
  # Two updates of one prompt each: as two steps on one prompt, in that order.
  tx = optimizer.make_optimizer(1e-2)
  both, _ = make_update(tx, mini_batches=2)(state_of(params, tx), data)
  state, single = state_of(params, tx), make_update(tx)
  for rows in (slice(0, 4), slice(4, 8)):
    part = jax.tree.map(lambda x, rows=rows: x[rows], data)
    state, _ = single(state, part)
  assert relative(both.params, state.params) < 1e-6


def test_nonfinite_gradient_changes_nothing_and_is_counted(data, params):
  tx = optimizer.make_optimizer(1e-2)
  broken = data.replace(rewards=data.rewards.at[0].set(jnp.nan))
  state = state_of(params, tx)
  after, metrics = make_update(tx)(state, broken)
  assert int(after.skipped) == int(metrics['update/skipped']) == 1
  same = jax.tree.map(lambda a, b: bool((a == b).all()), after.params, params)
  assert all(jax.tree.leaves(same))


def test_micro_rows_must_divide(data, params):
  with pytest.raises(ValueError, match='micro_rows=3 does not divide the 8'):
    grads_of(data, params, micro_rows=3)


def test_forward_is_frozen():
  with pytest.raises(dataclasses.FrozenInstanceError):
    step_lib.Forward().dtype = 'x'


@pytest.mark.parametrize('micro_rows', [0, 2])
def test_mismatch_is_measured_when_old_is_not_scored(params, micro_rows):
  # old='rollout' saves a forward; what it costs is then read off the update's.
  data, tx = rescored(batch(), params), optimizer.make_optimizer(1e-2)
  scores = {'rollout': data.scores['old'] + jnp.where(data.author, 0.25, 9.0)}
  update = step_lib.make_update(
    model_cfg=CFG,
    variant=losses.LOSSES['tandem'],
    loss_cfg=losses.make_config('tandem', old='rollout'),
    tx=tx,
    forward=step_lib.Forward(micro_rows=micro_rows),
  )
  _, metrics = jax.jit(update)(
    state_of(params, tx), data.replace(scores=scores)
  )
  # A quarter on every one of the senior's tokens; the junior's do not count.
  np.testing.assert_allclose(metrics['mismatch/logp_max'], 0.25, atol=1e-5)
  np.testing.assert_allclose(metrics['mismatch/logp_mean'], 0.25, atol=1e-5)


@pytest.mark.parametrize(
  'name', ['pallas_tpu_interpret', 'pallas_gpu_interpret']
)
def test_log_probs_by_kernel_change_no_gradient(data, name):
  # Rows over data=2 and fsdp=2, V = 32 over tensor=2.
  cfg = dataclasses.replace(CFG, vocab=32)
  mesh = mesh_lib.make_mesh(2, 2, 2)
  params = fakes.params(cfg, sharpness=1.0)
  data = rescored(data, params, cfg=cfg)
  want, _ = grads_of(data, params, model=cfg)
  got, _ = grads_of(
    mesh_lib.put_rows(mesh, data),
    jax.device_put(params, sharding.shardings_for(params, mesh)),
    model=cfg,
    forward=step_lib.Forward(vocab_mesh=mesh, log_probs=name, micro_rows=4),
  )
  assert relative(jax.device_get(got), jax.device_get(want)) < 1e-5

"""AdamW with a clip and a schedule, from plain numbers; skipping bad steps.

The schedule counts *applied* updates: its count is part of the optimizer's
state, and a skipped update leaves the whole state as it was.
"""

import jax
import jax.numpy as jnp
import optax

SCHEDULES = ('constant', 'linear', 'cosine')
DECAYS = ('all', 'matrices')


def make_schedule(
  name: str,
  learning_rate: float,
  *,
  total_steps: int,
  warmup_steps: int = 0,
  end_factor: float = 0.0,
) -> optax.Schedule:
  """Learning rate by the number of updates already applied.

  Warm-up is (count + 1) / warmup_steps, so that the first update moves; the
  usual count / warmup_steps makes it a silent no-op. After it: constant, or
  down to end_factor * learning_rate at total_steps, and there it stays.

  Raises:
    ValueError: unknown name, or a warm-up that is not shorter than the run.
  """
  if name not in SCHEDULES:
    raise ValueError(
      f'schedule={name!r} is not known; the legal ones are {SCHEDULES}.'
    )
  if warmup_steps and not 0 <= warmup_steps < total_steps:
    raise ValueError(
      f'warmup of {warmup_steps} steps does not end within total_steps='
      f'{total_steps}; shorten it.'
    )
  decay_steps = max(total_steps - warmup_steps, 1)

  def schedule(count):
    count = jnp.asarray(count, jnp.float32)
    warm = jnp.minimum((count + 1.0) / max(warmup_steps, 1), 1.0)
    done = jnp.clip((count - warmup_steps) / decay_steps, 0.0, 1.0)
    if name == 'linear':
      left = 1.0 - done
    elif name == 'cosine':
      left = 0.5 * (1.0 + jnp.cos(jnp.pi * done))
    else:
      return learning_rate * warm
    return learning_rate * warm * (end_factor + (1.0 - end_factor) * left)

  return schedule


def matrix_mask(params):
  """True on weights that multiply; False on norms and biases, by name."""

  def is_matrix(path, _):
    # By name and not by rank: a stack gives every norm a second dimension.
    name = jax.tree_util.keystr(path[-1:], simple=True)
    return not (name.endswith('norm') or name.endswith('bias'))

  return jax.tree_util.tree_map_with_path(is_matrix, params)


def make_optimizer(
  schedule: optax.Schedule | float,
  *,
  b1: float = 0.9,
  b2: float = 0.999,
  eps: float = 1e-8,
  weight_decay: float = 0.01,
  decay: str = 'all',
  clip_norm: float | None = 1.0,
  mu_dtype: str | None = None,
) -> optax.GradientTransformation:
  """clip by global norm -> Adam -> decoupled weight decay -> learning rate.

  Args:
    schedule: from `make_schedule`, or a number.
    b1, b2, eps: Adam's.
    weight_decay: decoupled, times the learning rate.
    decay: 'all' decays every leaf, norms and biases too (what torch's AdamW
      does when given `model.parameters()`, as verl and TRL do); 'matrices'
      spares those.
    clip_norm: bound of the global norm of the gradient; None for no clip.
    mu_dtype: 'bfloat16' halves the first moment. The second stays float32: one
      step changes it by a factor 1 - b2 = 0.001, below bfloat16's last bit.

  Raises:
    ValueError: unknown `decay`, or a clip that is not positive.
  """
  if decay not in DECAYS:
    raise ValueError(f'decay={decay!r} is not known; the legal: {DECAYS}.')
  if clip_norm is not None and not clip_norm > 0:
    raise ValueError(
      f'clip_norm={clip_norm} must be positive; None turns clipping off.'
    )
  if not callable(schedule):
    schedule = make_schedule('constant', schedule, total_steps=1)
  steps = []
  if clip_norm is not None:
    steps.append(optax.clip_by_global_norm(clip_norm))
  steps.append(optax.scale_by_adam(b1=b1, b2=b2, eps=eps, mu_dtype=mu_dtype))
  if weight_decay:
    mask = matrix_mask if decay == 'matrices' else None
    steps.append(optax.add_decayed_weights(weight_decay, mask=mask))
  steps.append(optax.scale_by_schedule(schedule))
  steps.append(optax.scale(-1.0))
  return optax.chain(*steps)


def apply_or_skip(
  tx: optax.GradientTransformation, grads, opt_state, params
) -> tuple[object, object, dict[str, jax.Array]]:
  """One update; none at all if the gradient's norm is not finite.

  A skipped update returns params and the whole optimizer state, schedule
  included, bit for bit as they came.

  Args:
    tx: from `make_optimizer`.
    grads: tree like params.
    opt_state: from `tx.init(params)`.
    params: float32 master weights.

  Returns:
    (params, opt_state, metrics), metrics: `grad_norm` [] float32 before the
    clip, `skipped` [] int32, 1 where the update was skipped.
  """
  norm = optax.tree.norm(grads)
  finite = jnp.isfinite(norm)
  updates, new_state = tx.update(grads, opt_state, params)
  new_params = optax.apply_updates(params, updates)
  # A select, not a cond: it fuses with the update and keeps buffers in place.
  keep = lambda new, old: jax.tree.map(
    lambda n, o: jnp.where(finite, n, o), new, old
  )
  metrics = {
    'grad_norm': norm.astype(jnp.float32),
    'skipped': jnp.where(finite, 0, 1).astype(jnp.int32),
  }
  return keep(new_params, params), keep(new_state, opt_state), metrics

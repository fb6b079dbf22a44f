"""The programs of a step as the loop runs them, from a config.

One place, so that what is compiled ahead of time is what is trained.
"""

from collections.abc import Callable

import jax

from tandem import types
from tandem.training import build
from tandem.training import sharding
from tandem.training import step as step_lib


def forward(
  config, mesh: jax.sharding.Mesh, cfg: types.ModelConfig
) -> step_lib.Forward:
  """How every scorer of the run is run; cfg is the senior's."""
  kernel = config.model.log_probs
  return step_lib.Forward(
    temperature=config.rollout.temperature,
    dtype=config.model.dtype,
    remat=config.model.remat,
    micro_rows=config.learner.micro_rows,
    constrain=sharding.constrain(mesh),
    log_probs=kernel,
    # The partitioner cannot cut a Pallas call: that one has to be told of rows.
    vocab_mesh=step_lib.vocab_mesh(mesh, cfg) if kernel == 'xla' else mesh,
    attention=step_lib.attention(config.model.attention, mesh),
  )


def to_teacher(config) -> bool:
  """Whether statistics of the policy are taken to the teacher in the update."""
  variant, loss_cfg = build.loss(config)
  return any('_teacher' in name for name in variant.stats(loss_cfg))


def update(
  config,
  cfg: types.ModelConfig,
  forward: step_lib.Forward,
  state: types.TrainState,
  teacher_cfg: types.ModelConfig | None = None,
) -> Callable:
  """The jitted update of the run; its first argument is donated.

  Args:
    config: of the run.
    cfg: of the senior.
    forward: from the function of that name.
    state: arrays, or shapes that carry their sharding.
    teacher_cfg: of the teacher; read only where `to_teacher`.
  """
  variant, loss_cfg = build.loss(config)
  minis = config.learner.mini_prompts or config.rollout.prompts
  function = step_lib.make_update(
    model_cfg=cfg,
    variant=variant,
    loss_cfg=loss_cfg,
    tx=build.tx(config),
    forward=forward,
    mini_batches=config.rollout.prompts // minis,
    epochs=config.learner.epochs,
    teacher_cfg=teacher_cfg if to_teacher(config) else None,
  )
  shardings = jax.tree.map(lambda x: x.sharding, state)
  return jax.jit(function, donate_argnums=0, out_shardings=(shardings, None))

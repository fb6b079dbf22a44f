"""A run's arrays as shapes on a mesh: no weight is read, no device needed."""

import dataclasses
import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from tandem import types
from tandem.models import decoder
from tandem.models import presets
from tandem.models import weights
from tandem.training import build
from tandem.training import mesh as mesh_lib
from tandem.training import models
from tandem.training import setup as setup_lib
from tandem.training import sharding

_BY_HUB_ID = {hub: name for name, hub in presets.HUB_IDS.items()}


@dataclasses.dataclass(frozen=True)
class Run:
  """What stays on the devices, as ShapeDtypeStructs with shardings.

  Models are by role; roles that share weights name the same object.
  """

  mesh: jax.sharding.Mesh
  cfgs: dict[str, types.ModelConfig]  # senior, junior, reference, teacher
  state: types.TrainState
  frozen: dict[str, Any]  # role -> what it decodes or scores with


def model_config(
  config, source: str, section, layers: int = 0
) -> types.ModelConfig:
  """Shapes of a source; of a hub id that has a preset without any download.

  Args:
    config: of the run.
    source: as config.model.source.
    section: config.model or config.teacher; read where the source is made.
    layers: keeps so many layers only; 0 keeps all.
  """
  if source in _BY_HUB_ID:
    cfg = presets.preset(_BY_HUB_ID[source])
  elif source in ('random', 'warm_start') and section.get('preset'):
    cfg = presets.preset(section.preset)
  elif source in ('random', 'warm_start'):
    tokenizer = build.text(config).tokenizer
    of = models.model_config if source == 'random' else models.teacher_config
    cfg = of(config, tokenizer)
  else:
    cfg = weights.load_config(source)
  if layers:
    cfg = dataclasses.replace(cfg, num_layers=min(layers, cfg.num_layers))
  return cfg


def params(cfg: types.ModelConfig, mesh, dtype=jnp.float32):
  """Stacked, on the sharding of the update."""
  init = functools.partial(decoder.init_params, cfg=cfg, dtype=dtype)
  shapes = jax.eval_shape(init, models.keys_shape())
  return sharding.with_shardings(shapes, sharding.shardings_for(shapes, mesh))


def decode_params(cfg: types.ModelConfig, mesh, dtype: str):
  """A list of layers, on the sharding of the rollout."""
  make = functools.partial(
    decoder.decode_params, cfg=cfg, dtype=jnp.dtype(dtype)
  )
  shapes = jax.eval_shape(make, params(cfg, mesh))
  table = sharding.shardings_for(shapes, mesh, sharding.DECODE)
  return sharding.with_shardings(shapes, table)


def run(config, mesh, *, layers: int = 0) -> Run:
  """The models that training holds, as setup.setup would make them."""
  variant, loss_cfg = build.loss(config)
  scorings = set(variant.scorings(loss_cfg))
  dtype = config.rollout.dtype
  senior = model_config(config, config.model.source, config.model, layers)
  scored = lambda cfg: params(cfg, mesh, jnp.dtype(dtype))
  evaluates = bool(config.eval.every_steps)
  cfgs = {'senior': senior}
  frozen = {'senior': decode_params(senior, mesh, dtype)}
  same = config.junior.source == 'same'
  if setup_lib.needs_junior(config, evaluates=evaluates):
    cfgs['junior'] = senior
    if not same:
      source = config.junior.source
      cfgs['junior'] = model_config(config, source, config.model, layers)
    decodes = setup_lib.junior_decodes(config, evaluates=evaluates)
    frozen['junior'] = (
      decode_params(cfgs['junior'], mesh, dtype)
      if decodes
      else scored(cfgs['junior'])
    )
  if 'reference' in scorings:
    cfgs['reference'] = senior
    frozen['reference'] = frozen['junior'] if same else scored(senior)
  if build.declares(config, 'teacher'):
    source = config.teacher.source
    cfgs['teacher'] = model_config(config, source, config.teacher, layers)
    frozen['teacher'] = scored(cfgs['teacher'])
  _, state = setup_lib.state_maker(config, params(senior, mesh), mesh)
  return Run(mesh=mesh, cfgs=cfgs, state=state, frozen=frozen)


def rows(mesh, count: int, *shape: int, dtype=jnp.int32):
  """[count, *shape], rows split as put_rows splits them."""
  return jax.ShapeDtypeStruct(
    (count, *shape), dtype, sharding=mesh_lib.row_sharding(mesh)
  )


def row_keys(mesh, count: int):
  """One typed key per row."""
  return rows(mesh, count, dtype=models.keys_shape().dtype)


def context(mesh, count: int, width: int) -> types.Context:
  """Prompts as the collector places them: whole where they do not split."""
  place = mesh_lib.row_sharding(mesh)
  if count % mesh_lib.row_shards(mesh):
    place = mesh_lib.replicated(mesh)
  make = lambda *shape: jax.ShapeDtypeStruct(shape, jnp.int32, sharding=place)
  return types.Context(ids=make(count, width), lengths=make(count))


def step_batch(config, mesh) -> types.StepBatch:
  """The step batch at its widest, with the scorings that the loss declares."""
  rollout = config.rollout
  n, t = rollout.prompts * rollout.group, rollout.max_response
  variant, loss_cfg = build.loss(config)
  pair = rollout.mode == 'tandem'
  wide = rollout.max_prompt + config.privileged.max_tokens + 16
  names = ['rollout', *(['rollout_junior'] if pair else [])]
  names += variant.scorings(loss_cfg)
  widths = {'policy': rollout.max_prompt}
  if build.declares(config, 'teacher'):
    widths['teacher'] = wide
  if config.privileged.kind != 'none':
    widths['privileged'] = wide
  make = functools.partial(rows, mesh, n)
  return types.StepBatch(
    tokens=make(t),
    valid=make(t, dtype=jnp.bool_),
    author=make(t, dtype=jnp.bool_) if pair else None,
    rewards=make(dtype=jnp.float32),
    group_id=make(),
    episode_id=make(),
    turn=make(),
    truncated=make(dtype=jnp.bool_),
    contexts={
      name: types.Context(ids=make(width), lengths=make())
      for name, width in widths.items()
    },
    scores={name: make(t, dtype=jnp.float32) for name in names},
    group=rollout.group,
  )


def bytes_per_device(tree) -> float:
  """Of a tree of shapes with shardings; arrays named twice count once."""
  seen, total = set(), 0.0
  for leaf in jax.tree.leaves(tree):
    if id(leaf) in seen:
      continue
    seen.add(id(leaf))
    shard = leaf.sharding.shard_shape(leaf.shape)
    size = getattr(leaf.dtype, 'itemsize', 4)
    total += float(np.prod(shard, dtype=np.float64)) * size
  return total

"""The parts that training and evaluation share, made in one order.

Host work first (tokenizer, problems, prompts), then the mesh and the shapes,
so that bad input is refused before a weight is read; then the weights.
"""

from collections.abc import Callable
import dataclasses
import pathlib
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from tandem import types
from tandem.data import prompts as prompts_lib
from tandem.models import weights
from tandem.rewards import verifier as verifier_lib
from tandem.training import build
from tandem.training import checkpoint as checkpoint_lib
from tandem.training import collect as collect_lib
from tandem.training import contexts as contexts_lib
from tandem.training import decoding
from tandem.training import demonstrations
from tandem.training import limits
from tandem.training import mesh as mesh_lib
from tandem.training import models
from tandem.training import sharding


@dataclasses.dataclass(frozen=True)
class Parts:
  """What a run is made of, weights included."""

  text: build.Text
  train_prompts: list[prompts_lib.Prompt]
  eval_prompts: list[prompts_lib.Prompt]
  mesh: jax.sharding.Mesh
  cfg: types.ModelConfig  # of the senior
  initial: Any  # float32 weights that the run starts from; layers stacked
  junior: collect_lib.Speaker | None  # the frozen partner, ready as needed
  reference: collect_lib.Speaker | None  # the KL anchor: initial weights
  teacher: collect_lib.Speaker | None  # whose feedback a loss reads
  contexts: contexts_lib.Contexts  # what other scorers read
  decode_copy: Callable[[Any], Any]  # senior params -> decode_params
  collector: collect_lib.Collector

  def without_initial(self) -> 'Parts':
    """The same, no longer holding the weights that became the state."""
    return dataclasses.replace(self, initial=None)

  def speaker(self, params: Any) -> collect_lib.Speaker:
    """The senior of these weights, ready to decode."""
    return collect_lib.Speaker(self.decode_copy(params), self.cfg)


def junior_decodes(config, *, evaluates: bool, trains: bool = True) -> bool:
  """Whether anything of a run decodes with the junior: it writes or drafts."""
  evaluated = evaluates and bool({*config.eval.models} & {'pair', 'junior'})
  rollout = config.rollout
  drafts = rollout.decoder == 'speculative' and rollout.drafter == 'junior'
  return (trains and rollout.mode == 'tandem') or evaluated or drafts


def needs_junior(config, *, evaluates: bool, trains: bool = True) -> bool:
  """Whether anything of a run decodes with the junior or scores by it."""
  variant, loss_cfg = build.loss(config)
  scorings = variant.scorings(loss_cfg)
  # The initial weights, where they are the junior too, are kept once.
  scored = 'junior' in scorings or (
    'reference' in scorings and config.junior.source == 'same'
  )
  decodes = junior_decodes(config, evaluates=evaluates, trains=trains)
  return decodes or (trains and scored)


def _teacher(config, workdir, text, mesh, collector, vocab: int):
  """The frozen teacher, ready to score; None where no one asks for it."""
  if not build.declares(config, 'teacher'):
    return None
  teacher = config.teacher
  if teacher.source != 'warm_start':
    cfg = weights.load_config(teacher.source)
    if cfg.vocab != vocab:
      raise ValueError(
        f'teacher.source={teacher.source!r} has an embedding of {cfg.vocab} '
        f'ids and the policy one of {vocab}: their laws are over different '
        'sets. Take models whose embeddings are padded alike.'
      )
    params = models.frozen_params(
      config, teacher.source, cfg, mesh, decodes=False
    )
    return collect_lib.Speaker(params, cfg)
  cfg = models.teacher_config(config, text.tokenizer)
  copy = models.decode_copy(cfg, mesh, config.rollout.dtype)
  init = models.initial_params(config, 'random', cfg, mesh)
  params = demonstrations.started(
    config,
    pathlib.Path(workdir) / 'teacher',
    collect_lib.Speaker(init, cfg),
    text,
    mesh,
    collector,
    copy,
    slips=False,
  )
  params = models.scoring_copy(params, config.rollout.dtype)
  return collect_lib.Speaker(params, cfg)


def setup(
  config,
  workdir,
  verifier: verifier_lib.Verifier,
  *,
  evaluates: bool,
  trains: bool = True,
) -> Parts:
  """Everything up to the first step.

  Args:
    config: checked by `build.check`.
    workdir: of the run; a warm start leaves its weights in workdir/initial.
    verifier: the grader's pool.
    evaluates: whether the models of config.eval will be.
    trains: False: what only the loss reads is not made: a teacher may be the
      largest of all models.

  Raises:
    ValueError: bad input, named.
  """
  text = build.text(config)
  contexts = build.contexts(config, text.tokenizer)
  train, held_out = build.problems(config)
  train_prompts = build.prompts(config, text.tokenizer, train)
  eval_prompts = []
  if held_out:
    eval_prompts = build.prompts(config, text.tokenizer, held_out)
  mesh = mesh_lib.make_mesh(**config.mesh)
  limits.check_mesh(config, mesh)
  cfg = models.model_config(config, text.tokenizer)
  same = config.junior.source == 'same'
  junior_cfg = cfg if same else weights.load_config(config.junior.source)
  for key, one in (('model.source', cfg), ('junior.source', junior_cfg)):
    models.check_lengths(config, one)
    models.check_vocab(text.tokenizer, one, key)

  # Either may write alone, and embeddings are padded to sizes of their own.
  boundary = np.zeros(max(cfg.vocab, junior_cfg.vocab), bool)
  if config.rollout.mode == 'tandem' or (
    evaluates and 'pair' in config.eval.models
  ):  # a tokenizer without boundaries is none for a pair only
    boundary = build.boundary(config, text.tokenizer, len(boundary))
  collector = collect_lib.Collector(
    tokenizer=text.tokenizer,
    eos_ids=text.eos_ids,
    boundary=boundary,
    turns=build.turns(config),
    verifier=verifier,
    mesh=mesh,
    seed=config.seed,
    max_response=config.rollout.max_response,
    decoding=decoding.from_config(config, mesh),
  )
  initial = models.initial_params(config, config.model.source, cfg, mesh)
  models.describe(cfg, initial)
  copy = models.decode_copy(cfg, mesh, config.rollout.dtype)
  if config.warm_start.enable:
    initial = demonstrations.started(
      config,
      pathlib.Path(workdir) / 'initial',
      collect_lib.Speaker(initial, cfg),
      text,
      mesh,
      collector,
      copy,
      slips=True,
    )
  junior = None
  how = dict(evaluates=evaluates, trains=trains)
  needed, decodes = needs_junior(config, **how), junior_decodes(config, **how)
  scores = lambda: models.scoring_copy(initial, config.rollout.dtype)
  if needed and same:
    junior = collect_lib.Speaker(copy(initial) if decodes else scores(), cfg)
  elif needed:
    params = models.frozen_params(
      config, config.junior.source, junior_cfg, mesh, decodes=decodes
    )
    junior = collect_lib.Speaker(params, junior_cfg)
  variant, loss_cfg = build.loss(config)
  reference = junior if same else None
  teacher = None
  if trains:
    if 'reference' in variant.scorings(loss_cfg) and not same:
      reference = collect_lib.Speaker(scores(), cfg)
    teacher = _teacher(config, workdir, text, mesh, collector, cfg.vocab)
  return Parts(
    text=text,
    train_prompts=train_prompts,
    eval_prompts=eval_prompts,
    mesh=mesh,
    cfg=cfg,
    initial=initial,
    junior=junior,
    reference=reference,
    teacher=teacher,
    contexts=contexts,
    decode_copy=copy,
    collector=collector,
  )


def state_maker(config, params: Any, mesh):
  """(params -> TrainState, its shapes with their shardings).

  Args:
    config: of the run.
    params: float32, layers stacked; shapes are enough.
    mesh: of the run.
  """
  variant, loss_cfg = build.loss(config)
  tx = build.tx(config)

  def make(params):
    return types.TrainState(
      params=params,
      opt_state=tx.init(params),
      loss_state=variant.init_state(loss_cfg),
      skipped=jnp.zeros((), jnp.int32),
    )

  shapes = jax.eval_shape(make, params)
  shardings = sharding.shardings_for(shapes, mesh)
  return make, sharding.with_shardings(shapes, shardings)


def take_state(
  parts: Parts, checkpoints: checkpoint_lib.Checkpoints, config, step=None
) -> tuple[types.TrainState, dict | None, int]:
  """The state a run goes on from, and how far it had come.

  A named step, else the newest intact checkpoint, else the initial weights;
  those are donated, so that they are not held beside the state.

  Args:
    parts: `parts.initial` is consumed; see `Parts.without_initial`.
    checkpoints: of the run.
    config: of the run.
    step: a committed step, 'best', or None.

  Returns:
    The state, the host's state (None where nothing was restored), steps done.
  """
  make, abstract = state_maker(config, parts.initial, parts.mesh)
  if step is not None:
    step = checkpoints.named(step)
    return *checkpoints.restore(step, abstract), step
  if found := checkpoints.restore_latest(abstract):
    return found
  shardings = jax.tree.map(lambda x: x.sharding, abstract)
  make = jax.jit(make, out_shardings=shardings, donate_argnums=0)
  return make(parts.initial), None, 0

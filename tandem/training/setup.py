"""The parts that training and evaluation share, made in one order.

Host work first (tokenizer, problems, prompts), then the mesh and the shapes,
so that bad input is refused before a weight is read; then the weights.
"""

from collections.abc import Callable
import dataclasses
import pathlib
from typing import Any

from absl import logging
import jax
import jax.numpy as jnp

from tandem import types
from tandem.data import prompts as prompts_lib
from tandem.data import quickstart
from tandem.models import weights
from tandem.rewards import verifier as verifier_lib
from tandem.text import tokenizer as tokenizer_lib
from tandem.training import build
from tandem.training import checkpoint as checkpoint_lib
from tandem.training import collect as collect_lib
from tandem.training import mesh as mesh_lib
from tandem.training import sharding
from tandem.training import warm_start


@dataclasses.dataclass(frozen=True)
class Parts:
  """What a run is made of, weights included."""

  text: build.Text
  train_prompts: list[prompts_lib.Prompt]
  eval_prompts: list[prompts_lib.Prompt]
  mesh: jax.sharding.Mesh
  cfg: types.ModelConfig  # of the senior
  initial: Any  # float32 weights that the run starts from; layers stacked
  junior: collect_lib.Speaker | None  # the frozen partner, ready to decode
  reference: collect_lib.Speaker | None  # the KL anchor: initial weights
  decode_copy: Callable[[Any], Any]  # senior params -> decode_params
  collector: collect_lib.Collector

  def speaker(self, params: Any) -> collect_lib.Speaker:
    """The senior of these weights, ready to decode."""
    return collect_lib.Speaker(self.decode_copy(params), self.cfg)


def _needs_junior(config) -> bool:
  wanted = set(config.eval.models) & {'pair', 'junior'}
  evaluated = bool(config.eval.every_steps) and bool(wanted)
  variant, loss_cfg = build.loss(config)
  scored = {'junior', 'reference'} & set(variant.scorings(loss_cfg))
  return config.rollout.mode == 'tandem' or evaluated or bool(scored)


def _warm_started(config, workdir, params, cfg, text, mesh, collector, copy):
  """The stored warm-started weights, or a warm start that stores them."""
  warm, directory = config.warm_start, pathlib.Path(workdir) / 'initial'
  found = checkpoint_lib.load_frozen(
    directory,
    jax.tree.map(
      lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=x.sharding),
      params,
    ),
  )
  if found:
    logging.info('initial weights: %s, as the warm start left them', directory)
    return found[0]
  checks = build.prompts(
    config,
    text.tokenizer,
    quickstart.problems(
      config.data.held_out_seed + 1, 0, warm.check_problems, held_out=True
    ),
  )
  sampling = build.sampling(config.rollout)

  # Evaluation's shape, so that one program serves both.
  size = min(config.eval.prompts, len(checks))

  def accuracy(params):
    senior, right = collect_lib.Speaker(copy(params), cfg), []
    for start in range(0, len(checks) - size + 1, size):
      got = collector(
        senior,
        None,
        checks[start : start + size],
        group=1,
        sampling=sampling,
        purpose='warm_start',
        step=0,
        first_draw=start,
        max_prompt=config.rollout.max_prompt,
      )
      right.append(got.rewards.mean())
    return float(sum(right) / len(right))

  def demonstrations(start, count, error_rate):
    pairs = quickstart.demonstrations(config.seed, start, count, error_rate)
    prompts = build.prompts(config, text.tokenizer, [p for p, _ in pairs])
    encode = lambda solution: tokenizer_lib.encode(text.tokenizer, solution)
    return [
      (list(prompt.ids), encode(solution) + [text.eos_ids[0]])
      for prompt, (_, solution) in zip(prompts, pairs)
    ]

  params = warm_start.run(
    params,
    cfg,
    demonstrations,
    accuracy,
    mesh,
    (
      warm_start.Phase(
        error_rate=0.0,
        target=warm.clean_accuracy,
        rising=True,
        min_steps=0,
        max_steps=warm.clean_max_steps,
      ),
      warm_start.Phase(
        error_rate=warm.error_rate,
        target=warm.slip_accuracy,
        rising=False,
        min_steps=warm.slip_min_steps,
        max_steps=warm.slip_max_steps,
      ),
    ),
    rows=warm.rows,
    learning_rate=warm.learning_rate,
    warmup_steps=warm.warmup_steps,
    check_every_steps=warm.check_every_steps,
    band=tuple(warm.band),
    max_prompt=config.rollout.max_prompt,
    max_response=config.rollout.max_response,
  )
  checkpoint_lib.save_frozen(directory, params)
  return params


def setup(config, workdir, verifier: verifier_lib.Verifier) -> Parts:
  """Everything up to the first step.

  Args:
    config: checked by `build.check`.
    workdir: of the run; a warm start leaves its weights in workdir/initial.
    verifier: the grader's pool.

  Raises:
    ValueError: bad input, named.
  """
  text = build.text(config)
  train, held_out = build.problems(config)
  train_prompts = build.prompts(config, text.tokenizer, train)
  eval_prompts = []
  if held_out:
    eval_prompts = build.prompts(config, text.tokenizer, held_out)
  mesh = mesh_lib.make_mesh(**config.mesh)
  build.check_mesh(config, mesh)
  cfg = build.model_config(config, text.tokenizer)
  build.check_lengths(config, cfg)
  same = config.junior.source == 'same'
  junior_cfg = cfg if same else weights.load_config(config.junior.source)

  collector = collect_lib.Collector(
    tokenizer=text.tokenizer,
    eos_ids=text.eos_ids,
    boundary=build.boundary(
      config, text.tokenizer, min(cfg.vocab, junior_cfg.vocab)
    ),
    turns=build.turns(config),
    verifier=verifier,
    mesh=mesh,
    seed=config.seed,
    max_response=config.rollout.max_response,
  )
  initial = build.initial_params(config, config.model.source, cfg, mesh)
  build.describe(cfg, initial)
  copy = build.decode_copy(cfg, mesh, config.rollout.dtype)
  if config.warm_start.enable:
    initial = _warm_started(
      config, workdir, initial, cfg, text, mesh, collector, copy
    )
  junior = None
  if _needs_junior(config) and same:
    junior = collect_lib.Speaker(copy(initial), cfg)
  elif _needs_junior(config):
    params = build.initial_params(
      config, config.junior.source, junior_cfg, mesh
    )
    junior_copy = build.decode_copy(junior_cfg, mesh, config.rollout.dtype)
    junior = collect_lib.Speaker(junior_copy(params), junior_cfg)
  variant, loss_cfg = build.loss(config)
  reference = junior if same else None
  if 'reference' in variant.scorings(loss_cfg) and not same:
    reference = collect_lib.Speaker(copy(initial), cfg)
  return Parts(
    text=text,
    train_prompts=train_prompts,
    eval_prompts=eval_prompts,
    mesh=mesh,
    cfg=cfg,
    initial=initial,
    junior=junior,
    reference=reference,
    decode_copy=copy,
    collector=collector,
  )


def initial_state(parts: Parts, variant, loss_cfg, tx) -> types.TrainState:
  """The state before the first step; `parts.initial` is copied, not taken."""

  def make(params):
    return types.TrainState(
      params=jax.tree.map(jnp.copy, params),
      opt_state=tx.init(params),
      loss_state=variant.init_state(loss_cfg),
      skipped=jnp.zeros((), jnp.int32),
    )

  shapes = jax.eval_shape(make, parts.initial)
  return jax.jit(make, out_shardings=state_shardings(shapes, parts.mesh))(
    parts.initial
  )


def state_shardings(shapes, mesh):
  """Shardings of a TrainState; counters and a loss's own state are whole."""
  return sharding.shardings_for(shapes, mesh)


def abstract_state(state: types.TrainState) -> types.TrainState:
  """The shapes and shardings that a restore is asked for."""
  return jax.tree.map(
    lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=x.sharding),
    state,
  )

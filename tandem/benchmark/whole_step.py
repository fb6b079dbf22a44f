"""A whole step: rollout, scoring, update; only prompts and grades are missing.

`step/{quickstart,smollm2}/solo` is GRPO on the senior's own rollouts, the others
are tandem RL on rollouts of an equal pair, decoded in lockstep or with drafts;
`tandem` is the fastest of these, which is what `draft_tokens=0` settles on.
`times_solo` is the price of the second model.
"""

from collections.abc import Callable
from collections.abc import Iterator
import functools
import statistics
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from tandem import losses
from tandem import types
from tandem.benchmark import decode_case
from tandem.benchmark import models
from tandem.benchmark import timing
from tandem.models import decoder
from tandem.rollout import lockstep
from tandem.rollout import sampling as sampling_lib
from tandem.rollout import speculative
from tandem.rollout import turns as turns_lib
from tandem.training import optimizer
from tandem.training import step as step_lib

# The model, rows and lengths of configs/quickstart.py.
QUICKSTART = types.ModelConfig(
  vocab=398,
  dim=96,
  num_layers=3,
  num_heads=4,
  num_kv_heads=2,
  head_dim=24,
  hidden=288,
  qk_norm=True,
)
OVERLAP = 0.97


def _sizes(quick: bool):
  """name -> (model, prompts, group, prompt tokens, response tokens)."""
  if quick:
    return {'toy': (models.TINY, 2, 2, 3, 8)}
  return {
    'quickstart': (QUICKSTART, 16, 8, 28, 36),
    'smollm2': (models.config(False), 2, 4, 32, 64),
  }


def step_batch(
  out: types.Rollout,
  context: types.Context,
  scores: dict[str, jax.Array],
  group: int,
) -> types.StepBatch:
  """A rollout as a step batch; every second row is right.

  Args:
    out: N rows.
    context: N prompts; what every scorer reads.
    scores: of frozen models, by name; the rollout's own records are added.
    group: G.
  """
  n, width = out.tokens.shape
  row = jnp.arange(n)
  scores = scores | {'rollout': out.logp_senior}
  if out.author is not None:
    scores['rollout_junior'] = out.logp_junior
  return types.StepBatch(
    tokens=out.tokens,
    valid=jnp.arange(width)[None] < out.lengths[:, None],
    author=out.author,
    rewards=(row % 2).astype(jnp.float32),
    group_id=row // group,
    episode_id=row,
    turn=jnp.zeros(n, jnp.int32),
    truncated=out.finish == types.FINISH.index('length'),
    contexts=dict.fromkeys(('policy', 'teacher', 'privileged'), context),
    scores=scores,
    group=group,
  )


def _programs(size, drafts) -> tuple[dict[str, Callable[[], Any]], float]:
  """Whole steps by name, and the pair's overlap."""
  cfg, prompts, group, length, response = size
  params = decoder.init_params(jax.random.key(0), cfg)
  junior, overlap = models.perturbed(cfg, params, OVERLAP)
  ready = jax.jit(functools.partial(decode_case.ready, cfg=cfg))
  junior = ready(junior)
  ids = jax.random.randint(jax.random.key(2), (prompts, length), 0, cfg.vocab)
  once = types.Context(ids=ids, lengths=jnp.full(prompts, length))
  context = jax.tree.map(lambda x: jnp.repeat(x, group, 0), once)
  common = dict(
    prompts=once,
    row_keys=decode_case.row_keys(prompts * group),
    boundary=jnp.asarray(np.random.default_rng(0).random(cfg.vocab) < 0.5),
    senior_cfg=cfg,
    group=group,
    max_tokens=response,
    eos_ids=(),
    turns=turns_lib.Turns(),
    sampling=sampling_lib.Sampling(),
  )
  decoders = {
    'solo': functools.partial(lockstep.lockstep, junior=None, **common),
    'lockstep': functools.partial(
      lockstep.lockstep, junior=junior, **common, junior_cfg=cfg
    ),
  }
  for k in drafts:
    decoders[f'speculative_k{k}'] = functools.partial(
      speculative.speculative,
      junior=junior,
      **common,
      junior_cfg=cfg,
      draft_tokens=k,
    )
  tx = optimizer.make_optimizer(1e-6)
  score = step_lib.make_score(cfg, step_lib.Forward())
  state = types.TrainState(
    params=params,
    opt_state=tx.init(params),
    loss_state={},
    skipped=jnp.zeros((), jnp.int32),
  )

  def whole(decode, name):
    loss_cfg, variant = losses.make_config(name), losses.get(name)
    update = jax.jit(
      step_lib.make_update(
        model_cfg=cfg,
        variant=variant,
        loss_cfg=loss_cfg,
        tx=tx,
        forward=step_lib.Forward(),
      )
    )
    needed = variant.scorings(loss_cfg)

    def step():
      # The new weights are made ready to decode once a step, as in training.
      out = decode(ready(state.params))
      scores = {x: score(params, context, out.tokens) for x in needed}
      return update(state, step_batch(out, context, scores, group))

    return step

  return {
    name: whole(decode, 'grpo' if name == 'solo' else 'tandem')
    for name, decode in decoders.items()
  }, overlap


def lines(*, quick: bool, repeats: int) -> Iterator[dict[str, Any]]:
  """Yields one line per size and way to decode."""
  drafts = (3,) if quick else (3, 7)
  for size, shape in _sizes(quick).items():
    programs, overlap = _programs(shape, drafts)
    seconds = timing.interleaved(programs, repeats)
    pair = [name for name in programs if name != 'solo']
    best = min(pair, key=lambda name: statistics.median(seconds[name]))
    for name, times in (seconds | {'tandem': seconds[best]}).items():
      yield timing.line(
        f'step/{size}/{name}',
        times,
        's',
        times_solo=timing.ratio(times, seconds['solo']),
        decoder=best if name == 'tandem' else name,
        rows=shape[1] * shape[2],
        response=shape[4],
        overlap=overlap,
      )

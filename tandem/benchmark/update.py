"""Seconds of an update, of a whole step, and of the credit of each loss.

`update/{solo,tandem}` turn one step batch into new weights; `step/{solo,tandem}`
decode it first and score it: the whole step but for the grader, and
`step/<size>/...` is that at two sizes and decoded in each way. Each loss's
credit, `update/credit/<name>`, is told as a share of GRPO's whole step
(`step/solo`); so is `update/scoring`, one frozen scoring of the batch, of which a
loss asks for as many as its line lists.
"""

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
from tandem.benchmark import whole_step
from tandem.models import decoder
from tandem.rollout import lockstep
from tandem.rollout import sampling as sampling_lib
from tandem.rollout import speculative
from tandem.rollout import turns as turns_lib
from tandem.training import optimizer
from tandem.training import step as step_lib

MODES = {'solo': 'grpo', 'tandem': 'tandem'}
SCORES = ('old', 'reference', 'junior', 'teacher', 'privileged')
GROUP = 4


def run(*, quick: bool = False, repeats: int = 5) -> Iterator[dict[str, Any]]:
  """Yields one line per measurement, at the sizes of SmolLM2-135M."""
  cfg = models.config(quick)
  prompt, response = (3, 8) if quick else (32, 64)
  rows = 2 * GROUP
  ids = jax.random.randint(jax.random.key(2), (2, prompt), 0, cfg.vocab)
  prompts = types.Context(ids=ids, lengths=jnp.full(2, prompt))
  context = jax.tree.map(lambda x: jnp.repeat(x, GROUP, 0), prompts)
  params = decoder.init_params(jax.random.key(0), cfg)
  senior = decode_case.ready(params, cfg)
  junior, overlap = models.perturbed(cfg, params, 0.97)
  junior = decode_case.ready(junior, cfg)
  tx = optimizer.make_optimizer(1e-6)
  row = jnp.arange(rows)
  common = dict(
    prompts=prompts,
    row_keys=jax.vmap(lambda i: jax.random.fold_in(jax.random.key(3), i))(row),
    boundary=jnp.asarray(np.random.default_rng(0).random(cfg.vocab) < 0.5),
    senior_cfg=cfg,
    group=GROUP,
    max_tokens=response,
    eos_ids=(),
    turns=turns_lib.Turns(),
    sampling=sampling_lib.Sampling(),
  )
  decode = {
    'solo': functools.partial(lockstep.lockstep, senior, None, **common),
    'tandem': functools.partial(
      speculative.speculative,
      senior,
      junior,
      **common,
      junior_cfg=cfg,
      draft_tokens=4 if quick else 8,
    ),
  }
  score = step_lib.make_score(cfg, step_lib.Forward())
  updates = {}
  for mode, name in MODES.items():
    loss_cfg = losses.make_config(name)
    updates[mode] = jax.jit(
      step_lib.make_update(
        model_cfg=cfg,
        variant=losses.get(name),
        loss_cfg=loss_cfg,
        tx=tx,
        forward=step_lib.Forward(),
      )
    )
  state = types.TrainState(
    params=params,
    opt_state=tx.init(params),
    loss_state={},
    skipped=jnp.zeros((), jnp.int32),
  )

  def batch(mode):
    """The step batch of a fresh rollout, `old` scored."""
    out = decode[mode]()
    old = score(params, context, out.tokens)
    scores = dict.fromkeys(SCORES, old)
    return whole_step.step_batch(out, context, scores, GROUP)

  batches = {mode: batch(mode) for mode in MODES}
  programs = {}
  for mode in MODES:
    update = updates[mode]
    programs[f'update/{mode}'] = functools.partial(update, state, batches[mode])
    programs[f'step/{mode}'] = lambda m=mode, f=update: f(state, batch(m))
  tokens = batches['solo'].tokens
  programs['update/scoring'] = functools.partial(score, params, context, tokens)
  seconds = timing.interleaved(programs, repeats)
  median = {name: statistics.median(x) for name, x in seconds.items()}
  step = median['step/solo']
  times = seconds.pop('update/scoring')
  share = median['update/scoring'] / step
  yield timing.line('update/scoring', times, 's', of_grpo_step=share)
  for name, times in seconds.items():
    solo = median[name.split('/')[0] + '/solo']
    yield timing.line(
      name,
      times,
      's',
      rows=rows,
      response=response,
      overlap=overlap,
      of_solo=median[name] / solo,
    )

  credits = {}
  for name, variant in losses.LOSSES.items():
    loss_cfg = losses.make_config(name)
    batch_ = batches['tandem']
    batch_ = batch_.replace(
      scores={
        key: value
        for key, value in batch_.scores.items()
        if key in ('rollout', 'rollout_junior', *variant.scorings(loss_cfg))
      }
    )
    credit = jax.jit(functools.partial(variant.credit, cfg=loss_cfg))
    credits[name] = functools.partial(
      credit, batch_, variant.init_state(loss_cfg)
    )
  for name, times in timing.interleaved(credits, repeats).items():
    variant = losses.get(name)
    yield timing.line(
      f'update/credit/{name}',
      times,
      'ms',
      of_grpo_step=statistics.median(times) / step,
      scorings=variant.scorings(losses.make_config(name)),
    )
  yield from whole_step.lines(quick=quick, repeats=repeats)

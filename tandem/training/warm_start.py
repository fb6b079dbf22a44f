"""A supervised start on generated demonstrations, for the quickstart.

Two phases, both ended by measured accuracy and not at a fixed step. On clean
demonstrations the model learns the task; on those of an expert who slips in a
known share of its steps it learns to slip as often. So the accuracy at which
reinforcement learning begins is set by design, and a run that would begin
elsewhere is refused. (Slipping demonstrations alone reach the same place in
three times the steps; clean ones alone, cut off early, land at chance or near
100 %.)
"""

from collections.abc import Callable
from collections.abc import Sequence
import dataclasses
import functools
from typing import Any

from absl import logging
import jax
import jax.numpy as jnp
import numpy as np
import tqdm

from tandem import types
from tandem.data import batches
from tandem.models import scoring
from tandem.training import mesh as mesh_lib
from tandem.training import optimizer

# (start, count, error rate) -> that many (prompt ids, response ids).
Demonstrations = Callable[[int, int, float], list[tuple[list[int], list[int]]]]


@dataclasses.dataclass(frozen=True)
class Phase:
  """One stretch of the start.

  Attributes:
    error_rate: share of the expert's steps that slip.
    target: measured accuracy at which the phase ends.
    rising: whether the accuracy rises to the target or falls to it.
    min_steps: no measurement before; a fall passes the target long before the
      model slips as evenly as the expert.
    max_steps: the longest it may take.
  """

  error_rate: float
  target: float
  rising: bool
  min_steps: int
  max_steps: int

  def done(self, accuracy: float) -> bool:
    """True once the target is reached."""
    return accuracy >= self.target if self.rising else accuracy <= self.target


@functools.partial(jax.jit, static_argnames=('cfg', 'tx'), donate_argnums=(0,))
def _step(carry, context, tokens, valid, *, cfg, tx):
  params, opt_state = carry

  def loss(params):
    logp = scoring.score(params, cfg, context, tokens)['logp']
    return -jnp.where(valid, logp, 0).sum() / valid.sum()

  value, grads = jax.value_and_grad(loss)(params)
  params, opt_state, _ = optimizer.apply_or_skip(tx, grads, opt_state, params)
  return (params, opt_state), value


def run(
  params: Any,
  cfg: types.ModelConfig,
  demonstrations: Demonstrations,
  accuracy: Callable[[Any], float],
  mesh,
  phases: Sequence[Phase],
  *,
  rows: int,
  learning_rate: float,
  warmup_steps: int,
  check_every_steps: int,
  band: tuple[float, float],
  max_prompt: int,
  max_response: int,
) -> Any:
  """Maximises the likelihood of demonstrations, phase by phase.

  Args:
    params: float32, layers stacked; consumed.
    cfg: the model.
    demonstrations: the expert.
    accuracy: params -> share of held-out problems answered rightly by
      sampling.
    mesh: rows are spread over it.
    phases: in order.
    rows: demonstrations per step, never the same problem twice.
    learning_rate: of AdamW, after warmup_steps.
    warmup_steps: of the learning rate, in the first phase.
    check_every_steps: between measurements.
    band: (low, high); an accuracy outside it at the end is an error.
    max_prompt: tokens.
    max_response: tokens.

  Returns:
    The weights, as params.

  Raises:
    ValueError: a demonstration is too long.
    RuntimeError: a phase ran out of steps before its target, or the accuracy
      at the end lies outside the band.
  """
  total = sum(phase.max_steps for phase in phases)
  tx = optimizer.make_optimizer(
    optimizer.make_schedule(
      'constant', learning_rate, total_steps=total, warmup_steps=warmup_steps
    )
  )
  carry, drawn = (params, jax.jit(tx.init)(params)), 0
  for number, phase in enumerate(phases, 1):
    bar = tqdm.tqdm(
      range(1, phase.max_steps + 1),
      desc=f'warm start {number}/{len(phases)}',
      unit='step',
      disable=None,
    )
    for step in bar:
      pairs = demonstrations(drawn, rows, phase.error_rate)
      drawn += rows
      batch = _batch(pairs, max_prompt, max_response)
      carry, value = _step(
        carry, *mesh_lib.put_rows(mesh, batch), cfg=cfg, tx=tx
      )
      due = step >= phase.min_steps and step % check_every_steps == 0
      if not due and step < phase.max_steps:
        continue
      reached = accuracy(carry[0])
      told = f'loss {float(value):.3f}, accuracy {reached:.3f}'
      logging.info('warm start %d, step %d: %s', number, step, told)
      bar.set_postfix_str(told)
      if phase.done(reached):
        break
    bar.close()
    if not phase.done(reached):
      raise RuntimeError(
        f'warm start: phase {number} ended after {step} steps at accuracy '
        f'{reached:.3f}, its target is {phase.target}. Raise its max_steps in '
        'config.warm_start, or the learning rate, or train a larger model.'
      )
  low, high = band
  if not low <= reached <= high:
    raise RuntimeError(
      f'the warm start ended at accuracy {reached:.3f}, outside '
      f'warm_start.band=({low}, {high}), from which reinforcement learning is '
      'known to work. Too low: lower warm_start.error_rate. Too high: raise it.'
    )
  return carry[0]


def _batch(pairs, max_prompt: int, max_response: int):
  ids, lengths = batches.pad([p for p, _ in pairs], max_prompt=max_prompt)
  tokens, sizes = batches.pad([r for _, r in pairs], max_prompt=max_response)
  valid = np.arange(max_response)[None] < sizes[:, None]
  return types.Context(ids=ids, lengths=lengths), tokens, valid

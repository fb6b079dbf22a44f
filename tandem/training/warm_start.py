"""A supervised start on an erring expert's demonstrations, for the quickstart.

Stopped by measured accuracy and not at a fixed step: reinforcement learning
needs a start that is neither chance nor perfection, and a run that would begin
elsewhere is refused.
"""

from collections.abc import Callable
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

# Demonstration i of a run: from its own stretch of the endless list.
Demonstrations = Callable[[int, int], list[tuple[list[int], list[int]]]]


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
  *,
  rows: int,
  max_steps: int,
  learning_rate: float,
  warmup_steps: int,
  check_every_steps: int,
  stop_accuracy: float,
  band: tuple[float, float],
  max_prompt: int,
  max_response: int,
) -> Any:
  """Maximises the likelihood of demonstrations until the accuracy is reached.

  Args:
    params: float32, layers stacked; consumed.
    cfg: the model.
    demonstrations: (start, count) -> that many (prompt ids, response ids).
    accuracy: params -> share of held-out problems answered rightly by
      sampling; also asked before the first step is taken no more.
    mesh: rows are spread over it.
    rows: demonstrations per step, never the same twice.
    max_steps: the longest it may take.
    learning_rate: of AdamW, after warmup_steps.
    warmup_steps: of the learning rate.
    check_every_steps: between measurements.
    stop_accuracy: the first measurement at or above it ends the start.
    band: (low, high); an end outside it is an error.
    max_prompt: tokens.
    max_response: tokens; longer demonstrations are an error.

  Returns:
    The weights, as params.

  Raises:
    ValueError: a demonstration is too long.
    RuntimeError: the accuracy at the end lies outside the band.
  """
  tx = optimizer.make_optimizer(
    optimizer.make_schedule(
      'constant',
      learning_rate,
      total_steps=max_steps,
      warmup_steps=warmup_steps,
    )
  )
  carry, reached, value = (params, jax.jit(tx.init)(params)), 0.0, None
  bar = tqdm.tqdm(
    range(1, max_steps + 1), desc='warm start', unit='step', disable=None
  )
  for step in bar:
    pairs = demonstrations((step - 1) * rows, rows)
    ids, lengths = batches.pad([p for p, _ in pairs], max_prompt=max_prompt)
    tokens, sizes = batches.pad([r for _, r in pairs], max_prompt=max_response)
    valid = np.arange(max_response)[None] < sizes[:, None]
    context = types.Context(ids=ids, lengths=lengths)
    carry, value = _step(
      carry,
      *mesh_lib.put_rows(mesh, (context, tokens, valid)),
      cfg=cfg,
      tx=tx,
    )
    if step % check_every_steps == 0 or step == max_steps:
      reached = accuracy(carry[0])
      bar.set_postfix(loss=f'{float(value):.3f}', accuracy=f'{reached:.3f}')
      if reached >= stop_accuracy:
        break
  bar.close()
  logging.info('warm start: accuracy %.3f after %d steps', reached, step)
  low, high = band
  if not low <= reached <= high:
    raise RuntimeError(
      f'the warm start ended after {step} steps at accuracy {reached:.3f}, '
      f'outside warm_start.band=({low}, {high}), from which reinforcement '
      'learning is known to work. Too low: raise warm_start.max_steps or lower '
      'warm_start.error_rate. Too high: raise warm_start.error_rate.'
    )
  return carry[0]

"""From a step batch to new weights: scoring, credit, objective, optimizer.

  score(params, context, tokens)   -> log-probs [N, T]      frozen scorings
  update(state, batch)             -> (state, metrics)      the whole step

The update runs the variant's credit once on all rows, then one optimizer
update per mini-batch, whose gradient is summed over micro-batches. Sums and
counts stay apart until a mini-batch is whole, so how rows are split into
micro-batches, devices and hosts changes nothing.
"""

from collections.abc import Callable
import dataclasses
import functools
from typing import Any

import jax
import jax.numpy as jnp
import optax

from tandem import losses
from tandem import types
from tandem.kernels.attention import api as attention_lib
from tandem.losses import variant as variant_lib
from tandem.models import decoder
from tandem.models import scoring
from tandem.training import optimizer


@dataclasses.dataclass(frozen=True)
class Forward:
  """How a scorer is run; one rule for all of them.

  Attributes:
    temperature: of the law on both sides of every ratio.
    dtype: of the forward, as 'float32' or 'bfloat16'.
    remat: see decoder.hidden.
    micro_rows: rows of one micro-batch; 0 for all at once.
    constrain: activation-sharding hook.
    attention: see decoder.hidden; made by the function of that name.
    vocab_mesh: see scoring.score; made by the function of that name.
    log_probs: among the implementations of kernels.token_logprob; a Pallas
      kernel wants the whole mesh as `vocab_mesh`.
  """

  temperature: float = 1.0
  dtype: str = 'float32'
  remat: str = 'none'
  micro_rows: int = 0
  constrain: Callable[[jax.Array, str], jax.Array] = lambda x, name: x
  attention: decoder.Attention = decoder.xla_attention
  vocab_mesh: jax.sharding.Mesh | None = None
  log_probs: str = 'xla'


def attention(name: str, mesh: jax.sharding.Mesh) -> decoder.Attention:
  """Of model.attention: `auto`, the platform's own where it fits; or XLA's."""
  if name == 'xla':
    return decoder.xla_attention
  return functools.partial(attention_lib.attention, mesh=mesh)


def vocab_mesh(
  mesh: jax.sharding.Mesh, cfg: types.ModelConfig
) -> jax.sharding.Mesh | None:
  """The mesh where its `tensor` axis cuts the vocabulary evenly, else None."""
  size = mesh.shape['tensor']
  return mesh if size > 1 and cfg.vocab % size == 0 else None


def _micro_count(rows: int, micro_rows: int) -> int:
  micro_rows = micro_rows or rows
  if rows % micro_rows:
    raise ValueError(
      f'learner.micro_rows={micro_rows} does not divide the {rows} rows of an '
      'update; set it to a divisor, or to 0 for no split.'
    )
  return rows // micro_rows


def _split(tree, parts: int):
  """[n, ...] leaves -> [parts, n / parts, ...], row i going to part i % parts.

  Strided, so that every part holds rows of every device: a part made of
  adjacent rows would lie on one device, and the others would wait.
  """

  def one(x):
    x = x.reshape((x.shape[0] // parts, parts) + x.shape[1:])
    return jnp.swapaxes(x, 0, 1)

  return jax.tree.map(one, tree)


def _merge(tree):
  """The inverse of _split."""
  return jax.tree.map(
    lambda x: jnp.swapaxes(x, 0, 1).reshape((-1,) + x.shape[2:]), tree
  )


def make_score(cfg: types.ModelConfig, forward: Forward) -> Callable:
  """A jitted (params, context, tokens) -> log-probs [N, T] float32."""

  @jax.jit
  def score(params, context: types.Context, tokens: jax.Array) -> jax.Array:
    def one(rows):
      context, tokens = rows
      return scoring.score(
        params,
        cfg,
        context,
        tokens,
        temperature=forward.temperature,
        dtype=jnp.dtype(forward.dtype),
        constrain=forward.constrain,
        attention=forward.attention,
        vocab_mesh=forward.vocab_mesh,
        implementation=forward.log_probs,
      )['logp']

    parts = _micro_count(tokens.shape[0], forward.micro_rows)
    if parts == 1:
      return one((context, tokens))
    return _merge(jax.lax.map(one, _split((context, tokens), parts)))

  return score


def _mini_batches(tree, parts: int, group: int):
  """Rows split by prompt into `parts`, siblings together."""
  if parts == 1:
    return jax.tree.map(lambda x: x[None], tree)
  by_group = lambda x: x.reshape((-1, group) + x.shape[1:])
  flat = lambda x: x.reshape((parts, -1) + x.shape[3:])
  split = _split(jax.tree.map(by_group, tree), parts)
  return jax.tree.map(flat, split)


def _record(batch: types.StepBatch) -> tuple[jax.Array, jax.Array]:
  """The decode-time log-probs, and where they are the senior's own tokens."""
  mine = batch.valid if batch.author is None else batch.valid & batch.author
  return batch.scores['rollout'], mine


def mismatch(
  logp: jax.Array, record: jax.Array, mine: jax.Array
) -> tuple[jax.Array, jax.Array, jax.Array]:
  """How far the decode-time record is from scored log-probs.

  The price of a decode program that rounds otherwise than the trainer's.

  Args:
    logp: [n, T] float32, scored under the weights that rolled out.
    record: [n, T] float32.
    mine: [n, T] bool; the senior's tokens (all of them in solo mode).

  Returns:
    Largest difference, sum of differences, number of tokens.
  """
  gap = jnp.where(mine, jnp.abs(logp - record), 0.0)
  return gap.max(), gap.sum(), mine.sum()


def gradients(
  params: Any,
  credit: types.Credit,
  context: types.Context,
  tokens: jax.Array,
  *,
  model_cfg: types.ModelConfig,
  variant: variant_lib.Variant,
  loss_cfg: Any,
  forward: Forward,
  teacher: scoring.Teacher | None = None,
  record: tuple[jax.Array, jax.Array] | None = None,
) -> tuple[Any, dict[str, jax.Array]]:
  """Gradient of one mini-batch, and the terms of its loss.

  Args:
    params: float32, layers stacked.
    credit: of the mini-batch's n rows.
    context: ids [n, P], lengths [n]: the policy's own prompts.
    tokens: [n, T] int32.
    model_cfg: of the policy.
    variant: the loss.
    loss_cfg: its numbers.
    forward: how to run the policy.
    teacher: where the variant's statistics are taken to one; its context of
      the same n rows.
    record: the rollout's log-probs [n, T] and the senior's tokens [n, T], to
      be compared with; None where `old` has been already.

  Returns:
    Gradients as params, and {'loss': ..., 'loss/<term>': ...}; with a record
    also `mismatch`, as the function of that name returns it.
  """
  names = variant.stats(loss_cfg)
  parts = _micro_count(tokens.shape[0], forward.micro_rows)
  counts = losses.update_counts(
    variant.objective, credit, loss_cfg, dict.fromkeys(names, tokens.shape)
  )

  def loss(params, rows):
    credit_rows, context, tokens, theirs, record = rows
    stats = scoring.score(
      params,
      model_cfg,
      context,
      tokens,
      temperature=forward.temperature,
      stats=names,
      dtype=jnp.dtype(forward.dtype),
      remat=forward.remat,
      constrain=forward.constrain,
      attention=forward.attention,
      teacher=teacher and teacher.replace(context=theirs),
      vocab_mesh=forward.vocab_mesh,
      implementation=forward.log_probs,
    )
    part = types.Credit(rows=credit_rows, scalars=credit.scalars)
    terms = {
      # An empty term is zero with gradient zero, not 0 / 0.
      term: total / jnp.where(counts[term] > 0, counts[term], 1)
      for term, (total, _) in variant.objective(stats, part, loss_cfg).items()
    }
    gap = mismatch(stats['logp'], *record) if record else ()
    return sum(terms.values()), (terms, jax.lax.stop_gradient(gap))

  rows = (credit.rows, context, tokens, teacher and teacher.context, record)
  differentiate = jax.grad(loss, has_aux=True)
  if parts == 1:
    grads, (terms, gap) = differentiate(params, rows)
  else:

    def add(total, part):
      grads, (terms, gap) = differentiate(params, part)
      summed = jax.tree.map(jnp.add, total, (grads, terms))
      return summed, gap

    start = (
      jax.tree.map(jnp.zeros_like, params),
      {term: jnp.zeros((), jnp.float32) for term in counts},
    )
    (grads, terms), gap = jax.lax.scan(add, start, _split(rows, parts))
    if record:
      gap = gap[0].max(), gap[1].sum(), gap[2].sum()
  out = {f'loss/{term}': value for term, value in terms.items()}
  out['loss'] = sum(terms.values())
  return grads, out | ({'mismatch': gap} if record else {})


def make_update(
  *,
  model_cfg: types.ModelConfig,
  variant: variant_lib.Variant,
  loss_cfg: Any,
  tx: optax.GradientTransformation,
  forward: Forward,
  mini_batches: int = 1,
  epochs: int = 1,
  teacher_cfg: types.ModelConfig | None = None,
) -> Callable:
  """The step as one function: (TrainState, StepBatch) -> (TrainState, metrics).

  A third argument takes the teacher's params where teacher_cfg is given.

  Not jitted here, so that the caller may add shardings and donation.

  Args:
    model_cfg: of the policy.
    variant: the loss.
    loss_cfg: its numbers.
    tx: the optimizer.
    forward: how to run the policy.
    mini_batches: optimizer updates per pass, each on its own prompts; only
      the first is on-policy.
    epochs: passes over the step batch.
    teacher_cfg: of the teacher that the variant's statistics are taken to; it
      reads `batch.contexts['teacher']`. None where they need none.
  """

  def update(
    state: types.TrainState, batch: types.StepBatch, teacher_params: Any = None
  ):
    credit, loss_state, metrics = variant.credit(
      batch, state.loss_state, loss_cfg
    )
    credit = jax.lax.stop_gradient(credit)
    record = _record(batch)
    gap = None
    if 'old' in batch.scores:
      # Measured on all rows at once; else by the first mini-batch's forward.
      gap, record = mismatch(batch.scores['old'], *record), None
    theirs = batch.contexts['teacher'] if teacher_cfg else None
    rows = (credit.rows, batch.contexts['policy'], batch.tokens, theirs, record)
    rows = _mini_batches(rows, mini_batches, batch.group)

    def one(carry, rows):
      params, opt_state = carry
      credit_rows, context, tokens, theirs, record = rows
      teacher = None
      if teacher_cfg:
        teacher = scoring.Teacher(teacher_params, theirs, teacher_cfg)
      grads, terms = gradients(
        params,
        types.Credit(rows=credit_rows, scalars=credit.scalars),
        context,
        tokens,
        model_cfg=model_cfg,
        variant=variant,
        loss_cfg=loss_cfg,
        forward=forward,
        teacher=teacher,
        record=record,
      )
      params, opt_state, told = optimizer.apply_or_skip(
        tx, grads, opt_state, params
      )
      return (params, opt_state), terms | told

    carry, told = (state.params, state.opt_state), []
    for _ in range(epochs):
      carry, terms = jax.lax.scan(one, carry, rows)
      told.append(terms)
    told = jax.tree.map(lambda *x: jnp.concatenate(x), *told)
    skipped = told.pop('skipped').sum()
    if record:  # the first update's: its weights are still the rollout's
      gap = jax.tree.map(lambda x: x[0], told.pop('mismatch'))
    metrics['mismatch/logp_max'] = gap[0]
    metrics['mismatch/logp_mean'] = gap[1] / jnp.maximum(gap[2], 1)
    metrics |= {name: values.mean() for name, values in told.items()}
    metrics['update/skipped'] = skipped
    state = types.TrainState(
      params=carry[0],
      opt_state=carry[1],
      loss_state=loss_state,
      skipped=state.skipped + skipped,
    )
    return state, metrics

  return update

"""What every loss must do. A member joins by being in LOSSES.

SETTINGS adds configurations to a member's defaults; DETACHED names the cases
whose gradient is by design not their value's (a stop-gradient inside).
"""

import functools

import jax
import jax.numpy as jnp
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec
import jax.test_util
import numpy as np
import pytest

from tandem import losses
from tests.losses import batches

LINE = {
  'dr_grpo': {
    'scale_by_std': False,
    'agg': 'seq-mean-token-sum-norm',
    'agg_length': 6,
  },
  'dapo': {
    'eps_high': 0.28,
    'overlong_max_tokens': 6,
    'overlong_buffer_tokens': 3,
  },
  'gspo': {'ratio': 'gspo', 'agg': 'seq-mean-token-mean', 'dual_clip': None},
  'cispo': {'ratio': 'cispo', 'dual_clip': None, 'agg': 'seq-mean-token-sum'},
  'kl_reg': {'kl_to': 'junior', 'kl_coef': 0.1, 'kl_estimator': 'k3'},
  'all_terms': {
    'kl_to': 'reference',
    'kl_coef': 0.1,
    'entropy_coef': 0.01,
    'tis': 'sequence',
  },
}
SETTINGS = {
  'grpo': LINE,
  'tandem': {
    'all_terms': LINE['all_terms'],
    'junior': {
      'denom': 'all',
      'lambda_jun_policy': 0.5,
      'lambda_jun_imitation': 0.1,
      'tis': 'token',
      'agg': 'seq-mean-token-mean',
    },
  },
}
SETTINGS |= {
  'opd': {
    'returns': {'discount': 0.9, 'feedback_clip': None},
    'full': {'feedback': 'full'},
  },
  'gr_opd': {
    'retained': {
      'lambda_retain': 0.25,
      'gamma': 0.9,
      'agg': 'token-mean',
      'zero_std': 'zero',
      'collapse_max_tokens': 6,
    },
  },
  'craft': {
    'all': {'phase_aware': True, 'polarized_kl': True},
    'turns': {'grouping': 'turn', 'cti_variant': 'negated', 'g_min': 3},
    'o1': {'negative_branch': 'o1_drop'},
    'o2': {'negative_branch': 'o2_unlikelihood'},
    'o3': {'negative_branch': 'o3_cringe', 'phase_aware': True},
  },
  'token_cringe': {'teacher': {'contrast': 'teacher'}},
  'unlikelihood': {'row': {'negatives': 'row'}},
}
DETACHED = {
  'sdar',  # its gate
  'grpo-gspo',
  'grpo-cispo',
  'grpo-all_terms',  # k3+
  'tandem-all_terms',
}
CASES = {name: (name, {}) for name in losses.LOSSES} | {
  f'{name}-{label}': (name, fields)
  for name, settings in SETTINGS.items()
  for label, fields in settings.items()
}
every_case = pytest.mark.parametrize('case', CASES)


def member(case):
  name, fields = CASES[case]
  return losses.LOSSES[name], losses.make_config(name, **fields)


def declared(variant, cfg, batch):
  """The batch with no score beyond the records and what was asked for."""
  names = {'rollout', 'rollout_junior', *variant.scorings(cfg)}
  return batch.replace(
    scores={k: v for k, v in batch.scores.items() if k in names}
  )


def given(case, **kwargs):
  """A batch and statistics with exactly what the member declares."""
  variant, cfg = member(case)
  batch = batches.step_batch(**kwargs)
  stats = batches.statistics(batch, variant.stats(cfg))
  return declared(variant, cfg, batch), stats


def step(case, batch, stats):
  """(loss, gradient by statistic, terms, metrics) of one whole step."""
  variant, cfg = member(case)
  credit, _, metrics = variant.credit(batch, variant.init_state(cfg), cfg)

  def loss(stats):
    terms = variant.objective(stats, credit, cfg)
    return batches.loss(terms), terms

  (value, terms), grads = jax.value_and_grad(loss, has_aux=True)(stats)
  return value, grads, terms, metrics


@functools.cache
def compiled(case):
  """The step under jit, and the list that its traces append to."""
  traces = []

  def traced(batch, stats):
    traces.append(case)
    return step(case, batch, stats)

  return jax.jit(traced), traces


def close(a, b, tolerance=1e-6):
  jax.tree.map(
    lambda x, y: np.testing.assert_allclose(
      x, y, rtol=tolerance, atol=tolerance
    ),
    a,
    b,
  )


@every_case
def test_jit_changes_nothing_and_traces_once(case):
  batch, stats = given(case)
  fast, traces = compiled(case)
  plain = step(case, batch, stats)
  close(fast(batch, stats), plain)
  assert any(np.any(g) for g in jax.tree.leaves(plain[1]))
  other, moved = given(case, seed=5)
  fast(other, moved)
  assert len(traces) == 1


@every_case
@pytest.mark.parametrize('lengths', [(0,) * 8, (1,) + (0,) * 7, (1,) * 8])
def test_finite_on_empty_and_one_token_masks(case, lengths):
  batch, stats = given(case, lengths=lengths)
  stats = {k: jnp.where(batch.valid, v, jnp.nan) for k, v in stats.items()}
  batch = batch.replace(
    scores={
      k: jnp.where(batch.valid, v, jnp.nan) for k, v in batch.scores.items()
    }
  )
  value, grads, terms, metrics = compiled(case)[0](batch, stats)
  for leaf in jax.tree.leaves((value, grads, terms, metrics)):
    assert np.isfinite(leaf).all()
  if not any(lengths):
    assert value == 0
    assert not any(np.any(g) for g in jax.tree.leaves(grads))


@every_case
def test_dtypes_and_shapes(case):
  batch, stats = given(case)
  value, grads, terms, metrics = jax.eval_shape(
    functools.partial(step, case), batch, stats
  )
  for leaf in jax.tree.leaves((value, terms, metrics)):
    assert (leaf.shape, leaf.dtype) == ((), jnp.float32)
  for grad in grads.values():
    assert (grad.shape, grad.dtype) == (batch.valid.shape, jnp.float32)


@pytest.mark.parametrize(
  'case,size', [(c, 1) for c in CASES] + [(c, 4) for c in losses.LOSSES]
)
def test_micro_batches_add(case, size):
  """CASES 17: 1 x 8, 2 x 4 and 8 x 1 rows of ragged lengths."""
  variant, cfg = member(case)
  batch, stats = given(case)
  _, grads, terms, _ = compiled(case)[0](batch, stats)
  credit, _, _ = variant.credit(batch, variant.init_state(cfg), cfg)
  shapes = {name: x.shape for name, x in stats.items()}
  counts = losses.update_counts(variant.objective, credit, cfg, shapes)
  assert counts.keys() == terms.keys()
  close(counts, {name: count for name, (_, count) in terms.items()}, 0)

  def loss(stats, credit):
    terms = variant.objective(stats, credit, cfg)
    return batches.loss(terms, counts), terms

  parts, pieces = [], []
  for start in range(0, 8, size):
    index = slice(start, start + size)
    (_, part), grad = jax.value_and_grad(loss, has_aux=True)(
      batches.rows(stats, index), batches.credit_rows(credit, index)
    )
    parts.append(part)
    pieces.append(grad)
  close(jax.tree.map(lambda *x: sum(x), *parts), terms)
  close(jax.tree.map(lambda *x: jnp.concatenate(x), *pieces), grads)


@pytest.mark.parametrize('case', losses.LOSSES)
def test_shards_add(case):
  batch, stats = given(case)
  mesh = jax.make_mesh(
    (4,), ('data',), axis_types=(jax.sharding.AxisType.Auto,)
  )
  split = NamedSharding(mesh, PartitionSpec('data'))
  fast = compiled(case)[0]
  value, grads, terms, _ = fast(batch, stats)
  got = fast(*jax.device_put((batch, stats), split))
  close(got[1], grads)
  # A sum of tens of numbers of either sign, added in another order.
  close((got[0], got[2]), (value, terms), 1e-5)


@every_case
def test_row_order_is_irrelevant(case):
  batch, stats = given(case)
  order = np.array([6, 4, 7, 5, 1, 3, 0, 2])  # groups whole, siblings adjacent
  value, grads, terms, _ = compiled(case)[0](batch, stats)
  moved = compiled(case)[0](
    batches.batch_rows(batch, order), batches.rows(stats, order)
  )
  close(moved[:3], (value, batches.rows(grads, order), terms))


@every_case
def test_padding_is_irrelevant(case):
  batch, stats = given(case)
  value, grads, terms, metrics = compiled(case)[0](batch, stats)
  wide = lambda x, fill: jnp.pad(
    x, ((0, 0), (0, 3)), constant_values=jnp.asarray(fill, x.dtype)
  )
  padded = batch.replace(
    tokens=wide(batch.tokens, 4),
    valid=wide(batch.valid, False),
    author=wide(batch.author, True),
    scores={k: wide(v, -3.0) for k, v in batch.scores.items()},
  )
  got = step(case, padded, {k: wide(v, -2.0) for k, v in stats.items()})
  want = {k: wide(g, 0.0) for k, g in grads.items()}
  close(got, (value, want, terms, metrics))


@every_case
def test_gradient_against_numerical(case):
  if case in DETACHED:
    pytest.skip("its gradient is not its value's; see its own tests")
  variant, cfg = member(case)
  with jax.enable_x64(True):
    batch, stats = given(case)
    credit, _, _ = variant.credit(batch, variant.init_state(cfg), cfg)
    loss = lambda stats: batches.loss(variant.objective(stats, credit, cfg))
    jax.test_util.check_grads(
      jax.jit(loss), (stats,), order=1, modes=['rev'], rtol=1e-6, atol=1e-6
    )


@every_case
def test_config_is_static(case):
  _, cfg = member(case)
  name, fields = CASES[case]
  assert hash(cfg) == hash(losses.make_config(name, **fields))

"""Names, refusals, and CASES 20: no config field that no code reads."""

import ast
import dataclasses
import pathlib

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tandem import losses
from tests.losses import batches

FOLDER = pathlib.Path(losses.__file__).parent
GATEKEEPERS = (
  '__post_init__',
  'check',
  '_check_policy',
  '_check_switches',
  '_check_term',
  '_check_terms',
)

# For each field of the line: a base, and a value that must change the result.
CHANGES = {
  'scale_by_std': ({}, False),
  'advantage_eps': ({}, 0.5),
  'eps_low': ({}, 0.01),
  'eps_high': ({}, 0.01),
  'dual_clip': ({'eps_high': 5.0}, 1.01),
  'agg': ({}, 'seq-mean-token-mean'),
  'agg_length': ({'agg': 'seq-mean-token-sum-norm', 'agg_length': 6}, 5),
  'ratio': ({'dual_clip': None, 'eps_low': 0.01}, 'cispo'),
  'old': ({}, 'rollout'),
  'tis': ({}, 'token'),
  'tis_cap': ({'tis': 'token'}, 1.05),
  'kl_to': ({'kl_to': 'reference', 'kl_coef': 0.1}, 'junior'),
  'kl_coef': ({'kl_to': 'reference', 'kl_coef': 0.1}, 0.2),
  'kl_estimator': ({'kl_to': 'reference', 'kl_coef': 0.1}, 'k3'),
  'entropy_coef': ({}, 0.1),
  'overlong_max_tokens': (
    {'overlong_max_tokens': 6, 'overlong_buffer_tokens': 3},
    5,
  ),
  'overlong_buffer_tokens': (
    {'overlong_max_tokens': 6, 'overlong_buffer_tokens': 3},
    5,
  ),
  'denom': ({}, 'all'),
  'lambda_jun_policy': ({}, 0.5),
  'lambda_jun_imitation': ({}, 0.5),
}


def attributes_read():
  """Names read as attributes anywhere in losses, refusals not counted."""
  names = set()

  def walk(node):
    if isinstance(node, ast.FunctionDef) and node.name in GATEKEEPERS:
      return
    if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Load):
      names.add(node.attr)
    for child in ast.iter_child_nodes(node):
      walk(child)

  for path in FOLDER.glob('*.py'):
    walk(ast.parse(path.read_text()))
  return names


@pytest.mark.parametrize('name', losses.LOSSES)
def test_every_config_field_has_a_reader(name):
  fields = {f.name for f in dataclasses.fields(losses.LOSSES[name].config)}
  assert fields - attributes_read() == set()


def test_every_field_of_the_line_is_tried():
  fields = dataclasses.fields(losses.LOSSES['tandem'].config)
  assert {f.name for f in fields} == set(CHANGES)


@pytest.mark.parametrize('field', CHANGES)
def test_every_field_of_the_line_changes_the_gradient(field):
  base, value = CHANGES[field]
  batch = batches.step_batch()

  def gradient(fields):
    variant = losses.get('tandem')
    cfg = losses.make_config('tandem', **fields)
    credit, _, _ = variant.credit(batch, {}, cfg)
    stats = batches.statistics(batch, ('logp', 'entropy'))
    loss = lambda stats: batches.loss(variant.objective(stats, credit, cfg))
    return jax.grad(loss)(stats)

  before, after = gradient(base), gradient(base | {field: value})
  moved = [
    np.abs(before[name] - after[name]).max() for name in ('logp', 'entropy')
  ]
  assert max(moved) > 1e-4


@pytest.mark.parametrize('name', losses.LOSSES)
def test_names(name):
  assert losses.get(name).name == name


def test_unknown_names_list_the_legal_ones():
  with pytest.raises(ValueError, match=r"'gpro' is unknown.*'grpo'"):
    losses.make_config('gpro')
  with pytest.raises(ValueError, match=r"'clip_ratio'.*eps_low"):
    losses.make_config('grpo', clip_ratio=0.2)
  with pytest.raises(ValueError, match='denom'):
    losses.make_config('grpo', denom='all')  # tandem's, not grpo's


@pytest.mark.parametrize(
  'fields,message',
  [
    ({'agg': 'mean'}, "agg='mean' is not allowed.*token-mean"),
    ({'agg': 'seq-mean-token-sum-norm'}, 'agg_length=None'),
    ({'agg_length': 10}, 'agg_length=10'),
    ({'agg': 'seq-mean-token-sum-norm', 'agg_length': 0}, 'at least 1'),
    ({'ratio': 'sequence'}, 'gspo'),
    ({'ratio': 'gspo', 'dual_clip': None}, 'seq-mean-token-mean'),
    ({'ratio': 'gspo', 'agg': 'seq-mean-token-mean'}, 'dual_clip=None'),
    ({'ratio': 'cispo'}, 'dual_clip=None'),
    ({'dual_clip': 0.9}, 'exceed 1'),
    ({'eps_low': 0.0}, 'eps_low=0.0'),
    ({'eps_low': 1.5}, 'eps_low=1.5'),
    ({'eps_high': -0.1}, 'eps_high=-0.1'),
    ({'advantage_eps': -1.0}, 'advantage_eps'),
    ({'advantage_eps': 1e-4, 'scale_by_std': False}, 'no effect'),
    ({'old': 'stale'}, 'rescored'),
    ({'tis': 'segment'}, 'sequence'),
    ({'tis': 'token', 'old': 'rollout'}, '1 everywhere'),
    ({'tis_cap': 1.2}, 'tis_cap=1.2 would have no effect'),
    ({'tis': 'token', 'tis_cap': 0.0}, 'above 0'),
    ({'kl_to': 'base'}, 'reference'),
    ({'kl_to': 'junior'}, 'coefficient above 0'),
    ({'kl_coef': 0.1}, 'kl_coef=0.1 would have no effect'),
    ({'kl_estimator': 'k3'}, 'would have no effect'),
    ({'kl_estimator': 'k1'}, 'expected gradient'),
    ({'entropy_coef': -0.1}, 'outside'),
    ({'entropy_coef': float('nan')}, 'outside'),
    ({'overlong_max_tokens': 10}, 'both'),
    ({'overlong_max_tokens': 4, 'overlong_buffer_tokens': 5}, 'must lie'),
    ({'denom': 'junior'}, 'senior'),
    ({'lambda_jun_policy': 1.5}, 'outside'),
    ({'lambda_jun_imitation': -0.5}, 'outside'),
    (
      {
        'lambda_jun_policy': 0.5,
        'ratio': 'gspo',
        'agg': 'seq-mean-token-mean',
        'dual_clip': None,
      },
      'gspo',
    ),
  ],
)
def test_contradictory_settings_raise(fields, message):
  with pytest.raises(ValueError, match=message):
    losses.make_config('tandem', **fields)


def test_rollout_mode_and_group():
  grpo, tandem = losses.get('grpo'), losses.get('tandem')
  grpo.check(grpo.config(), 'solo', 1)
  tandem.check(tandem.config(), 'tandem', 8)
  with pytest.raises(ValueError, match='no authors'):
    tandem.check(tandem.config(), 'solo', 8)
  with pytest.raises(ValueError, match="the junior's tokens"):
    grpo.check(grpo.config(), 'tandem', 8)
  with pytest.raises(ValueError, match='rollout.mode'):
    grpo.check(grpo.config(), 'duo', 8)
  with pytest.raises(ValueError, match='group=0'):
    grpo.check(grpo.config(), 'solo', 0)


def test_missing_scores_are_named():
  batch = batches.step_batch()
  bare = batch.replace(scores={'rollout': batch.scores['rollout']})
  variant = losses.get('grpo')
  with pytest.raises(ValueError, match=r"'old'.*\['rollout'\]"):
    variant.credit(bare, {}, losses.make_config('grpo'))
  variant.credit(bare, {}, losses.make_config('grpo', old='rollout'))


def test_declarations_follow_the_settings():
  variant = losses.get('grpo')
  cfg = losses.make_config('grpo')
  assert variant.scorings(cfg) == ('old',)
  assert variant.stats(cfg) == ('logp',)
  cfg = losses.make_config(
    'grpo', old='rollout', kl_to='junior', kl_coef=0.1, entropy_coef=0.1
  )
  assert variant.scorings(cfg) == ('junior',)
  assert variant.stats(cfg) == ('logp', 'entropy')


def test_update_counts_take_shapes_of_either_kind():
  batch = batches.step_batch()
  variant, cfg = losses.get('grpo'), losses.make_config('grpo')
  credit, _, _ = variant.credit(batch, {}, cfg)
  shape = batch.valid.shape
  for kind in (shape, jax.ShapeDtypeStruct(shape, jnp.float32)):
    counts = losses.update_counts(
      variant.objective, credit, cfg, {'logp': kind}
    )
    assert counts == {'policy': sum(batches.LENGTHS)}

"""CASES 20: every field of the later variants moves something they return."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tandem import losses
from tests.losses import batches
from tests.losses import runs

LINE = {f.name for f in dataclasses.fields(losses.LOSSES['grpo'].config)}
ON = {'phase_aware': True}
POLAR = {'polarized_kl': True}
LIMIT = {'collapse_max_tokens': 6}
FEEDBACK = {
  'feedback_clip': ({}, 0.05),
  'collapse_max_tokens': ({}, 6),
  'collapse_length': (LIMIT | {'collapse_reward': 1.0}, 0.1),
  'collapse_reward': (LIMIT | {'collapse_length': 0.1}, 1.0),
  'collapse_steps': (
    LIMIT | {'collapse_length': 0.1, 'collapse_reward': 1.0},
    30,
  ),
}
CONTROLLER = {
  'lambda_min': 0.01,
  'lambda_max': 0.05,
  'mu_min': 0.01,
  'mu_max': 0.05,
  'ema': 0.5,
  'warmup_steps': 100,
  'rho_target': 0.4,
  'controller_law': 'welfare',
}

# Field: what is set besides, and a value that must change the result.
CHANGES = {
  'opd': FEEDBACK
  | {
    'feedback': ({}, 'full'),
    'discount': ({}, 0.5),
    'top_k': ({'feedback': 'top_k', 'top_k': 4}, 5),
  },
  'gr_opd': FEEDBACK
  | {
    'gamma': ({}, 0.5),
    'lambda_retain': ({}, 0.5),
    'adv_clip': ({}, 0.1),
    'std_ddof': ({}, 0),
    'zero_std': ({'advantage_eps': 0.5, 'lambda_retain': 0.5}, 'zero'),
  },
  'sdar': {
    'sdar_coef': ({}, 0.1),
    'gate_beta': ({}, 0.0),
    'policy_coef': ({}, 0.5),
  },
  'rlsd': {
    'weight_clip': ({}, 0.01),
    'mix_start': ({}, 0.9),
    'mix_steps': ({}, 30),
  },
  'skill_sd': {'skill_coef': ({}, 0.1)},
  'cringe': {
    'cringe_coef': ({}, 0.5),
    'positive_reward': ({}, 1.0),
    'contrast': ({}, 'teacher'),
    'agg': ({}, 'seq-mean-token-mean'),
    'agg_length': ({'agg': 'seq-mean-token-sum-norm', 'agg_length': 6}, 5),
  },
  'token_cringe': {
    'cringe_coef': ({}, 0.5),
    'contrast': ({}, 'teacher'),
  },
  'adaptive_cringe': {name: ({}, value) for name, value in CONTROLLER.items()}
  | {
    'rho_map': ({'rho_target': 0.4}, 'piecewise'),
    'contrast': ({}, 'teacher'),
  },
  'unlikelihood': {
    'unlikelihood_coef': ({}, 0.5),
    'negatives': ({}, 'row'),
    'positive_reward': ({'negatives': 'row'}, 1.0),
  },
  'craft': {name: (ON, value) for name, value in CONTROLLER.items()}
  | {
    'rho_map': (ON | {'rho_target': 0.4}, 'piecewise'),
    'sdar_coef': ({'enable': False}, 0.1),
    'gate_beta': ({'enable': False}, 0.0),
    'policy_coef': ({}, 0.5),
    'enable': ({}, False),
    'phase_aware': ({}, True),
    'polarized_kl': ({}, True),
    'cti_coef': ({}, 0.1),
    'tau': ({}, 0.1),
    'beta_pos': ({}, 0.5),
    'beta_neg': ({}, 0.5),
    'g_min': ({}, 999),
    'theta_gate': ({}, 0.999),
    'cti_variant': ({}, 'negated'),
    'fallback': ({}, 'zero'),
    'ended_sibling': ({}, 'neutral'),
    'grouping': ({}, 'turn'),
    'negative_branch': ({}, 'o1_drop'),
    'theta_kl': (POLAR, 0.99),
    'kl_swap': (POLAR, True),
  },
}
# The controller sets it there: refused by the config, so not read.
REFUSED = {'adaptive_cringe': {'cringe_coef'}}


@pytest.mark.parametrize('name', CHANGES)
def test_every_field_is_tried(name):
  fields = {f.name for f in dataclasses.fields(losses.LOSSES[name].config)}
  own = fields if name == 'cringe' else fields - LINE
  assert own - REFUSED.get(name, set()) == set(CHANGES[name])


def results(name, fields):
  """Gradient by statistic, the next state and the metrics, as one dict."""
  batch = batches.step_batch().replace(turn=jnp.arange(8) % 2)
  stats = batches.statistics(
    batch,
    ('logp', 'contrast', 'kl_teacher', 'kl_teacher_top4', 'kl_teacher_top5'),
  )
  variant, cfg = losses.get(name), losses.make_config(name, **fields)
  state = jax.tree.map(
    lambda x: x + jnp.asarray(0.25 if x.dtype == jnp.float32 else 20, x.dtype),
    variant.init_state(cfg),
  )
  _, after, metrics = runs.credit(name, batch, state, **fields)
  grads = runs.gradient(name, batch, stats, state, **fields)
  return {f'd {k}': v for k, v in grads.items()} | metrics | after


@pytest.mark.parametrize(
  'name,field', [(n, f) for n, fields in CHANGES.items() for f in fields]
)
def test_every_field_moves_something(name, field):
  base, value = CHANGES[name][field]
  before, after = (
    results(name, fields) for fields in (base, base | {field: value})
  )
  moved = before.keys() != after.keys() or any(
    np.abs(np.asarray(before[k]) - np.asarray(after[k])).max() > 1e-5
    for k in before
  )
  assert moved

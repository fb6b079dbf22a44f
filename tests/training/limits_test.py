"""Numbers that a config may not hold; each refusal says what it may."""

import jax
import pytest

from configs import common
from tandem.training import limits
from tandem.training import mesh


def config(**values):
  out = common.base()
  out.update_from_flattened_dict(values)
  return out


def test_the_defaults_are_fine():
  limits.check(config())


@pytest.mark.parametrize(
  'values, words',
  [
    ({'rollout.group': 0}, 'rollout.group=0 must be at least 1'),
    ({'num_steps': 0}, 'num_steps=0 must be at least 1'),
    ({'seed': -1}, 'seed=-1 must be in'),
    (
      {'optimizer.learning_rate': float('nan')},
      'optimizer.learning_rate=nan must be at least 0',
    ),
    ({'model.dtype': 'half'}, "model.dtype='half' is not one of float32"),
    ({'model.remat': 'all'}, "model.remat='all' is not one of none, block"),
    ({'rollout.draft_tokens': -1}, 'draft_tokens=-1 must be at least 0'),
    ({'rollout.slots': -1}, 'slots=-1 must be at least 0'),
    (
      {'rollout.cache_dtype': 'int8'},
      "'int8' is not one of '', float32, bfloat16",
    ),
    ({'rollout.sampler': 'fast'}, "'fast' is not one of xla, pallas_tpu"),
    (
      {'rollout.sampler': 'pallas_tpu', 'rollout.decoder': 'speculative'},
      "'pallas_tpu' serves lockstep alone, with slots=0; got decoder='spec",
    ),
    (
      {'rollout.sampler': 'pallas_gpu', 'rollout.slots': 2},
      "'pallas_gpu' serves lockstep alone, with slots=0; got decoder='lock",
    ),
    ({'rollout.decoder': 'fast'}, "'fast' is not one of lockstep, speculative"),
    ({'rollout.drafter': 'teacher'}, "'teacher' is not one of junior, senior"),
    (
      {
        'rollout.mode': 'solo',
        'rollout.decoder': 'speculative',
        'rollout.drafter': 'holder',
      },
      'cannot draft for itself',
    ),
    (
      {
        'rollout.draft_context': 64,
        'rollout.decoder': 'speculative',
        'rollout.drafter': 'lookup',
      },
      'draft_context=64 with rollout.drafter=lookup',
    ),
    ({'rollout.draft_context': -1}, 'draft_context=-1 must be at least 0'),
    ({'model.num_heads': 3}, 'model.num_heads=3 is no multiple of'),
    (
      {'rollout.prompts': 4, 'learner.mini_prompts': 3},
      'learner.mini_prompts=3 does not divide rollout.prompts=4; set it to a '
      'divisor',
    ),
    (
      {'rollout.prompts': 4, 'rollout.group': 2, 'learner.micro_rows': 3},
      'learner.micro_rows=3 does not divide the 8 rows',
    ),
    (
      {
        'rollout.prompts': 4,
        'rollout.group': 2,
        'learner.mini_prompts': 2,
        'learner.micro_rows': 8,
      },
      'learner.micro_rows=8 does not divide the 4 rows',
    ),
  ],
  ids=lambda x: next(iter(x)) if isinstance(x, dict) else '',
)
def test_refusals(values, words):
  with pytest.raises(ValueError, match=words):
    limits.check(config(**values))


def test_one_model_drafts_for_itself_from_its_last_tokens():
  alone = {
    'rollout.mode': 'solo',
    'rollout.decoder': 'speculative',
    'rollout.drafter': 'senior',
  }
  limits.check(config(**alone, **{'rollout.draft_context': 64}))
  with pytest.raises(ValueError, match='cannot draft for itself'):
    limits.check(config(**alone))


def test_rows_split_over_the_mesh():
  four = mesh.make_mesh(2, 2, 1, devices=jax.devices()[:4])
  limits.check_mesh(config(), four)
  with pytest.raises(ValueError, match='group=6 does not split over mesh.data'):
    limits.check_mesh(
      config(**{'rollout.prompts': 2, 'rollout.group': 3}), four
    )
  with pytest.raises(ValueError, match='eval.prompts . eval.samples=1'):
    limits.check_mesh(config(**{'eval.prompts': 1}), four)
  with pytest.raises(ValueError, match='learner.micro_rows=2 does not split'):
    limits.check_mesh(config(**{'learner.micro_rows': 2}), four)


def test_a_best_metric_that_nobody_measures_is_told(caplog):
  limits.warn_best_metric(config())
  limits.warn_best_metric(config(**{'checkpoint.best_metric': 'reward/mean'}))
  limits.warn_best_metric(
    config(**{'eval.models': ('senior',), 'eval.every_steps': 0})
  )
  assert not caplog.records
  limits.warn_best_metric(config(**{'eval.models': ('senior',)}))
  assert 'eval/pass_at_1/senior' in caplog.text

"""Settings that contradict each other are refused with the reason.

Each is tried as a user gives it: a config and overrides on the command line.
"""

import pathlib

from absl import flags
from ml_collections import config_flags
import pytest

from tandem.training import build

ROOT = pathlib.Path(__file__).resolve().parents[1]


def given(config, *overrides):
  """The config that launch.train makes of these."""
  values = flags.FlagValues()
  argv = ['train', f'--config={ROOT / "configs" / config}']
  argv += [f'--config.{one}' for one in overrides]
  config_flags.DEFINE_config_file(
    'config', lock_config=True, flag_values=values, sys_argv=argv
  )
  values(argv)
  return values.config


QUICKSTART = 'quickstart.py'
GRPO, GR_OPD, CRAFT = (f'{QUICKSTART}:{n}' for n in ('grpo', 'gr_opd', 'craft'))


@pytest.mark.parametrize(
  'config,overrides,message',
  [
    (QUICKSTART, ['rollout.mode=solo', 'loss.variant=tandem'], 'no authors'),
    (QUICKSTART, ['loss.variant=grpo'], "the junior's tokens"),
    (QUICKSTART, ['loss.variant=craft'], "the junior's tokens"),
    (
      GRPO,
      ['loss.kl_to=reference', 'loss.kl_coef=0.1', 'loss.kl_estimator=k1'],
      'expected gradient',
    ),
    (
      QUICKSTART,
      ['rollout.dynamic_sampling=True', 'rollout.group=1'],
      'no sibling to differ from',
    ),
    (
      GR_OPD,
      ['rollout.dynamic_sampling=True'],
      'takes no advantage from the rewards',
    ),
    (
      f'{QUICKSTART}:cringe',
      ['rollout.dynamic_sampling=True'],
      'takes no advantage from the rewards',
    ),
    (
      f'{QUICKSTART}:sdar',
      ['rollout.dynamic_sampling=True', 'loss.policy_coef=0.0'],
      'takes no advantage from the rewards',
    ),
    (GRPO, ['rollout.max_refills=0'], 'max_refills=0 must be at least 1'),
    (GR_OPD, ['loss.lambda_retain=1.5'], r'outside \[0.0, 1.0\]'),
    (GR_OPD, ['loss.lambda_retain=-0.1'], r'outside \[0.0, 1.0\]'),
    (QUICKSTART, ['loss.lambda_jun_policy=2.0'], r'outside \[0.0, 1.0\]'),
    (CRAFT, ['rollout.group=1'], 'needs at least 2 rows'),
    (
      CRAFT,
      ['loss.cringe_coef=0.1'],
      'cringe_coef belongs to cringe, token_cringe, adaptive_cringe; a run has '
      'one variant',
    ),
    (
      f'{QUICKSTART}:token_cringe',
      ['loss.enable=True'],
      'enable belongs to craft; a run has one variant',
    ),
    (QUICKSTART, ['rollout.top_p=0.9'], 'the full law only'),
    (QUICKSTART, ['rollout.top_k=20'], 'the full law only'),
    (GR_OPD, ['teacher.source='], 'needs a teacher'),
    (GRPO, ['teacher.source=warm_start'], 'the loss asks no teacher'),
    (CRAFT, ['privileged.kind=none'], 'needs a privileged teacher'),
    (CRAFT, ['privileged.max_tokens=0'], 'shows nothing of the solution'),
    (GRPO, ['privileged.kind=solution'], 'asks no privileged teacher'),
    (CRAFT, ['loss.phase_aware=False', 'loss.lambda_max=0.1'], 'no effect'),
    (CRAFT, ['loss.polarized_kl=False', 'loss.kl_swap=True'], 'no effect'),
    (CRAFT, ['loss.enable=False'], 'no effect'),
    (CRAFT, ['loss.kl_to=none'], 'act on the KL term'),
    (
      GRPO,
      ['warm_start.enable=False', 'warm_start.from_workdir=elsewhere'],
      'no warm start to take',
    ),
  ],
)
def test_refused_with_the_reason(config, overrides, message):
  config = given(config, *overrides)
  with pytest.raises(ValueError, match=message):
    build.check(config)


@pytest.mark.parametrize(
  'config,overrides',
  [
    ('craft.py', ['loss.polarized_kl=True']),
    ('craft.py', ['loss.polarized_kl=False', 'loss.phase_aware=False']),
    ('craft.py', ['loss.kl_swap=True', 'loss.theta_kl=0.1']),
    ('craft.py', ['loss.negative_branch=o3_cringe']),
    ('craft.py', ['rollout.dynamic_sampling=True']),
    ('gr_opd.py:pair=i4', ['loss.gamma=1.0', 'loss.zero_std=zero']),
    ('gr_opd.py', ['loss.feedback_clip=0.0', 'loss.adv_clip=0.0']),  # off
    ('opd.py', ['loss.discount=1.0']),
    ('cringe.py:token', ['loss.contrast=teacher']),
    ('grpo_qwen3_4b.py', ['loss.tis=token', 'loss.dual_clip=0.0']),
    (QUICKSTART, ['rollout.dynamic_sampling=True']),
  ],
)
def test_one_field_of_a_method_is_one_override(config, overrides):
  before, after = given(config), given(config, *overrides)
  build.check(after)
  changed = {one.partition('=')[0] for one in overrides}
  flat = lambda config: {
    f'{section}.{key}': value
    for section, fields in config.to_dict().items()
    if isinstance(fields, dict)
    for key, value in fields.items()
  }
  old, new = flat(before), flat(after)
  assert {key for key in new if new[key] != old[key]} <= changed
  for one in overrides:
    key, _, value = one.partition('=')
    assert str(new[key]) == value

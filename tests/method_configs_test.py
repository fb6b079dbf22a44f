"""Each method's config against its paper's numbers, and all methods have one."""

import pathlib

import pytest

from configs import common
from configs import craft
from configs import cringe
from configs import gr_opd
from configs import grpo_qwen3_4b
from configs import opd
from configs import quickstart
from configs import rlsd
from configs import sdar
from configs import skill_sd
from configs import trl_qwen3_4b
from configs import unlikelihood
from tandem import losses
from tandem.training import build

ROOT = pathlib.Path(__file__).resolve().parents[1]


def loss_of(config):
  variant, loss = build.loss(config)
  return variant.name, loss


def test_every_method_has_a_config_and_a_quickstart():
  made = [
    *(grpo_qwen3_4b.get_config(), trl_qwen3_4b.get_config()),
    *(one.get_config() for one in (opd, gr_opd, craft, sdar, rlsd, skill_sd)),
    *(cringe.get_config(arg) for arg in (None, 'token', 'adaptive')),
    unlikelihood.get_config(),
  ]
  assert {loss_of(config)[0] for config in made} == set(losses.LOSSES)
  small = {
    loss_of(quickstart.get_config(name))[0]
    for name in [None, *losses.LOSSES]
    if name != 'tandem'
  }
  assert small == set(losses.LOSSES)


@pytest.mark.parametrize(
  'name', [*sorted(set(losses.LOSSES) - {'tandem'}), *common.GRPO_LINE]
)
def test_quickstart_methods_are_legal(name):
  for arg in (name, f'tiny,{name}', f'{name},tiny'):
    config = quickstart.get_config(arg)
    build.check(config)
    assert config.rollout.mode == 'solo'
    # One warm start serves all.
    plain = quickstart.get_config('tiny' if 'tiny' in arg else None)
    for section in ('model', 'warm_start', 'data'):
      assert config[section] == plain[section]
    # Also where the method's own settings come after the tiny ones.
    teacher = config.teacher.copy_and_resolve_references()
    teacher.source = ''
    assert teacher == plain.teacher


@pytest.mark.parametrize('arg', ['craft,sdar', 'grpo,dapo', 'nonsense'])
def test_one_method_at_a_time(arg):
  with pytest.raises(ValueError, match='one method|unknown'):
    quickstart.get_config(arg)


def test_the_readme_leads_from_each_method_to_config_and_formula():
  table = (ROOT / 'README.md').read_text().split('## Methods')[1]
  table = table.split('\n## ')[0]
  for name, variant in losses.LOSSES.items():
    file = variant.config.__module__.rpartition('.')[2]
    rows = [x for x in table.splitlines() if f'losses/{file}.py)' in x]
    assert rows and all(x.count('|') == 4 for x in rows), name
    assert 'configs/' in rows[0], name


# ---- GRPO's line -------------------------------------------------------------


def test_grpo_line():
  load = lambda name: grpo_qwen3_4b.get_config(name)
  _, loss = loss_of(load('dr_grpo'))
  assert not loss.scale_by_std
  assert (loss.agg, loss.agg_length) == ('seq-mean-token-sum-norm', 3000)
  config = load('dapo')
  _, loss = loss_of(config)
  assert (loss.eps_low, loss.eps_high) == (0.2, 0.28)
  assert (loss.agg, loss.kl_to) == ('token-mean', 'none')
  assert (loss.overlong_max_tokens, loss.overlong_buffer_tokens) == (3000, 600)
  assert config.rollout.dynamic_sampling and config.rollout.max_refills == 9
  _, loss = loss_of(load('gspo'))
  assert (loss.ratio, loss.agg) == ('gspo', 'seq-mean-token-mean')
  assert (loss.eps_low, loss.eps_high) == (3e-4, 4e-4)
  assert loss.dual_clip is None
  _, loss = loss_of(load('cispo'))
  assert loss.ratio == 'cispo' and loss.dual_clip is None
  assert not load('cispo').rollout.dynamic_sampling


def test_lengths_of_the_line_follow_the_budget():
  _, loss = loss_of(grpo_qwen3_4b.get_config('dr_grpo,tiny'))
  assert loss.agg_length == 64
  _, loss = loss_of(quickstart.get_config('dapo'))
  assert (loss.overlong_max_tokens, loss.overlong_buffer_tokens) == (36, 7)


# ---- Distillation ------------------------------------------------------------


@pytest.mark.parametrize(
  'pair,sizes,thinks,share',
  [
    ('b4', ('1.7B-Base', '4B-Base'), False, 0.0),
    ('i4', ('1.7B', '4B'), False, 0.25),
    ('i32', ('1.7B', '32B'), False, 0.25),
    ('i4_think', ('1.7B-Base', '4B'), True, 0.0),
    ('i32_think', ('1.7B-Base', '32B'), True, 0.0),
  ],
)
def test_pairs_of_gr_opd(pair, sizes, thinks, share):
  """METHODS 3.3."""
  config = gr_opd.get_config(f'pair={pair}')
  names = tuple(f'Qwen/Qwen3-{size}' for size in sizes)
  assert (config.model.source, config.teacher.source) == names
  assert config.teacher.thinking == thinks and not config.data.thinking
  name, loss = loss_of(config)
  assert name == 'gr_opd' and loss.lambda_retain == share
  assert (loss.gamma, loss.feedback_clip, loss.adv_clip) == (0.99, 5.0, 5.0)
  assert (loss.agg, loss.dual_clip) == ('seq-mean-token-mean', None)
  assert loss.collapse_max_tokens == config.rollout.max_response == 28_672
  assert (config.rollout.prompts, config.rollout.group) == (64, 8)
  assert config.rollout.prompts // config.learner.mini_prompts == 8
  assert config.num_steps == 221 and config.reward.mode == 'roll'
  # The student's position limit, which the paper's budget fills.
  assert config.rollout.max_prompt + config.rollout.max_response == 32_768
  # The baseline differs in the credit alone.
  other = opd.get_config(f'pair={pair}')
  for section in (
    'model',
    'teacher',
    'rollout',
    'learner',
    'optimizer',
    'data',
  ):
    assert other[section] == config[section]


def test_kinds_of_opd():
  kind = lambda arg: loss_of(opd.get_config(arg))[1]
  assert (kind(None).feedback, kind(None).feedback_clip) == ('sampled', 5.0)
  assert kind('full').feedback == 'full'
  assert (kind('top_k=16').feedback, kind('top_k=16').top_k) == ('top_k', 16)
  with pytest.raises(ValueError, match='one method'):
    opd.get_config('full,top_k=16')
  with pytest.raises(ValueError, match="'b5' is unknown; one of b4"):
    gr_opd.get_config('pair=b5')


# ---- Self-distillation -------------------------------------------------------


def test_table_6_of_craft():
  config = craft.get_config()
  name, loss = loss_of(config)
  assert name == 'craft'
  assert loss.enable and loss.phase_aware and loss.polarized_kl
  assert (loss.tau, loss.beta_pos, loss.beta_neg) == (1.0, 5.0, 5.0)
  assert (loss.g_min, loss.theta_gate, loss.theta_kl) == (2, 0.1, 0.0)
  assert (loss.lambda_min, loss.lambda_max) == (0.005, 0.02)
  assert (loss.mu_min, loss.mu_max) == (0.005, 0.02)
  assert (loss.ema, loss.warmup_steps, loss.rho_target) == (0.95, 10, 0.5)
  assert (loss.cti_coef, loss.eps_low, loss.eps_high) == (0.01, 0.2, 0.2)
  assert (loss.kl_to, loss.kl_estimator) == ('reference', 'k3')
  assert config.optimizer.learning_rate == 1e-6 and config.num_steps == 150
  assert (config.rollout.group, config.rollout.temperature) == (8, 1.0)
  _, off = loss_of(craft.get_config('sdar_program'))
  _, plain = loss_of(sdar.get_config())
  for field in ('sdar_coef', 'gate_beta', 'kl_coef', 'eps_low', 'agg'):
    assert getattr(off, field) == getattr(plain, field)
  assert not off.enable


def test_baselines():
  """METHODS 5."""
  _, loss = loss_of(sdar.get_config())
  assert (loss.sdar_coef, loss.gate_beta, loss.kl_coef) == (0.01, 5.0, 0.01)
  _, loss = loss_of(sdar.get_config('grpo_opsd'))
  assert (loss.gate_beta, loss.policy_coef) == (0.0, 1.0)
  _, loss = loss_of(sdar.get_config('opsd'))
  assert (loss.gate_beta, loss.policy_coef) == (5.0, 0.0)
  _, loss = loss_of(rlsd.get_config())
  assert (loss.weight_clip, loss.mix_start, loss.mix_steps) == (0.2, 0.5, 100)
  _, loss = loss_of(skill_sd.get_config())
  assert loss.skill_coef == 0.001
  name, loss = loss_of(cringe.get_config())
  assert (name, loss.cringe_coef) == ('cringe', 1.0)
  # Not the quickstart's: it would unlearn the task.
  assert loss_of(quickstart.get_config('cringe'))[1].cringe_coef == 0.01
  assert loss_of(cringe.get_config('adaptive'))[0] == 'adaptive_cringe'


def test_comparisons_differ_in_the_loss_alone():
  base = sdar.get_config()
  others = [one.get_config() for one in (craft, rlsd, skill_sd, unlikelihood)]
  for config in [*others, cringe.get_config('token')]:
    mine, theirs = config.to_dict(), base.to_dict()
    assert mine.pop('loss') != theirs.pop('loss')
    assert mine == theirs


def test_what_was_not_run_says_so():
  for one in (gr_opd, opd, craft, sdar, rlsd, skill_sd, cringe, unlikelihood):
    assert 'not run here' in one.__doc__, one

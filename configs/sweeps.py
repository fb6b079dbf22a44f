r"""Sweeps: overrides of a config, one dict a point; launch/sweep.py runs them.

  python -m launch.sweep --sweep=craft_ablations --workdir=runs/ablations

SWEEPS names each with the config that its paper ran it on; on a laptop take the
quickstart's: --config=configs/quickstart.py:craft.
"""


def seeds():
  """Three runs that differ in the seed alone."""
  for seed in range(3):
    yield {'seed': seed}


def craft_ablations():
  """CRAFT and its A1 to A7: switches, sharpness, temperature, fallback, swap."""
  yield {}
  p1 = {'loss.phase_aware': False, 'loss.polarized_kl': False}
  yield p1  # A1: the credit alone
  yield p1 | {'loss.phase_aware': True}  # A2
  yield p1 | {'loss.polarized_kl': True}  # A3
  for beta in (1.0, 10.0):  # A4; 5 is the method. Which ones is ours
    yield {'loss.beta_pos': beta, 'loss.beta_neg': beta}
  for tau in (0.5, 2.0):  # A5
    yield {'loss.tau': tau}
  for gate in (0.05, 0.2):  # A5 too, as its section 3.1 has it
    yield {'loss.theta_gate': gate}
  yield {'loss.g_min': 999}  # A6: the fallback everywhere
  yield {'loss.kl_swap': True}  # A7


def craft_beta():
  """A4 in full: how sharply the credit follows CTI."""
  for beta in (1.0, 2.5, 5.0, 10.0, 20.0):
    yield {'loss.beta_pos': beta, 'loss.beta_neg': beta}


def craft_tau():
  """A5 in full: from the nearest sibling alone to their plain mean."""
  for tau in (0.1, 0.5, 1.0, 2.0, 10.0):
    yield {'loss.tau': tau}


def craft_reconstructions():
  """Each reading of CRAFT where its paper leaves a choice."""
  yield {}
  yield {'loss.cti_variant': 'negated'}
  yield {'loss.cti_variant': 'fallback'}
  yield {'loss.ended_sibling': 'neutral'}
  yield {'loss.fallback': 'zero'}
  for branch in ('o1_drop', 'o2_unlikelihood', 'o3_cringe'):  # B.10
    yield {'loss.negative_branch': branch}
  yield {'loss.controller_law': 'welfare'}
  for target in (0.3, 0.7):
    for rule in ('shift', 'piecewise'):
      yield {'loss.rho_target': target, 'loss.rho_map': rule}


def gr_opd_lambda():
  """How much of the group's mean is kept; GR-OPD's sweep."""
  for share in (0.0, 0.05, 0.15, 0.2, 0.25, 0.5, 1.0):
    yield {'loss.lambda_retain': share}


def gr_opd_gamma():
  """A discounted score against the plain mean; GR-OPD's sweep."""
  for gamma in (0.99, 1.0):
    yield {'loss.gamma': gamma}


def kl_reg():
  """Solo GRPO with a k3 penalty; the tandem paper does not say which beta."""
  for beta in (1e-4, 3e-4, 1e-3, 3e-3, 1e-2):
    yield {
      'loss.kl_to': 'reference',
      'loss.kl_estimator': 'k3',
      'loss.kl_coef': beta,
    }


def g16():
  """Solo GRPO at 8 and at 16 responses: the pair's rollout compute is 16's."""
  for group in (8, 16):
    yield {'rollout.group': group}


def schedules():
  """Who speaks when: the pair under each rule of turns."""
  for schedule in ('word', 'strict_word', 'token', 'step'):
    yield {'rollout.schedule': schedule}


def senior_share():
  """The coin's weight, from the junior's word to the senior's alone."""
  for p in (0.25, 0.5, 0.75, 1.0):
    yield {'rollout.p': p}


# name: (config, points)
SWEEPS = {
  'craft_ablations': ('configs/craft.py', craft_ablations),
  'craft_beta': ('configs/craft.py', craft_beta),
  'craft_tau': ('configs/craft.py', craft_tau),
  'craft_reconstructions': ('configs/craft.py', craft_reconstructions),
  'gr_opd_lambda': ('configs/gr_opd.py', gr_opd_lambda),
  'gr_opd_gamma': ('configs/gr_opd.py', gr_opd_gamma),
  'kl_reg': ('configs/grpo_qwen3_4b.py', kl_reg),
  'g16': ('configs/grpo_qwen3_4b.py', g16),
  'schedules': ('configs/trl_qwen3_4b.py', schedules),
  'senior_share': ('configs/trl_qwen3_4b.py', senior_share),
  'seeds': ('configs/quickstart.py', seeds),
}

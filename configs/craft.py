r"""CRAFT: credit from siblings in the place of SDAR's gate.

  python -m launch.train --config=configs/craft.py --workdir=runs/craft

arXiv 2606.29476, table 6: tau 1, beta 5 on both sides, g_min 2, gate .1, both
coefficients in [.005, .02], memory .95, 10 steps of warm-up. All three switches
are on; each is one override:

  --config.loss.polarized_kl=False     no P3: k3 on every token
  --config.loss.phase_aware=False      no P2: .01 and the KL's coefficient
  :sdar_program                        none: enable=False, SDAR's own program

The paper's ablations A1 to A7 are sweeps: configs/sweeps.py, launch/sweep.py.

Task, data, hardware: as configs/sdar.py, so mathematics under the worked
solution. With --config.model.source=Qwen/Qwen3-8B a TPU v5e-16 holds it, by the
compiler (13.4 of 16.9 GB a chip), with
  --config.mesh.tensor=8 --config.mesh.fsdp=2 --config.learner.micro_rows=2 \
  --config.rollout.attention=pallas_tpu
and 8 H200 (35 of 127 GB each) with --config.mesh.tensor=8.
The paper's three environments come in a later issue; what this file trains is
the loss, not that experiment. What the printed equations do to good and bad
rollouts stands in tandem/losses/craft.py; watch `craft/credit_advantage_corr`.
Time and numbers: not run here; the paper's are of its environments.
`:tiny` runs two steps of a random model of this family, with no download.
"""

from configs import common
from configs import sdar


def get_config(arg=None):
  args = common.parse_arg(arg, tiny=False, sdar_program=False)
  config = sdar.ground(tiny=args.tiny)
  loss = config.loss
  loss.variant = 'craft'
  loss.enable = not args.sdar_program
  if not args.sdar_program:
    loss.phase_aware = loss.polarized_kl = True
    loss.tau, loss.beta_pos, loss.beta_neg = 1.0, 5.0, 5.0
    loss.g_min, loss.theta_gate = 2, 0.1
  return config

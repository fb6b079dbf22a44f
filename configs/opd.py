r"""On-policy distillation, token by token: the baseline of GR-OPD.

  python -m launch.train --config=configs/opd.py --workdir=runs/opd

Pairs, data, batch, hardware: as configs/gr_opd.py, `:pair=NAME` likewise.

  (none)      the sampled token's log-ratio, clipped at 5, is its advantage
  :full       the reverse KL of each position over the whole vocabulary
  :top_k=16   the same over the student's 16 most likely tokens

--config.loss.discount=1 adds what follows, and is the sequence's own gradient.

Time and numbers: not run here; the paper's stand in configs/gr_opd.py.
`:tiny` runs two steps of a random pair of this family, with no download.
"""

from configs import common
from configs import gr_opd


def get_config(arg=None):
  args = common.parse_arg(arg, tiny=False, pair='b4', full=False, top_k=0)
  kind = common.chosen(args, ('full', 'top_k'))
  config = gr_opd.ground(args.pair, tiny=args.tiny)
  loss = config.loss
  loss.variant, loss.feedback = 'opd', kind or 'sampled'
  if kind:
    loss.feedback_clip = None  # of the sampled token's
  if kind == 'top_k':
    loss.top_k = args.top_k
  return config

"""Draws the training curves of one run, or of several overlaid (seeds).

    python -m launch.curves --workdir=runs/0,runs/1,runs/2 \\
      --out=docs/quickstart_curves.png

Reads each folder's metrics.jsonl; prints the held-out accuracy before and
after training with binomial errors. Needs the extra `plots`.
"""

import pathlib
import sys

from absl import app
from absl import flags

from tandem.analysis import plots
from tandem.analysis import runs

_WORKDIR = flags.DEFINE_list('workdir', None, 'Folders of runs: A,B,C.')
_OUT = flags.DEFINE_string(
  'out', None, 'The picture (png, svg, pdf); A/curves.png by default.'
)
_SMOOTH = flags.DEFINE_integer(
  'smooth', 5, 'Odd window of the moving average; 1 draws raw curves only.'
)
_TITLE = flags.DEFINE_string('title', '', 'Title of the figure.')


def main(argv):
  if len(argv) > 1:
    raise app.UsageError(f'Unexpected arguments: {" ".join(argv[1:])}')
  workdirs = [pathlib.Path(name) for name in _WORKDIR.value]
  out = pathlib.Path(_OUT.value or workdirs[0] / 'curves.png')
  try:
    # The last folder's name is enough where it tells the runs apart.
    names = [path.name for path in workdirs]
    if len(set(names)) < len(names):
      names = list(map(str, workdirs))
    named = dict(zip(names, map(runs.read_metrics, workdirs)))
    figure = plots.training_curves(
      named, smooth=_SMOOTH.value, title=_TITLE.value
    )
    for line in plots.accuracy_lines(named):
      print(line)
    out.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(out, dpi=110)
  except (FileNotFoundError, ImportError, ValueError) as error:
    sys.exit(f'curves: {error}')
  print(f'{len(named)} runs in {out}')


if __name__ == '__main__':
  flags.mark_flag_as_required('workdir')
  app.run(main)

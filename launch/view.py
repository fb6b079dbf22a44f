"""Shows who wrote what in a run: DIR/trace.html, and a few responses here.

    python -m launch.view --workdir=DIR
    python -m launch.view --workdir=DIR --step=0,60 --purpose=eval --show=8

Reads DIR/rollouts/step_*.jsonl (schema tandem.rollout/1, described in
tandem/analysis/responses.py) and writes one self-contained page: authors in
colour, both models' log-probs on hover, filters by step and reward. NO_COLOR
turns colours in the terminal off.
"""

import pathlib
import sys

from absl import app
from absl import flags

from tandem.analysis import runs
from tandem.analysis import trace

_WORKDIR = flags.DEFINE_string('workdir', None, 'Folder of a run.')
_STEP = flags.DEFINE_list(
  'step', [], 'Steps to show, such as 0,60; all that were stored by default.'
)
_PURPOSE = flags.DEFINE_enum(
  'purpose', None, ['train', 'eval'], 'Keep only these; both by default.'
)
_LIMIT = flags.DEFINE_integer(
  'limit',
  64,
  'At most so many responses in the page, spread evenly over the steps.',
  lower_bound=1,
)
_SHOW = flags.DEFINE_integer(
  'show', 3, 'How many of them to print, the last ones.', lower_bound=0
)
_OUT = flags.DEFINE_string('out', None, 'The page; DIR/trace.html by default.')


def main(argv):
  if len(argv) > 1:
    raise app.UsageError(f'Unexpected arguments: {" ".join(argv[1:])}')
  try:
    steps = [int(step) for step in _STEP.value]
  except ValueError as error:
    raise app.UsageError(
      f'--step={",".join(_STEP.value)}: wanted whole numbers, such as 0,60'
    ) from error
  workdir = pathlib.Path(_WORKDIR.value)
  out = pathlib.Path(_OUT.value or workdir / 'trace.html')
  try:
    rollouts = runs.read_rollouts(
      workdir,
      steps=steps or None,
      purpose=_PURPOSE.value,
      limit=_LIMIT.value,
    )
    page = trace.trace_html(rollouts, title=f'Tandem trace: {workdir.name}')
  except (FileNotFoundError, ValueError) as error:
    sys.exit(f'view: {error}')
  out.parent.mkdir(parents=True, exist_ok=True)
  out.write_text(page, encoding='utf-8')
  for response in rollouts[len(rollouts) - min(_SHOW.value, len(rollouts)) :]:
    print(trace.trace_ansi(response), end='\n\n')
  print(f'{len(rollouts)} responses in {out}; --limit and --step choose others')


if __name__ == '__main__':
  flags.mark_flag_as_required('workdir')
  app.run(main)

r"""Compiles every kernel for every target: python -m launch.compile_kernels.

Prints a markdown table, a row per case and a column per target: the seconds
that the compiler took, or its reason to refuse. `compile_table/` cases are
controls: each says what must be refused. No device is needed, but the compilers
are: python -m tandem.kernels.compile_table.spawn tells how to get them.
"""

from absl import flags
from absl import logging

from launch import command
from tandem.kernels.compile_table import spawn
from tandem.kernels.compile_table import targets

_TARGETS = flags.DEFINE_list('targets', list(targets.TARGETS), 'Columns.')
_FULL = flags.DEFINE_bool(
  'full', False, 'Real sizes instead of two blocks: minutes to an hour.'
)
_PREFIX = flags.DEFINE_string('prefix', '', 'Only cases that begin so.')
_REASON = flags.DEFINE_integer('reason', 160, "Characters of a refusal's text.")


def _told(answer):
  if answer is None:
    return ''
  if 'refused' not in answer:
    return f'{answer["seconds"]:.1f} s'
  return f'refused: {answer["refused"][: _REASON.value]}'.replace('|', '/')


def main():
  rows = {}
  for target in _TARGETS.value:
    logging.info('compiling for %s', target)
    for answer in spawn.answers(target, full=_FULL.value, prefix=_PREFIX.value):
      rows.setdefault(answer['case'], {})[target] = answer
  print(f'| case | {" | ".join(_TARGETS.value)} |')
  print('|' + ' --- |' * (1 + len(_TARGETS.value)))
  for name, answers in rows.items():
    cells = [_told(answers.get(target)) for target in _TARGETS.value]
    print(f'| `{name}` | {" | ".join(cells)} |')


if __name__ == '__main__':
  command.run(main)

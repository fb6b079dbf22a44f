r"""Compiles every kernel for every target: python -m launch.compile_kernels.

Prints the page that docs/compiled_kernels.md is: tables with a row per case and
a column per target, and the compilers' reasons to refuse. Ends with an error
where one refuses, or takes, what it must not. No device is needed, but the
compilers are: python -m tandem.kernels.compile_table.spawn tells how to get
them. One target after another, the answers kept:

    for t in v5e v5p v6e H100 H200 B200; do
      python -m launch.compile_kernels --targets=$t --sizes=small,full \
        --answers=answers.jsonl
    done
    python -m launch.compile_kernels --targets= --answers=answers.jsonl \
      --out=docs/compiled_kernels.md
"""

import json
import pathlib
import sys

from absl import flags
from absl import logging

from launch import command
from tandem.kernels.compile_table import spawn
from tandem.kernels.compile_table import table
from tandem.kernels.compile_table import targets

_TARGETS = flags.DEFINE_list('targets', list(targets.TARGETS), 'Columns.')
_SIZES = flags.DEFINE_list(
  'sizes', ['small'], 'small: seconds a case; full: real sizes, minutes.'
)
_PREFIX = flags.DEFINE_string('prefix', '', 'Only cases that begin so.')
_ANSWERS = flags.DEFINE_string(
  'answers', '', 'Answers of earlier runs, JSON lines; new ones are added.'
)
_OUT = flags.DEFINE_string(
  'out', '', 'Where the page goes; else it is printed.'
)
_BRIEF = flags.DEFINE_bool('brief', False, 'One table, yes or no.')


def main():
  kept = pathlib.Path(_ANSWERS.value) if _ANSWERS.value else None
  answers = []
  if kept and kept.exists():
    answers = [json.loads(x) for x in kept.read_text().splitlines()]
  if unknown := set(_SIZES.value) - {'small', 'full'}:
    raise ValueError(f'--sizes has {unknown}; it may have small and full.')
  for target in filter(None, _TARGETS.value):
    for size in _SIZES.value:
      logging.info('compiling %s cases for %s', size, target)
      full = size == 'full'
      for answer in spawn.answers(target, full=full, prefix=_PREFIX.value):
        answers.append(answer)
        if kept:
          with kept.open('a') as file:
            file.write(json.dumps(answer) + '\n')
  answers = table.latest(answers)
  brief = table.table(answers, brief=True)
  page = brief if _BRIEF.value else table.page(answers, spawn.commit())
  if _OUT.value:
    pathlib.Path(_OUT.value).write_text(page)
  else:
    print(page)
  if wrong := table.faults(answers):
    sys.exit('error: ' + '; '.join(wrong))


if __name__ == '__main__':
  command.run(main)

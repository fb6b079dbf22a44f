"""Markdown of what the compilers answered, made from the worker's answers."""

from collections.abc import Iterable
import re
from typing import Any

from tandem.kernels.compile_table import case as case_lib
from tandem.kernels.compile_table import targets

Answer = dict[str, Any]

PAGE = """# Every kernel through the real compilers

By `python -m launch.compile_kernels`, no device; kernels at commit {commit};
{compilers}.
A cell: seconds of the compile, on a machine with other work, then megabytes of
temporaries. Rows named `compile_table/` are controls, of which some must be
refused. Refused, as it must be, is "no"; every reason is below its table.
What went wrong: {faults}.
"""


def faults(answers: Iterable[Answer]) -> list[str]:
  """What is wrong with the answers: refused or accepted where it must not be."""
  known = {x.name: x for x in case_lib.discover()}
  found = [known[x['case']].fault(x['target'], x) for x in answers]
  return [x for x in found if x]


def page(answers: Iterable[Answer], commit: str) -> str:
  """All of it: a table for each platform and size, reasons below it.

  Args:
    answers: the worker's; of one case and target the last counts.
    commit: of the sources, named at the top.
  """
  answers = latest(answers)
  text = PAGE.format(
    commit=commit,
    compilers=', '.join(sorted({x['compiler'] for x in answers})),
    faults='; '.join(faults(answers)) or 'nothing',
  )
  sizes = {x.name: x.full for x in case_lib.discover()}
  for platform in ('tpu', 'gpu'):
    for full in (False, True):
      part = [
        x
        for x in answers
        if targets.platform(x['target']) == platform
        and sizes[x['case']] == full
      ]
      if part:
        size = 'real sizes' if full else 'small cases'
        text += f'\n## {platform.upper()}, {size}\n\n{table(part)}'
        reasons = [
          f'- `{x["case"]}`, {x["target"]}: {x["refused"]}\n'
          for x in part
          if 'refused' in x
        ]
        text += '\n' + ''.join(reasons) if reasons else ''
  return text


def table(answers: Iterable[Answer], *, brief: bool = False) -> str:
  """A row per case, a column per target.

  Args:
    answers: the worker's.
    brief: "yes", or "no" with the word for which it must be refused, and not
      what it took.
  """
  known = {x.name: x for x in case_lib.discover()}
  names = [x for x in targets.TARGETS if x in {y['target'] for y in answers}]
  rows = {}
  for answer in answers:
    rows.setdefault(answer['case'], {})[answer['target']] = answer
  lines = [f'| case | {" | ".join(names)} |', '|' + ' --- |' * (1 + len(names))]
  for name, found in rows.items():
    cells = [_cell(known[name], found.get(x), brief) for x in names]
    lines.append(f'| `{name}` | {" | ".join(cells)} |')
  return '\n'.join(lines) + '\n'


def latest(answers: Iterable[Answer]) -> list[Answer]:
  """Of each case and target the last answer, in the order of the cases."""
  order = [x.name for x in case_lib.discover()]
  last = {(x['case'], x['target']): x for x in answers}
  # A case that is no more has no place in the table.
  kept = [x for x in last.values() if x['case'] in order]
  return sorted(kept, key=lambda x: order.index(x['case']))


def _cell(case, answer, brief):
  if answer is None:
    return ''
  if 'refused' not in answer:
    if brief:
      return 'yes'
    megabytes = answer['temporary_bytes'] / 1e6
    return f'{answer["seconds"]:.1f} s, {megabytes:.1f} MB'
  if case.fault(answer['target'], answer):
    return '**REFUSED**'
  word = re.search(case.expected(answer['target']), answer['refused'])[0]
  return f'no: {word}' if brief else 'no'

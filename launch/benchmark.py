r"""Measures: python -m launch.benchmark --suite=decode|logprob|update|...

One JSON object per line on stdout: name, value (the median), unit, low and high
over the repeats, and what else the suite tells. Programs take turns, so that
ratios hold on a machine that is not quiet; absolute numbers ask for a quiet one.
"""

import importlib
import json

from absl import flags

from launch import command
from tandem.ahead import targets

SUITES = ('decode', 'logprob', 'update', 'grader', 'bytes')

_SUITE = flags.DEFINE_enum('suite', None, SUITES, 'What is measured.')
_QUICK = flags.DEFINE_bool('quick', False, 'Toy sizes: a trial, no number.')
_REPEATS = flags.DEFINE_integer(
  'repeats', None, 'Timed runs of each; 5, or 1 if quick.', lower_bound=1
)
# Lists, by name: the suite that reads them, their kind, a trial's, and the help.
_LISTS = {
  'batches': ('decode', int, [1, 2], 'Rows at once; 1,4,16,32, quick 1,2.'),
  'agreements': ('decode', float, [0.97, 1.0], 'Overlaps, as 0.97,1,0.9.'),
  'drafts': ('decode', int, [], 'k of drafted programs; 3,2,4,7,8,16.'),
  'parts': ('decode', str, [], 'pairs,agreement,limits,prefix,slots,others.'),
  'programs': ('bytes', str, [], 'As lockstep,speculative_k8_junior; all.'),
}
for _name, (_reader, _, _, _help) in _LISTS.items():
  flags.DEFINE_list(_name, None, f'Of suite {_reader}. {_help}')
flags.DEFINE_integer(
  'response', None, 'Of suite decode. Tokens of a response; 256.', lower_bound=1
)
flags.DEFINE_string(
  'topology', '', 'Of suite bytes: compile for it too, as v5p:2x2x1.'
)
_ATTENTION = flags.DEFINE_string(
  'attention', None, 'With a topology: reads the cache, as pallas_tpu; xla.'
)


def _given(name, suite):
  """A flag of one suite; ValueError where another one is run."""
  value = flags.FLAGS[name].value
  if value and _SUITE.value != suite:
    raise ValueError(f'--{name} is read by --suite={suite} only.')
  return value


def main():
  quick, options = _QUICK.value, {}
  for name, (suite, kind, trial, _) in _LISTS.items():
    given = _given(name, suite)
    try:
      chosen = [kind(text) for text in given or ()]
    except ValueError as error:
      raise ValueError(
        f'--{name}={",".join(given)}: each must be a number.'
      ) from error
    if chosen or (quick and trial and _SUITE.value == suite):
      options[name] = chosen or trial
  if response := _given('response', 'decode'):
    options['response'] = response
  if topology := _given('topology', 'bytes'):
    targets.prepare(topology)  # before anything imports jax
    options |= {'topology': topology, 'attention': _ATTENTION.value or 'xla'}
  elif _ATTENTION.value:
    raise ValueError('--attention is read with --topology only.')
  suite = importlib.import_module(f'tandem.benchmark.{_SUITE.value}')
  repeats = _REPEATS.value or (1 if quick else 5)
  for line in suite.run(quick=quick, repeats=repeats, **options):
    print(json.dumps(line), flush=True)


if __name__ == '__main__':
  command.run(main, 'suite')

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
_BATCHES = flags.DEFINE_list(
  'batches', None, 'Rows at once, of suite decode; 1,4,16,32, or 1,2 if quick.'
)
_AGREEMENTS = flags.DEFINE_list(
  'agreements', None, 'Overlaps of the pair, of suite decode, as 0.97,1,0.9.'
)
_PARTS = flags.DEFINE_list(
  'parts',
  None,
  'Of suite decode: pairs, agreement, limits, prefix, slots, others; all.',
)
_PROGRAMS = flags.DEFINE_list(
  'programs', None, 'Of suite bytes, as lockstep,speculative_k8_junior; all.'
)
_TOPOLOGY = flags.DEFINE_string(
  'topology', '', 'Of suite bytes: compile for it too, as v5p:2x2x1.'
)
_ATTENTION = flags.DEFINE_string(
  'attention', 'xla', 'With a topology: reads the cache, as pallas_tpu.'
)


def _numbers(flag, kind):
  try:
    return [kind(text) for text in flag.value]
  except ValueError as error:
    raise ValueError(
      f'--{flag.name}={",".join(flag.value)}: each must be a number.'
    ) from error


def main():
  quick, options = _QUICK.value, {}
  for flag, suite, kind, trial in (
    (_BATCHES, 'decode', int, [1, 2]),
    (_AGREEMENTS, 'decode', float, [0.97, 1.0]),
    (_PARTS, 'decode', str, []),
    (_PROGRAMS, 'bytes', str, []),
  ):
    if flag.value and _SUITE.value != suite:
      raise ValueError(f'--{flag.name} is read by --suite={suite} only.')
    if flag.value or (quick and trial and _SUITE.value == suite):
      options[flag.name] = _numbers(flag, kind) if flag.value else trial
  if _TOPOLOGY.value:
    if _SUITE.value != 'bytes':
      raise ValueError('--topology is read by --suite=bytes only.')
    targets.prepare(_TOPOLOGY.value)  # before anything imports jax
    options['topology'] = _TOPOLOGY.value
    options['attention'] = _ATTENTION.value
  suite = importlib.import_module(f'tandem.benchmark.{_SUITE.value}')
  repeats = _REPEATS.value or (1 if quick else 5)
  for line in suite.run(quick=quick, repeats=repeats, **options):
    print(json.dumps(line), flush=True)


if __name__ == '__main__':
  command.run(main, 'suite')

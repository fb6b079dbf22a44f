"""Every suite runs, at toy sizes, and says what it must."""

import importlib
import json
import math

import pytest

from tandem import losses
from tandem.benchmark import timing

NAMES = {
  'decode': {
    f'decode/{kind}/b2'
    for kind in ('solo', 'lockstep', 'speculative', 'speculative_k4')
  }
  | {'decode/speculative_k4_overlap1/b2'},
  'logprob': {
    f'logprob/toy/{name}/{kind}'
    for name in ('xla', 'reference')
    for kind in ('value', 'gradient')
  },
  'update': {
    *(
      f'{part}/{mode}'
      for part in ('update', 'step')
      for mode in ('solo', 'tandem')
    ),
    'update/scoring',
    *(f'update/credit/{name}' for name in losses.LOSSES),
  },
  'grader': {'grader/items_per_second'},
}
OPTIONS = {'decode': {'batches': (2,), 'agreements': (0.97, 1.0)}}


@pytest.mark.parametrize('suite', NAMES)
def test_quick(suite):
  module = importlib.import_module(f'tandem.benchmark.{suite}')
  lines = list(module.run(quick=True, repeats=2, **OPTIONS.get(suite, {})))
  by_name = {line['name']: line for line in lines}
  assert NAMES[suite] <= by_name.keys() and len(by_name) == len(lines)
  for line in lines:
    json.dumps(line)
    assert 0 < line['low'] <= line['value'] <= line['high'] < math.inf
    assert line['unit'] in ('tokens/s', 's', 'ms', 'items/s')
  if suite == 'update':
    step = by_name['step/solo']['value']
    for name in ('gr_opd', 'sdar', 'craft'):
      line = by_name[f'update/credit/{name}']
      share = line['value'] / 1e3 / step
      assert line['of_grpo_step'] == pytest.approx(share)
    assert by_name['update/credit/gr_opd']['scorings'] == ('old', 'teacher')
  if suite == 'decode':
    drafted = by_name['decode/speculative_k4/b2']
    assert drafted['rows_equal_to_lockstep'] == 2
    assert abs(drafted['overlap'] - 0.97) < 0.01
    assert by_name['decode/speculative_k4_overlap1/b2']['acceptance'] == 1


def test_interleaved():
  order = []
  programs = {name: lambda name=name: order.append(name) for name in 'ab'}
  seconds = timing.interleaved(programs, 2)
  assert ''.join(order) == 'ababab'  # the first of each is not timed
  assert {name: len(x) for name, x in seconds.items()} == {'a': 2, 'b': 2}


def test_line():
  line = timing.line('x', [0.5, 0.25, 1.0], 'tokens/s', work=10, note='n')
  assert line == {
    'name': 'x',
    'value': 20,
    'unit': 'tokens/s',
    'low': 10,
    'high': 40,
    'repeats': 3,
    'note': 'n',
  }
  assert timing.line('x', [0.5], 'ms')['value'] == 500

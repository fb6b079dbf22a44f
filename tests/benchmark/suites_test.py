"""Every suite runs, at toy sizes, and says what it must."""

import importlib
import json
import math

import numpy as np
import pytest

from tandem import losses
from tandem.benchmark import decode_slots
from tandem.benchmark import others
from tandem.benchmark import timing

NAMES = {
  'decode': {
    f'decode/{kind}/b2'
    for kind in ('solo', 'lockstep', 'speculative', 'speculative_k3')
  }
  | {'decode/speculative_k3_overlap1/b2', 'decode/limit/b2', 'decode/dots/b2'}
  | {f'decode/prefill_{kind}/g8' for kind in ('one', 'shared', 'repeated')}
  | {'decode/fixed/m2', 'decode/slots/m2'},
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
    *(
      f'step/toy/{name}'
      for name in ('solo', 'lockstep', 'speculative_k3', 'tandem')
    ),
    *(f'update/credit/{name}' for name in losses.LOSSES),
  },
  'grader': {'grader/items_per_second'},
}
OPTIONS = {'decode': {'batches': (2,), 'agreements': (0.97, 1.0)}}


@pytest.mark.parametrize('suite', NAMES)
def test_quick(suite):
  module = importlib.import_module(f'tandem.benchmark.{suite}')
  lines = list(module.run(quick=True, repeats=2, **OPTIONS.get(suite, {})))
  lines = [line for line in lines if 'skipped' not in line]
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
    assert by_name['step/toy/solo']['times_solo']['value'] == 1
    whole = by_name['step/toy/tandem']
    assert whole['value'] == by_name[f'step/toy/{whole["decoder"]}']['value']
  if suite == 'decode':
    drafted = by_name['decode/speculative_k3/b2']
    assert drafted['rows_equal_to_lockstep'] == 2
    assert abs(drafted['overlap'] - 0.97) < 0.01
    assert by_name['decode/speculative_k3_overlap1/b2']['acceptance'] == 1
    shared, repeated = (
      by_name[f'decode/prefill_{kind}/g8'] for kind in ('shared', 'repeated')
    )
    assert shared['operations_of_one'] == 1 < repeated['operations_of_one']
    assert repeated['prompt_bytes'] == 8 * shared['prompt_bytes']
    slots, fixed = by_name['decode/slots/m2'], by_name['decode/fixed/m2']
    assert slots['rows_equal_to_fixed'] == slots['rows'] == 8
    assert slots['idle'] < fixed['idle']
    for name in others.NAMES:  # those that are installed
      line = by_name.get(f'decode/{name}/b2', {'logits_differ': 0})
      assert line['logits_differ'] < (0.1 if 'bf16' in name else 1e-4)


def test_interleaved():
  order = []
  programs = {name: lambda name=name: order.append(name) for name in 'ab'}
  seconds = timing.interleaved(programs, 2)
  assert ''.join(order) == 'ababab'  # the first of each is not timed
  assert {name: len(x) for name, x in seconds.items()} == {'a': 2, 'b': 2}


def test_ratio_compares_within_a_turn():
  got = timing.ratio([2.0, 40.0, 3.0], [1.0, 10.0, 3.0])
  assert got == {'value': 2, 'low': 1, 'high': 4}


def test_lengths_are_picked_rarest_first():
  lengths = np.array([1, 9, 2, 30, 8])
  np.testing.assert_array_equal(
    decode_slots.pick(lengths, np.array([2, 10, 25])), [2, 1, 3]
  )


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

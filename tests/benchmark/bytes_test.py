"""The arithmetic of bytes per token, against the traced programs."""

import json

import pytest

from tandem.benchmark import byte_costs
from tandem.benchmark import bytes as bytes_lib
from tandem.models import presets


def test_accounts_of_a_toy():
  lines = {x['name']: x for x in bytes_lib.run(quick=True)}
  json.dumps(lines)
  assert lines['bytes/solo']['value'] == 1
  assert lines['bytes/lockstep']['value'] == pytest.approx(0.5, rel=0.01)
  for line in lines.values():
    # The formula's operations are all that the program does.
    if 'flops_per_token' in line:
      flops = line['flops_per_token']
      assert flops['formula'] == pytest.approx(flops['counted'], rel=0.01)
      ratio = line['bytes_per_token']
      assert ratio['counted'] > ratio['formula'] / 2
  perfect = lines['bytes/speculative_k4_junior/a1']
  assert perfect['tokens_per_round'] == 4.5  # one more where it is its turn
  assert perfect['value'] > 1.2 * lines['bytes/lockstep']['value']


def test_the_paper_size_by_hand():
  size = byte_costs.Size(presets.preset('qwen3-4b-instruct-2507'))
  one = byte_costs.one_pass(size, 1, size.response)
  # 4.02e9 weights of two bytes; 147,456 bytes of keys and values a token.
  assert one['weights'] == pytest.approx(8.04e9, rel=1e-3)
  assert one['cache'] == 147_456 * (16 * 1024 + 128 * 3000)
  assert one['logits'] == 8 * 128 * 151_936
  eight = byte_costs.one_pass(size, 8, size.response)
  assert eight['cache'] == one['cache']
  assert eight['flops'] == 8 * one['flops']


def test_the_acceptance_needed():
  # Drafts that cost nothing more than k passes and one.
  program = byte_costs.known_programs()['speculative_k8_junior']
  found = byte_costs.needed(1.0, 9.0, program)
  emitted = byte_costs.tokens_per_round(program, found)
  assert emitted / 9.0 == pytest.approx(byte_costs.TARGET)
  assert byte_costs.needed(1.0, 10.1, program) is None  # 8.5 at the very best
  near = byte_costs.known_programs()['speculative_k8_near256']
  # A copy serves for 128 tokens, of which a round without a refusal makes 8.
  assert byte_costs.cost_at(near, 1.0, 10.0, 3.2) == pytest.approx(10 - 3.0)
  assert byte_costs.needed(1.0, 9.0, near, 3.2) < byte_costs.needed(
    1.0, 9.0, near
  )
  lookup = byte_costs.known_programs()['speculative_k4_lookup']
  assert byte_costs.tokens_per_round(lookup, 0.5) == 1.875


def test_named_programs_only():
  lines = [x['name'] for x in bytes_lib.run(quick=True, programs=('lockstep',))]
  assert lines == ['bytes/inputs', 'bytes/solo', 'bytes/lockstep']
  with pytest.raises(ValueError, match='lockstop.*unknown'):
    list(bytes_lib.run(quick=True, programs=('lockstop',)))

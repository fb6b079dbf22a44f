"""Rows to imitate: prompt, response, EOS, and their true lengths."""

import numpy as np
import pytest

from tandem.data import demonstrations
from tandem.data import quickstart


def test_rows_hold_prompt_response_and_eos():
  tokenizer = quickstart.tokenizer()
  pairs = quickstart.demonstrations(0, 0, 24, 0.25)
  packed = demonstrations.pack(
    pairs, tokenizer, max_prompt=32, max_response=40, eos_id=1
  )
  assert packed.ids.shape == (24, 32) and packed.tokens.shape == (24, 40)
  assert packed.ids.dtype == packed.tokens.dtype == np.int32
  for n, (problem, text) in enumerate(pairs):
    prompt = packed.ids[n, : packed.lengths[n]]
    response = packed.tokens[n, : packed.token_lengths[n]]
    assert tokenizer.decode(prompt) == problem.text + '\n'
    assert response[-1] == 1
    assert tokenizer.decode(response[:-1]) == text
    assert not packed.ids[n, packed.lengths[n] :].any()
    assert not packed.tokens[n, packed.token_lengths[n] :].any()


def test_the_eos_must_fit():
  tokenizer = quickstart.tokenizer()
  pairs = quickstart.demonstrations(0, 0, 1, 0.0)
  size = len(tokenizer(pairs[0][1])['input_ids'])
  pack = lambda limit: demonstrations.pack(
    pairs, tokenizer, max_prompt=32, max_response=limit, eos_id=1
  )
  assert pack(size + 1).token_lengths.tolist() == [size + 1]
  with pytest.raises(ValueError, match=f'more than max_response={size}'):
    pack(size)

"""The decode loops with attention by a kernel: the same text."""

import numpy as np
import pytest

from tandem.models import cache
from tandem.rollout import turns as turns_lib
from tests.rollout import lockstep_test
from tests.rollout import speculative_test

CASE = speculative_test.CASE | {'lengths': (3, 1), 'max_tokens': 4}


@pytest.mark.parametrize('slots', [None, 3])
def test_a_kernel_reads_the_cache_alike(slots):
  want = lockstep_test.run(turns_lib.Turns(cap=3), **CASE)
  kernel = cache.reader('reference')
  got, _ = speculative_test.counted(
    turns_lib.Turns(cap=3), draft_tokens=3, slots=slots, read=kernel, **CASE
  )
  np.testing.assert_array_equal(got.tokens, want.tokens)
  np.testing.assert_array_equal(got.author, want.author)
  np.testing.assert_allclose(got.logp_senior, want.logp_senior, atol=2e-5)

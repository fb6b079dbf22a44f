"""Drafts from the row's own text."""

import jax
import numpy as np

from tandem.rollout import lookup

CASES = [
  ([1, 2, 3, 4, 9, 1, 2], [3, 4, 9]),  # what followed `1 2`
  ([5, 2, 7, 1, 2, 8, 1, 2], [8, 1, 2]),  # the latest of equals
  ([1, 2, 8, 4, 3, 2, 7, 1, 2], [8, 4, 3]),  # the longest before the latest
  ([6, 1, 2, 3, 1, 2, 3], [1, 2, 3]),  # a period is gone on with
  ([4, 4], [4, 4, 4]),
  ([1, 2, 3], [3, 3, 3]),  # nothing matches
  ([7], [7, 7, 7]),
]


def test_draft():
  # What lies past the end, here 1s and 2s, is not read.
  text = np.array([(text + [1, 2] * 8)[:16] for text, _ in CASES])
  end = np.array([len(text) for text, _ in CASES])
  draft = jax.jit(lookup.draft, static_argnums=2)
  np.testing.assert_array_equal(
    draft(text, end, 3), [wanted for _, wanted in CASES]
  )
  assert draft(text, end, 0).shape == (len(CASES), 0)

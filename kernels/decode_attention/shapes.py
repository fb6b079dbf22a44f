"""Real shapes that the compile table compiles and the benchmark runs."""

from typing import NamedTuple


class Shape(NamedTuple):
  """A model's attention; the batch is whatever a device holds."""

  heads: int  # Q
  kv: int  # K
  head_dim: int  # H


SHAPES = {
  'smollm2_135m': Shape(9, 3, 64),
  'qwen3_0.6b': Shape(16, 8, 128),
  'qwen3_4b': Shape(32, 8, 128),
  'qwen3_32b': Shape(64, 8, 128),
}
# METHODS 2.5's batch on one device of a data=16 mesh: one prompt, 8 siblings.
PROMPTS, GROUP, PROMPT, SLOTS = 1, 8, 512, 3584
QUERIES = (1, 8)  # lockstep; a chunk of a draft

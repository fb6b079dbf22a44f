"""Real shapes that the compile table compiles and the benchmark runs."""

from typing import NamedTuple


class Shape(NamedTuple):
  """A model's attention; rows are whatever a micro-batch holds."""

  heads: int  # Q
  kv: int  # K
  head_dim: int  # H


SHAPES = {
  'smollm2_135m': Shape(9, 3, 64),
  'qwen3_0.6b': Shape(16, 8, 128),
  'qwen3_4b': Shape(32, 8, 128),
  'qwen3_32b': Shape(64, 8, 128),
}
ROWS, LENGTH = 2, 4096  # METHODS 2.5: 512 of the prompt and 3,584 after it

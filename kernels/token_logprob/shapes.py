"""Real shapes that tests compile and the benchmark runs."""

from typing import NamedTuple


class Shape(NamedTuple):
  """The head of a model; rows are whatever a micro-batch holds."""

  dim: int  # D
  vocab: int  # V
  tied: bool  # the head lies [V, D]


SHAPES = {
  'smollm2_135m': Shape(576, 49_152, True),
  'qwen3_0.6b': Shape(1024, 151_936, True),
  'qwen3_4b': Shape(2560, 151_936, True),
  'qwen3_32b': Shape(5120, 151_936, False),
}
ROWS = 8192  # tokens of a micro-batch on one device

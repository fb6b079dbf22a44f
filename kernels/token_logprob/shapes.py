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


def work(
  shape: Shape, rows: int, itemsize: int, *, gradient: bool
) -> tuple[int, int]:
  """(operations, bytes) of one call, as few as no stored logits allow.

  Value: one product, hidden states and head read once. With gradient: the
  logits twice, then the two gradients' products; all read twice and written
  once.
  """
  arrays = (rows + shape.vocab) * shape.dim * itemsize
  product = 2 * rows * shape.dim * shape.vocab
  return (4 * product, 3 * arrays) if gradient else (product, arrays)

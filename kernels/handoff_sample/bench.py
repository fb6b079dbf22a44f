"""Milliseconds of handoff_sample against the roofline.

    python -m tandem.kernels.handoff_sample.bench --vocabulary=qwen3

prints one JSON object per implementation. Without `--peak_tops` and `--gbytes`
(of your device) the roofline is left out.
"""

import functools

from absl import flags
import jax
import jax.numpy as jnp

from tandem.kernels.benching import bench
from tandem.kernels.handoff_sample import api
from tandem.kernels.handoff_sample import shapes

BENCH = bench.Bench(
  peak='peak_tops', peak_help='Vector operations/s, in 10^12.'
)
VOCABULARY = flags.DEFINE_enum(
  'vocabulary',
  'smollm2',
  list(shapes.VOCABULARIES),
  'V, by family.',
  flag_values=BENCH.flags,
)
ROWS = flags.DEFINE_integer(
  'rows', 8, 'N.', lower_bound=1, flag_values=BENCH.flags
)

# Threefry: 20 rounds of add, two shifts, or, xor; five key additions of two;
# the counter's. Then what noise, scores and sums take of each entry.
NOISE_OPERATIONS = 20 * 5 + 5 * 3 + 3 + 10
MODEL_OPERATIONS = 16


def work(rows, vocab, itemsize=4):
  """(operations, bytes) of one pass over both models' logits."""
  entries = rows * vocab
  operations = entries * (NOISE_OPERATIONS + 2 * MODEL_OPERATIONS)
  return operations, 2 * entries * itemsize


def main():
  n, vocab = ROWS.value, shapes.VOCABULARIES[VOCABULARY.value]
  keys = jax.random.split(jax.random.key(0), n + 2)
  arguments = (
    jax.random.normal(keys[0], (n, vocab)),
    jax.random.normal(keys[1], (n, vocab)),
    jax.random.key_data(keys[2:]),
    jnp.arange(vocab) % 3 == 0,
    jnp.arange(n) % 2 == 0,
  )
  operations, moved = work(n, vocab)
  for name in BENCH.implementations:
    f = functools.partial(api.handoff_sample, implementation=name)
    seconds, temporary = BENCH.timed(f, arguments)
    BENCH.tell(
      f'handoff_sample/{VOCABULARY.value}/{name}',
      seconds,
      operations,
      moved,
      rows=n,
      gbytes_per_second=moved / seconds / 1e9,
      temporary_bytes=temporary,
    )


if __name__ == '__main__':
  BENCH.run(main)

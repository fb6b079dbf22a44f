"""Milliseconds of handoff_sample against the roofline.

    python -m tandem.kernels.handoff_sample.bench --vocabulary=qwen3

prints one JSON object per implementation. Without `--peak_tops` and `--gbytes`
(of your device) the roofline is left out.
"""

import functools
import json
import statistics
import time

from absl import app
from absl import flags
import jax
import jax.numpy as jnp

from tandem.kernels.handoff_sample import api
from tandem.kernels.handoff_sample import shapes

# Absl's own only in a run of this file: the benches share names of flags.
OWN = flags.FlagValues()
VOCABULARY = flags.DEFINE_enum(
  'vocabulary',
  'smollm2',
  list(shapes.VOCABULARIES),
  'V, by family.',
  flag_values=OWN,
)
ROWS = flags.DEFINE_integer('rows', 8, 'N.', lower_bound=1, flag_values=OWN)
IMPLEMENTATIONS = flags.DEFINE_list(
  'implementations',
  ['reference', 'xla'],
  'Among api.IMPLEMENTATIONS.',
  flag_values=OWN,
)
REPEATS = flags.DEFINE_integer(
  'repeats', 3, 'Timed runs.', lower_bound=1, flag_values=OWN
)
PEAK = flags.DEFINE_float(
  'peak_tops', None, 'Vector operations/s, in 10^12.', flag_values=OWN
)
GBYTES = flags.DEFINE_float(
  'gbytes', None, 'Memory GB/s of the device.', flag_values=OWN
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


def main(argv):
  if len(argv) > 1:
    raise app.UsageError(f'unexpected arguments {argv[1:]}; see --help')
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
  for name in IMPLEMENTATIONS.value:
    f = functools.partial(api.handoff_sample, implementation=name)
    program = jax.jit(f).lower(*arguments).compile()
    jax.block_until_ready(program(*arguments))
    seconds = []
    for _ in range(REPEATS.value):
      start = time.perf_counter()
      jax.block_until_ready(program(*arguments))
      seconds.append(time.perf_counter() - start)
    seconds = statistics.median(seconds)
    line = {
      'name': f'handoff_sample/{VOCABULARY.value}/{name}',
      'value': seconds * 1e3,
      'unit': 'ms',
      'rows': n,
      'gbytes_per_second': moved / seconds / 1e9,
      'temporary_bytes': program.memory_analysis().temp_size_in_bytes,
    }
    if PEAK.value and GBYTES.value:
      bound = max(operations / PEAK.value / 1e12, moved / GBYTES.value / 1e9)
      line['of_roofline'] = bound / seconds
    print(json.dumps(line), flush=True)


if __name__ == '__main__':
  flags.FLAGS.append_flag_values(OWN)
  OWN.mark_as_parsed()
  for name in OWN:
    flags.declare_key_flag(name)
  app.run(main)

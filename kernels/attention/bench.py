"""Milliseconds of causal attention against the roofline.

    python -m tandem.kernels.attention.bench --shape=qwen3_4b

prints one JSON object per implementation, for one layer. Without
`--peak_tflops` and `--gbytes` (of your device) the roofline is left out.
"""

import functools
import json
import statistics
import time

from absl import app
from absl import flags
import jax
import jax.numpy as jnp

from tandem.kernels.attention import api
from tandem.kernels.attention import shapes

# Absl's own only in a run of this file: the benches share names of flags.
OWN = flags.FlagValues()
SHAPE = flags.DEFINE_enum(
  'shape',
  'smollm2_135m',
  list(shapes.SHAPES),
  'The attention, by model.',
  flag_values=OWN,
)
ROWS = flags.DEFINE_integer('rows', 1, 'N.', lower_bound=1, flag_values=OWN)
LENGTH = flags.DEFINE_integer(
  'length', 512, 'S.', lower_bound=1, flag_values=OWN
)
DTYPE = flags.DEFINE_enum(
  'dtype', 'float32', ['float32', 'bfloat16'], 'Of q.', flag_values=OWN
)
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
  'peak_tflops', None, 'Of the device, in this dtype.', flag_values=OWN
)
GBYTES = flags.DEFINE_float(
  'gbytes', None, 'Memory GB/s of the device.', flag_values=OWN
)


def work(shape, *, rows, length, itemsize, gradient):
  """(operations, bytes) that any program must at least spend.

  Half of the square is hidden by the mask. Two products forward; backward makes
  the scores again and has four more.
  """
  square = rows * shape.heads * length * (length + 1) // 2
  products = 2 + 5 if gradient else 2
  heads = shape.heads + shape.kv
  arrays = 2 * rows * length * heads * shape.head_dim * itemsize
  return 2 * products * square * shape.head_dim, arrays * (3 if gradient else 1)


def main(argv):
  if len(argv) > 1:
    raise app.UsageError(f'unexpected arguments {argv[1:]}; see --help')
  shape, dtype = shapes.SHAPES[SHAPE.value], jnp.dtype(DTYPE.value)
  keys = jax.random.split(jax.random.key(0), 3)
  arguments = [
    jax.random.normal(
      key, (ROWS.value, LENGTH.value, heads, shape.head_dim), dtype
    )
    for key, heads in zip(keys, (shape.heads, shape.kv, shape.kv))
  ]
  for name in IMPLEMENTATIONS.value:
    one = functools.partial(api.attention, implementation=name)

    def loss(q, k, v, one=one):
      return one(q, k, v).astype(jnp.float32).sum()

    for gradient in (False, True):
      f = jax.value_and_grad(loss, (0, 1, 2)) if gradient else loss
      program = jax.jit(f).lower(*arguments).compile()
      jax.block_until_ready(program(*arguments))
      seconds = []
      for _ in range(REPEATS.value):
        start = time.perf_counter()
        jax.block_until_ready(program(*arguments))
        seconds.append(time.perf_counter() - start)
      seconds = statistics.median(seconds)
      operations, moved = work(
        shape,
        rows=ROWS.value,
        length=LENGTH.value,
        itemsize=dtype.itemsize,
        gradient=gradient,
      )
      kind = 'gradient' if gradient else 'value'
      line = {
        'name': f'attention/{SHAPE.value}/{name}/{kind}',
        'value': seconds * 1e3,
        'unit': 'ms',
        'rows': ROWS.value,
        'length': LENGTH.value,
        'dtype': DTYPE.value,
        'tflops': operations / seconds / 1e12,
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

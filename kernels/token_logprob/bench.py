"""Milliseconds of token_logprob against the dense definition and the roofline.

    python -m tandem.kernels.token_logprob.bench --shape=qwen3_4b

prints one JSON object per program. Without `--peak_tflops` and `--gbytes` (of
your device) the roofline is left out. Dense runs where its logits fit.
"""

import json
import statistics
import time

from absl import app
from absl import flags
import jax
import jax.numpy as jnp

from tandem.kernels.token_logprob import api
from tandem.kernels.token_logprob import shapes

# Absl's own only in a run of this file: the benches share names of flags.
OWN = flags.FlagValues()
SHAPE = flags.DEFINE_enum(
  'shape',
  'smollm2_135m',
  list(shapes.SHAPES),
  'The head, by model.',
  flag_values=OWN,
)
ROWS = flags.DEFINE_integer(
  'rows', 1024, 'Tokens, M.', lower_bound=1, flag_values=OWN
)
DTYPE = flags.DEFINE_enum(
  'dtype',
  'float32',
  ['float32', 'bfloat16'],
  'Of hidden states and head.',
  flag_values=OWN,
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


def main(argv):
  if len(argv) > 1:
    raise app.UsageError(f'unexpected arguments {argv[1:]}; see --help')
  shape, rows = shapes.SHAPES[SHAPE.value], ROWS.value
  dtype = jnp.dtype(DTYPE.value)
  keys = jax.random.split(jax.random.key(0), 3)
  hidden = jax.random.normal(keys[0], (rows, shape.dim), dtype)
  size = (shape.vocab, shape.dim) if shape.tied else (shape.dim, shape.vocab)
  head = jax.random.normal(keys[1], size, dtype) * shape.dim**-0.5
  targets = jax.random.randint(keys[2], (rows,), 0, shape.vocab)

  for implementation in IMPLEMENTATIONS.value:

    def loss(hidden, head, name=implementation):
      stats = api.token_logprob(
        hidden,
        head,
        targets,
        entropy=True,
        vocab_first=shape.tied,
        implementation=name,
      )
      return stats.logp.sum() + stats.entropy.sum()

    for gradient in (False, True):
      f = jax.value_and_grad(loss, (0, 1)) if gradient else loss
      program = jax.jit(f).lower(hidden, head).compile()
      jax.block_until_ready(program(hidden, head))
      seconds = []
      for _ in range(REPEATS.value):
        start = time.perf_counter()
        jax.block_until_ready(program(hidden, head))
        seconds.append(time.perf_counter() - start)
      seconds = statistics.median(seconds)
      operations, moved = shapes.work(
        shape, rows, dtype.itemsize, gradient=gradient
      )
      kind = 'gradient' if gradient else 'value'
      line = {
        'name': f'token_logprob/{SHAPE.value}/{implementation}/{kind}',
        'value': seconds * 1e3,
        'unit': 'ms',
        'rows': rows,
        'dtype': DTYPE.value,
        'operations': operations,
        'bytes': moved,
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

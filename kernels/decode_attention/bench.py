"""Milliseconds of decode_attention against the roofline.

    python -m tandem.kernels.decode_attention.bench --shape=qwen3_4b

prints one JSON object per implementation and number of queries, for one layer.
Without `--peak_tflops` and `--gbytes` (of your device) the roofline is left
out.
"""

import functools
import json
import statistics
import time

from absl import app
from absl import flags
import jax
import jax.numpy as jnp

from tandem.kernels.decode_attention import api
from tandem.kernels.decode_attention import shapes

# Absl's own only in a run of this file: the benches share names of flags.
OWN = flags.FlagValues()
SHAPE = flags.DEFINE_enum(
  'shape',
  'smollm2_135m',
  list(shapes.SHAPES),
  'The attention, by model.',
  flag_values=OWN,
)
PROMPTS = flags.DEFINE_integer(
  'prompts', 1, 'B.', lower_bound=1, flag_values=OWN
)
GROUP = flags.DEFINE_integer(
  'group', shapes.GROUP, 'G.', lower_bound=1, flag_values=OWN
)
PROMPT = flags.DEFINE_integer(
  'prompt', shapes.PROMPT, 'P.', lower_bound=1, flag_values=OWN
)
SLOTS = flags.DEFINE_integer(
  'slots', shapes.SLOTS, 'S.', lower_bound=1, flag_values=OWN
)
FILLED = flags.DEFINE_float(
  'filled', 0.5, 'Share of the slots in use.', flag_values=OWN
)
DTYPE = flags.DEFINE_enum(
  'dtype',
  'float32',
  ['float32', 'bfloat16'],
  'Of queries and cache.',
  flag_values=OWN,
)
LAYOUT = flags.DEFINE_enum(
  'layout', 'heads', api.LAYOUTS, 'Of the cache.', flag_values=OWN
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


def work(shape, *, prompts, group, queries, prompt, slots, itemsize):
  """(operations, bytes) that any program must at least spend.

  `prompt` and `slots` are those in use. A query meets all of them; a prompt
  comes from memory once for its group.
  """
  rows = prompts * group
  products = 2 * 2 * rows * queries * shape.heads * shape.head_dim
  keys = 2 * (prompts * prompt + rows * slots) * shape.kv * shape.head_dim
  ends = 2 * rows * queries * shape.heads * shape.head_dim
  return products * (prompt + slots), (keys + ends) * itemsize


def main(argv):
  if len(argv) > 1:
    raise app.UsageError(f'unexpected arguments {argv[1:]}; see --help')
  shape, dtype = shapes.SHAPES[SHAPE.value], jnp.dtype(DTYPE.value)
  b, n = PROMPTS.value, PROMPTS.value * GROUP.value
  used = max(1, int(SLOTS.value * FILLED.value))
  keys = jax.random.split(jax.random.key(0), 5)

  def store(key, entries, slots):
    size = (entries, shape.kv, slots, shape.head_dim)
    if LAYOUT.value == 'slots':
      size = (entries, slots, shape.kv, shape.head_dim)
    return jax.random.normal(key, size, dtype)

  stores = [store(key, b, PROMPT.value) for key in keys[:2]]
  stores += [store(key, n, SLOTS.value) for key in keys[2:4]]
  lengths = jnp.full((b,), PROMPT.value, jnp.int32)
  for c in shapes.QUERIES:
    q = jax.random.normal(keys[4], (n, c, shape.heads, shape.head_dim), dtype)
    last = jnp.arange(used - c, used, dtype=jnp.int32)
    slots = jnp.broadcast_to(jnp.maximum(last, 0)[None], (n, c))
    operations, moved = work(
      shape,
      prompts=b,
      group=GROUP.value,
      queries=c,
      prompt=PROMPT.value,
      slots=used,
      itemsize=dtype.itemsize,
    )
    for name in IMPLEMENTATIONS.value:
      f = functools.partial(
        api.decode_attention, layout=LAYOUT.value, implementation=name
      )
      arguments = (q, *stores, lengths, slots)
      program = jax.jit(f).lower(*arguments).compile()
      jax.block_until_ready(program(*arguments))
      seconds = []
      for _ in range(REPEATS.value):
        start = time.perf_counter()
        jax.block_until_ready(program(*arguments))
        seconds.append(time.perf_counter() - start)
      seconds = statistics.median(seconds)
      line = {
        'name': f'decode_attention/{SHAPE.value}/{name}/c{c}',
        'value': seconds * 1e3,
        'unit': 'ms',
        'rows': n,
        'dtype': DTYPE.value,
        'tflops': operations / seconds / 1e12,
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

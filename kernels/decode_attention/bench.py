"""Milliseconds of decode_attention against the roofline.

    python -m tandem.kernels.decode_attention.bench --shape=qwen3_4b

prints one JSON object per implementation and number of queries, for one layer.
Without `--peak_tflops` and `--gbytes` (of your device) the roofline is left
out.
"""

import functools

from absl import flags
import jax
import jax.numpy as jnp

from tandem.kernels.benching import bench
from tandem.kernels.decode_attention import api
from tandem.kernels.decode_attention import shapes

BENCH = bench.Bench()
SHAPE = flags.DEFINE_enum(
  'shape',
  'smollm2_135m',
  list(shapes.SHAPES),
  'The attention, by model.',
  flag_values=BENCH.flags,
)
PROMPTS = flags.DEFINE_integer(
  'prompts', 1, 'B.', lower_bound=1, flag_values=BENCH.flags
)
GROUP = flags.DEFINE_integer(
  'group', shapes.GROUP, 'G.', lower_bound=1, flag_values=BENCH.flags
)
PROMPT = flags.DEFINE_integer(
  'prompt', shapes.PROMPT, 'P.', lower_bound=1, flag_values=BENCH.flags
)
SLOTS = flags.DEFINE_integer(
  'slots', shapes.SLOTS, 'S.', lower_bound=1, flag_values=BENCH.flags
)
FILLED = flags.DEFINE_float(
  'filled', 0.5, 'Share of the slots in use.', flag_values=BENCH.flags
)
DTYPE = flags.DEFINE_enum(
  'dtype',
  'float32',
  ['float32', 'bfloat16'],
  'Of queries and cache.',
  flag_values=BENCH.flags,
)
LAYOUT = flags.DEFINE_enum(
  'layout', 'heads', api.LAYOUTS, 'Of the cache.', flag_values=BENCH.flags
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


def main():
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
    for name in BENCH.implementations:
      f = functools.partial(
        api.decode_attention, layout=LAYOUT.value, implementation=name
      )
      arguments = (q, *stores, lengths, slots)
      seconds, temporary = BENCH.timed(f, arguments)
      BENCH.tell(
        f'decode_attention/{SHAPE.value}/{name}/c{c}',
        seconds,
        operations,
        moved,
        rows=n,
        dtype=DTYPE.value,
        tflops=operations / seconds / 1e12,
        gbytes_per_second=moved / seconds / 1e9,
        temporary_bytes=temporary,
      )


if __name__ == '__main__':
  BENCH.run(main)

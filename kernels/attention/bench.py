"""Milliseconds of causal attention against the roofline.

    python -m tandem.kernels.attention.bench --shape=qwen3_4b

prints one JSON object per implementation, for one layer. Without
`--peak_tflops` and `--gbytes` (of your device) the roofline is left out.
"""

import functools

from absl import flags
import jax
import jax.numpy as jnp

from tandem.kernels.attention import api
from tandem.kernels.attention import shapes
from tandem.kernels.benching import bench

BENCH = bench.Bench()
SHAPE = flags.DEFINE_enum(
  'shape',
  'smollm2_135m',
  list(shapes.SHAPES),
  'The attention, by model.',
  flag_values=BENCH.flags,
)
ROWS = flags.DEFINE_integer(
  'rows', 1, 'N.', lower_bound=1, flag_values=BENCH.flags
)
LENGTH = flags.DEFINE_integer(
  'length', 512, 'S.', lower_bound=1, flag_values=BENCH.flags
)
DTYPE = flags.DEFINE_enum(
  'dtype', 'float32', ['float32', 'bfloat16'], 'Of q.', flag_values=BENCH.flags
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


def main():
  shape, dtype = shapes.SHAPES[SHAPE.value], jnp.dtype(DTYPE.value)
  keys = jax.random.split(jax.random.key(0), 3)
  arguments = [
    jax.random.normal(
      key, (ROWS.value, LENGTH.value, heads, shape.head_dim), dtype
    )
    for key, heads in zip(keys, (shape.heads, shape.kv, shape.kv))
  ]
  for name in BENCH.implementations:
    one = functools.partial(api.attention, implementation=name)

    def loss(q, k, v, one=one):
      return one(q, k, v).astype(jnp.float32).sum()

    for gradient in (False, True):
      f = jax.value_and_grad(loss, (0, 1, 2)) if gradient else loss
      seconds, temporary = BENCH.timed(f, arguments)
      operations, moved = work(
        shape,
        rows=ROWS.value,
        length=LENGTH.value,
        itemsize=dtype.itemsize,
        gradient=gradient,
      )
      kind = 'gradient' if gradient else 'value'
      BENCH.tell(
        f'attention/{SHAPE.value}/{name}/{kind}',
        seconds,
        operations,
        moved,
        rows=ROWS.value,
        length=LENGTH.value,
        dtype=DTYPE.value,
        tflops=operations / seconds / 1e12,
        temporary_bytes=temporary,
      )


if __name__ == '__main__':
  BENCH.run(main)

"""Milliseconds of token_logprob against the dense definition and the roofline.

    python -m tandem.kernels.token_logprob.bench --shape=qwen3_4b

prints one JSON object per program. Without `--peak_tflops` and `--gbytes` (of
your device) the roofline is left out. Dense runs where its logits fit.
"""

from absl import flags
import jax
import jax.numpy as jnp

from tandem.kernels.benching import bench
from tandem.kernels.token_logprob import api
from tandem.kernels.token_logprob import shapes

BENCH = bench.Bench()
SHAPE = flags.DEFINE_enum(
  'shape',
  'smollm2_135m',
  list(shapes.SHAPES),
  'The head, by model.',
  flag_values=BENCH.flags,
)
ROWS = flags.DEFINE_integer(
  'rows', 1024, 'Tokens, M.', lower_bound=1, flag_values=BENCH.flags
)
DTYPE = flags.DEFINE_enum(
  'dtype',
  'float32',
  ['float32', 'bfloat16'],
  'Of hidden states and head.',
  flag_values=BENCH.flags,
)


def main():
  shape, rows = shapes.SHAPES[SHAPE.value], ROWS.value
  dtype = jnp.dtype(DTYPE.value)
  keys = jax.random.split(jax.random.key(0), 3)
  hidden = jax.random.normal(keys[0], (rows, shape.dim), dtype)
  size = (shape.vocab, shape.dim) if shape.tied else (shape.dim, shape.vocab)
  head = jax.random.normal(keys[1], size, dtype) * shape.dim**-0.5
  targets = jax.random.randint(keys[2], (rows,), 0, shape.vocab)

  for implementation in BENCH.implementations:

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
      seconds, temporary = BENCH.timed(f, (hidden, head))
      operations, moved = shapes.work(
        shape, rows, dtype.itemsize, gradient=gradient
      )
      kind = 'gradient' if gradient else 'value'
      BENCH.tell(
        f'token_logprob/{SHAPE.value}/{implementation}/{kind}',
        seconds,
        operations,
        moved,
        rows=rows,
        dtype=DTYPE.value,
        operations=operations,
        bytes=moved,
        tflops=operations / seconds / 1e12,
        temporary_bytes=temporary,
      )


if __name__ == '__main__':
  BENCH.run(main)

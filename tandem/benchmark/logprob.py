"""Log-probs of given tokens: the chunked program against stored logits.

Then, for every real shape and accelerator, what the roofline allows: the larger
of operations and bytes over the device's rates, nothing measured.
"""

from collections.abc import Iterator
import functools
from typing import Any

import jax

from tandem.ahead import targets
from tandem.benchmark import timing
from tandem.kernels.token_logprob import api
from tandem.kernels.token_logprob import shapes

TOY = shapes.Shape(16, 64, True)
GRADIENT = {'value': False, 'gradient': True}


def run(*, quick: bool = False, repeats: int = 5) -> Iterator[dict[str, Any]]:
  """Yields each implementation's value and gradient, then the rooflines."""
  name, shape, rows = 'smollm2_135m', shapes.SHAPES['smollm2_135m'], 1024
  if quick:
    name, shape, rows = 'toy', TOY, 8
  keys = jax.random.split(jax.random.key(0), 3)
  hidden = jax.random.normal(keys[0], (rows, shape.dim))
  size = (shape.vocab, shape.dim) if shape.tied else (shape.dim, shape.vocab)
  head = jax.random.normal(keys[1], size) * shape.dim**-0.5
  targets = jax.random.randint(keys[2], (rows,), 0, shape.vocab)

  programs = {}
  for implementation in ('xla', 'reference'):

    def total(hidden, head, implementation=implementation):
      return api.token_logprob(
        hidden,
        head,
        targets,
        vocab_first=shape.tied,
        implementation=implementation,
      ).logp.sum()

    for kind, f in (('value', total), ('gradient', jax.grad(total, (0, 1)))):
      program = jax.jit(f).lower(hidden, head).compile()
      programs[f'{implementation}/{kind}'] = program
  calls = {
    key: functools.partial(program, hidden, head)
    for key, program in programs.items()
  }
  for key, seconds in timing.interleaved(calls, repeats).items():
    gradient = GRADIENT[key.split('/')[1]]
    operations, moved = shapes.work(
      shape, rows, hidden.dtype.itemsize, gradient=gradient
    )
    yield timing.line(
      f'logprob/{name}/{key}',
      seconds,
      'tokens/s',
      work=rows,
      operations=operations,
      bytes=moved,
      temporary_bytes=programs[key].memory_analysis().temp_size_in_bytes,
    )
  yield from rooflines()


def rooflines() -> Iterator[dict[str, Any]]:
  """Milliseconds for `shapes.ROWS` tokens in bfloat16, and what binds them."""
  for name, shape in shapes.SHAPES.items():
    for kind, gradient in GRADIENT.items():
      operations, moved = shapes.work(shape, shapes.ROWS, 2, gradient=gradient)
      for chip_name, chip in targets.CHIPS.items():
        if chip.platform == 'cpu':
          continue  # a placeholder's rates
        seconds = {
          'compute': operations / chip.flops,
          'memory': moved / chip.bandwidth,
        }
        bound = max(seconds, key=seconds.get)
        yield timing.line(
          f'logprob/roofline/{name}/{kind}/{chip_name}',
          [seconds[bound]],
          'ms',
          rows=shapes.ROWS,
          operations=operations,
          bytes=moved,
          bound=bound,
        )

"""Log-probs of given tokens: the chunked program against stored logits."""

from collections.abc import Iterator
import functools
from typing import Any

import jax

from tandem.benchmark import timing
from tandem.kernels.token_logprob import api
from tandem.kernels.token_logprob import shapes

TOY = shapes.Shape(16, 64, True)


def run(*, quick: bool = False, repeats: int = 5) -> Iterator[dict[str, Any]]:
  """Yields the value and the gradient of each implementation."""
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
    yield timing.line(
      f'logprob/{name}/{key}',
      seconds,
      'tokens/s',
      work=rows,
      temporary_bytes=programs[key].memory_analysis().temp_size_in_bytes,
    )

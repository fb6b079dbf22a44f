"""A group's prompt prefilled and stored once, against once for each row."""

from collections.abc import Iterator
from collections.abc import Sequence
import functools
import statistics
from typing import Any

import jax
import jax.numpy as jnp

from tandem import types
from tandem.benchmark import decode_case
from tandem.benchmark import timing
from tandem.rollout import frame

GROUP = 8


def lines(
  case: decode_case.Case, *, repeats: int, batches: Sequence[int]
) -> Iterator[dict[str, Any]]:
  """Yields `decode/prefill_{one,shared,repeated}/g8`.

  Operations are the compiler's count of the prefill; bytes are those of the
  cache that it leaves, of the prompt alone and in all.
  """
  del batches
  cfg, length = case.cfg, 3 if case.quick else 256
  ids = jax.random.randint(jax.random.key(2), (1, length), 1, cfg.vocab)
  programs, told = {}, {}
  for name, prompts, group in (
    ('one', 1, 1),
    ('shared', 1, GROUP),
    ('repeated', GROUP, 1),
  ):
    context = types.Context(
      ids=jnp.repeat(ids, prompts, 0), lengths=jnp.full(prompts, length)
    )

    def prefill(senior, context, group=group):
      return frame.start_cache(
        senior, cfg, context, group=group, slots=case.response
      )

    program = jax.jit(prefill).lower(case.senior, context).compile()
    programs[name] = functools.partial(program, case.senior, context)
    cache = programs[name]()
    size = lambda *names, cache=cache: sum(
      getattr(layer, name).nbytes for layer in cache.layers for name in names
    )
    prefix = size('prefix_k', 'prefix_v')
    told[name] = {
      'operations': float(program.cost_analysis()['flops']),
      'prompt_bytes': prefix,
      'cache_bytes': prefix + size('suffix_k', 'suffix_v'),
    }
  seconds = timing.interleaved(programs, repeats)
  one = statistics.median(seconds['one'])
  for name in programs:
    yield timing.line(
      f'decode/prefill_{name}/g{GROUP}',
      seconds[name],
      'ms',
      prompt_tokens=length,
      of_one=statistics.median(seconds[name]) / one,
      operations_of_one=told[name]['operations'] / told['one']['operations'],
      **told[name],
    )

"""Our solo decode against other people's samplers, in turns, one process."""

from collections.abc import Iterator
from collections.abc import Sequence
import dataclasses
import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from tandem.benchmark import decode_case
from tandem.benchmark import others
from tandem.benchmark import timing
from tandem.models import decoder
from tandem.rollout import lockstep

# Whose dtype is which of ours.
_OURS = {
  'huggingface_f32': 'solo_f32',
  'huggingface_bf16': 'solo_bf16',
  'tunix': 'solo_f32',
}
_DTYPES = {'solo_f32': jnp.float32, 'solo_bf16': jnp.bfloat16}


def lines(
  case: decode_case.Case, *, repeats: int, batches: Sequence[int]
) -> Iterator[dict[str, Any]]:
  """Yields `decode/{solo_f32,solo_bf16,huggingface_*,tunix}/b{N}`.

  A sampler whose package is missing has one line that says so.
  """
  # The rotary base that all of them know; it changes no cost.
  case = dataclasses.replace(
    case, cfg=dataclasses.replace(case.cfg, rope_theta=others.THETA)
  )
  there, differ = {}, {}
  # One short text, to see that all compute one function.
  ids = np.asarray(case.ids(2))
  apply = jax.jit(lambda params: decoder.apply(params, case.cfg, ids))
  logits = np.asarray(apply(case.params))
  for name in others.NAMES:
    try:
      there[name] = others.load(name, case.params, case.cfg)
    except ImportError as error:
      yield {'name': f'decode/{name}', 'skipped': str(error)}
      continue
    differ[name] = float(np.abs(there[name].logits(ids) - logits).max())
  ours = {_OURS[name]: _DTYPES[_OURS[name]] for name in there}
  seniors = {
    name: decode_case.ready(case.params, case.cfg, dtype)
    for name, dtype in ours.items()
  }
  for rows in batches if there else ():
    ids = np.asarray(case.ids(rows))
    programs = {
      name: functools.partial(
        lockstep.lockstep, senior, None, **case.arguments(rows)
      )
      for name, senior in seniors.items()
    }
    for name, sampler in there.items():
      programs[name] = sampler.make(ids, case.response)
      shape = programs[name]().shape
      if shape != (rows, case.response):
        raise ValueError(
          f'{name} wrote {shape} tokens where {(rows, case.response)} were '
          'asked for; its numbers would mean nothing.'
        )
    seconds = timing.interleaved(programs, repeats)
    for name in programs:
      more = {}
      if name in there:
        base = seconds[_OURS[name]]
        more = {
          'ours': _OURS[name],
          'ours_over': timing.ratio(seconds[name], base),
          'logits_differ': differ[name],
        }
      yield timing.line(
        f'decode/{name}/b{rows}',
        seconds[name],
        'tokens/s',
        work=rows * case.response,
        **more,
      )

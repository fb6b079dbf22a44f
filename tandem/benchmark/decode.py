"""Tokens per second of each way to decode, on one pair of models.

`decode/speculative/b{N}` is the k that `choose_k` takes from the acceptance and
the costs measured here; `decode/speculative_k{K}/b{N}` is each k by itself.
Rows never end early, and each is as long as the others.
"""

from collections.abc import Iterator
from collections.abc import Sequence
import functools
import statistics
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from tandem import types
from tandem.benchmark import models
from tandem.benchmark import timing
from tandem.models import decoder
from tandem.rollout import draft_length
from tandem.rollout import lockstep
from tandem.rollout import sampling as sampling_lib
from tandem.rollout import speculative
from tandem.rollout import turns as turns_lib

DRAFTS = (4, 8, 16)


def run(
  *,
  quick: bool = False,
  repeats: int = 5,
  batches: Sequence[int] = (1, 4, 16, 32),
  agreements: Sequence[float] = (0.97, 1.0, 0.99, 0.95, 0.9),
) -> Iterator[dict[str, Any]]:
  """Yields one line per measurement.

  Args:
    quick: a toy model and few tokens, to see that it works.
    repeats: timed runs of each program.
    batches: rows decoded at once.
    agreements: overlaps of the pair; the first serves all programs, the others
      one k only.
  """
  cfg, drafts = models.config(quick), DRAFTS[:1] if quick else DRAFTS
  prompt, response = (3, 8) if quick else (32, 64)
  params = decoder.init_params(jax.random.key(0), cfg)
  senior = decoder.decode_params(params, cfg)
  first, others = agreements[0], agreements[1:]
  junior, overlap = models.perturbed(cfg, params, first)
  junior = decoder.decode_params(junior, cfg)
  boundary = np.random.default_rng(0).random(cfg.vocab) < 0.5

  for rows in batches:
    ids = jax.random.randint(jax.random.key(2), (rows, prompt), 0, cfg.vocab)
    row = jnp.arange(rows)
    keys = jax.vmap(lambda i: jax.random.fold_in(jax.random.key(3), i))(row)
    common = dict(
      prompts=types.Context(ids=ids, lengths=jnp.full(rows, prompt)),
      row_keys=keys,
      boundary=jnp.asarray(boundary),
      senior_cfg=cfg,
      group=1,
      max_tokens=response,
      eos_ids=(),
      turns=turns_lib.Turns(),
      sampling=sampling_lib.Sampling(),
    )
    pair = common | {'junior_cfg': cfg}
    speculate = functools.partial(speculative.counted, senior, **pair)
    programs = {
      'solo': functools.partial(lockstep.lockstep, senior, None, **common),
      'lockstep': functools.partial(lockstep.lockstep, senior, junior, **pair),
    }
    for k in drafts:
      name = f'speculative_k{k}'
      programs[name] = functools.partial(speculate, junior, draft_tokens=k)
    seconds = timing.interleaved(programs, repeats)
    median = {name: statistics.median(x) for name, x in seconds.items()}

    def line(name, seconds, median=median, rows=rows, **more):
      value = statistics.median(seconds)
      return timing.line(
        f'decode/{name}/b{rows}',
        seconds,
        'tokens/s',
        work=rows * response,
        of_solo=median['solo'] / value,
        of_lockstep=median['lockstep'] / value,
        **more,
      )

    plain = programs['lockstep']()
    told, costs = {}, {1: median['lockstep'] / response}
    for k in drafts:
      name = f'speculative_k{k}'
      out, counts = programs[name]()
      told[k] = _drafting(counts, overlap) | {
        'draft_tokens': k,
        'rows_equal_to_lockstep': int(
          (out.tokens == plain.tokens).all(1).sum()
        ),
      }
      costs[k] = median[name] / float(counts.rounds.mean())
    for name in ('solo', 'lockstep'):
      yield line(name, seconds[name])
    for k in drafts:
      yield line(f'speculative_k{k}', seconds[f'speculative_k{k}'], **told[k])
    acceptance = statistics.fmean(x['acceptance'] for x in told.values())
    k = draft_length.choose_k(acceptance, costs)
    chosen = seconds['lockstep' if k == 1 else f'speculative_k{k}']
    yield line('speculative', chosen, **told.get(k, {'draft_tokens': 1}))

    if rows != batches[min(1, len(batches) - 1)]:
      continue
    k = drafts[len(drafts) // 2]
    for target in others:  # the same program, other weights
      other, overlap_of = models.perturbed(cfg, params, target)
      other = decoder.decode_params(other, cfg)
      program = functools.partial(speculate, other, draft_tokens=k)
      times = timing.interleaved({'': program}, repeats)['']
      yield line(
        f'speculative_k{k}_overlap{target:g}',
        times,
        draft_tokens=k,
        **_drafting(program()[1], overlap_of),
      )


def _drafting(counts: speculative.resolve_lib.Counts, overlap: float):
  """What a line says of the pair and of its drafts."""
  share = lambda a, b: float(a.sum() / jnp.maximum(b.sum(), 1))
  return {
    'overlap': overlap,
    'acceptance': share(counts.passed, counts.tested),
    # Every round emits one token, and one more for each draft that stood.
    'tokens_per_round': 1 + share(counts.passed, counts.rounds),
  }

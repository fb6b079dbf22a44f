"""Every way to decode follows the mixture that the turns define.

Equality with `naive` shows that decoders agree; this shows what they agree on.
All responses of up to three tokens over five ids, their chances added up over
every way in which authors and tokens can come about.
"""

import dataclasses

import jax.numpy as jnp
import numpy as np
import pytest

from tandem import types
from tandem.models import decoder
from tandem.rollout import lockstep as lockstep_lib
from tandem.rollout import sampling as sampling_lib
from tandem.rollout import speculative as speculative_lib
from tandem.rollout import turns as turns_lib
from tests import fakes

ROWS, LIMIT, PROMPT = 8000, 3, [3, 0]
CFG = dataclasses.replace(fakes.SMALLER, vocab=5)
TURNS = turns_lib.Turns(cap=2, p=0.3)
BOUNDARY = np.array([0, 0, 1, 0, 1], bool)


def lockstep(*args, **kwargs):
  return lockstep_lib.lockstep(*args, **kwargs)


def drafted(*args, **kwargs):
  """The junior drafts."""
  out, counts = speculative_lib.counted(*args, **kwargs, draft_tokens=2)
  assert 0 < counts.passed.sum() < counts.tested.sum()
  return out


def refilled(*args, **kwargs):
  """The senior drafts, and rows wait for one of 256 slots."""
  options = dict(drafter='senior', draft_tokens=2, slots=256)
  out, counts = speculative_lib.counted(*args, **kwargs, **options)
  assert 0 < counts.passed.sum() < counts.tested.sum()
  return out


def expected(p: float) -> dict[tuple[int, ...], float]:
  """The chance of each response."""
  laws = [
    fakes.next_logits(fakes.params(CFG, seed), CFG, size=8) for seed in (0, 1)
  ]
  found = {}

  def grow(response, senior, since, chance):
    if len(response) == LIMIT or fakes.EOS in response[-1:]:
      found[response] = found.get(response, 0) + chance
      return
    logits = laws[0 if senior else 1](PROMPT + list(response)).astype(float)
    law = np.exp(logits - logits.max())
    for token, probability in enumerate(law / law.sum()):
      each = chance * probability
      if BOUNDARY[token] or since + 1 >= TURNS.cap:
        grow(response + (token,), True, 0, each * p)
        grow(response + (token,), False, 0, each * (1 - p))
      else:
        grow(response + (token,), senior, since + 1, each)

  grow((), True, 0, p)
  grow((), False, 0, 1 - p)
  return found


def surplus(out, p: float) -> float:
  """By how many deviations the chi-square is above its mean."""
  chances = expected(p)
  seen = dict.fromkeys(chances, 0)
  for tokens, length in zip(np.asarray(out.tokens), np.asarray(out.lengths)):
    seen[tuple(tokens[:length].tolist())] += 1
  found, wanted = np.array([(seen[r], ROWS * c) for r, c in chances.items()]).T
  np.testing.assert_allclose(wanted.sum(), ROWS)
  rare = wanted < 5  # these make one cell
  pool = lambda x: np.append(x[~rare], x[rare].sum())
  found, wanted = pool(found), pool(wanted)
  freedom = len(wanted) - 1
  statistic = ((found - wanted) ** 2 / wanted).sum()
  return (statistic - freedom) / (2 * freedom) ** 0.5


@pytest.mark.parametrize('decode', [lockstep, drafted, refilled])
def test_responses_follow_the_mixture(decode):
  pair = [
    decoder.decode_params(fakes.params(CFG, seed), CFG) for seed in (0, 1)
  ]
  out = decode(
    *pair,
    types.Context(ids=jnp.asarray([PROMPT]), lengths=jnp.asarray([2])),
    fakes.row_keys(ROWS, seed=5),
    jnp.asarray(BOUNDARY),
    senior_cfg=CFG,
    junior_cfg=CFG,
    group=ROWS,
    max_tokens=LIMIT,
    eos_ids=(fakes.EOS,),
    turns=TURNS,
    sampling=sampling_lib.Sampling(),
  )
  assert abs(surplus(out, TURNS.p)) < 3
  # Coins a little off would be seen.
  assert surplus(out, TURNS.p + 0.1) > 5

"""Who decodes, by the settings; and that it changes nothing."""

import jax.numpy as jnp
import numpy as np
import pytest

from configs import common
from tandem.models import decoder
from tandem.rollout import sampling as sampling_lib
from tandem.rollout import turns as turns_lib
from tandem.training import collect
from tandem.training import decoding
from tandem.training import mesh as mesh_lib
from tests import fakes

LENGTHS = (3, 1, 5, 2)


def speaker(seed: int) -> collect.Speaker:
  cfg = fakes.SMALLER
  params = decoder.decode_params(fakes.params(cfg, seed), cfg)
  return collect.Speaker(params, cfg)


def decode(how, senior, junior, helper=None):
  return how(
    senior,
    junior,
    helper,
    fakes.prompts(LENGTHS),
    fakes.row_keys(8),
    jnp.asarray(fakes.BOUNDARY),
    group=2,
    max_tokens=12,
    eos_ids=(fakes.EOS,),
    turns=turns_lib.Turns(cap=3),
    sampling=sampling_lib.Sampling(),
  )


@pytest.mark.parametrize(
  'settings,tandem,counted,drafted',
  [
    ({}, True, False, False),
    ({'slots': 3}, True, True, False),
    ({'slots': 8}, True, False, False),
    ({'decoder': 'speculative', 'drafter': 'holder'}, True, True, True),
    ({'decoder': 'speculative', 'slots': 3}, True, True, True),
    ({'slots': 3}, False, True, False),
    ({'decoder': 'speculative'}, False, True, True),  # the helper drafts
    ({'decoder': 'speculative', 'drafter': 'lookup'}, False, True, True),
    ({'decoder': 'speculative', 'drafter': 'holder'}, False, False, False),
    (
      {'decoder': 'speculative', 'drafter': 'senior', 'draft_context': 4},
      False,
      True,
      True,
    ),
    (
      {'decoder': 'speculative', 'drafter': 'holder', 'slots': 3},
      False,
      True,
      False,
    ),
    ({'drafter': 'senior', 'slots': 3}, False, True, False),
  ],
)
def test_who_decodes(settings, tandem, counted, drafted):
  senior, junior = speaker(0), speaker(1)
  who = (senior, junior) if tandem else (senior, None, junior)
  want, none = decode(decoding.Decoding(), *who)
  assert none is None
  how = decoding.Decoding(**{'draft_tokens': 4} | settings)
  got, counts = decode(how, *who)
  np.testing.assert_array_equal(got.tokens, want.tokens)
  np.testing.assert_array_equal(got.author, want.author)
  assert (counts is not None) == counted
  if counted:
    assert bool(counts.tested.any()) == drafted
    # Fewer slots than rows: some wait.
    waits = how.slots_of(8) < 8
    assert waits == ('slots' in settings)
    if not drafted:
      assert (counts.passes > got.lengths.max()) == waits


def test_the_measured_k_is_taken():
  how = decoding.Decoding(decoder='speculative', draft_tokens=0)
  senior, junior = speaker(0), speaker(1)
  runs = [decode(how, senior, junior) for _ in range(10)]
  for rollout, _ in runs[1:]:
    np.testing.assert_array_equal(rollout.tokens, runs[0][0].tokens)
  # Each choice twice, in order; lockstep counts nothing.
  assert [counts is None for _, counts in runs[:8]] == [True] * 2 + [False] * 6
  three, four, seven = (runs[i][1].rounds.sum() for i in (2, 4, 6))
  assert three > seven and four > seven
  (controller,) = how.controllers.values()
  assert controller.next() in decoding.CHOICES


def test_passes_are_of_powers_of_two():
  choices = lambda who, pair, turns: decoding.Decoding(
    decoder='speculative', drafter=who
  ).choices(pair, turns)
  word, strict = turns_lib.Turns(), turns_lib.Turns(schedule='strict_word')
  for pair in (True, False):
    added = choices('junior', pair, word)
    assert {k + bonus for k, bonus in added.items()} == {1, 4, 8}
    assert added[7] and added[3] and not added[4]
  for plain in (choices('junior', True, strict), choices('lookup', True, word)):
    assert plain == {1: False, 4: False, 8: False}


def test_the_bonus_is_the_settings_or_the_choices():
  def told(k, **settings):
    how = decoding.Decoding(decoder='speculative', **settings)
    return how.choose(True, True, 8, 4, k).options['draft_bonus']

  assert told(4, draft_tokens=4) and not told(
    4, draft_tokens=4, draft_bonus=False
  )
  assert told(7, draft_tokens=0, draft_bonus=False)
  assert not told(4, draft_tokens=0) and not told(8, draft_tokens=0)


def test_nobody_to_draft_is_lockstep():
  how = decoding.Decoding(decoder='speculative')
  assert decode(how, speaker(0), None)[1] is None


@pytest.mark.parametrize('decoder_name', decoding.DECODERS)
def test_prompts_are_read_by_the_attention_asked_for(decoder_name):
  seen, senior, junior = [], speaker(0), speaker(1)

  def spy(q, k, v):
    seen.append(q.shape[:2])
    return decoder.xla_attention(q, k, v)

  plain = decode(decoding.Decoding(decoder=decoder_name), senior, junior)[0]
  how = decoding.Decoding(decoder=decoder_name, prompt_attention=spy)
  np.testing.assert_array_equal(
    decode(how, senior, junior)[0].tokens, plain.tokens
  )
  width = fakes.prompts(LENGTHS).ids.shape[1]
  assert seen == [(len(LENGTHS), width)] * 2  # a layer of each model


def test_prompts_are_read_as_the_config_says():
  mesh, config = mesh_lib.make_mesh(2, 2, 2), common.base()
  assert decoding.from_config(config, mesh).prompt_attention is (
    decoder.xla_attention
  )
  config.model.attention = 'auto'
  told = decoding.from_config(config, mesh)
  assert told.prompt_attention.keywords == {'mesh': mesh}
  assert told.shards == 4

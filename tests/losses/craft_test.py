import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tandem import losses
from tandem.losses import craft
from tandem.losses import siblings
from tests.losses import batches
from tests.losses import runs

ALL_ON = {'phase_aware': True, 'polarized_kl': True}


def given():
  batch = batches.step_batch()
  return batch, batches.statistics(batch, ('logp',))


def equal(a, b):
  jax.tree.map(np.testing.assert_array_equal, a, b)


def whole_step(name, **fields):
  """credit and objective with its gradient, as one jitted program."""
  variant, cfg = losses.get(name), losses.make_config(name, **fields)

  def step(batch, stats):
    credit, _, metrics = variant.credit(batch, variant.init_state(cfg), cfg)
    loss = lambda stats: batches.loss(variant.objective(stats, credit, cfg))
    return *jax.value_and_grad(loss)(stats), metrics

  return jax.jit(step)


@pytest.mark.parametrize(
  'off,baseline',
  [
    (('craft', {'enable': False}), ('sdar', {})),
    (
      ('craft', {'enable': False, 'sdar_coef': 0.0}),
      ('grpo', {'kl_to': 'reference', 'kl_coef': 0.01, 'kl_estimator': 'k3'}),
    ),
  ],
  ids=['sdar', 'grpo'],
)
def test_switches_off_is_the_baseline_bit_for_bit(off, baseline):
  """METHODS §4.6 P7: the same lowered text, and so the same bits."""
  given_ = given()
  steps = [whole_step(name, **fields) for name, fields in (off, baseline)]
  texts = [step.lower(*given_).as_text() for step in steps]
  assert texts[0] == texts[1]
  equal(*(step(*given_) for step in steps))
  # The comparison can fail: a switch on is another program.
  assert whole_step('craft').lower(*given_).as_text() != texts[0]


def test_each_switch_alone_changes_only_its_term():
  """METHODS §4.6 P6 among it: the policy's gradient never moves."""
  sdar = runs.terms('sdar', *given())
  base = runs.terms('craft', *given())
  assert base.keys() == {'policy', 'kl', 'cti'}
  assert sdar.keys() == {'policy', 'kl', 'sdar'}
  for term in ('policy', 'kl'):
    equal(base[term], sdar[term])
  phase = runs.terms('craft', *given(), phase_aware=True)
  equal(phase['policy'], base['policy'])
  for term in ('kl', 'cti'):  # 0.0125 in the place of .01
    np.testing.assert_allclose(phase[term][0], 1.25 * base[term][0], rtol=1e-5)
    assert phase[term][1] == base[term][1]
  polar = runs.terms('craft', *given(), polarized_kl=True)
  for term in ('policy', 'cti'):
    equal(polar[term], base[term])
  assert polar['kl'][0] != base['kl'][0]


def test_a_step_is_paid_by_the_state_it_found():
  batch, _ = given()
  state = {'rho': jnp.float32(0.8), 'steps': jnp.int32(20)}
  credit, after, metrics = runs.credit('craft', batch, state, **ALL_ON)
  # .005 + .015 * .8 and * .2
  np.testing.assert_allclose(credit.scalars['lambda'], 0.017, rtol=1e-5)
  np.testing.assert_allclose(credit.scalars['mu'], 0.008, rtol=1e-5)
  activity = np.mean(np.abs(credit.rows['credit'])[batch.valid] > 0.1)
  np.testing.assert_allclose(metrics['craft/gate_activity'], activity)
  np.testing.assert_allclose(
    after['rho'], 0.95 * 0.8 + 0.05 * activity, rtol=1e-5
  )
  assert after['steps'] == 21
  assert metrics['craft/lambda'] == credit.scalars['lambda']
  # And again from the same state: the same bits.
  equal(credit, runs.credit('craft', batch, state, **ALL_ON)[0])


def test_cti_term_by_hand():
  batch, stats = given()
  credit, _, _ = runs.credit('craft', batch)
  c = np.asarray(credit.rows['credit'])
  total, count, grad = runs.terms('craft', batch, stats)['cti']
  logp = np.where(batch.valid, stats['logp'], 0)
  np.testing.assert_allclose(total, -0.01 * (c * logp).sum(), rtol=1e-5)
  assert count == sum(batches.LENGTHS)
  np.testing.assert_allclose(grad['logp'], -0.01 * c, atol=1e-8)
  gap = batch.scores['privileged'] - batch.scores['old']
  _, want = craft.sibling_credit(
    gap, batch.valid, credit.rows['advantage'], group=4
  )
  np.testing.assert_allclose(c, want, atol=1e-6)


@pytest.mark.parametrize('swap', [False, True])
def test_polarised_kl_by_hand(swap):
  """METHODS §4.6 P5: slopes +1 and -1 outside, k3's inside."""
  cfg = losses.make_config(
    'craft', polarized_kl=True, theta_kl=0.2, kl_swap=swap
  )
  rows = {
    'mask': jnp.array([[True, True, True, True, False]]),
    'anchor': jnp.array([[-1.0, -1, -1, -1, jnp.nan]]),
    'credit': jnp.array([[0.9, -0.9, 0.2, 0.0, 0.9]]),
  }
  logp = jnp.array([[-0.5, -0.5, -0.5, -2.0, jnp.nan]])
  values, pull = jax.vjp(lambda x: craft.polarised(x, rows, cfg), logp)
  # k3 at x = .5 and -1: e^-.5 + .5 - 1 and e^1 - 1 - 1; slope 1 - e^-x.
  sign = -1 if swap else 1
  neutral = np.exp([-0.5, 1.0]) + [0.5, -1] - 1
  want = [[0.5 * sign, -0.5 * sign, *neutral, 0]]
  np.testing.assert_allclose(values, want, atol=1e-6)
  slope = 1 - np.exp([-0.5, 1.0])
  (grad,) = pull(jnp.ones_like(logp))
  np.testing.assert_allclose(grad, [[sign, -sign, *slope, 0]], atol=1e-6)


def branch_slopes(p, contrast):
  """Of each penalty in log p, or in the contrast, by hand."""
  return {
    'paper': 1.0,
    'o1_drop': 0.0,
    'o2_unlikelihood': p / (1 - p),
    'o3_cringe': 1 / (1 + np.exp(-contrast)),
  }


@pytest.mark.parametrize('branch', craft.BRANCHES)
def test_a_negative_branch_changes_negative_credit_alone(branch):
  batch, _ = given()
  stats = batches.statistics(batch, ('logp', 'contrast'))
  fields = ALL_ON | {'negative_branch': branch}
  before = runs.terms('craft', batch, stats, **ALL_ON)
  after = runs.terms('craft', batch, stats, **fields)
  for term in ('policy', 'kl'):
    equal(after[term], before[term])
  # The credit, what the controller follows and the regions stay: F-a, F-b.
  paid, state, metrics = runs.credit('craft', batch, **fields)
  equal((paid, state, metrics), runs.credit('craft', batch, **ALL_ON))
  assert after['cti'][1] == before['cti'][1]
  c = np.asarray(paid.rows['credit'])
  down = np.asarray(batch.valid) & (c < 0)
  assert down.any()
  good = np.broadcast_to(paid.rows['advantage'][:, None] > 0, c.shape)
  assert good[down].mean() > 0.9  # the fallback at a row's end aside
  grads = after['cti'][2]
  equal(grads['logp'][~down], before['cti'][2]['logp'][~down])
  moved = 'contrast' if branch == 'o3_cringe' else 'logp'
  other = {'logp': 'contrast', 'contrast': 'logp'}[moved]
  assert not np.any(np.asarray(grads[other])[down])
  slope = branch_slopes(np.exp(stats['logp']), np.asarray(stats['contrast']))
  want = np.broadcast_to(-0.0125 * c * slope[branch], c.shape)
  np.testing.assert_allclose(grads[moved][down], want[down], rtol=1e-5)


def test_the_branch_of_the_paper_is_the_default_and_asks_for_nothing():
  batch, stats = given()
  text = lambda **fields: (
    whole_step('craft', **fields).lower(batch, stats).as_text()
  )
  assert text() == text(negative_branch='paper')
  assert text() != text(negative_branch='o1_drop')
  variant = losses.get('craft')
  assert variant.stats(losses.make_config('craft')) == ('logp',)


def uniform_gap():
  """Three good rows of eight under one gap for all: F-a's setting."""
  batch, stats = given()
  batch = batches.step_batch((6,) * 8, group=8)
  scores = batch.scores | {'privileged': batch.scores['old'] + 0.3}
  rewards = jnp.array([1.0, 1, 1, 0, 0, 0, 0, 0])
  return batch.replace(scores=scores, rewards=rewards), stats


def test_polarisation_cancels_the_credit_in_the_middle():
  """F-d: the net push on good rows' tokens is mu - lambda |c|, 2.5e-5."""
  terms = runs.terms('craft', *uniform_gap(), **ALL_ON)
  push = -sum(np.asarray(terms[name][2]['logp']) for name in ('kl', 'cti'))
  # c = tanh(5 CTI / 2): -.99797 on the good, .96866 on the others.
  np.testing.assert_allclose(push[0], 0.0125 * (1 - 0.99797), atol=1e-6)
  np.testing.assert_allclose(push[7], 0.0125 * (0.96866 - 1), atol=1e-6)
  swapped = runs.terms('craft', *uniform_gap(), **ALL_ON, kl_swap=True)
  push = -sum(np.asarray(swapped[name][2]['logp']) for name in ('kl', 'cti'))
  # Both against L_PG: good rows down by lambda |c| + mu.
  np.testing.assert_allclose(push[0], -0.0125 * 1.99797, atol=1e-6)


def test_groups_without_variance_keep_the_neutral_penalty():
  batch, stats = given()
  batch = batch.replace(rewards=jnp.ones(8))
  polar = runs.terms('craft', batch, stats, polarized_kl=True)
  plain = runs.terms('craft', batch, stats)
  assert not np.any(polar['cti'][2]['logp'])
  equal(polar['kl'], plain['kl'])


def test_sharp_limit_is_sdar_where_both_agree():
  """METHODS §4.6 P3, its first part: A > 0 and Delta > 0."""
  batch, stats = given()
  stats = {'logp': batch.scores['old']}  # SDAR's gap is the current one
  ours = runs.terms(
    'craft', batch, stats, cti_variant='fallback', beta_pos=1e30, beta_neg=1e30
  )['cti'][2]['logp']
  theirs = runs.terms('sdar', batch, stats, gate_beta=1e30)['sdar'][2]['logp']
  credit, _, _ = runs.credit('craft', batch)
  good = credit.rows['advantage'][:, None] > 0
  gap = batch.scores['privileged'] - batch.scores['old']
  for sign, same in ((1, True), (-1, False)):
    at = np.asarray(batch.valid & good & (sign * gap > 0))
    assert at.any()
    assert np.array_equal(ours[at], theirs[at]) == same


def test_siblings_by_turn():
  """Rows are turns: group 0's two episodes have two turns each."""
  batch, _ = given()
  batch = batch.replace(
    group=0,
    group_id=jnp.array([0, 0, 0, 0, 1, 1, 1, 1]),
    episode_id=jnp.array([0, 0, 1, 1, 2, 2, 3, 3]),
    turn=jnp.array([0, 1, 0, 1] * 2),
    valid=jnp.ones((8, 6), bool),
  )
  credit, _, _ = runs.credit('craft', batch, grouping='turn')
  paid = np.asarray(credit.rows['advantage'])
  # The only sibling of a turn is the other episode's, two rows away.
  other = paid[[2, 3, 0, 1, 6, 7, 4, 5]]
  want = np.tanh(2.5 * (other - paid))[:, None]
  np.testing.assert_allclose(
    credit.rows['credit'], np.broadcast_to(want, (8, 6)), atol=1e-5
  )
  # By group both turns of the other episode are siblings.
  credit, _, _ = runs.credit('craft', batch)
  who = siblings.peers(batch.group_id, batch.episode_id)
  gap = batch.scores['privileged'] - batch.scores['old']
  _, want = craft.sibling_credit(gap, batch.valid, paid, sibling=who)
  np.testing.assert_allclose(credit.rows['credit'], want, atol=1e-6)


def test_a_group_that_shrank_to_one_row_falls_back():
  """Configured G >= 2; a row whose siblings were dropped has A Delta."""
  batch, _ = given()
  batch = batch.replace(rewards=batch.rewards.at[7].set(1.0))
  ids = jnp.array([0, 0, 0, 0, 1, 1, 1, 2])
  shrunk = batch.replace(group=0, group_id=ids)
  credit, _, metrics = runs.credit('craft', shrunk)
  gap = batch.scores['privileged'] - batch.scores['old']
  paid = credit.rows['advantage'][7]
  want = np.tanh(2.5 * paid * gap[7])
  np.testing.assert_allclose(credit.rows['credit'][7], want, atol=1e-5)
  assert np.abs(want).max() > 0.01
  whole, _, before = runs.credit('craft', batch)
  assert metrics['craft/share_fallback'] > before['craft/share_fallback']
  same = slice(0, 4)  # the whole group keeps its credit
  np.testing.assert_allclose(
    credit.rows['credit'][same], whole.rows['credit'][same], atol=1e-5
  )


def test_metrics():
  batch, _ = given()
  credit, _, metrics = runs.credit('craft', batch)
  c = np.asarray(credit.rows['credit'])[batch.valid]
  shares = [metrics[f'craft/share_{name}'] for name in ('positive', 'negative')]
  np.testing.assert_allclose(shares, [(c > 0).mean(), (c < 0).mean()])
  np.testing.assert_allclose(sum(shares) + metrics['craft/share_neutral'], 1)
  paid = np.broadcast_to(credit.rows['advantage'][:, None], (8, 6))
  corr = np.corrcoef(c, paid[batch.valid])[0, 1]
  np.testing.assert_allclose(
    metrics['craft/credit_advantage_corr'], corr, rtol=1e-5
  )
  # F-b: binary rewards. The longest row's end has no sibling to look at.
  assert corr < -0.5
  assert 0 < metrics['craft/share_fallback'] < 0.2
  assert metrics['craft/lambda'] == metrics['craft/mu'] == np.float32(0.01)


@pytest.mark.parametrize(
  'fields,message',
  [
    ({'lambda_max': 1.2, 'phase_aware': True}, r'lie in \[0, 1\]'),
    ({'cti_coef': 1.5}, 'outside'),
    ({'cti_coef': 0.0}, 'above 0'),
    ({'tau': 0.0}, 'tau=0.0'),
    ({'beta_neg': -1.0}, 'beta_neg=-1.0'),
    ({'theta_gate': 2.0}, 'outside'),
    ({'grouping': 'uid'}, 'turn'),
    ({'negative_branch': 'o4'}, 'o3_cringe'),
    ({'enable': False, 'negative_branch': 'o1_drop'}, 'enable=False is SDAR'),
    ({'enable': False, 'phase_aware': True}, 'enable=False is SDAR'),
    ({'enable': False, 'tau': 0.5}, 'enable=False is SDAR'),
    ({'sdar_coef': 0.1}, "takes SDAR's place"),
    ({'phase_aware': True, 'kl_coef': 0.1}, 'the controller sets it'),
    ({'ema': 0.9}, 'phase_aware=True'),
    ({'kl_swap': True}, 'polarized_kl=True'),
    ({'polarized_kl': True, 'kl_to': 'none'}, 'both act on the KL'),
    ({'cti_variant': 'fallback', 'tau': 0.5}, 'weighs no siblings'),
    ({'cti_variant': 'fallback', 'fallback': 'zero'}, 'would be 0'),
    ({'cringe_coef': 0.01}, "'cringe_coef'.*unknown to variant 'craft'"),
    ({'kl_estimator': 'k1'}, 'expected gradient'),
  ],
)
def test_contradictory_settings_raise(fields, message):
  with pytest.raises(ValueError, match=message):
    losses.make_config('craft', **fields)


def test_a_group_of_one_is_refused():
  craft.check(losses.make_config('craft'), 'solo', 2)
  craft.check(losses.make_config('craft', enable=False), 'solo', 1)
  with pytest.raises(ValueError, match='group=1.*at least 2'):
    craft.check(losses.make_config('craft'), 'solo', 1)
  with pytest.raises(ValueError, match="junior's tokens"):
    craft.check(losses.make_config('craft'), 'tandem', 8)

"""Every kernel through the real compilers, one fresh process per target.

Skipped where the compiler is not installed; spawn.INSTALL says how to get it.
"""

import re

import jax
import jax.numpy as jnp
import pytest

from tandem.kernels.compile_table import case
from tandem.kernels.compile_table import cases
from tandem.kernels.compile_table import spawn
from tandem.kernels.compile_table import targets
from tandem.kernels.compile_table import worker


def check(target, full):
  if spawn.interpreter(targets.platform(target)) is None:
    pytest.skip(spawn.missing(targets.platform(target)))
  wanted = {
    x.name: x
    for x in case.discover()
    if x.platform == targets.platform(target) and x.full == full
  }
  answers = {x['case']: x for x in spawn.answers(target, full=full)}
  print(*answers.values(), sep='\n')
  assert answers.keys() == wanted.keys()
  for name, one in wanted.items():
    faults = fault(one, target, answers[name])
    assert not faults, faults


def fault(one, target, answer):
  """What is wrong with an answer, or None."""
  reason, got = one.expected(target), answer.get('refused')
  if reason is None and got is not None:
    return f'{one.name} must compile for {target}; refused: {got}'
  if reason is not None and not re.search(reason, got or ''):
    return f'{target} must refuse {one.name} for {reason!r}; got {got}'
  if reason is None and answer['calls'] < one.calls:
    return f'{one.name}: {answer["calls"]} kernels in {target}, not {one.calls}'
  return None


@pytest.mark.parametrize('target', targets.TARGETS)
def test_small_cases(target):
  check(target, full=False)


@pytest.mark.slow
@pytest.mark.parametrize('target', targets.TARGETS)
def test_real_sizes(target):
  check(target, full=True)


def test_every_backend_has_a_control_that_must_be_refused():
  controls = [x for x in case.discover() if x.name.startswith('compile_table/')]
  for target in targets.TARGETS:
    assert any(
      x.platform == targets.platform(target) and x.expected(target)
      for x in controls
    )


def test_faults_are_seen():
  one = case.Case('a/b', 'tpu', None, calls=2, refused_on=(('v5e', 'vmem'),))
  assert fault(one, 'v6e', {'calls': 2}) is None
  assert 'must compile' in fault(one, 'v6e', {'refused': 'no'})
  assert '1 kernels' in fault(one, 'v6e', {'calls': 1})
  assert 'must refuse' in fault(one, 'v5e', {'calls': 2})
  assert 'must refuse' in fault(one, 'v5e', {'refused': 'another reason'})
  assert fault(one, 'v5e', {'refused': 'out of vmem'}) is None


def test_the_worker_tells_what_is_refused_and_what_is_not():
  mesh = jax.sharding.Mesh(jax.devices()[:1], ('data',))
  x = jax.ShapeDtypeStruct((8, 8), jnp.float32)

  def build(mesh, good=True):
    return (lambda x: jnp.dot(x, x) if good else jnp.dot(x, x[:3])), (x,)

  good = worker.compile_one(case.Case('a/good', 'tpu', build), 'cpu', mesh)
  assert good['calls'] == 0 and good['argument_bytes'] == 256
  bad = case.Case('a/bad', 'tpu', lambda mesh: build(mesh, good=False))
  assert 'TypeError' in worker.compile_one(bad, 'cpu', mesh)['refused']


def test_two_cases_of_one_name_are_refused(monkeypatch):
  one = case.Case('compile_table/a', 'tpu', None)
  monkeypatch.setattr(cases, 'compile_cases', lambda: [one, one])
  with pytest.raises(ValueError, match='rename'):
    case.discover()
  monkeypatch.setattr(cases, 'compile_cases', lambda: [one._replace(name='b')])
  with pytest.raises(ValueError, match='rename'):
    case.discover()


def test_an_unknown_target_is_told():
  with pytest.raises(ValueError, match='v5e, v5p, v6e'):
    targets.platform('a100')


def test_a_missing_compiler_is_told(monkeypatch):
  monkeypatch.delenv('TANDEM_TPU_PYTHON', raising=False)
  monkeypatch.setitem(spawn.PLUGIN, 'tpu', 'not_installed_anywhere')
  with pytest.raises(ValueError, match='pip install'):
    spawn.answers('v5e')


def test_the_process_starts_beside_the_package_and_not_in_it():
  assert (spawn.home() / 'tandem' / 'types.py').exists()
  assert not (spawn.home() / 'types.py').exists()

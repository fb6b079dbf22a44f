"""Every kernel through the real compilers, one fresh process per target.

Skipped where the compiler is not installed; spawn.INSTALL says how to get it.
"""

import jax
import jax.numpy as jnp
import pytest

from tandem.kernels.compile_table import case
from tandem.kernels.compile_table import cases
from tandem.kernels.compile_table import spawn
from tandem.kernels.compile_table import table
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
    fault = one.fault(target, answers[name])
    assert not fault, fault


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
  assert one.fault('v6e', {'calls': 2}) is None
  assert 'must compile' in one.fault('v6e', {'refused': 'no'})
  assert '1 kernels' in one.fault('v6e', {'calls': 1})
  assert 'must refuse' in one.fault('v5e', {'calls': 2})
  assert 'must refuse' in one.fault('v5e', {'refused': 'another reason'})
  assert one.fault('v5e', {'refused': 'out of vmem'}) is None


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
    next(spawn.answers('v5e'))


def test_the_process_starts_beside_the_package_and_not_in_it():
  assert (spawn.home() / 'tandem' / 'types.py').exists()
  assert not (spawn.home() / 'types.py').exists()


def test_the_page_tells_every_answer(monkeypatch):
  known = [
    case.Case('a/good', 'tpu', None),
    case.Case('a/large', 'tpu', None, full=True),
    case.Case('a/control', 'gpu', None, refused='w[a-z]+a'),
  ]
  monkeypatch.setattr(case, 'discover', lambda: known)

  def said(name, target, **answer):
    fixed = {'temporary_bytes': 2_500_000, 'calls': 1, 'seconds': 3.25}
    answer = {'refused': answer['refused']} if answer else fixed
    return answer | {'case': name, 'target': target, 'compiler': f'x {target}'}

  answers = [
    said('a/large', 'v6e'),
    said('a/good', 'v5e', refused='an earlier run'),
    said('a/good', 'v5e'),
    said('a/good', 'v5p', refused='too good'),
    said('a/control', 'B200', refused='no wgmma here'),
    said('a/gone', 'v5e'),
  ]
  page = table.page(answers, 'c0ffee')
  assert 'at commit c0ffee;\nx B200, x v5e, x v5p, x v6e.' in page
  assert 'What went wrong: a/good must compile for v5p; refused: too' in page
  assert '| case | v5e | v5p |' in page
  assert '| `a/good` | 3.2 s, 2.5 MB | **REFUSED** |' in page
  assert '## TPU, real sizes\n\n| case | v6e |' in page
  assert '## GPU, small cases\n\n| case | B200 |' in page
  assert '| `a/control` | no |\n\n- `a/control`, B200: no wgmma here' in page
  assert 'gone' not in page and 'earlier' not in page
  brief = table.table(table.latest(answers), brief=True)
  assert '| `a/control` |  |  |  | no: wgmma |' in brief
  assert '| `a/good` | yes | **REFUSED** |' in brief


def test_temporaries_that_lie_where_a_result_will_be_are_counted():
  class Memory:
    argument_size_in_bytes, output_size_in_bytes = 100, 50
    alias_size_in_bytes, temp_size_in_bytes = 20, 0
    peak_memory_in_bytes = 200

  assert worker.temporary_bytes(Memory) == 70
  Memory.temp_size_in_bytes = 90
  assert worker.temporary_bytes(Memory) == 90


def test_a_process_that_dies_is_told(monkeypatch, tmp_path):
  fake = tmp_path / 'python'
  fake.write_text(
    '#!/bin/sh\necho \'{"case": 1}\'\necho last words >&2\nexit 3\n'
  )
  fake.chmod(0o755)
  monkeypatch.setenv('TANDEM_TPU_PYTHON', str(fake))
  got = []
  with pytest.raises(RuntimeError, match='(?s)with 3, after 1 .*last words'):
    got.extend(spawn.answers('v5e'))

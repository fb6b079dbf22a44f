"""What an install holds, and that no extra is needed to import it."""

import os
import pathlib
import subprocess
import sys

from tests import import_all

ROOT = pathlib.Path(__file__).resolve().parents[1]


def test_every_module_imports_without_extras():
  """The script that .ci/run gives the built wheel, here on the checkout."""
  done = subprocess.run(
    [sys.executable, 'tests/import_all.py'],
    cwd=ROOT,
    env={**os.environ, 'PYTHONPATH': str(ROOT), 'JAX_PLATFORMS': 'cpu'},
    capture_output=True,
    text=True,
    timeout=300,
  )
  assert done.returncode == 0, done.stderr
  assert 'modules imported' in done.stdout


def test_the_walk_finds_kernels():
  names = import_all.module_names(ROOT)
  assert 'tandem.kernels.token_logprob.api' in names
  assert 'tandem.train' in names
  assert len(names) > 80


def test_every_extra_is_held_back():
  """A package of an extra that import_all leaves importable hides a fault."""
  text = (ROOT / 'setup.py').read_text()
  extras = text.split('EXTRAS = {')[1].split("EXTRAS['test']")[0]
  held = {name.lower().replace('_', '-') for name in import_all.EXTRAS}
  for line in extras.splitlines():
    for item in line.split("'")[1::2]:
      name = item.split('=')[0].split('>')[0].split('[')[0].split('<')[0]
      if item != name and name != 'jax':  # a requirement, not an extra's name
        assert name.lower() in held, name


def test_typed_marker_is_packaged():
  assert (ROOT / 'tandem' / 'py.typed').exists()
  assert "package_data={'tandem': ['py.typed']}" in (
    ROOT / 'setup.py'
  ).read_text().replace('\n', '')

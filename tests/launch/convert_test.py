"""The converter: what it writes opens, and it never overwrites."""

from absl import flags
from absl.testing import flagsaver
import jax
import numpy as np
import pytest

from launch import convert
from tandem.models import weights
from tests import fakes

if not flags.FLAGS.is_parsed():
  flags.FLAGS(['test', '--source=', '--target='])


def _convert(source, target, **options):
  values = {'source': str(source), 'target': str(target)} | options
  with flagsaver.flagsaver(**values):
    convert.main(['convert'])


def test_directory_to_directory(tmp_path):
  params = jax.tree.map(np.asarray, fakes.params())
  weights.save_params(tmp_path / 'a', params, fakes.TINY, dtype='float32')
  (tmp_path / 'a' / 'tokenizer.json').write_text('{"any": "thing"}')
  (tmp_path / 'b').mkdir()  # empty is as good as new
  _convert(tmp_path / 'a', tmp_path / 'b', dtype='float32')
  names = sorted(p.name for p in (tmp_path / 'b').iterdir())
  assert names == sorted(p.name for p in (tmp_path / 'a').iterdir())
  for name in names:
    files = [tmp_path / folder / name for folder in 'ab']
    assert files[0].read_bytes() == files[1].read_bytes()


def test_refusals_are_one_message(tmp_path):
  (tmp_path / 'full').mkdir()
  (tmp_path / 'full' / 'notes.txt').write_text('mine')
  with pytest.raises(SystemExit, match='not an empty directory'):
    _convert(tmp_path, tmp_path / 'full')
  with pytest.raises(SystemExit, match='is no checkpoint'):
    _convert('nothing-there', tmp_path / 'new')
  with pytest.raises(SystemExit, match='no config.json'):
    _convert(tmp_path / 'full', tmp_path / 'new')
  assert not (tmp_path / 'new').exists()

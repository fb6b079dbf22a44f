"""The parts of a run, from saved models."""

import pytest

from tandem.data import quickstart
from tandem.training import setup
from tests import bad_input_test
from tests import small_run
from tests.text import small


def test_either_model_alone_finds_its_boundaries(tmp_path):
  # One tokenizer, embeddings padded otherwise, as in Qwen2.5 0.5B and 7B.
  tokenizer = quickstart.tokenizer()
  size = len(tokenizer)
  saved = lambda name, vocab: bad_input_test.checkpoint(
    tmp_path / name, tokenizer, vocab=vocab
  )
  config = small_run.config(
    **{
      'model.source': saved('senior', size + 16),
      'model.tokenizer': 'same',
      'junior.source': saved('junior', size),
    }
  )
  parts = setup.setup(config, tmp_path, None, evaluates=True)
  assert parts.cfg.vocab == size + 16 and parts.junior.cfg.vocab == size
  boundary = parts.collector.boundary
  assert boundary.shape == (size + 16,)
  assert boundary[:size].any() and not boundary[size:].any()


def test_only_a_pair_needs_boundaries(tmp_path):
  letters = [*'abcdefghijklmnopqrstuvwxyz', '</s>']
  plain = small.fast(small.spelled(letters), eos_token='</s>')
  plain.save_pretrained(tmp_path / 'plain')
  values = {
    'rollout.mode': 'solo',
    'model.tokenizer': str(tmp_path / 'plain'),
    'data.chat': False,
    'data.overlong': 'drop',
    'rollout.max_prompt': 200,
  }
  config = small_run.config(**values)
  parts = setup.setup(config, tmp_path, None, evaluates=False)
  assert not parts.collector.boundary.any()
  with pytest.raises(ValueError, match='no boundary ids'):
    setup.setup(config, tmp_path, None, evaluates=True)
  config.eval.models = ('senior',)
  setup.setup(config, tmp_path, None, evaluates=True)


def test_who_does_not_train_makes_nothing_for_the_loss(tmp_path, monkeypatch):
  """No teacher, and no partner where the senior alone is evaluated."""
  values = {
    'rollout.mode': 'solo',
    'loss.variant': 'gr_opd',
    'teacher.source': 'warm_start',
    'eval.models': ('senior',),
  }
  config = small_run.config(**values)
  made = []
  monkeypatch.setattr(setup, '_teacher', lambda *_: made.append(1))
  setup.setup(config, tmp_path, None, evaluates=True)
  assert made == [1]
  parts = setup.setup(config, tmp_path, None, evaluates=True, trains=False)
  assert made == [1] and parts.teacher is None and parts.junior is None
  pair = small_run.config(**{'eval.models': ('senior',)})
  wanted = lambda **how: setup.needs_junior(pair, evaluates=True, **how)
  assert wanted() and not wanted(trains=False)

"""The parts of a run, from saved models."""

from tandem.data import quickstart
from tandem.training import setup
from tests import bad_input_test
from tests import small_run


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

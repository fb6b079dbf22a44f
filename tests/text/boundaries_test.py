"""What a boundary is (CASES 4), and the cache of the list."""

import json
import pathlib

import numpy as np
import pytest

from tandem.text import boundaries
from tandem.text import tokenizer as text_tokenizer
from tests.text import small

QWEN3 = pathlib.Path(__file__).parents[3] / 'shared/data/qwen3_tokenizer'

# surface as the vocabulary spells it, and whether the author is redrawn after
# it; Ġ (U+0120) is a space, Ċ (U+010A) a line feed, æķ° the bytes of 数.
SURFACES = (
  ('Ġ', True),
  ('Ġthe', True),
  ('the', False),
  ('Ġun', True),
  ('believ', False),
  ('able', False),
  ('ĠĠ', True),
  ('Ċ', False),
  ('ĊĊ', False),
  ('.ĊĊ', False),
  ('ĊĊĠ', False),  # a marker inside is no start
  ('ĠĊĊ', True),
  ('7', False),
  ('Ġ7', True),
  ('æķ°', False),
  ('Ġæķ°', True),
  ('\\frac', False),
  ('Ġ\\frac', True),
  ('}{', False),
  ('<|im_end|>', False),
)


def test_each_listed_surface(tmp_path):
  tokenizer = small.spelled([surface for surface, _ in SURFACES])
  ids = boundaries.boundary_ids(tokenizer, cache_dir=tmp_path)
  assert ids.dtype == np.int32
  assert ids.tolist() == [i for i, (_, yes) in enumerate(SURFACES) if yes]
  table = boundaries.boundary_table(tokenizer, 32, cache_dir=tmp_path)
  assert table.dtype == bool and table.shape == (32,)
  assert table.nonzero()[0].tolist() == ids.tolist()


def test_a_text_changes_hands_after_its_spaced_pieces_only(tmp_path):
  bpe = small.byte_bpe()
  table = boundaries.boundary_table(
    bpe, bpe.get_vocab_size(), cache_dir=tmp_path
  )
  text = ' unbelievable 数学\n\n12 \\frac{1}{2}'
  encoding = bpe.encode(text)
  starts = {s for i, (s, _) in zip(encoding.ids, encoding.offsets) if table[i]}
  # The spaces of the text, by place: before the word, 数学, and \frac.
  assert starts == {i for i, letter in enumerate(text) if letter == ' '}


def test_sentencepiece_vocabularies_use_their_own_marker(tmp_path):
  # U+0120 is a Maltese letter there.
  tokenizer = small.spelled(['▁the', 'the', '▁', 'Ġ', '<0x0A>', '▁7', '7'])
  ids = boundaries.boundary_ids(tokenizer, cache_dir=tmp_path)
  assert ids.tolist() == [0, 2, 5]


def test_no_boundaries_is_an_error(tmp_path):
  tokenizer = small.spelled(['a', 'b', 'ab'])
  with pytest.raises(ValueError, match='no boundary ids: none of its 3 tokens'):
    boundaries.boundary_ids(tokenizer, cache_dir=tmp_path)
  assert not list(tmp_path.iterdir())


def test_a_model_smaller_than_the_tokenizer_is_an_error(tmp_path):
  tokenizer = small.spelled(['a', 'b', 'Ġc'])
  with pytest.raises(ValueError, match='boundary id 2 but .* vocab=2'):
    boundaries.boundary_table(tokenizer, 2, cache_dir=tmp_path)


def test_the_cache_is_read_by_hash_and_made_again_when_broken(tmp_path):
  tokenizer = small.spelled([surface for surface, _ in SURFACES])
  ids = boundaries.boundary_ids(tokenizer, cache_dir=tmp_path)
  (path,) = tmp_path.iterdir()  # no temporary file is left
  assert boundaries.tokenizer_hash(tokenizer) in path.name
  record = json.loads(path.read_text())

  path.write_text(json.dumps({**record, 'ids': [1, 3], 'count': 2}))
  read = boundaries.boundary_ids(tokenizer, cache_dir=tmp_path)
  assert read.tolist() == [1, 3]  # so it is the file that was read

  for broken in (
    '{"ids": [1,',
    json.dumps({**record, 'count': record['count'] + 1}),
    json.dumps({**record, 'ids': [1, 1], 'count': 2}),
    json.dumps({**record, 'ids': [1, 999], 'count': 2}),
    json.dumps([]),
  ):
    path.write_text(broken)
    again = boundaries.boundary_ids(tokenizer, cache_dir=tmp_path)
    assert again.tolist() == ids.tolist()
    assert json.loads(path.read_text()) == record


def test_the_hash_is_of_the_content_not_of_the_state():
  bpe = small.byte_bpe()
  before = boundaries.tokenizer_hash(bpe)
  bpe.enable_truncation(4)
  bpe.enable_padding(length=9)
  assert boundaries.tokenizer_hash(bpe) == before
  assert boundaries.tokenizer_hash(small.byte_bpe(vocab=300)) != before
  bpe.add_tokens(['<tool>'])
  assert boundaries.tokenizer_hash(bpe) != before


def test_steps_end_in_two_line_feeds():
  tokenizer = small.spelled([surface for surface, _ in SURFACES])
  ids = boundaries.double_newline_ids(tokenizer)
  expected = [i for i, (s, _) in enumerate(SURFACES) if s.endswith('ĊĊ')]
  assert ids.tolist() == expected == [8, 9, 11]
  assert boundaries.step_table(tokenizer, 20).nonzero()[0].tolist() == expected
  with pytest.raises(ValueError, match='double newline'):
    boundaries.double_newline_ids(small.spelled(['Ġa', 'Ċ']))


def test_a_pair_with_different_vocabularies_is_refused():
  senior = small.spelled(['a', 'b', 'Ġc'])
  boundaries.check_same_vocab(senior, small.spelled(['a', 'b', 'Ġc']))
  with pytest.raises(ValueError, match="id 1 is 'b' .* 'x' for the junior"):
    boundaries.check_same_vocab(senior, small.spelled(['a', 'x', 'Ġc']))
  with pytest.raises(ValueError, match="id 3 is None .* 'd' for the junior"):
    boundaries.check_same_vocab(senior, small.spelled(['a', 'b', 'Ġc', 'd']))


@pytest.mark.skipif(
  not QWEN3.is_dir(), reason='no Qwen3 tokenizer at ../shared/data'
)
def test_qwen3_has_53021_boundaries(tmp_path):
  tokenizer = text_tokenizer.load(QWEN3)
  ids = boundaries.boundary_ids(tokenizer, cache_dir=tmp_path)
  assert len(ids) == 53_021
  table = boundaries.boundary_table(tokenizer, 151_936, cache_dir=tmp_path)
  at = {
    text: table[text_tokenizer.encode(tokenizer, text)].tolist()
    for text in ('\n', '\n\n', ' 12', '数学', '\\frac', ' the')
  }
  assert at['\n'] == at['\n\n'] == [False]
  assert at[' 12'] == [True, False, False]  # digits are single tokens
  assert not any(at['数学'] + at['\\frac'])
  assert at[' the'] == [True]
  # The rule on surfaces is the rule on decoded text.
  steps = set(boundaries.double_newline_ids(tokenizer).tolist())
  sample = np.random.default_rng(0).integers(0, 151_643, 4000).tolist()
  for i in [*steps, *sample]:
    assert tokenizer.decode([i]).endswith('\n\n') == (i in steps)

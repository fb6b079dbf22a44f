"""Chat prompts, ends of responses, spans of tokens, GGUF tokenizers."""

import json
import pathlib
import subprocess
import sys

import numpy as np
import pytest
from tokenizers import decoders

from tandem.text import gguf_tokenizer
from tandem.text import tokenizer as text_tokenizer
from tests.text import small

QWEN3 = pathlib.Path(__file__).parents[3] / 'shared/data/qwen3_tokenizer'


def chat_tokenizer(**options):
  return small.fast(
    small.byte_bpe(), eos_token='<|end|>', chat_template=small.CHAT, **options
  )


def spans_part(text, spans, ids):
  assert len(spans) == len(ids)
  assert ''.join(text[start:end] for start, end in spans) == text
  assert all(a[1] == b[0] for a, b in zip(spans, spans[1:]))


# ------------------------------------------------------------------- spans


def test_spans_of_a_character_in_several_tokens():
  tokenizer = small.fast(small.byte_bpe(vocab=260))  # bytes only, nearly
  text = 'a é 数 😀.'
  ids = text_tokenizer.encode(tokenizer, text)
  assert len(ids) == len(text.encode())
  decoded, spans = text_tokenizer.decode_with_offsets(tokenizer, ids)
  assert decoded == text
  spans_part(decoded, spans, ids)
  # bytes:            a  ' '  é    é     ' '
  assert spans[:5] == [(0, 1), (1, 2), (2, 2), (2, 3), (3, 4)]
  # the four bytes of 😀 are before the full stop
  assert spans[-5:-1] == [(6, 6), (6, 6), (6, 6), (6, 7)]


def test_a_character_cut_off_at_the_end_is_shown():
  tokenizer = chat_tokenizer()
  ids = text_tokenizer.encode(small.fast(small.byte_bpe(vocab=260)), 'a 😀')
  text, spans = text_tokenizer.decode_with_offsets(tokenizer, ids[:-1])
  assert text == 'a \ufffd'
  assert spans == [(0, 1), (1, 2), (2, 2), (2, 2), (2, 3)]


@pytest.mark.parametrize('seed', range(4))
def test_random_ids_decode_as_the_tokenizer_does(seed):
  tokenizer = chat_tokenizer()
  rng = np.random.default_rng(seed)
  ids = rng.integers(0, len(tokenizer), 60).tolist()  # mostly broken UTF-8
  for skip in (True, False):
    text, spans = text_tokenizer.decode_with_offsets(
      tokenizer, ids, skip_special=skip
    )
    assert text == tokenizer.decode(ids, skip_special_tokens=skip)
    assert text == text_tokenizer.decode(tokenizer, ids, skip_special=skip)
    spans_part(text, spans, ids)


def test_texts_round_trip():
  tokenizer = chat_tokenizer()
  for text in [*small.CORPUS[:3], '', ' ', '\n\n\n', '  100km', '�x�']:
    ids = text_tokenizer.encode(tokenizer, text)
    decoded, spans = text_tokenizer.decode_with_offsets(tokenizer, ids)
    assert decoded == text
    spans_part(text, spans, ids)


def test_eos_and_ids_outside_the_vocabulary_have_empty_spans():
  tokenizer = chat_tokenizer()
  ids = text_tokenizer.encode(tokenizer, 'The')
  ids = [*ids, 10**6, tokenizer.eos_token_id]
  text, spans = text_tokenizer.decode_with_offsets(tokenizer, ids)
  assert text == 'The' and spans[-2:] == [(3, 3), (3, 3)]
  kept, _ = text_tokenizer.decode_with_offsets(
    tokenizer, ids, skip_special=False
  )
  assert kept == 'The<|end|>'


def test_sentencepiece_style_decoding():
  backend = small.spelled(['▁the', '▁cat', 's', '<0xC3>', '<0xA9>', '▁'])
  backend.decoder = decoders.Sequence(
    [
      decoders.Replace('▁', ' '),
      decoders.ByteFallback(),
      decoders.Fuse(),
      decoders.Strip(content=' ', left=1),
    ]
  )
  tokenizer = small.fast(backend)
  ids = [0, 1, 2, 5, 3, 4]
  text, spans = text_tokenizer.decode_with_offsets(tokenizer, ids)
  assert text == 'the cats é' == backend.decode(ids)
  assert spans == [(0, 3), (3, 7), (7, 8), (8, 9), (9, 9), (9, 10)]


# -------------------------------------------------------------------- chat


def test_one_user_turn_and_nothing_else():
  tokenizer = chat_tokenizer()
  tokenizer.chat_template = small.CHAT.replace('enable_thinking', 'other')
  assert text_tokenizer.render(tokenizer, 'Hi') == (
    '<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n'
  )


def test_thinking_is_passed_where_the_template_knows_it():
  tokenizer = chat_tokenizer()
  off = text_tokenizer.render(tokenizer, 'Hi')
  on = text_tokenizer.render(tokenizer, 'Hi', thinking=True)
  assert off.endswith('assistant\n<think>\n\n</think>\n\n')
  assert on.endswith('assistant\n')


def test_a_missing_chat_template_is_an_error():
  with pytest.raises(ValueError, match='no chat template'):
    text_tokenizer.render(small.fast(small.byte_bpe()), 'Hi')


def test_stop_ids_are_eos_chat_end_and_those_of_the_generation_config(tmp_path):
  tokenizer = chat_tokenizer()
  end, _, chat_end = range(3)  # the special tokens, in order
  assert text_tokenizer.stop_ids(tokenizer) == [end, chat_end]
  (tmp_path / 'generation_config.json').write_text('{"eos_token_id": [2, 9]}')
  assert text_tokenizer.stop_ids(tokenizer, tmp_path) == [end, chat_end, 9]
  (tmp_path / 'generation_config.json').write_text('{"eos_token_id": 7}')
  assert text_tokenizer.stop_ids(tokenizer, tmp_path) == [end, chat_end, 7]
  with pytest.raises(ValueError, match='no end of sequence'):
    text_tokenizer.stop_ids(small.fast(small.byte_bpe()))


def test_stop_ids_of_a_hub_id_are_looked_up_there(tmp_path, monkeypatch):
  from huggingface_hub import errors

  own = text_tokenizer.stop_ids(chat_tokenizer())
  stops = lambda: text_tokenizer.stop_ids(chat_tokenizer(), 'owner/model')
  (tmp_path / 'file').write_text('{"eos_token_id": [2, 9]}')

  def asked(*name):
    assert name == ('owner/model', 'generation_config.json')
    return tmp_path / 'file'

  monkeypatch.setattr('huggingface_hub.hf_hub_download', asked)
  assert stops() == [*own, 9]

  def none_there(*name):
    raise errors.EntryNotFoundError('404')

  monkeypatch.setattr('huggingface_hub.hf_hub_download', none_there)
  assert stops() == own


# ----------------------------------------------------------------- loading


def test_load_reads_a_directory_as_it_was_saved(tmp_path):
  chat_tokenizer().save_pretrained(tmp_path)
  loaded = text_tokenizer.load(tmp_path)
  text = '  100km 数学\n\n<|im_end|>'
  assert text_tokenizer.encode(loaded, text) == text_tokenizer.encode(
    chat_tokenizer(), text
  )
  assert text_tokenizer.render(loaded, 'Hi').startswith('<|im_start|>user')


def test_load_names_what_is_missing(tmp_path):
  with pytest.raises(ValueError, match='has no tokenizer.json'):
    text_tokenizer.load(tmp_path)
  with pytest.raises(ValueError, match='no tokenizer could be opened'):
    text_tokenizer.load(tmp_path / 'nowhere' / 'at' / 'all')
  with pytest.raises(ValueError, match='does not exist'):
    text_tokenizer.load(tmp_path / 'no.gguf')
  (tmp_path / 'bad.gguf').write_bytes(b'not a gguf file at all')
  with pytest.raises(ValueError, match='cannot be read as GGUF'):
    text_tokenizer.load(tmp_path / 'bad.gguf')


def write_gguf(path, bpe, kind, begins=None):
  import gguf

  vocab = bpe.get_vocab()
  tokens = sorted(vocab, key=vocab.get)
  special = bpe.get_added_tokens_decoder()
  merges = json.loads(bpe.to_str())['model']['merges']
  writer = gguf.GGUFWriter(path, 'llama')
  writer.add_context_length(512)
  writer.add_tokenizer_model('gpt2')
  writer.add_tokenizer_pre(kind)
  writer.add_token_list(tokens)
  writer.add_token_types([3 if i in special else 1 for i in range(len(tokens))])
  writer.add_token_merges([' '.join(merge) for merge in merges])
  writer.add_eos_token_id(vocab['<|im_end|>'])
  writer.add_pad_token_id(vocab['<|end|>'])
  writer.add_chat_template(small.CHAT)
  writer.add_bos_token_id(vocab['<|im_start|>'])
  if begins is not None:
    writer.add_add_bos_token(begins)
  writer.write_header_to_file()
  writer.write_kv_data_to_file()
  writer.write_tensors_to_file()
  writer.close()


def test_gguf_gives_back_the_tokenizer_that_was_written(tmp_path):
  pytest.importorskip('gguf')
  bpe = small.byte_bpe()
  write_gguf(tmp_path / 'model.gguf', bpe, 'smollm')
  tokenizer = text_tokenizer.load(tmp_path / 'model.gguf')
  assert len(tokenizer) == bpe.get_vocab_size()
  for text in [*small.CORPUS[:3], '  100km', 'x<|im_end|>y  2024']:
    assert text_tokenizer.encode(tokenizer, text) == bpe.encode(text).ids
  # The digit splitter keeps the spaces before a number together; GPT-2's
  # rule, which transformers' own conversion takes, gives the last one away.
  assert tokenizer.tokenize('  100km')[:4] == ['ĠĠ', '1', '0', '0']
  assert tokenizer.eos_token == '<|im_end|>'
  assert tokenizer.pad_token == '<|end|>'
  assert tokenizer.model_max_length == 512
  assert text_tokenizer.render(tokenizer, 'Hi').startswith('<|im_start|>user')


@pytest.mark.parametrize(
  'kind, begins, opens',
  [
    ('llama-bpe', None, True),
    ('llama-bpe', False, False),
    ('smollm', None, False),
    ('smollm', True, True),
  ],
)
def test_gguf_says_how_plain_text_begins(tmp_path, kind, begins, opens):
  pytest.importorskip('gguf')
  write_gguf(tmp_path / 'model.gguf', small.byte_bpe(), kind, begins)
  tokenizer = text_tokenizer.load(tmp_path / 'model.gguf')
  ids = text_tokenizer.opening_ids(tokenizer)
  assert tokenizer.convert_ids_to_tokens(ids) == ['<|im_start|>'] * opens
  assert tokenizer.decode(text_tokenizer.encode(tokenizer, '2 km')) == '2 km'


def test_gguf_of_an_unknown_splitter_is_refused(tmp_path):
  pytest.importorskip('gguf')
  write_gguf(tmp_path / 'model.gguf', small.byte_bpe(), 'falcon')
  with pytest.raises(ValueError, match="'falcon'.*smollm"):
    text_tokenizer.load(tmp_path / 'model.gguf')


def test_torch_is_not_imported(tmp_path):
  chat_tokenizer().save_pretrained(tmp_path)
  script = (
    'import sys\n'
    'from tandem.text import tokenizer\n'
    f'loaded = tokenizer.load({str(tmp_path)!r})\n'
    'tokenizer.encode(loaded, tokenizer.render(loaded, "Hi"))\n'
    'assert "torch" not in sys.modules\n'
  )
  subprocess.run([sys.executable, '-c', script], check=True)


# ---------------------------------------------------- real files, if present


@pytest.mark.skipif(
  not QWEN3.is_dir(), reason='no Qwen3 tokenizer at ../shared/data'
)
def test_the_qwen2_splitter_is_that_of_the_tokenizer_file():
  told = json.loads((QWEN3 / 'tokenizer.json').read_text())
  splitter, normalizer, _ = gguf_tokenizer.KINDS['qwen2']()
  split, _ = json.loads(splitter.__getstate__())['pretokenizers']
  assert split == told['pre_tokenizer']['pretokenizers'][0]
  assert json.loads(normalizer.__getstate__()) == told['normalizer']


@pytest.mark.skipif(
  not QWEN3.is_dir(), reason='no Qwen3 tokenizer at ../shared/data'
)
def test_qwen3_prompt_and_spans():
  tokenizer = text_tokenizer.load(QWEN3)
  assert text_tokenizer.render(tokenizer, 'Hi') == (
    '<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n'
    '<think>\n\n</think>\n\n'
  )
  assert text_tokenizer.stop_ids(tokenizer) == [151_645]
  ids = np.random.default_rng(0).integers(0, 151_669, 300).tolist()
  text, spans = text_tokenizer.decode_with_offsets(tokenizer, ids)
  assert text == tokenizer.decode(ids, skip_special_tokens=True)
  spans_part(text, spans, ids)

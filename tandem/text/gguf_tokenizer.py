"""The tokenizer that lies inside a .gguf file.

Built from the file's own vocabulary and merges. transformers' conversion
assumes GPT-2's splitter for every file and so loses, for instance, SmolLM2's
rule that every digit stands alone.

Source: the names are llama.cpp's (`tokenizer.ggml.pre`), and `llama-bpe`'s
  pattern is the one in its sources; `qwen2` equals Qwen3's tokenizer.json (the
  tests compare them where that file is present); `smollm` is the digit rule
  measured on SmolLM2's file (ENVS section 7).
"""

import os
import pathlib

import tokenizers
from tokenizers import models
from tokenizers import normalizers
from tokenizers import pre_tokenizers
import transformers

_CONTROL, _USER_DEFINED = 3, 4  # `tokenizer.ggml.token_type`
_WORDS = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+"
_REST = r' ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+'


def _by_pattern(digits):
  pattern = tokenizers.Regex(f'{_WORDS}|{digits}|{_REST}')
  return pre_tokenizers.Sequence(
    [
      pre_tokenizers.Split(pattern, 'isolated'),
      pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
    ]
  )


def _by_words(*before):
  return pre_tokenizers.Sequence(
    [*before, pre_tokenizers.ByteLevel(add_prefix_space=False)]
  )


# name -> (splitter, normalizer, whether whole words bypass the merges)
KINDS = {
  'smollm': lambda: (
    _by_words(pre_tokenizers.Digits(individual_digits=True)),
    None,
    False,
  ),
  'gpt-2': lambda: (_by_words(), None, False),
  'qwen2': lambda: (_by_pattern(r'\p{N}'), normalizers.NFC(), False),
  'llama-bpe': lambda: (_by_pattern(r'\p{N}{1,3}'), None, True),
}


def _read(path):
  try:
    import gguf
  except ImportError as error:
    raise ValueError(
      f'reading {path} needs the package gguf, which is not installed; '
      f"pip install 'tandem-rl[gguf]'."
    ) from error
  try:
    fields = gguf.GGUFReader(path).fields
  except (OSError, ValueError) as error:
    raise ValueError(f'{path} cannot be read as GGUF: {error}') from error

  def get(name, default=None):
    return fields[name].contents() if name in fields else default

  return get


def load(path: str | os.PathLike):
  """Builds the tokenizer of a .gguf file, chat template included.

  Args:
    path: a file whose tokenizer is byte-level BPE (`gpt2` in GGUF's words).

  Returns:
    transformers.PreTrainedTokenizerFast.

  Raises:
    ValueError: no such file, the gguf package missing, or a tokenizer of a
      kind that is not known here, naming the known ones.
  """
  path = pathlib.Path(path)
  if not path.is_file():
    raise ValueError(f'{path} does not exist; give the path of a .gguf file.')
  get = _read(path)
  model, kind = get('tokenizer.ggml.model'), get('tokenizer.ggml.pre')
  if model != 'gpt2' or kind not in KINDS:
    raise ValueError(
      f'{path} holds a tokenizer of model {model!r} with splitter {kind!r}; '
      f"known are model 'gpt2' with one of {sorted(KINDS)}. Point to the "
      f"model's Hugging Face tokenizer instead."
    )
  splitter, normalizer, ignore_merges = KINDS[kind]()
  tokens = get('tokenizer.ggml.tokens')
  merges = [tuple(m.split(' ', 1)) for m in get('tokenizer.ggml.merges')]
  bpe = tokenizers.Tokenizer(
    models.BPE(
      vocab={token: i for i, token in enumerate(tokens)},
      merges=merges,
      ignore_merges=ignore_merges,
    )
  )
  bpe.pre_tokenizer = splitter
  if normalizer is not None:
    bpe.normalizer = normalizer
  bpe.decoder = tokenizers.decoders.ByteLevel()
  bpe.add_tokens(
    [
      tokenizers.AddedToken(token, special=kind == _CONTROL, normalized=False)
      for token, kind in zip(tokens, get('tokenizer.ggml.token_type'))
      if kind in (_CONTROL, _USER_DEFINED)
    ]
  )
  named = {
    name: tokens[get(f'tokenizer.ggml.{field}_token_id')]
    for name, field in (
      ('bos_token', 'bos'),
      ('eos_token', 'eos'),
      ('unk_token', 'unknown'),
      ('pad_token', 'padding'),
    )
    if get(f'tokenizer.ggml.{field}_token_id') is not None
  }
  bos = named.get('bos_token')
  # As llama.cpp has it where a file does not say.
  if bos and get('tokenizer.ggml.add_bos_token', kind == 'llama-bpe'):
    bpe.post_processor = tokenizers.processors.TemplateProcessing(
      single=f'{bos} $A', special_tokens=[(bos, bpe.token_to_id(bos))]
    )
  architecture = get('general.architecture', '')
  tokenizer = transformers.PreTrainedTokenizerFast(
    tokenizer_object=bpe,
    chat_template=get('tokenizer.chat_template'),
    clean_up_tokenization_spaces=False,
    model_max_length=get(f'{architecture}.context_length', int(1e9)),
    **named,
  )
  tokenizer.name_or_path = str(path)
  return tokenizer

"""Tokenizers in, chat prompts out, and text with a span for every token.

Fast tokenizers only, opened from their own tokenizer.json as it is written.
Nothing here imports torch.
"""

import codecs
from collections.abc import Sequence
import itertools
import json
import os
import pathlib

from absl import logging
import transformers

from tandem.text import gguf_tokenizer

Message = dict[str, str]
_PROBE = 'tandem-probe'


def load(source: str | os.PathLike, *, revision: str | None = None):
  """Opens a tokenizer.

  Args:
    source: a Hugging Face id, a directory with tokenizer.json, or a .gguf file.
    revision: branch, tag or commit of a Hugging Face id.

  Returns:
    transformers.PreTrainedTokenizerFast.

  Raises:
    ValueError: nothing there to open, naming what was looked for.
  """
  path = pathlib.Path(source).expanduser()
  if path.suffix == '.gguf':
    return gguf_tokenizer.load(path)
  if path.is_dir() and not (path / 'tokenizer.json').exists():
    raise ValueError(
      f'{path} has no tokenizer.json; only fast tokenizers are read. Save one '
      f'there with transformers (AutoTokenizer(...).save_pretrained).'
    )
  try:
    # Not AutoTokenizer: it imports torch, and for some families builds the
    # splitters anew instead of reading them from the file.
    return transformers.PreTrainedTokenizerFast.from_pretrained(
      path if path.is_dir() else os.fspath(source), revision=revision or 'main'
    )
  except (OSError, ValueError) as error:
    raise ValueError(
      f'no tokenizer could be opened at {os.fspath(source)!r}: it is no local '
      f'directory, no .gguf file, and as a Hugging Face id it failed with: '
      f'{str(error).splitlines()[0]} Check the spelling, or the network.'
    ) from error


def render(
  tokenizer, messages: str | Sequence[Message], *, thinking: bool = False
) -> str:
  """The chat prompt as text, ready for the assistant to speak.

  Args:
    tokenizer: with a chat template.
    messages: role and content of each turn; a plain string is one user turn.
      No system turn is added here (a template may add its own).
    thinking: passed as `enable_thinking` to templates that know the word.

  Raises:
    ValueError: the tokenizer has no chat template.
  """
  if isinstance(messages, str):
    messages = [{'role': 'user', 'content': messages}]
  if not tokenizer.chat_template:
    raise ValueError(
      f'the tokenizer {tokenizer.name_or_path!r} has no chat template; use an '
      f'instruct model, or prompt a base model with plain text (chat=False).'
    )
  options = {}
  if 'enable_thinking' in str(tokenizer.chat_template):
    options['enable_thinking'] = thinking
  return tokenizer.apply_chat_template(
    list(messages), tokenize=False, add_generation_prompt=True, **options
  )


def encode(tokenizer, text: str) -> list[int]:
  """Ids of a text; nothing is added, special tokens in it are recognised."""
  return tokenizer(text, add_special_tokens=False)['input_ids']


def opening_ids(tokenizer) -> list[int]:
  """What the tokenizer itself puts before plain text; most put nothing.

  Llama 3's begin-of-text, without which its base models read another text than
  they learnt. A chat template writes its own.
  """
  whole, text = tokenizer(_PROBE)['input_ids'], encode(tokenizer, _PROBE)
  for start in range(len(whole) - len(text) + 1):
    if whole[start : start + len(text)] == text:
      return whole[:start]
  return []


def stop_ids(tokenizer, source: str | os.PathLike | None = None) -> list[int]:
  """Every id that ends a response.

  The tokenizer's own eos, what its chat template writes after an assistant's
  turn, and those of the generation_config.json that lies beside it (Qwen3
  lists a second one there), in a directory or on the hub.

  Returns:
    Sorted ids, at least one.

  Raises:
    ValueError: none found; responses would only end by length.
  """
  ids = {tokenizer.eos_token_id, _chat_end(tokenizer)}
  if path := _generation_config(source):
    listed = json.loads(path.read_text()).get('eos_token_id')
    ids.update(listed if isinstance(listed, list) else [listed])
  ids.discard(None)
  if not ids:
    raise ValueError(
      f'the tokenizer {tokenizer.name_or_path!r} names no end of sequence, so '
      f'no response could end; set its eos_token.'
    )
  return sorted(ids)


def _generation_config(source) -> pathlib.Path | None:
  """The file of a directory or hub id, where there is one."""
  if not source:
    return None
  name, text = 'generation_config.json', os.fspath(source)
  local = pathlib.Path(text).expanduser()
  if local.exists() or '/' not in text:
    return local / name if (local / name).exists() else None
  import huggingface_hub
  from huggingface_hub import errors

  try:
    return pathlib.Path(huggingface_hub.hf_hub_download(text, name))
  except errors.LocalEntryNotFoundError:
    logging.warning(
      '%s of %s is not in the cache and the hub cannot be reached: responses '
      'end at the stop ids of the tokenizer alone.',
      name,
      text,
    )
  except errors.EntryNotFoundError:
    pass  # many base models have none
  return None


def _chat_end(tokenizer):
  """The special token that closes an assistant's turn, or None."""
  if not tokenizer.chat_template:
    return None
  text = tokenizer.apply_chat_template(
    [
      {'role': 'user', 'content': '?'},
      {'role': 'assistant', 'content': _PROBE},
    ],
    tokenize=False,
  )
  after = encode(tokenizer, text.rpartition(_PROBE)[2])
  special = {
    i for i, token in tokenizer.added_tokens_decoder.items() if token.special
  }
  return after[0] if after and after[0] in special else None


# Byte-level vocabularies spell each byte as one printable character: printable
# Latin-1 stands for itself, the other 68 bytes follow from U+0100 upwards.
_SAME = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
_REST = [b for b in range(256) if b not in _SAME]
_BYTE_OF = {chr(b): b for b in _SAME} | {
  chr(0x100 + n): b for n, b in enumerate(_REST)
}


def _surface_bytes(surface, byte_level):
  """What one token adds to the text, as bytes."""
  if byte_level:
    return bytes(_BYTE_OF[character] for character in surface)
  if len(surface) == 6 and surface.startswith('<0x') and surface[-1] == '>':
    return bytes([int(surface[3:5], 16)])
  return surface.replace('\u2581', ' ').encode()


def _pieces(tokenizer, ids, skip_special):
  """The bytes of every token in turn."""
  backend = tokenizer.backend_tokenizer
  decoder = backend.decoder.__getstate__() if backend.decoder else b''
  byte_level = b'ByteLevel' in decoder
  strips = b'Strip' in decoder or b'Metaspace' in decoder
  added = tokenizer.added_tokens_decoder
  pieces = []
  for i in map(int, ids):
    if i in added:
      hidden = skip_special and added[i].special
      pieces.append(b'' if hidden else added[i].content.encode())
      continue
    surface = backend.id_to_token(i)  # None for a padded row of the embedding
    piece = b'' if surface is None else _surface_bytes(surface, byte_level)
    # Sentencepiece's decoder drops the space that stands before the first word.
    if strips and not any(pieces) and piece.startswith(b' '):
      piece = piece[1:]
    pieces.append(piece)
  return pieces


def decode_with_offsets(
  tokenizer, ids: Sequence[int], *, skip_special: bool = True
) -> tuple[str, list[tuple[int, int]]]:
  """Text of a response and the span of each token in it.

  A character whose bytes are spread over several tokens belongs to the last of
  them, the earlier ones have empty spans; so the spans part the text: joined in
  order they give it back. Bytes that are no UTF-8 become U+FFFD.

  Args:
    tokenizer: a fast transformers tokenizer.
    ids: [T] token ids. Ids outside the vocabulary have no text.
    skip_special: special tokens (the ending EOS) have an empty span.

  Returns:
    text, and [(start, end)] in characters, one for each id.
  """
  pieces = _pieces(tokenizer, ids, skip_special)
  utf8 = codecs.getincrementaldecoder('utf-8')(errors='replace')
  texts = [utf8.decode(piece) for piece in pieces]
  if texts:
    texts[-1] += utf8.decode(b'', final=True)
  ends = list(itertools.accumulate(map(len, texts)))
  return ''.join(texts), list(zip([0, *ends], ends))


def decode(tokenizer, ids: Sequence[int], *, skip_special: bool = True) -> str:
  """Text of a response; the same text as `decode_with_offsets`."""
  return decode_with_offsets(tokenizer, ids, skip_special=skip_special)[0]

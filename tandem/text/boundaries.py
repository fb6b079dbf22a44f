"""Which token ids end a turn: word boundaries and double newlines.

A boundary is a token whose raw surface, as the vocabulary spells it, starts
with the leading-space marker: U+0120 in byte-level vocabularies, U+2581 in
sentencepiece-style ones. Newlines, digits without a space and most LaTeX pieces
are none, and neither is CJK text, which is written without spaces.

Source: the tandem authors' second release (METHODS section 2.1), which counts
  53,021 such ids for Qwen3.
"""

import hashlib
import json
import os
import pathlib
import tempfile

from absl import logging
import numpy as np

MARKERS = ('\u0120', '\u2581')  # byte-level BPE, sentencepiece
_NEWLINE = '\u010a'  # how byte-level vocabularies spell a line feed
_SCHEMA = 'tandem.boundaries/1'


def _backend(tokenizer):
  return getattr(tokenizer, 'backend_tokenizer', tokenizer)


def _vocabulary(tokenizer) -> list[tuple[int, str]]:
  return sorted((i, surface) for surface, i in tokenizer.get_vocab().items())


def tokenizer_hash(tokenizer) -> str:
  """SHA-256 of what the tokenizer does: vocabulary, merges, splitters.

  Truncation and padding are left out: they are state that a call can change.

  Args:
    tokenizer: a fast transformers tokenizer or a `tokenizers.Tokenizer`.

  Returns:
    64 hexadecimal digits.
  """
  backend = _backend(tokenizer)
  digest = hashlib.sha256(backend.model.__getstate__())
  for part in ('normalizer', 'pre_tokenizer', 'post_processor', 'decoder'):
    value = getattr(backend, part)
    digest.update(b'|' + (value.__getstate__() if value else b''))
  for i, token in sorted(backend.get_added_tokens_decoder().items()):
    digest.update(f'|{i}:{token.content!r}:{token.special}'.encode())
  return digest.hexdigest()


def _find(vocabulary):
  """Boundary ids by the marker that the vocabulary uses, in order."""
  # Either marker can be an ordinary letter of the other kind of vocabulary, so
  # the more frequent one decides.
  found = [
    [i for i, surface in vocabulary if surface.startswith(marker)]
    for marker in MARKERS
  ]
  ids = max(found, key=len)
  if not ids:
    example = ', '.join(repr(surface) for _, surface in vocabulary[:3])
    raise ValueError(
      f'the tokenizer has no boundary ids: none of its {len(vocabulary)} '
      f'tokens (the first: {example}) starts with a leading-space marker, '
      f'U+0120 or U+2581, so no turn would ever change hands at a word. Use a '
      f'byte-level BPE or sentencepiece tokenizer, or a schedule that needs no '
      f'boundaries: token, chunk or alternating.'
    )
  return ids


def _default_cache() -> pathlib.Path:
  home = os.environ.get('XDG_CACHE_HOME') or pathlib.Path.home() / '.cache'
  return pathlib.Path(os.environ.get('TANDEM_CACHE') or home) / 'tandem'


def _read_cache(path, size):
  """The cached ids, or None where there is no file or it cannot be trusted."""
  try:
    record = json.loads(path.read_text())
    ids = np.asarray(record['ids'], np.int32)
    if (
      record['schema'] != _SCHEMA
      or ids.ndim != 1
      or not 0 < len(ids) == record['count']
      or (np.diff(ids) <= 0).any()
      or not 0 <= ids[0] <= ids[-1] < size
    ):
      raise ValueError('its fields do not agree')
    return ids
  except FileNotFoundError:
    return None
  except (OSError, ValueError, KeyError, TypeError) as error:
    logging.warning('boundary cache %s is made again: %s', path, error)
    return None


def _write_cache(path, ids):
  """Writes beside the target and renames, so that no reader sees a half."""
  record = {'schema': _SCHEMA, 'count': len(ids), 'ids': ids.tolist()}
  try:
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.NamedTemporaryFile(
      'w', dir=path.parent, suffix='.part', delete=False
    ) as file:
      json.dump(record, file)
    os.replace(file.name, path)
  except OSError as error:
    logging.warning('boundary cache %s is not kept: %s', path, error)


def boundary_ids(
  tokenizer, *, cache_dir: str | os.PathLike | None = None
) -> np.ndarray:
  """Ids after which the author is redrawn under the word rule.

  Args:
    tokenizer: a fast transformers tokenizer or a `tokenizers.Tokenizer`.
    cache_dir: where the list is kept, one file by the tokenizer's hash; None
      is $TANDEM_CACHE/tandem, else the user's cache folder.

  Returns:
    [K] int32, sorted, at least one.

  Raises:
    ValueError: no token starts with a leading-space marker.

  Source: METHODS section 2.1; the authors' list for Qwen3 has 53,021 ids.
  """
  vocabulary = _vocabulary(tokenizer)
  folder = pathlib.Path(cache_dir) if cache_dir else _default_cache()
  path = folder / f'boundaries-{tokenizer_hash(tokenizer)}.json'
  ids = _read_cache(path, vocabulary[-1][0] + 1) if vocabulary else None
  if ids is None:
    ids = np.asarray(_find(vocabulary), np.int32)
    _write_cache(path, ids)
  return ids


def _table(ids, vocab):
  if ids[-1] >= vocab:
    raise ValueError(
      f'the tokenizer has a boundary id {ids[-1]} but the model only '
      f'vocab={vocab} ids; the tokenizer belongs to another model.'
    )
  table = np.zeros(vocab, bool)
  table[ids] = True
  return table


def boundary_table(
  tokenizer, vocab: int, *, cache_dir: str | os.PathLike | None = None
) -> np.ndarray:
  """The word rule's boundaries as a table over a model's ids.

  Args:
    tokenizer: as in `boundary_ids`.
    vocab: V of the model, which may be padded beyond the tokenizer's.
    cache_dir: as in `boundary_ids`.

  Returns:
    [V] bool. True where the author is redrawn after the token.

  Raises:
    ValueError: no boundary ids, or one at or beyond `vocab`.
  """
  return _table(boundary_ids(tokenizer, cache_dir=cache_dir), vocab)


def double_newline_ids(tokenizer) -> np.ndarray:
  """Ids whose decoded text ends in two line feeds: where a step ends.

  Returns:
    [K] int32, sorted, at least one.

  Raises:
    ValueError: no such token, so that the `step` schedule would never switch.

  Source: METHODS section 2.2, the sampler's `sentence` strategy.
  """
  endings = (_NEWLINE * 2, '\n\n')
  ids = [i for i, text in _vocabulary(tokenizer) if text.endswith(endings)]
  if not ids:
    raise ValueError(
      'the tokenizer has no token that ends in a double newline, so the step '
      'schedule would never change hands; use the word schedule instead.'
    )
  return np.asarray(ids, np.int32)


def step_table(tokenizer, vocab: int) -> np.ndarray:
  """`double_newline_ids` as a table, [V] bool; raises as `boundary_table`."""
  return _table(double_newline_ids(tokenizer), vocab)


def check_same_vocab(
  senior_tokenizer, other_tokenizer, *, other: str = 'junior'
) -> None:
  """Refuses two models whose ids mean different texts.

  Args:
    senior_tokenizer: of the trained model.
    other_tokenizer: of the one that reads or writes the same responses.
    other: who that is.

  Raises:
    ValueError: naming the first id that differs and both its surfaces.

  Source: METHODS section 7, vocabulary mismatch.
  """
  senior = dict(_vocabulary(senior_tokenizer))
  theirs = dict(_vocabulary(other_tokenizer))
  if senior == theirs:
    return
  first = min(
    i for i in senior.keys() | theirs.keys() if senior.get(i) != theirs.get(i)
  )
  raise ValueError(
    f'senior and {other} have different vocabularies ({len(senior)} and '
    f'{len(theirs)} ids): id {first} is {senior.get(first)!r} for the senior '
    f'and {theirs.get(first)!r} for the {other}. Both go by the ids of one '
    f'response, so an id must mean one text; choose models of one family.'
  )

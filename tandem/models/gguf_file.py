"""GGUF files as a source of weights, config and tokenizer.

Needs the extra `gguf` (numpy only, no torch). Quantised tensors are
dequantised as they are read. llama.cpp permutes the rows of a llama's q and k
projections for its interleaved rotary embedding; that is undone here, so that
what leaves this file is what a safetensors checkpoint holds.
"""

import dataclasses
import functools
import os
import pathlib
from typing import Any

import numpy as np

from tandem import types
from tandem.models import names
from tandem.models import rotary

ARCHITECTURES = ('llama', 'qwen2', 'qwen3')
# The constants of Llama 3.1 and 3.2. A GGUF holds only the frequencies that
# follow from them.
_LLAMA3_LOW, _LLAMA3_HIGH, _LLAMA3_CONTEXT = 1.0, 4.0, 8192
ROPE_FREQS = 'rope_freqs.weight'


def _gguf():
  try:
    import gguf
  except ImportError as error:
    raise ImportError(
      "reading a .gguf file needs the package gguf: pip install 'tandem-rl"
      "[gguf]', or give a directory of safetensors."
    ) from error
  return gguf


@functools.lru_cache(maxsize=2)
def _reader(path: str, stamp: tuple[int, int]):
  """The parsed header; seconds for a large vocabulary, so kept."""
  del stamp
  try:
    return _gguf().GGUFReader(path)
  except (ValueError, KeyError, IndexError, UnicodeDecodeError) as error:
    raise ValueError(
      f'{path} is not a whole GGUF file ({error}); download it again.'
    ) from error


def frequency_factors(cfg: types.ModelConfig) -> np.ndarray:
  """[H/2] float32: what llama.cpp divides the plain frequencies by."""
  plain = dataclasses.replace(cfg, rope_scaling=None)
  return rotary.frequencies(plain) / rotary.frequencies(cfg)


class GGUFFile:
  """One .gguf file, its tensors under their safetensors names.

  Tensors that the table of names does not know keep their own names.
  """

  def __init__(self, path: str | os.PathLike):
    self.path = pathlib.Path(path)
    stat = self.path.stat()
    stamp = (stat.st_mtime_ns, stat.st_size)
    self._reader = _reader(os.fspath(self.path), stamp)
    self.architecture = self.field('general.architecture')
    if self.architecture not in ARCHITECTURES:
      raise ValueError(
        f'{self.path} has architecture {self.architecture!r}; '
        f'one of {ARCHITECTURES} loads.'
      )
    if (self.field('split.count') or 1) > 1:
      raise ValueError(
        f'{self.path} is one of {self.field("split.count")} parts; merge them '
        'with llama-gguf-split --merge first.'
      )
    known = {}
    for row in names.ROWS:
      layers = self._own('block_count') if row.stacked else 1
      for i in range(layers):
        known[row.gguf.format(i)] = row.hf.format(i)
    self._tensors = {known.get(t.name, t.name): t for t in self._reader.tensors}

  def field(self, key: str) -> Any:
    """A metadata value, None where the file has none."""
    field = self._reader.get_field(key)
    return None if field is None else field.contents()

  def _own(self, key: str, default: Any = None) -> Any:
    """A value under the architecture's prefix; lists of equals become one."""
    value = self.field(f'{self.architecture}.{key}')
    if isinstance(value, list):
      if len(set(value)) != 1:
        raise ValueError(
          f'{self.path}: {key} differs by layer ({value}); every layer of this '
          'decoder has one shape.'
        )
      value = value[0]
    if value is None and default is None:
      raise ValueError(f'{self.path} does not state {self.architecture}.{key}.')
    return default if value is None else value

  def shapes(self) -> dict[str, tuple[int, ...]]:
    """Shape of every tensor, in safetensors' order of axes."""
    return {
      name: tuple(reversed([int(n) for n in t.shape]))
      for name, t in self._tensors.items()
    }

  def read(self, name: str) -> np.ndarray:
    """One tensor in float32, dequantised and un-permuted."""
    tensor = self._tensors[name]
    dequantize = _gguf().quants.dequantize
    x = np.asarray(dequantize(tensor.data, tensor.tensor_type), np.float32)
    if self.architecture == 'llama':
      if name.endswith('.q_proj.weight'):
        x = unpermute(x, self._own('attention.head_count'))
      elif name.endswith('.k_proj.weight'):
        x = unpermute(x, self._kv_heads())
    return x

  def _kv_heads(self) -> int:
    heads = self._own('attention.head_count')
    return self._own('attention.head_count_kv', heads)

  def has_config(self) -> bool:
    """A GGUF file always states its config."""
    return True

  def config(self) -> types.ModelConfig:
    """The model's config.

    Raises:
      ValueError: a feature that the decoder does not compute, named.
    """
    dim, heads = (
      self._own('embedding_length'),
      self._own('attention.head_count'),
    )
    head_dim = self._own('attention.key_length', dim // heads)
    problems = [
      f'{key}={self._own(key, usual)!r}'
      for key, usual in (
        ('attention.value_length', head_dim),
        ('rope.dimension_count', head_dim),
        ('rope.scaling.type', 'none'),
        ('expert_count', 0),
        ('attention.sliding_window', 0),
      )
      if self._own(key, usual) != usual
    ]
    if problems:
      raise ValueError(
        f'{self.path} asks for what this decoder does not compute: '
        f'{"; ".join(problems)}.'
      )
    shapes = self.shapes()
    if names.ROWS[0].hf not in shapes:
      raise ValueError(f'{self.path} has no tensor token_embd.weight.')
    cfg = types.ModelConfig(
      vocab=shapes[names.ROWS[0].hf][0],
      dim=dim,
      num_layers=self._own('block_count'),
      num_heads=heads,
      num_kv_heads=self._kv_heads(),
      head_dim=head_dim,
      hidden=self._own('feed_forward_length'),
      rope_theta=_decimal(self._own('rope.freq_base', 1e4)),
      norm_eps=_decimal(self._own('attention.layer_norm_rms_epsilon')),
      tied=names.HEAD.hf not in shapes,
      qkv_bias=self.architecture == 'qwen2',
      qk_norm=self.architecture == 'qwen3',
      max_position=self._own('context_length'),
      family=self.architecture,
    )
    if ROPE_FREQS in shapes:
      cfg = self._scaled(cfg)
    return cfg

  def _scaled(self, cfg: types.ModelConfig) -> types.ModelConfig:
    """cfg with the rope scaling that explains the file's frequencies."""
    factors = self.read(ROPE_FREQS)
    factor = _decimal(factors.max())
    scaling = types.RopeScaling(
      factor, _LLAMA3_LOW, _LLAMA3_HIGH, _LLAMA3_CONTEXT
    )
    scaled = dataclasses.replace(cfg, rope_scaling=scaling)
    if factor == 1:
      scaled = cfg
    ours = frequency_factors(scaled)
    if factors.shape != ours.shape or not np.allclose(factors, ours, rtol=1e-4):
      raise ValueError(
        f'{self.path}: {ROPE_FREQS} is not the llama3 rope scaling of factor '
        f'{factor}; no other is known.'
      )
    return scaled


def unpermute(x: np.ndarray, heads: int) -> np.ndarray:
  """Undoes llama.cpp's order of rows, in which a pair to rotate is adjacent.

  Args:
    x: [heads * H, D] with rows (head, pair, half).
    heads: of q or of k.

  Returns:
    [heads * H, D] with rows (head, half, pair), as Hugging Face has them.
  """
  pairs = x.reshape(heads, x.shape[0] // heads // 2, 2, -1)
  return pairs.swapaxes(1, 2).reshape(x.shape)


def _decimal(x: float) -> float:
  """A float32's shortest decimal: 1e-5, not 9.99999974e-06."""
  return float(str(np.float32(x)))

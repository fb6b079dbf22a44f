"""Where weights come from: a directory, a .gguf file, a preset, a hub id.

Each is opened as a `Source`: tensors by their safetensors names, shapes known
from headers alone, read one at a time.
"""

import json
import os
import pathlib
import re
from typing import Protocol

import numpy as np
import safetensors

from tandem import types
from tandem.models import gguf_file
from tandem.models import presets

SINGLE = 'model.safetensors'
INDEX = 'model.safetensors.index.json'
_HUB_ID = re.compile(r'[\w-][\w.-]*/[\w.-]+')
_HUB_FILES = ('*.safetensors', '*.json', '*.jinja', '*.model', 'merges.txt')


class Source(Protocol):
  """Tensors by their safetensors names."""

  path: pathlib.Path

  def shapes(self) -> dict[str, tuple[int, ...]]: ...

  def read(self, name: str) -> np.ndarray: ...

  def has_config(self) -> bool: ...

  def config(self) -> types.ModelConfig: ...


def config_json(path: pathlib.Path) -> types.ModelConfig:
  """The config of a directory, from its config.json."""
  file = path / 'config.json'
  if not file.exists():
    raise ValueError(f'{path} has no config.json, which a checkpoint must.')
  return presets.config_from_hf(json.loads(file.read_text()))


def resolve(source: str | os.PathLike) -> pathlib.Path:
  """A local path of the checkpoint, downloaded where need be.

  Args:
    source: a directory, a .gguf file, a preset's name or a hub id.

  Raises:
    ValueError: none of these, or the hub cannot be reached or refuses.
  """
  text = os.fspath(source)
  path = pathlib.Path(text).expanduser()
  if text and path.is_dir() or (path.is_file() and path.suffix == '.gguf'):
    return path
  hub_id = presets.HUB_IDS.get(text, text)
  if path.is_file() or not _HUB_ID.fullmatch(hub_id) or text.endswith('.gguf'):
    raise ValueError(
      f'{text!r} is no checkpoint: no directory or .gguf file is there, and it '
      'is neither a preset nor a hub id (owner/name). Presets: '
      f'{", ".join(presets.HUB_IDS)}.'
    )
  import huggingface_hub

  try:
    local = huggingface_hub.snapshot_download(
      hub_id, allow_patterns=list(_HUB_FILES), ignore_patterns=['*/*']
    )
  except Exception as error:  # Its errors share no base across versions.
    raise ValueError(
      f'{hub_id!r} is not a local directory and could not be had from the hub: '
      f'{type(error).__name__}: {error} Check the name and the network, log in '
      'where the model is gated, or give a local directory or .gguf file.'
    ) from error
  return pathlib.Path(local)


class _Safetensors:
  """A directory with model.safetensors, or with shards and their index."""

  def __init__(self, path: pathlib.Path):
    self.path = path
    index = path / INDEX
    if (path / SINGLE).exists():
      files = [SINGLE]
    elif index.exists():
      mapped = json.loads(index.read_text())['weight_map']
      files = sorted(set(mapped.values()))
    else:
      found = sorted(p.name for p in path.iterdir())
      raise ValueError(
        f'{path} holds neither {SINGLE} nor {INDEX}; it holds {found}. Give a '
        'directory of safetensors, or the .gguf file itself.'
      )
    gone = [name for name in files if not (path / name).exists()]
    if gone:
      raise ValueError(
        f'{INDEX} of {path} names shards that are not there: '
        f'{gone}; download them again.'
      )
    self._files = {}
    for name in files:
      try:
        opened = safetensors.safe_open(path / name, framework='numpy')
      except safetensors.SafetensorError as error:
        raise ValueError(
          f'{path / name} is not a whole safetensors file ({error}); download '
          'or write it again.'
        ) from error
      twice = sorted(set(opened.keys()) & set(self._files))
      if twice:
        raise ValueError(f'{path}: {twice} stand in {name} and before it.')
      self._files |= dict.fromkeys(opened.keys(), opened)

  def shapes(self):
    return {
      name: tuple(opened.get_slice(name).get_shape())
      for name, opened in self._files.items()
    }

  def read(self, name):
    return self._files[name].get_tensor(name)

  def has_config(self):
    return (self.path / 'config.json').exists()

  def config(self):
    return config_json(self.path)


def open_source(source: str | os.PathLike) -> Source:
  """Opens a checkpoint's headers; `source` and errors as in `resolve`."""
  path = resolve(source)
  return _Safetensors(path) if path.is_dir() else gguf_file.GGUFFile(path)

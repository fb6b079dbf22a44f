"""Logits against transformers: both directions, every family.

The models are random, tiny and made here, so nothing is downloaded.
"""

import json

import jax
import numpy as np
import pytest

from tandem.models import decoder
from tandem.models import presets
from tandem.models import weights

torch = pytest.importorskip(
  'torch', reason='parity needs the extra `parity` (torch)'
)
import transformers  # noqa: E402, only useful here with torch

TINY = {
  'vocab_size': 61,
  'hidden_size': 32,
  'intermediate_size': 48,
  'num_hidden_layers': 2,
  'num_attention_heads': 4,
  'num_key_value_heads': 2,
  'max_position_embeddings': 8192,
  # Large enough that a lost bias or norm shows in the logits.
  'initializer_range': 0.3,
}
LLAMA3 = {
  'rope_type': 'llama3',
  'factor': 32.0,
  'low_freq_factor': 1.0,
  'high_freq_factor': 4.0,
  'original_max_position_embeddings': 256,
}
CASES = {
  'qwen3': ('Qwen3', {'head_dim': 16, 'tie_word_embeddings': True}),
  'qwen3_untied': ('Qwen3', {'head_dim': 8, 'tie_word_embeddings': False}),
  'qwen2_tied': ('Qwen2', {'tie_word_embeddings': True}),
  'qwen2_untied': ('Qwen2', {'tie_word_embeddings': False}),
  'llama3': (
    'Llama',
    {'rope_scaling': LLAMA3, 'rope_theta': 5e5, 'tie_word_embeddings': True},
  ),
  'smollm2': (
    'Llama',
    {'rope_theta': 1e5, 'tie_word_embeddings': True, 'rms_norm_eps': 1e-5},
  ),
}


def _reference(family, options):
  """A random model in which every parameter, norms and biases too, matters."""
  torch.manual_seed(0)
  config = getattr(transformers, f'{family}Config')(**(TINY | options))
  model = getattr(transformers, f'{family}ForCausalLM')(config).eval()
  with torch.no_grad():
    for name, parameter in model.named_parameters():
      if name.endswith('norm.weight') or name.endswith('.bias'):
        parameter.add_(0.3 * torch.randn_like(parameter))
  return model


def _logits(model, ids):
  with torch.no_grad():
    return model(torch.from_numpy(np.asarray(ids, np.int64))).logits.numpy()


def _ids(shape, seed=0):
  draw = np.random.default_rng(seed).integers(0, TINY['vocab_size'], shape)
  return draw.astype(np.int32)


def _ours(directory, ids):
  cfg = weights.load_config(directory)
  params = weights.load_params(directory)
  return jax.jit(decoder.apply, static_argnums=1)(params, cfg, ids)


@pytest.mark.parametrize('case', CASES)
def test_logits_and_export(case, tmp_path):
  model = _reference(*CASES[case])
  model.save_pretrained(tmp_path / 'theirs')
  ids = _ids((2, 80))
  theirs = _logits(model, ids)
  ours = _ours(tmp_path / 'theirs', ids)
  print(case, 'max difference', np.abs(ours - theirs).max())
  np.testing.assert_allclose(ours, theirs, atol=1e-4, rtol=0)

  params = weights.load_params(tmp_path / 'theirs')
  cfg = weights.load_config(tmp_path / 'theirs')
  weights.save_params(tmp_path / 'ours', params, cfg, dtype='float32')
  opened, report = transformers.AutoModelForCausalLM.from_pretrained(
    tmp_path / 'ours', dtype=torch.float32, output_loading_info=True
  )
  assert not any(report.values()), report
  assert type(opened) is type(model)
  np.testing.assert_array_equal(_logits(opened, ids), theirs)


def test_llama3_rope_scaling_to_position_8191(tmp_path):
  options = {
    'num_hidden_layers': 1,
    'num_attention_heads': 2,
    'num_key_value_heads': 1,
    'head_dim': 32,
    'hidden_size': 32,
    'rope_theta': 5e5,
    'rope_scaling': LLAMA3 | {'original_max_position_embeddings': 8192},
    'max_position_embeddings': 131_072,
    'tie_word_embeddings': True,
  }
  model = _reference('Llama', options)
  model.save_pretrained(tmp_path)
  ids = _ids((1, 8192))
  theirs, ours = _logits(model, ids), _ours(tmp_path, ids)
  print('llama3 to 8191: max difference', np.abs(ours - theirs).max())
  np.testing.assert_allclose(ours, theirs, atol=1e-4, rtol=0)
  # The test can tell: without the scaling even the start is elsewhere.
  config = json.loads((tmp_path / 'config.json').read_text())
  for key in ('rope_parameters', 'rope_scaling'):
    config.pop(key, None)
  config['rope_theta'] = 5e5
  (tmp_path / 'config.json').write_text(json.dumps(config))
  assert weights.load_config(tmp_path).rope_scaling is None
  dropped = _ours(tmp_path, ids[:, :512])
  assert np.abs(dropped - theirs[:, :512]).max() > 1e-2


@pytest.mark.parametrize('case', CASES)
def test_config_both_ways(case, tmp_path):
  family, options = CASES[case]
  config = getattr(transformers, f'{family}Config')(**(TINY | options))
  config.save_pretrained(tmp_path)
  cfg = weights.load_config(tmp_path)
  written = presets.config_to_hf(cfg)
  back = transformers.AutoConfig.for_model(**written)
  assert back.rope_parameters == config.rope_parameters
  assert presets.config_from_hf(written) == cfg
  assert presets.config_from_hf(json.loads(back.to_json_string())) == cfg

"""Named sizes of the four families, and config.json to ModelConfig and back.

A preset is shapes and constants alone, without a download: benchmarks and
ahead-of-time compiles use it. A run that loads weights takes its config from
the checkpoint, by the same `config_from_hf`.
"""

import dataclasses
from typing import Any

from tandem import types

_ARCHITECTURES = {
  'qwen3': 'Qwen3ForCausalLM',
  'qwen2': 'Qwen2ForCausalLM',
  'llama': 'LlamaForCausalLM',
}


def _qwen3(dim, layers, heads, hidden, *, tied, theta=1e6, position=40_960):
  return types.ModelConfig(
    vocab=151_936,
    dim=dim,
    num_layers=layers,
    num_heads=heads,
    num_kv_heads=8,
    head_dim=128,  # Not dim / heads: 0.6B, 4B and 32B differ from it.
    hidden=hidden,
    rope_theta=theta,
    norm_eps=1e-6,
    tied=tied,
    qk_norm=True,
    max_position=position,
    family='qwen3',
  )


def _qwen2(
  dim, layers, heads, kv, hidden, *, vocab=151_936, tied, position=32_768
):
  return types.ModelConfig(
    vocab=vocab,
    dim=dim,
    num_layers=layers,
    num_heads=heads,
    num_kv_heads=kv,
    head_dim=dim // heads,
    hidden=hidden,
    rope_theta=1e6,
    norm_eps=1e-6,
    tied=tied,
    qkv_bias=True,
    max_position=position,
    family='qwen2',
  )


def _llama(
  dim, layers, heads, kv, hidden, *, vocab, tied, theta, position, factor=None
):
  scaling = factor and types.RopeScaling(factor, 1.0, 4.0, 8192)
  return types.ModelConfig(
    vocab=vocab,
    dim=dim,
    num_layers=layers,
    num_heads=heads,
    num_kv_heads=kv,
    head_dim=dim // heads,
    hidden=hidden,
    rope_theta=theta,
    rope_scaling=scaling,
    norm_eps=1e-5,
    tied=tied,
    max_position=position,
    family='llama',
  )


def _llama3(dim, layers, heads, hidden, *, tied, factor):
  return _llama(
    dim,
    layers,
    heads,
    8,
    hidden,
    vocab=128_256,
    tied=tied,
    theta=5e5,
    position=131_072,
    factor=factor,
  )


def _smollm2(dim, layers, heads, kv, hidden, *, theta):
  return _llama(
    dim,
    layers,
    heads,
    kv,
    hidden,
    vocab=49_152,
    tied=True,
    theta=theta,
    position=8192,
  )


def _short(cfg: types.ModelConfig) -> types.ModelConfig:
  """Qwen3's base models state a shorter context and are otherwise the same."""
  return dataclasses.replace(cfg, max_position=32_768)


def _long(cfg: types.ModelConfig) -> types.ModelConfig:
  """Qwen2.5's larger base models state a longer context."""
  return dataclasses.replace(cfg, max_position=131_072)


_QWEN3 = {
  '0.6b': _qwen3(1024, 28, 16, 3072, tied=True),
  '1.7b': _qwen3(2048, 28, 16, 6144, tied=True),
  '4b': _qwen3(2560, 36, 32, 9728, tied=True),
  '8b': _qwen3(4096, 36, 32, 12_288, tied=False),
  '14b': _qwen3(5120, 40, 40, 17_408, tied=False),
  '32b': _qwen3(5120, 64, 64, 25_600, tied=False),
}
_QWEN3_2507 = _qwen3(2560, 36, 32, 9728, tied=True, theta=5e6, position=262_144)
_QWEN2 = {
  '0.5b': _qwen2(896, 24, 14, 2, 4864, tied=True),
  '1.5b': _qwen2(1536, 28, 12, 2, 8960, tied=True),
  '3b': _qwen2(2048, 36, 16, 2, 11_008, tied=True),
  '7b': _qwen2(3584, 28, 28, 4, 18_944, vocab=152_064, tied=False),
}
_LLAMA = {
  'llama3.2-1b': _llama3(2048, 16, 32, 8192, tied=True, factor=32.0),
  'llama3.2-3b': _llama3(3072, 28, 24, 8192, tied=True, factor=32.0),
  'llama3.1-8b': _llama3(4096, 32, 32, 14_336, tied=False, factor=8.0),
}
_SMOLLM2 = {
  '135m': _smollm2(576, 30, 9, 3, 1536, theta=1e5),
  '360m': _smollm2(960, 32, 15, 5, 2560, theta=1e5),
  '1.7b': _smollm2(2048, 24, 32, 32, 8192, theta=1.3e5),
}
_LLAMA_HUB = {
  'llama3.2-1b': 'meta-llama/Llama-3.2-1B',
  'llama3.2-3b': 'meta-llama/Llama-3.2-3B',
  'llama3.1-8b': 'meta-llama/Llama-3.1-8B',
}

# name -> (hub id, config).
_TABLE = {
  **{f'qwen3-{k}': (f'Qwen/Qwen3-{k.upper()}', v) for k, v in _QWEN3.items()},
  **{
    f'qwen3-{k}-base': (f'Qwen/Qwen3-{k.upper()}-Base', _short(v))
    for k, v in _QWEN3.items()
    if k != '32b'  # No base model of this size was published.
  },
  'qwen3-4b-instruct-2507': ('Qwen/Qwen3-4B-Instruct-2507', _QWEN3_2507),
  'qwen3-4b-thinking-2507': ('Qwen/Qwen3-4B-Thinking-2507', _QWEN3_2507),
  **{
    f'qwen2.5-{k}': (
      f'Qwen/Qwen2.5-{k.upper()}',
      _long(v) if k in ('1.5b', '7b') else v,
    )
    for k, v in _QWEN2.items()
  },
  **{
    f'qwen2.5-{k}-instruct': (f'Qwen/Qwen2.5-{k.upper()}-Instruct', v)
    for k, v in _QWEN2.items()
  },
  **{k: (_LLAMA_HUB[k], v) for k, v in _LLAMA.items()},
  **{
    f'{k}-instruct': (f'{_LLAMA_HUB[k]}-Instruct', v) for k, v in _LLAMA.items()
  },
  **{
    f'smollm2-{k}': (f'HuggingFaceTB/SmolLM2-{k.upper()}', v)
    for k, v in _SMOLLM2.items()
  },
  **{
    f'smollm2-{k}-instruct': (f'HuggingFaceTB/SmolLM2-{k.upper()}-Instruct', v)
    for k, v in _SMOLLM2.items()
  },
}
PRESETS = {name: cfg for name, (_, cfg) in _TABLE.items()}
HUB_IDS = {name: hub for name, (hub, _) in _TABLE.items()}


def preset(name: str) -> types.ModelConfig:
  """PRESETS[name].

  Raises:
    ValueError: no preset of this name; the message lists them.
  """
  if name not in PRESETS:
    raise ValueError(f'preset {name!r} is unknown; one of {sorted(PRESETS)}.')
  return PRESETS[name]


def _rope(hf: dict[str, Any], problems: list[str]):
  """(theta, RopeScaling or None) from transformers 5's keys or the older ones.

  A dropped scaling changes nothing near the start of a text and everything
  far from it, so whatever is not understood here is a problem, not a default.
  """
  rope = dict(hf.get('rope_scaling') or {})
  rope |= hf.get('rope_parameters') or {}
  theta = rope.pop('rope_theta', None) or hf.get('rope_theta') or 1e4
  kind = rope.pop('rope_type', None) or rope.pop('type', None) or 'default'
  rope.pop('type', None)  # Some configs carry the old key beside the new one.
  if any(isinstance(v, dict) for v in rope.values()):
    problems.append(f'rotary settings per layer type ({sorted(rope)})')
    return theta, None
  partial = rope.pop('partial_rotary_factor', None)
  if (partial or hf.get('partial_rotary_factor') or 1.0) != 1.0:
    problems.append('partial_rotary_factor other than 1')
  if kind == 'default':
    return float(theta), None
  if kind != 'llama3':
    problems.append(f'rope type {kind!r} (known: default, llama3)')
    return float(theta), None
  known = ('factor', 'low_freq_factor', 'high_freq_factor')
  missing = [k for k in known if k not in rope]
  if missing:
    problems.append(f'llama3 rope scaling without {missing}')
    return float(theta), None
  original = rope.get('original_max_position_embeddings')
  original = original or hf['max_position_embeddings']
  scaling = types.RopeScaling(*(float(rope[k]) for k in known), int(original))
  return float(theta), scaling


def config_from_hf(hf: dict[str, Any]) -> types.ModelConfig:
  """A ModelConfig from the contents of a config.json.

  Args:
    hf: of model_type qwen3, qwen2 or llama (SmolLM2 is a llama); rotary
      settings under `rope_parameters` or under `rope_theta` and
      `rope_scaling`.

  Raises:
    ValueError: one error that names everything in it that the decoder does
      not compute: another model type, rope type or activation, sliding
      windows, experts, biases, quantised weights; or a missing key.
  """
  family, problems = hf.get('model_type'), []
  if family not in _ARCHITECTURES:
    problems.append(
      f'model_type {family!r} (known: {", ".join(_ARCHITECTURES)})'
    )
  needed = (
    'vocab_size',
    'hidden_size',
    'num_hidden_layers',
    'num_attention_heads',
    'intermediate_size',
    'max_position_embeddings',
  )
  problems += [f'no {key}' for key in needed if hf.get(key) is None]
  if (hf.get('hidden_act') or 'silu') != 'silu':
    problems.append(f'hidden_act {hf["hidden_act"]!r} (known: silu)')
  off = (
    'attention_bias',
    'mlp_bias',
    'num_experts',
    'num_local_experts',
    'use_sliding_window',
    'quantization_config',
  )
  problems += [f'{key}={hf[key]!r}' for key in off if hf.get(key)]
  kinds = set(hf.get('layer_types') or ()) - {'full_attention'}
  if kinds:
    problems.append(f'layer types {sorted(kinds)} (known: full_attention)')
  # Qwen's configs state a window and switch it off; a llama has no switch.
  if family == 'llama' and hf.get('sliding_window'):
    problems.append(f'sliding_window={hf["sliding_window"]}')
  theta, scaling = _rope(hf, problems) if not problems else (1e4, None)
  if problems:
    raise ValueError(
      'config.json asks for what this decoder does not compute: '
      f'{"; ".join(problems)}. Qwen3, Qwen2.5, Llama 3 and SmolLM2 '
      'checkpoints with full attention load.'
    )
  dim, heads = hf['hidden_size'], hf['num_attention_heads']
  default_dim = 128 if family == 'qwen3' else dim // heads
  return types.ModelConfig(
    vocab=hf['vocab_size'],
    dim=dim,
    num_layers=hf['num_hidden_layers'],
    num_heads=heads,
    num_kv_heads=hf.get('num_key_value_heads') or heads,
    head_dim=hf.get('head_dim') or default_dim,
    hidden=hf['intermediate_size'],
    rope_theta=theta,
    rope_scaling=scaling,
    norm_eps=float(hf.get('rms_norm_eps', 1e-6)),
    tied=bool(hf.get('tie_word_embeddings', False)),
    qkv_bias=family == 'qwen2',
    qk_norm=family == 'qwen3',
    max_position=hf['max_position_embeddings'],
    family=family,
  )


def config_to_hf(cfg: types.ModelConfig) -> dict[str, Any]:
  """The contents of a config.json that transformers 4 and 5 both read.

  Raises:
    ValueError: no published family has this combination of features.
  """
  family = cfg.family
  if family not in _ARCHITECTURES:
    raise ValueError(
      f'family={family!r} is unknown; one of {sorted(_ARCHITECTURES)}.'
    )
  has = {'qkv_bias': cfg.qkv_bias, 'qk_norm': cfg.qk_norm}
  wants = {'qkv_bias': family == 'qwen2', 'qk_norm': family == 'qwen3'}
  if has != wants:
    raise ValueError(
      f'family={family!r} needs {wants}, got {has}; a config.json cannot say '
      'otherwise, so set the family that fits.'
    )
  if family == 'qwen2' and cfg.head_dim * cfg.num_heads != cfg.dim:
    raise ValueError(
      f'family=qwen2 derives head_dim as dim / num_heads; got head_dim='
      f'{cfg.head_dim} with dim={cfg.dim} and num_heads={cfg.num_heads}.'
    )
  hf = {
    'architectures': [_ARCHITECTURES[family]],
    'attention_dropout': 0.0,
    'head_dim': cfg.head_dim,
    'hidden_act': 'silu',
    'hidden_size': cfg.dim,
    'initializer_range': 0.02,
    'intermediate_size': cfg.hidden,
    'max_position_embeddings': cfg.max_position,
    'model_type': family,
    'num_attention_heads': cfg.num_heads,
    'num_hidden_layers': cfg.num_layers,
    'num_key_value_heads': cfg.num_kv_heads,
    'rms_norm_eps': cfg.norm_eps,
    'rope_theta': cfg.rope_theta,
    'rope_scaling': None,
    'tie_word_embeddings': cfg.tied,
    'use_cache': True,
    'vocab_size': cfg.vocab,
  }
  if family != 'qwen2':
    hf['attention_bias'] = False
  if family == 'llama':
    hf['mlp_bias'] = False
  else:
    hf['use_sliding_window'] = False
  if cfg.rope_scaling:
    hf['rope_scaling'] = {
      'rope_type': 'llama3',
      'factor': cfg.rope_scaling.factor,
      'low_freq_factor': cfg.rope_scaling.low_freq_factor,
      'high_freq_factor': cfg.rope_scaling.high_freq_factor,
      'original_max_position_embeddings': (
        cfg.rope_scaling.original_max_position
      ),
    }
  return hf

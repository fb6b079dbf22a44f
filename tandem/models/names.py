"""One table of a checkpoint's tensors: names, axes, and how they become ours.

It serves reading and writing, safetensors and GGUF alike. Axes are letters:
V vocab, D model, Q query heads, K kv heads, H head dim, F hidden. In `stored`,
letters in brackets are one axis of the file, as `(QH)D` for a weight
[Q*H, D]; `ours` is the order in our leaf, which for a layer's tensor is
stacked on a leading L.
"""

import dataclasses

import numpy as np

from tandem import types


@dataclasses.dataclass(frozen=True)
class Row:
  """One leaf of the parameters and the tensors that it is made of."""

  path: str  # in our tree, joined by '/'
  hf: str  # name in safetensors; `{}` is the layer
  gguf: str  # name in GGUF
  stored: str
  ours: str

  @property
  def stacked(self) -> bool:
    return '{}' in self.hf


def _layer(path, hf, gguf, stored, ours=None):
  return Row(
    f'layers/{path}',
    f'model.layers.{{}}.{hf}',
    f'blk.{{}}.{gguf}',
    stored,
    ours or stored,
  )


_EMBED = Row(
  'embed', 'model.embed_tokens.weight', 'token_embd.weight', 'VD', 'VD'
)
_BLOCK = (
  _layer('attn_norm', 'input_layernorm.weight', 'attn_norm.weight', 'D'),
  _layer('q', 'self_attn.q_proj.weight', 'attn_q.weight', '(QH)D', 'DQH'),
  _layer('k', 'self_attn.k_proj.weight', 'attn_k.weight', '(KH)D', 'DKH'),
  _layer('v', 'self_attn.v_proj.weight', 'attn_v.weight', '(KH)D', 'DKH'),
  _layer('o', 'self_attn.o_proj.weight', 'attn_output.weight', 'D(QH)', 'QHD'),
  _layer('mlp_norm', 'post_attention_layernorm.weight', 'ffn_norm.weight', 'D'),
  _layer('gate', 'mlp.gate_proj.weight', 'ffn_gate.weight', 'FD', 'DF'),
  _layer('up', 'mlp.up_proj.weight', 'ffn_up.weight', 'FD', 'DF'),
  _layer('down', 'mlp.down_proj.weight', 'ffn_down.weight', 'DF', 'FD'),
)
_QKV_BIAS = (
  _layer('q_bias', 'self_attn.q_proj.bias', 'attn_q.bias', '(QH)', 'QH'),
  _layer('k_bias', 'self_attn.k_proj.bias', 'attn_k.bias', '(KH)', 'KH'),
  _layer('v_bias', 'self_attn.v_proj.bias', 'attn_v.bias', '(KH)', 'KH'),
)
_QK_NORM = (
  _layer('q_norm', 'self_attn.q_norm.weight', 'attn_q_norm.weight', 'H'),
  _layer('k_norm', 'self_attn.k_norm.weight', 'attn_k_norm.weight', 'H'),
)
_FINAL = Row('final_norm', 'model.norm.weight', 'output_norm.weight', 'D', 'D')
HEAD = Row('head', 'lm_head.weight', 'output.weight', 'VD', 'DV')

ROWS = (_EMBED, *_BLOCK, *_QKV_BIAS, *_QK_NORM, _FINAL, HEAD)


def rows(cfg: types.ModelConfig) -> tuple[Row, ...]:
  """The rows of ROWS that this model has."""
  return (
    _EMBED,
    *_BLOCK,
    *(_QKV_BIAS if cfg.qkv_bias else ()),
    *(_QK_NORM if cfg.qk_norm else ()),
    _FINAL,
    *(() if cfg.tied else (HEAD,)),
  )


def _sizes(cfg: types.ModelConfig) -> dict[str, int]:
  return {
    'V': cfg.vocab,
    'D': cfg.dim,
    'Q': cfg.num_heads,
    'K': cfg.num_kv_heads,
    'H': cfg.head_dim,
    'F': cfg.hidden,
  }


def _letters(axes: str) -> str:
  return axes.replace('(', '').replace(')', '')


def stored_shape(row: Row, cfg: types.ModelConfig) -> tuple[int, ...]:
  """Shape of each of the row's tensors in a file."""
  sizes, shape, merged = _sizes(cfg), [], None
  for c in row.stored:
    if c == '(':
      merged = 1
    elif c == ')':
      shape.append(merged)
      merged = None
    elif merged is not None:
      merged *= sizes[c]
    else:
      shape.append(sizes[c])
  return tuple(shape)


def leaf_shape(row: Row, cfg: types.ModelConfig) -> tuple[int, ...]:
  """Shape of the row's leaf in our tree."""
  sizes = _sizes(cfg)
  shape = tuple(sizes[c] for c in row.ours)
  return (cfg.num_layers, *shape) if row.stacked else shape


def tensor_names(row: Row, cfg: types.ModelConfig) -> list[str]:
  """Names of the row's tensors in safetensors, by layer."""
  if not row.stacked:
    return [row.hf]
  return [row.hf.format(i) for i in range(cfg.num_layers)]


def from_stored(x: np.ndarray, row: Row, cfg: types.ModelConfig) -> np.ndarray:
  """A file's tensor as one layer of our leaf; a view where numpy can."""
  sizes, letters = _sizes(cfg), _letters(row.stored)
  x = x.reshape([sizes[c] for c in letters])
  return x.transpose([letters.index(c) for c in row.ours])


def to_stored(x: np.ndarray, row: Row, cfg: types.ModelConfig) -> np.ndarray:
  """The inverse of from_stored, contiguous."""
  x = x.transpose([row.ours.index(c) for c in _letters(row.stored)])
  return np.ascontiguousarray(x.reshape(stored_shape(row, cfg)))

"""Other people's samplers on our weights: Hugging Face generate, and Tunix's.

Each is asked for the same: one token at a time from the plain law at
temperature 1, no token ends a row, every row as long as the others. A loader
gives `make(ids, response) -> program`; where a package is missing it raises
ImportError. Tunix's Llama knows one rotary base only, `THETA`, so that is what
all of them are given, and `logits` tells that all compute one function.
"""

from collections.abc import Callable
import dataclasses
import os
import tempfile

import jax
import jax.numpy as jnp
import numpy as np

from tandem import types
from tandem.models import decoder
from tandem.models import weights

THETA = 1e6
NAMES = ('huggingface_f32', 'huggingface_bf16', 'tunix')


@dataclasses.dataclass(frozen=True)
class Sampler:
  """Another sampler, loaded.

  Attributes:
    make: (ids [N, P] int32, tokens to write) -> a program of no arguments,
      which returns [N, tokens] ids on the host.
    logits: ids [N, P] -> [N, P, V] float32, of the model that it samples from.
  """

  make: Callable[[np.ndarray, int], Callable[[], np.ndarray]]
  logits: Callable[[np.ndarray], np.ndarray]


def load(name: str, params: decoder.Params, cfg: types.ModelConfig) -> Sampler:
  """One of NAMES on these weights.

  Args:
    name: whose.
    params: of init_params.
    cfg: a Llama with tied embeddings and rope_theta of THETA.

  Raises:
    ImportError: its package, or one that it needs, is not installed.
    ValueError: an unknown name.
  """
  if name == 'tunix':
    return _tunix(params, cfg)
  if name not in NAMES:
    raise ValueError(f'sampler {name!r} is unknown; one of {", ".join(NAMES)}.')
  return _huggingface(params, cfg, name.split('_')[1])


def _huggingface(params, cfg, dtype) -> Sampler:
  import torch
  import transformers

  torch.set_num_threads(os.cpu_count())
  with tempfile.TemporaryDirectory() as directory:
    weights.save_params(directory, params, cfg, dtype='float32')
    model = transformers.AutoModelForCausalLM.from_pretrained(
      directory, dtype={'f32': torch.float32, 'bf16': torch.bfloat16}[dtype]
    )
  model = model.eval()

  def make(ids, response):
    ids = torch.from_numpy(np.array(ids, np.int64))
    law = transformers.GenerationConfig(
      do_sample=True,
      temperature=1.0,
      top_k=0,
      top_p=1.0,
      max_new_tokens=response,
      eos_token_id=None,
      pad_token_id=0,
    )
    mask = torch.ones_like(ids)

    def program():
      with torch.inference_mode():
        out = model.generate(ids, attention_mask=mask, generation_config=law)
      return out[:, ids.shape[1] :].numpy()

    return program

  def logits(ids):
    with torch.inference_mode():
      out = model(torch.from_numpy(np.array(ids, np.int64))).logits
    return out.float().numpy()

  return Sampler(make, logits)


class _Numbers:
  """A tokenizer for Tunix: the prompt is its ids, written out; no id ends."""

  def encode(self, text: str) -> list[int]:
    return [int(word) for word in text.split()]

  def decode(self, ids) -> str:
    del ids
    return ''

  def bos_id(self) -> int:
    return 0

  def eos_id(self) -> int:
    return -1

  def pad_id(self) -> int:
    return -1


# Leaves of a layer, ours -> Tunix's; the axes are the same.
_TUNIX = {
  'attn_norm': ('input_layernorm', 'w'),
  'q': ('attn', 'q_proj', 'w'),
  'k': ('attn', 'k_proj', 'w'),
  'v': ('attn', 'v_proj', 'w'),
  'o': ('attn', 'o_proj', 'w'),
  'mlp_norm': ('post_attention_layernorm', 'w'),
  'gate': ('mlp', 'gate_proj', 'kernel'),
  'up': ('mlp', 'up_proj', 'kernel'),
  'down': ('mlp', 'down_proj', 'kernel'),
}


def _tunix(params, cfg) -> Sampler:
  from flax import nnx
  from tunix.generate import sampler as sampler_lib
  from tunix.models.llama3 import model as model_lib

  model = model_lib.Llama3(
    model_lib.ModelConfig(
      num_layers=cfg.num_layers,
      vocab_size=cfg.vocab,
      embed_dim=cfg.dim,
      hidden_dim=cfg.hidden,
      num_heads=cfg.num_heads,
      head_dim=cfg.head_dim,
      num_kv_heads=cfg.num_kv_heads,
      rope_theta=int(cfg.rope_theta),
      norm_eps=cfg.norm_eps,
      weight_tying=True,
    ),
    rngs=nnx.Rngs(0),
  )

  def put(node, path, value):
    for name in path[:-1]:
      node = getattr(node, name)
    variable = getattr(node, path[-1])
    assert variable.shape == value.shape, (path, variable.shape, value.shape)
    setattr(node, path[-1], nnx.Param(value))

  put(model, ('embedder', 'input_embedding'), params['embed'])
  put(model, ('final_norm', 'w'), params['final_norm'])
  for i, layer in enumerate(model.layers):
    for name, path in _TUNIX.items():
      put(layer, path, params['layers'][name][i])

  def make(ids, response):
    sampler = sampler_lib.Sampler(
      model,
      _Numbers(),
      sampler_lib.CacheConfig(
        cache_size=ids.shape[1] + response,
        num_layers=cfg.num_layers,
        num_kv_heads=cfg.num_kv_heads,
        head_dim=cfg.head_dim,
      ),
    )
    texts = [' '.join(map(str, row)) for row in np.asarray(ids).tolist()]

    def program():
      out = sampler(
        texts,
        max_generation_steps=response,
        max_prompt_length=ids.shape[1],
        eos_tokens=[-1],
        temperature=1.0,
        top_p=1.0,
        seed=0,
      )
      return np.stack(out.tokens)

    return program

  def logits(ids):
    n, size = ids.shape
    at = jnp.broadcast_to(jnp.arange(size), (n, size))
    mask = jnp.broadcast_to(jnp.tri(size, dtype=bool), (n, size, size))
    # Their code leaves rank promotion to jax.
    with jax.numpy_rank_promotion('allow'):
      return np.asarray(model(jnp.asarray(ids), at, None, mask)[0])

  return Sampler(make, logits)

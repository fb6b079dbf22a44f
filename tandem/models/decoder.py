"""The decoder: Qwen3, Qwen2.5, Llama 3 and SmolLM2 are settings of one network.

NNX writes the network, plain pytrees run it. Outside this file there are
`params` (nested dicts of arrays, layers stacked on a leading axis), and

  init_params(key, cfg)               -> params
  hidden(params, cfg, ids)            -> [N, S, D]: scan over layers, to train
  logits_of(params, cfg, hidden)      -> [..., V]
  logits_at(params, cfg, hidden, ids) -> [...]: of one id each
  apply(params, cfg, ids)             -> [N, S, V]: both, for small shapes
  decode_params(params, cfg, dtype)   -> params with a list of layers, to decode
  prefill(params, cfg, ids)           -> keys and values of the prompts
  decode_step(params, cfg, cache, ids, at) -> hidden, cache

Nothing here knows of devices: `constrain(x, name)` is the one hook, and whoever
knows them may give another `attention(q, k, v)`.
"""

from collections.abc import Callable
import functools
from typing import Any

from flax import nnx
import jax
import jax.numpy as jnp

from tandem import types
from tandem.kernels.attention import api as attention_lib
from tandem.models import cache as cache_lib
from tandem.models import rotary as rotary_lib

Params = dict[str, Any]
Constrain = Callable[[jax.Array, str], jax.Array]
# (q [N, S, Q, H], k, v [N, S, K, H]) -> [N, S, Q, H], causal.
Attention = Callable[[jax.Array, jax.Array, jax.Array], jax.Array]
REMAT = ('none', 'block', 'dots')


def _unconstrained(x: jax.Array, name: str) -> jax.Array:
  del name
  return x


def _rms(x: jax.Array, scale: jax.Array, eps: float) -> jax.Array:
  """Root-mean-square norm over the last axis, in float32."""
  wide = x.astype(jnp.float32)
  wide = wide * jax.lax.rsqrt(jnp.mean(wide * wide, -1, keepdims=True) + eps)
  scale = scale.reshape((1,) * (x.ndim - 1) + scale.shape)
  return wide.astype(x.dtype) * scale.astype(x.dtype)


def _project(spec: str, x: jax.Array, w: jax.Array, out=()) -> jax.Array:
  """einsum(spec, x, w); `out` are the last axes where w is flipped."""
  if not out:
    return jnp.einsum(spec, x, w)
  # Weights first: with a few rows of x, XLA's CPU dots read weights on the
  # left up to 1.3 times as fast as on the right.
  x = x.reshape(*x.shape[:2], -1)
  y = jnp.moveaxis(jnp.einsum('oi,nsi->ons', w, x), 0, -1)
  return y.reshape(*x.shape[:2], *out)


class Block(nnx.Module):
  """Pre-norm attention and gated MLP.

  `attend(q [N,S,Q,H], k [N,S,K,H], v [N,S,K,H]) -> ([N,S,Q,H], aux)` is given
  by the caller, which so decides between training, prefill and cache.
  """

  def __init__(self, cfg: types.ModelConfig, *, rngs: nnx.Rngs):
    self.cfg = cfg
    d, f, h = cfg.dim, cfg.hidden, cfg.head_dim
    heads, kv = cfg.num_heads, cfg.num_kv_heads
    # Residual branches start small, so that depth does not grow the stream.
    depth = (2 * cfg.num_layers) ** -0.5

    def normal(shape, fan_in, gain=1.0):
      draw = jax.random.normal(rngs.params(), shape, jnp.float32)
      return nnx.Param(draw * (gain * fan_in**-0.5))

    ones = lambda size: nnx.Param(jnp.ones(size, jnp.float32))
    zeros = lambda *shape: nnx.Param(jnp.zeros(shape, jnp.float32))
    self.attn_norm, self.mlp_norm = ones(d), ones(d)
    self.q = normal((d, heads, h), d)
    self.k = normal((d, kv, h), d)
    self.v = normal((d, kv, h), d)
    self.o = normal((heads, h, d), heads * h, depth)
    self.gate = normal((d, f), d)
    self.up = normal((d, f), d)
    self.down = normal((f, d), f, depth)
    if cfg.qk_norm:
      self.q_norm, self.k_norm = ones(h), ones(h)
    if cfg.qkv_bias:
      self.q_bias = zeros(heads, h)
      self.k_bias, self.v_bias = zeros(kv, h), zeros(kv, h)

  def __call__(self, x, rotary, attend):
    cfg = self.cfg
    d, f, h = cfg.dim, cfg.hidden, cfg.head_dim
    heads, kv = cfg.num_heads, cfg.num_kv_heads
    flipped = self.q[...].ndim == 2  # as decode_params may leave them
    with jax.named_scope('attention'):
      y = _rms(x, self.attn_norm[...], cfg.norm_eps)
      q = _project('nsd,dqh->nsqh', y, self.q[...], flipped and (heads, h))
      k = _project('nsd,dkh->nskh', y, self.k[...], flipped and (kv, h))
      v = _project('nsd,dkh->nskh', y, self.v[...], flipped and (kv, h))
      if cfg.qkv_bias:
        q = q + self.q_bias[...][None, None]
        k = k + self.k_bias[...][None, None]
        v = v + self.v_bias[...][None, None]
      if cfg.qk_norm:
        q = _rms(q, self.q_norm[...], cfg.norm_eps)
        k = _rms(k, self.k_norm[...], cfg.norm_eps)
      q, k = rotary_lib.rotate(q, rotary), rotary_lib.rotate(k, rotary)
      y, aux = attend(q, k, v)
      x = x + _project('nsqh,qhd->nsd', y, self.o[...], flipped and (d,))
    with jax.named_scope('mlp'):
      y = _rms(x, self.mlp_norm[...], cfg.norm_eps)
      gate = _project('nsd,df->nsf', y, self.gate[...], flipped and (f,))
      up = _project('nsd,df->nsf', y, self.up[...], flipped and (f,))
      y = jax.nn.silu(gate) * up
      return x + _project(
        'nsf,fd->nsd', y, self.down[...], flipped and (d,)
      ), aux


class Decoder(nnx.Module):
  """Embedding, Blocks whose every leaf leads with L, final norm, head."""

  def __init__(self, cfg: types.ModelConfig, *, rngs: nnx.Rngs):
    def normal(shape):
      draw = jax.random.normal(rngs.params(), shape, jnp.float32)
      return nnx.Param(draw * cfg.dim**-0.5)

    self.embed = normal((cfg.vocab, cfg.dim))
    keys = jax.random.split(rngs.params(), cfg.num_layers)
    self.layers = jax.vmap(lambda key: Block(cfg, rngs=nnx.Rngs(key)))(keys)
    self.final_norm = nnx.Param(jnp.ones(cfg.dim, jnp.float32))
    if not cfg.tied:
      self.head = normal((cfg.dim, cfg.vocab))


@functools.cache
def _block_graph(cfg: types.ModelConfig):
  """The static part of a Block, from shapes alone."""
  return nnx.graphdef(jax.eval_shape(lambda: Block(cfg, rngs=nnx.Rngs(0))))


def _block(cfg: types.ModelConfig, layer: Params, dtype) -> Block:
  layer = jax.tree.map(lambda a: a.astype(dtype), layer)
  return nnx.merge(_block_graph(cfg), layer)


def init_params(
  key: jax.Array, cfg: types.ModelConfig, dtype=jnp.float32
) -> Params:
  """Random parameters; `key` is consumed."""
  params = nnx.to_pure_dict(nnx.state(Decoder(cfg, rngs=nnx.Rngs(key))))
  return jax.tree.map(lambda a: a.astype(dtype), params)


# Runs under any sharding; the platforms' own must be told of the mesh.
xla_attention = functools.partial(attention_lib.attention, implementation='xla')


def _positions(ids: jax.Array) -> jax.Array:
  """[1, S]; the same of every row."""
  return jnp.arange(ids.shape[1])[None]


def hidden(
  params: Params,
  cfg: types.ModelConfig,
  ids: jax.Array,
  *,
  dtype=None,
  remat: str = 'none',
  constrain: Constrain = _unconstrained,
  attention: Attention = xla_attention,
) -> jax.Array:
  """Hidden states after the final norm, by a scan over the stacked layers.

  A frozen model that is held as decode_params only is run layer by layer.

  Rows start at position 0 and are padded on the right, so a causal mask is
  all the masking there is: no real token ever sees a pad.

  Args:
    params: layers stacked, or decode_params.
    cfg: the model.
    ids: [N, S] int32.
    dtype: of the computation; the parameters' own where None.
    remat: `none`; `block` recomputes each block in the backward pass; `dots`
      keeps the results of weight products only.
    constrain: activation-sharding hook, called with names such as `btd`.
    attention: causal attention over whole rows.

  Returns:
    [N, S, D] in dtype.

  Raises:
    ValueError: an unknown remat.
  """
  if remat not in REMAT:
    raise ValueError(f'remat={remat!r} is unknown; one of {REMAT}.')
  dtype = dtype or params['embed'].dtype
  rotary = rotary_lib.table(cfg, _positions(ids))
  attend = lambda q, k, v: (attention(q, k, v), None)

  def body(x, layer):
    x, _ = _block(cfg, layer, dtype)(x, rotary, attend)
    return constrain(x, 'btd'), None

  if remat == 'block':
    body = jax.checkpoint(body, prevent_cse=False)
  elif remat == 'dots':
    policy = jax.checkpoint_policies.dots_with_no_batch_dims_saveable
    body = jax.checkpoint(body, policy=policy, prevent_cse=False)
  x = constrain(params['embed'].astype(dtype)[ids], 'btd')
  if isinstance(params['layers'], list):
    for layer in params['layers']:
      x, _ = body(x, layer)
  else:
    x, _ = jax.lax.scan(body, x, params['layers'])
  return _rms(x, params['final_norm'], cfg.norm_eps)


def logits_of(
  params: Params, cfg: types.ModelConfig, x: jax.Array
) -> jax.Array:
  """Float32 logits [..., V] of hidden states x [..., D]."""
  dot = functools.partial(jnp.einsum, preferred_element_type=jnp.float32)
  if not cfg.tied:
    return dot('...d,dv->...v', x, params['head'].astype(x.dtype))
  head = params['embed'].astype(x.dtype)
  rows = x.reshape(-1, x.shape[-1])

  def weights_first(x, w):
    # As in `_project`. XLA would undo a bare transposition by exchanging the
    # sides, and then take half as long again.
    return jax.lax.optimization_barrier(dot('vd,nd->vn', w, x)).T

  return jax.lax.platform_dependent(
    rows,
    head,
    cpu=weights_first,
    default=lambda x, w: dot('nd,vd->nv', x, w),
  ).reshape(*x.shape[:-1], -1)


def logits_at(
  params: Params, cfg: types.ModelConfig, x: jax.Array, ids: jax.Array
) -> jax.Array:
  """Float32 logits of one id each: x [..., D], ids [...] -> [...].

  Equal to `logits_of` at those ids but for rounding, and reads of the head no
  more than their columns.
  """
  if cfg.tied:
    columns = params['embed'][ids]
  else:
    columns = jnp.moveaxis(params['head'][:, ids], 0, -1)
  columns = columns.astype(x.dtype).astype(jnp.float32)
  return (x.astype(jnp.float32) * columns).sum(-1)


def apply(
  params: Params, cfg: types.ModelConfig, ids: jax.Array, **kwargs
) -> jax.Array:
  """Float32 logits [N, S, V] of ids [N, S]; for shapes where that is small."""
  return logits_of(params, cfg, hidden(params, cfg, ids, **kwargs))


def decode_params(
  params: Params, cfg: types.ModelConfig, dtype=None, *, flip: bool = False
) -> Params:
  """Stacked layers as a list of L trees, cast to dtype.

  Made once per weight update and outside the decode program: slicing inside
  the decode loop would be done again at every step.

  Args:
    params: layers stacked.
    cfg: the model.
    dtype: None keeps each leaf's own.
    flip: projections as matrices [out, in], which a CPU reads faster; for one
      device, since no sharding table names their axes.
  """
  cast = lambda a: a if dtype is None else a.astype(dtype)
  params = jax.tree.map(cast, params)
  layers = [
    jax.tree.map(lambda a: a[i], params['layers'])  # noqa: B023, used at once
    for i in range(cfg.num_layers)
  ]
  if flip:
    layers = [layer | _flipped(layer) for layer in layers]
  return params | {'layers': layers}


def _flipped(layer: Params) -> Params:
  """The projections of a layer as matrices [out, in]."""
  d = layer['q'].shape[0]
  inward = {x: layer[x].reshape(d, -1).T for x in ('q', 'k', 'v', 'gate', 'up')}
  return inward | {x: layer[x].reshape(-1, d).T for x in ('o', 'down')}


def prefill(
  params: Params,
  cfg: types.ModelConfig,
  ids: jax.Array,
  attention: Attention = xla_attention,
) -> list[tuple[jax.Array, jax.Array]]:
  """Per layer, keys and values [B, P, K, H] of right-padded prompts [B, P].

  `params` are decode_params, `attention` as of `hidden`. The last block's output
  is unused, and the compiler drops its work.
  """
  dtype = params['embed'].dtype
  x, kept = params['embed'][ids], []
  rotary = rotary_lib.table(cfg, _positions(ids))
  attend = lambda q, k, v: (attention(q, k, v), (k, v))
  for layer in params['layers']:
    x, kv = _block(cfg, layer, dtype)(x, rotary, attend)
    kept.append(kv)
  return kept


def decode_step(
  params: Params,
  cfg: types.ModelConfig,
  cache: cache_lib.Cache,
  ids: jax.Array,
  at: jax.Array,
  *,
  read=cache_lib.read,
) -> tuple[jax.Array, cache_lib.Cache]:
  """Runs C tokens per row over the cache.

  Args:
    params: decode_params.
    cfg: the model.
    cache: written in the slots of `at`, then read up to them.
    ids: [N, C] int32.
    at: [N, C] int32; which of its row's own tokens each is, from 0. Its
      position is that plus the row's prefix length.
    read: cache.read, or what cache.reader makes.

  Returns:
    Hidden states [N, C, D] after the final norm, and the cache.
  """
  dtype = params['embed'].dtype
  rotary = rotary_lib.table(cfg, cache.starts()[:, None] + at)
  slots = cache.slots(at)
  # Else XLA fuses the sines into every layer, and takes them per head.
  rotary = jax.lax.optimization_barrier(rotary)
  x, layers = params['embed'][ids], []
  for layer, kv in zip(params['layers'], cache.layers):

    def attend(q, k, v, kv=kv):
      kv = cache_lib.write(kv, k, v, slots)
      y = read(kv, q, cache.prefix_lengths, slots, cache.owner, cache.lanes)
      return y, kv

    x, kv = _block(cfg, layer, dtype)(x, rotary, attend)
    layers.append(kv)
  x = _rms(x, params['final_norm'], cfg.norm_eps)
  return x, cache.replace(layers=tuple(layers))

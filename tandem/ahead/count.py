"""Operations and bytes of a program from its jaxpr, loops multiplied out.

Compilers count a loop's body once, ignore Pallas calls, and for GPUs count
nothing. Here a scan counts its length, a loop that ends on data counts the trips
that the caller names, and a Pallas call counts its kernel once per grid cell.
Only products are counted: what is elementwise is free on the units that do
products, and its bytes are the compiler's business (see `traffic`).
"""

from collections.abc import Mapping
import dataclasses
import math
from typing import Any

import numpy as np


@dataclasses.dataclass
class Count:
  """Of the whole program, all devices together."""

  flops: float = 0.0  # of products; one multiply and add are two
  wide_flops: float = 0.0  # those of them with float32 operands
  bytes: float = 0.0  # operands and results of products
  attention_flops: float = 0.0  # those of them between two activations
  pallas: dict[str, float] = dataclasses.field(default_factory=dict)  # flops

  def add(self, other: 'Count', times: float = 1.0) -> None:
    self.flops += times * other.flops
    self.wide_flops += times * other.wide_flops
    self.bytes += times * other.bytes
    self.attention_flops += times * other.attention_flops
    for name, flops in other.pallas.items():
      self.pallas[name] = self.pallas.get(name, 0.0) + times * flops


def _bytes(aval) -> float:
  return math.prod(aval.shape) * np.dtype(aval.dtype).itemsize


def _dot(eqn) -> Count:
  lhs, rhs = (v.aval for v in eqn.invars)
  (contract, _), (batch, _) = eqn.params['dimension_numbers']
  out = eqn.outvars[0].aval
  flops = 2.0 * math.prod(out.shape)
  flops *= math.prod(lhs.shape[d] for d in contract)
  wide = all(np.dtype(x.dtype).itemsize >= 4 for x in (lhs, rhs))
  return Count(
    flops=flops,
    wide_flops=flops if wide else 0.0,
    bytes=_bytes(lhs) + _bytes(rhs) + _bytes(out),
    attention_flops=flops if batch else 0.0,
  )


def _convolution(eqn) -> Count:
  lhs, rhs = (v.aval for v in eqn.invars)
  out = eqn.outvars[0].aval
  spec = eqn.params['dimension_numbers'].rhs_spec
  window = math.prod(rhs.shape[d] for d in spec[1:])
  flops = 2.0 * math.prod(out.shape) * window
  wide = np.dtype(lhs.dtype).itemsize >= 4
  return Count(
    flops, flops if wide else 0.0, _bytes(lhs) + _bytes(rhs) + _bytes(out)
  )


def _manual_devices(params: Mapping[str, Any]) -> int:
  """Devices over which a shard_map's body, written for one of them, runs."""
  mesh = params['mesh']
  return math.prod(mesh.shape[name] for name in params['newly_manual_axes'])


def _pallas(eqn, trips) -> Count:
  """The kernel's products, once per cell of its grid."""
  mapping = eqn.params['grid_mapping']
  grid, cells = mapping.grid, _cells(mapping)
  body = count(eqn.params['jaxpr'], trips)
  out = Count()
  out.add(body, cells)
  # What it moves is its operands and results, at the least.
  out.bytes = sum(_bytes(v.aval) for v in [*eqn.invars, *eqn.outvars])
  name = str(eqn.params.get('name') or eqn.params.get('name_and_src_info'))
  name = name.split()[0]
  if name.startswith('splash_'):
    share = _causal_share(name, grid)
    out.flops *= share
    out.wide_flops *= share
    out.attention_flops = out.flops
  out.pallas = {name: out.flops}
  return out


def _cells(mapping) -> int:
  """Cells of a grid; of one that ends on data, at the most.

  Then they are as many as the operand that is cut finest has blocks.
  """
  if not mapping.num_dynamic_grid_bounds:
    return math.prod(int(size) for size in mapping.grid)
  out = 1
  for one in mapping.block_mappings:
    blocks = 1
    for size, part in zip(one.array_aval.shape, one.block_shape):
      width = part if isinstance(part, int) else getattr(part, 'block_size', 1)
      blocks *= -(-size // width)
    out = max(out, blocks)
  return out


def _causal_share(name: str, grid) -> float:
  """Of the blocks of splash's grid, those that a causal mask leaves.

  Grids are [..., heads, n, n], and [..., n, heads, n] where gradients of keys
  are added up. Blocks of queries and of keys are equal in ours; of others it
  says 1.
  """
  n, other = int(grid[-1]), int(grid[-3 if '_dkv' in name else -2])
  return (n + 1) / (2 * n) if other == n else 1.0


# Products of size N Q S S H: scores and mix; those again, and three gradients.
_CUDNN = {
  'dot_product_attention_fwd_wrapper': 2,
  'dot_product_attention_bwd_wrapper': 5,
}


def _cudnn(eqn) -> Count:
  """cuDNN's attention; a causal mask leaves half of it."""
  q, k, *_ = (v.aval for v in eqn.invars)
  length = 2 if eqn.params['layout'] else 1  # BNTH, else BTNH
  flops = 2.0 * math.prod(q.shape) * k.shape[length]
  flops *= _CUDNN[eqn.primitive.name]
  if 'CAUSAL' in str(eqn.params['mask_type']):
    flops /= 2
  return Count(
    flops=flops,
    bytes=sum(_bytes(v.aval) for v in [*eqn.invars, *eqn.outvars]),
    attention_flops=flops,
  )


def _inner(params: Mapping[str, Any]):
  """The jaxprs that an equation calls once."""
  found = []
  for value in params.values():
    for one in value if isinstance(value, (tuple, list)) else (value,):
      one = getattr(one, 'jaxpr', one)  # of a closed one
      if hasattr(one, 'eqns'):
        found.append(one)
  return found


def count(jaxpr, trips: int = 1) -> Count:
  """Products of a jaxpr.

  Args:
    jaxpr: open or closed.
    trips: of each outermost loop that ends on data.

  Returns:
    A Count over all devices.
  """
  jaxpr = getattr(jaxpr, 'jaxpr', jaxpr)
  total = Count()
  for eqn in jaxpr.eqns:
    name, params = eqn.primitive.name, eqn.params
    if name == 'dot_general':
      total.add(_dot(eqn))
    elif name == 'conv_general_dilated':
      total.add(_convolution(eqn))
    elif name == 'scan':
      total.add(count(params['jaxpr'], trips), params['length'])
    elif name == 'while':
      for part in ('cond_jaxpr', 'body_jaxpr'):
        total.add(count(params[part]), trips)
    elif name == 'cond':
      branches = [count(branch, trips) for branch in params['branches']]
      # Of equal ones the narrower: a backend that cannot do better has its own.
      total.add(max(branches, key=lambda x: (x.flops, -x.wide_flops)))
    elif name == 'shard_map':
      total.add(count(params['jaxpr'], trips), _manual_devices(params))
    elif name == 'pallas_call':
      total.add(_pallas(eqn, trips))
    elif name in _CUDNN:
      total.add(_cudnn(eqn))
    else:
      for inner in _inner(params):
        total.add(count(inner, trips))
  return total

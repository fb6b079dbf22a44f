"""What the host holds while a checkpoint is read: leaves, never the model."""

import tracemalloc

import jax
import numpy as np

from tandem import types
from tandem.models import decoder
from tandem.models import weights

# Layers are most of it, as in a real model; the largest leaf is a quarter.
CFG = types.ModelConfig(
  vocab=64,
  dim=96,
  num_layers=12,
  num_heads=4,
  num_kv_heads=2,
  head_dim=24,
  hidden=288,
  qk_norm=True,
)


def test_a_leaf_at_a_time(tmp_path, monkeypatch):
  shapes = jax.eval_shape(lambda: decoder.init_params(jax.random.key(0), CFG))
  zeros = jax.tree.map(lambda x: np.zeros(x.shape, x.dtype), shapes)
  weights.save_params(tmp_path, zeros, CFG, dtype='bfloat16')
  sizes = [4 * x.size for x in jax.tree.leaves(shapes)]
  del zeros
  # As an accelerator has it: placed, a leaf is no more the host's.
  monkeypatch.setattr(
    weights,
    '_place',
    lambda x, _: jax.ShapeDtypeStruct(x.shape, x.dtype),
  )
  weights.load_params(tmp_path)  # what is imported on the way
  tracemalloc.start()
  try:
    weights.load_params(tmp_path)
    peak = tracemalloc.get_traced_memory()[1]
  finally:
    tracemalloc.stop()
  print(
    f'host: {peak / sum(sizes):.2f} of the model, largest leaf '
    f'{max(sizes) / sum(sizes):.2f}'
  )
  # The next leaf is asked for before the last is let go; its pages come when
  # they are written, after that.
  assert max(sizes) <= peak < 2.2 * max(sizes) < 0.6 * sum(sizes)

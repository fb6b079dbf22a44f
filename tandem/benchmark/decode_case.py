"""What all parts of the decode suite measure on: a pair of models, and rows."""

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from tandem import types
from tandem.benchmark import models
from tandem.models import decoder
from tandem.rollout import sampling as sampling_lib
from tandem.rollout import turns as turns_lib


@dataclasses.dataclass(frozen=True)
class Case:
  """A pair at SmolLM2's shapes, or a toy.

  Attributes:
    cfg: shapes, of both.
    params: of the senior, layers stacked.
    senior: its decode_params.
    prompt: tokens of each prompt.
    response: tokens of each response.
    quick: whether it is the toy.
  """

  cfg: types.ModelConfig
  params: decoder.Params
  senior: decoder.Params
  prompt: int
  response: int
  quick: bool

  def junior(self, target: float) -> tuple[decoder.Params, float]:
    """decode_params of a junior near a wanted overlap, and its overlap."""
    tree, overlap = models.perturbed(self.cfg, self.params, target)
    return ready(tree, self.cfg), overlap

  def ids(self, rows: int) -> jax.Array:
    """Random prompts [rows, P] int32; id 0 is left to padding."""
    shape = (rows, self.prompt)
    return jax.random.randint(jax.random.key(2), shape, 1, self.cfg.vocab)

  def arguments(self, rows: int, group: int = 1) -> dict[str, Any]:
    """What lockstep reads besides the models; rows never end early."""
    prompts = self.ids(rows // group)
    return dict(
      prompts=types.Context(
        ids=prompts, lengths=jnp.full(rows // group, self.prompt)
      ),
      row_keys=row_keys(rows),
      boundary=jnp.asarray(
        np.random.default_rng(0).random(self.cfg.vocab) < 0.5
      ),
      senior_cfg=self.cfg,
      group=group,
      max_tokens=self.response,
      eos_ids=(),
      turns=turns_lib.Turns(),
      sampling=sampling_lib.Sampling(),
    )


def row_keys(rows: int) -> jax.Array:
  """[rows] typed keys."""
  fold = lambda i: jax.random.fold_in(jax.random.key(3), i)
  return jax.vmap(fold)(jnp.arange(rows))


def ready(
  params: decoder.Params, cfg: types.ModelConfig, dtype=None
) -> decoder.Params:
  """decode_params as training makes them for one device."""
  flip = jax.default_backend() == 'cpu'
  return decoder.decode_params(params, cfg, dtype, flip=flip)


def make(quick: bool, response: int = 256) -> Case:
  """The case, its weights drawn; a toy's responses have 8 tokens."""
  cfg = models.config(quick)
  params = decoder.init_params(jax.random.key(0), cfg)
  prompt, response = (3, 8) if quick else (32, response)
  senior = ready(params, cfg)
  return Case(cfg, params, senior, prompt, response, quick)

"""What a run has trained, for whoever reads checkpoints of models."""

import json
import os
import pathlib
from typing import Any

from absl import logging
import jax
from ml_collections import config_dict

from tandem import types
from tandem.models import decoder
from tandem.models import weights
from tandem.training import build
from tandem.training import checkpoint as checkpoint_lib
from tandem.training import mesh as mesh_lib
from tandem.training import models
from tandem.training import setup


def is_run(directory: str | os.PathLike) -> bool:
  """Whether a directory is the workdir of a run that saves."""
  directory = pathlib.Path(directory)
  return all((directory / x).exists() for x in ('config.json', 'checkpoints'))


def trained(
  workdir: str | os.PathLike, step: int | str | None = None
) -> tuple[decoder.Params, types.ModelConfig, Any]:
  """The senior of a run, under the config that lies there.

  The optimizer's moments are read too, and dropped.

  Args:
    workdir: of the run; nothing in it is changed.
    step: a committed step, 'best', or None for the newest intact one.

  Returns:
    float32 params (layers stacked), their config, and the tokenizer: a
    directory that holds its files where the run began from one, else the
    tokenizer itself.

  Raises:
    ValueError: no such checkpoint, or none that is intact.
  """
  workdir = pathlib.Path(workdir)
  text = (workdir / 'config.json').read_text()
  config = config_dict.ConfigDict(json.loads(text))
  tokens = build.text(config)
  cfg = models.model_config(config, tokens.tokenizer)
  params = jax.eval_shape(lambda: decoder.init_params(jax.random.key(0), cfg))
  _, abstract = setup.state_maker(config, params, mesh_lib.make_mesh())
  with checkpoint_lib.Checkpoints(
    workdir / 'checkpoints',
    best_metric=config.checkpoint.best_metric or None,
    read_only=True,
  ) as checkpoints:
    if step is None:
      found = checkpoints.restore_latest(abstract)
      if found is None:
        raise ValueError(
          f'{workdir} has no checkpoint yet; the first is saved after '
          'checkpoint.every_steps, the last at the end.'
        )
      state, _, step = found
    else:
      step = checkpoints.named(step)
      state, _ = checkpoints.restore(step, abstract)
  logging.info('%s: step %d', workdir, step)
  tokenizer = tokens.tokenizer
  if tokens.source != 'quickstart':
    path = weights.resolve(tokens.source)
    tokenizer = path if path.is_dir() else tokenizer
  return state.params, cfg, tokenizer

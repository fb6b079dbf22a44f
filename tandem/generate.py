"""Responses to one prompt, by the pair or by either model alone.

The same prompt template, decode loop and records as in training, with a run's
newest checkpoint or with the weights that a config starts from.
"""

from collections.abc import Mapping
import contextlib
import dataclasses
import pathlib

from absl import logging

from tandem import evaluate
from tandem import types
from tandem.rewards import verifier as verifier_lib
from tandem.training import build
from tandem.training import checkpoint as checkpoint_lib
from tandem.training import collect as collect_lib
from tandem.training import setup as setup_lib


def _for_one_prompt(config, workdir, model: str, samples: int):
  """The run's config without its data set: one prompt needs none."""
  config = config.copy_and_resolve_references()
  config.data.kind, config.data.size = 'quickstart', 1
  config.data.held_out = config.eval.problems = 1
  config.eval.every_steps = 1  # so that the junior is loaded where it speaks
  config.eval.models = (model,)
  config.eval.prompts, config.eval.samples = 1, samples
  config.reward.workers = 1
  if workdir:
    if config.warm_start.enable and not (workdir / 'initial').exists():
      raise ValueError(
        f'{workdir} has no initial/, where the warm start of this config '
        'leaves its weights; give the --workdir of a run, or none.'
      )
    return config
  if config.warm_start.enable:
    logging.warning('no --workdir: random weights, as before a warm start')
    config.warm_start.enable = False
  # Nothing is restored, so the loss, and a teacher with it, has no part.
  for name in config.loss:
    config.loss[name] = 'auto' if name == 'variant' else None
  config.teacher.source, config.privileged.kind = '', 'none'
  config.privileged.max_tokens = 0
  return config


def run(
  config,
  prompt: str,
  *,
  workdir=None,
  step: int | str | None = None,
  model: str = 'pair',
  samples: int = 1,
  sampling: Mapping | None = None,
  gold: str = '',
) -> list[dict]:
  """Answers a prompt.

  Args:
    config: as in training; its data set is not read.
    prompt: a problem's text; instruction and chat template are added as
      config.data says.
    workdir: of a run; None for the initial weights of the config.
    step: a committed step of it, 'best', or None for the newest.
    model: pair, senior or junior.
    samples: how many responses.
    sampling: fields of config.eval's law to change, such as temperature.
    gold: the right answer, to be graded against; '' for no verdict.

  Returns:
    Records of the schema tandem.rollout/1, without verdict where no gold was
    given.

  Raises:
    ValueError: an empty prompt, or a setting that cannot be.
  """
  if not prompt.strip():
    raise ValueError('the prompt is empty; give --prompt or text on stdin.')
  workdir = pathlib.Path(workdir) if workdir else None
  if step is not None and not workdir:
    raise ValueError(f'--step={step} is of a run; give its --workdir, too.')
  if workdir and not workdir.is_dir():
    raise ValueError(f'--workdir={workdir} does not exist.')
  config = _for_one_prompt(config, workdir, model, samples)
  build.check(config)
  law = dataclasses.replace(build.sampling(config.eval), **(sampling or {}))
  with contextlib.ExitStack() as stack:
    verifier = stack.enter_context(
      verifier_lib.Verifier(1, config.reward.limit_s, config.reward.mode)
    )
    parts = setup_lib.setup(
      config, workdir or '', verifier, evaluates=True, trains=False
    )
    params, at = parts.initial, 0
    if workdir:
      checkpoints = stack.enter_context(
        checkpoint_lib.Checkpoints(
          workdir / 'checkpoints',
          best_metric=config.checkpoint.best_metric or None,
          read_only=True,
        )
      )
      state, host, at = setup_lib.take_state(parts, checkpoints, config, step)
      params = state.params
      if host is None:
        logging.warning('no checkpoint there: the initial weights')
    problem = types.Problem(id='', text=prompt, answer=gold)
    got = parts.collector(
      *evaluate.speakers(model, parts.speaker(params), parts.junior),
      build.prompts(config, parts.text.tokenizer, [problem]),
      group=samples,
      sampling=law,
      purpose='generate',
      step=at,
      max_prompt=config.rollout.max_prompt,
    )
    rows = collect_lib.rows(
      got, parts.text.tokenizer, config.seed, purpose='eval'
    )
    told = {'purpose': 'generate'} | ({} if gold else {'verdict': None})
    return [row | told for row in rows]

"""The quickstart's expert, as a warm start reads it."""

import pathlib

from absl import logging
import jax

from tandem.data import quickstart
from tandem.text import tokenizer as tokenizer_lib
from tandem.training import build
from tandem.training import checkpoint as checkpoint_lib
from tandem.training import collect as collect_lib
from tandem.training import warm_start


def started(
  config, directory, model, text, mesh, collector, copy, *, slips: bool
):
  """The weights a warm start stored in `directory`, or one that stores them.

  Stored by this run, or taken from that of warm_start.from_workdir and then
  stored here too, so that the run needs it no more.

  Args:
    config: of the run.
    directory: holds them.
    model: Speaker of the random weights, layers stacked.
    text: build.Text.
    mesh: of the run.
    collector: decodes and grades, to measure accuracy.
    copy: stacked params -> decode_params.
    slips: whether the expert slips in the end; a teacher's does not.

  Returns:
    Float32 params, layers stacked.

  Raises:
    ValueError: from_workdir has no start for the senior, or one of another
      shape.
  """
  warm, params, cfg = config.warm_start, model.params, model.cfg
  found = _stored(config, directory, params)
  if found:
    return found
  checks = build.prompts(
    config,
    text.tokenizer,
    quickstart.problems(
      config.data.held_out_seed + 1, 0, warm.check_problems, held_out=True
    ),
  )
  sampling = build.sampling(config.rollout)

  # Evaluation's shape, so that one program serves both.
  size = min(config.eval.prompts, len(checks))

  def accuracy(params):
    senior, right = collect_lib.Speaker(copy(params), cfg), []
    for start in range(0, len(checks) - size + 1, size):
      got = collector(
        senior,
        None,
        checks[start : start + size],
        group=1,
        sampling=sampling,
        purpose='warm_start',
        step=0,
        first_draw=start,
        max_prompt=config.rollout.max_prompt,
      )
      right.append(got.rewards.mean())
    return float(sum(right) / len(right))

  def demonstrations(start, count, error_rate):
    pairs = quickstart.demonstrations(config.seed, start, count, error_rate)
    prompts = build.prompts(config, text.tokenizer, [p for p, _ in pairs])
    if len(prompts) < len(pairs):
      # The rest would be paired with solutions of other problems.
      raise ValueError(
        f'rollout.max_prompt={config.rollout.max_prompt} is too short for '
        f'{len(pairs) - len(prompts)} of {len(pairs)} demonstrations of the '
        'warm start; raise it.'
      )
    encode = lambda solution: tokenizer_lib.encode(text.tokenizer, solution)
    return [
      (list(prompt.ids), encode(solution) + [text.eos_ids[0]])
      for prompt, (_, solution) in zip(prompts, pairs)
    ]

  phases = [
    warm_start.Phase(
      error_rate=0.0,
      target=warm.clean_accuracy,
      rising=True,
      min_steps=0,
      max_steps=warm.clean_max_steps,
    )
  ]
  if slips:
    phases.append(
      warm_start.Phase(
        error_rate=warm.error_rate,
        target=warm.slip_accuracy,
        rising=False,
        min_steps=warm.slip_min_steps,
        max_steps=warm.slip_max_steps,
      )
    )
  params = warm_start.run(
    params,
    cfg,
    demonstrations,
    accuracy,
    mesh,
    phases,
    rows=warm.rows,
    learning_rate=warm.learning_rate,
    warmup_steps=warm.warmup_steps,
    check_every_steps=warm.check_every_steps,
    band=tuple(warm.band) if slips else (0.0, 1.0),
    max_prompt=config.rollout.max_prompt,
    max_response=config.rollout.max_response,
  )
  checkpoint_lib.save_frozen(directory, params)
  return params


def _stored(config, directory: pathlib.Path, params):
  """Weights in `directory`, else those of from_workdir copied there, or None.

  A run without a teacher leaves none to take, and another one makes it.
  """
  shapes = jax.tree.map(
    lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=x.sharding),
    params,
  )
  found = checkpoint_lib.load_frozen(directory, shapes)
  if found:
    logging.info('weights: %s, as the warm start left them', directory)
    return found[0]
  other = config.warm_start.from_workdir
  if not other:
    return None
  source = pathlib.Path(other) / directory.name
  if (source / '0').exists():  # else opening it would tidy up another's files
    found = checkpoint_lib.load_frozen(source, shapes)
    logging.info('weights: %s, of another run', source)
    checkpoint_lib.save_frozen(directory, found[0])
    return found[0]
  if directory.name == 'initial':
    raise ValueError(
      f'warm_start.from_workdir={other!r} holds no {directory.name}/ with '
      'weights; name the workdir of a run that made its warm start, or leave '
      'it empty to make one.'
    )
  logging.info('weights: none in %s; made here', source)
  return None

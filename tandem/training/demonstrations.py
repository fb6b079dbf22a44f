"""The quickstart's expert, as a warm start reads it."""

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
  """
  warm, params, cfg = config.warm_start, model.params, model.cfg
  found = checkpoint_lib.load_frozen(
    directory,
    jax.tree.map(
      lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=x.sharding),
      params,
    ),
  )
  if found:
    logging.info('weights: %s, as the warm start left them', directory)
    return found[0]
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

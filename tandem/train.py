"""THE loop: problems, rollout, reward, credit, update; read top to bottom."""

from collections.abc import Mapping
import contextlib
import functools
import time
from typing import Any

from absl import logging
import numpy as np
import tqdm

from tandem import evaluate
from tandem import types
from tandem.data import batches
from tandem.rewards import verifier as verifier_lib
from tandem.training import alarms
from tandem.training import build
from tandem.training import checkpoint as checkpoint_lib
from tandem.training import collect as collect_lib
from tandem.training import limits
from tandem.training import mesh as mesh_lib
from tandem.training import metrics as metrics_lib
from tandem.training import preemption
from tandem.training import profile as profile_lib
from tandem.training import programs
from tandem.training import refill
from tandem.training import resume
from tandem.training import rollout_log
from tandem.training import setup as setup_lib
from tandem.training import step as step_lib
from tandem.training import verdicts

# Knobs that decide memory, for the advice when it runs out.
_MEMORY_KNOBS = (
  'rollout.prompts',
  'rollout.group',
  'rollout.max_response',
  'rollout.dtype',
  'learner.micro_rows',
  'model.remat',
  'model.dtype',
  'mesh.fsdp',
  'mesh.tensor',
  'optimizer.mu_dtype',
)


def run(config, workdir) -> dict[str, Any]:
  """Trains to config.num_steps; started again in a workdir, it goes on there.

  Args:
    config: a ConfigDict as configs/common.py lays it out.
    workdir: made if absent. DESIGN 4 lists the files left there.

  Returns:
    The last step's metrics; none if SIGTERM came before the first one.

  Raises:
    ValueError: bad input, named before any device work.
  """
  build.check(config)
  limits.warn_best_metric(config)
  resume.check(config.to_dict(), workdir)
  workdir = resume.opened(workdir)
  phase, metrics = ['other'], {}
  with preemption.PreemptionGuard() as guard, contextlib.ExitStack() as stack:
    stack.enter_context(_memory_advice(config, phase))
    if mesh_lib.is_lead():
      stack.enter_context(resume.held(workdir))
      resume.write(config.to_dict(), workdir)
    verifier = stack.enter_context(
      verifier_lib.Verifier(
        config.reward.workers, config.reward.limit_s, config.reward.mode
      )
    )

    # ---- Parts: tokenizer, problems, mesh, weights --------------------------
    evaluates = bool(config.eval.every_steps)
    parts = setup_lib.setup(config, workdir, verifier, evaluates=evaluates)
    variant, loss_cfg = build.loss(config)
    forward = programs.forward(config, parts.mesh, parts.cfg)
    score = functools.cache(lambda cfg: step_lib.make_score(cfg, forward))

    # ---- State: the newest intact checkpoint, else the initial weights ------
    checkpoints = stack.enter_context(
      checkpoint_lib.Checkpoints(
        workdir / 'checkpoints',
        keep=config.checkpoint.keep,
        best_metric=config.checkpoint.best_metric or None,
      )
    )
    state, host, start = setup_lib.take_state(parts, checkpoints, config)
    parts = parts.without_initial()
    found = host is not None
    if found:
      logging.info('resumed from step %d', start)
    host = host or {'cursor': 0, 'junior': {}}
    update = programs.update(
      config, parts.cfg, forward, state, parts.teacher and parts.teacher.cfg
    )
    writer = stack.enter_context(
      metrics_lib.MetricWriter(
        workdir,
        tensorboard=config.log.tensorboard,
        wandb={'project': config.log.wandb_project}
        if config.log.wandb_project
        else None,
        resumed=found,
      )
    )
    writer.cut_back(start if found else -1)
    log = rollout_log.RolloutLog(workdir, budget_mb=config.log.rollouts_mb)
    log.cut_back(start if found else -1)
    recorded = verdicts.Recorded(log.lost() if found else ())

    # ---- One evaluation, one step -------------------------------------------
    def evaluated(step: int) -> dict[str, float]:
      began, out = time.monotonic(), {}
      senior = parts.speaker(state.params)
      # The junior is frozen: measured once, unless a resumed run asks otherwise.
      how = ('problems', 'samples', 'temperature', 'top_k', 'top_p')
      asked = {field: config.eval[field] for field in how}
      for model in config.eval.models:
        name = f'eval/pass_at_1/{model}'
        if model == 'junior' and host['junior'].get('asked') == asked:
          out[name] = host['junior']['value']
          continue
        result = evaluate.run_model(
          model,
          recorded.collector(parts.collector, f'eval_{model}', step),
          senior,
          parts.junior,
          parts.eval_prompts,
          samples=config.eval.samples,
          prompts_at_once=config.eval.prompts,
          sampling=build.sampling(config.eval),
          step=step,
          max_prompt=config.rollout.max_prompt,
        )
        out[name] = result.pass_at(1).value
        log.write(step, result.rows, suffix=f'eval_{model}')
        if model == 'junior':
          host['junior'] = {'asked': asked, 'value': out[name]}
      out['eval/problems'] = len(parts.eval_prompts)
      out['time/eval'] = time.monotonic() - began
      return out

    def rolled_out(step: int) -> refill.Filled:
      senior = parts.speaker(state.params)
      collector = recorded.collector(parts.collector, 'train', step)

      def draw(first_draw: int) -> collect_lib.Collected:
        drawn = batches.draw(
          parts.train_prompts,
          seed=config.seed,
          cursor=host['cursor'],
          count=config.rollout.prompts,
          max_prompt=config.rollout.max_prompt,
        )
        host['cursor'] += config.rollout.prompts
        return collector(
          senior,
          parts.junior if config.rollout.mode == 'tandem' else None,
          drawn.prompts,
          helper=parts.junior,
          group=config.rollout.group,
          sampling=build.sampling(config.rollout),
          purpose='train',
          step=step,
          first_draw=first_draw,
          max_prompt=config.rollout.max_prompt,
          prompt_bucket=config.rollout.prompt_bucket,
        )

      if config.rollout.dynamic_sampling:
        return refill.fill(draw, max_refills=config.rollout.max_refills)
      return refill.as_drawn(draw(0))

    def scored(batch: types.StepBatch) -> types.StepBatch:
      """The batch with the frozen scorings that the loss declares."""
      scores, senior = dict(batch.scores), (state.params, parts.cfg)
      frozen = lambda x: (x.params, x.cfg)
      for name in variant.scorings(loss_cfg):
        # Who scores, and under which prompt.
        params, cfg = {
          'old': lambda: senior,
          'privileged': lambda: senior,
          'reference': lambda: frozen(parts.reference),
          'junior': lambda: frozen(parts.junior),
          'teacher': lambda: frozen(parts.teacher),
        }[name]()
        own = name if name in ('teacher', 'privileged') else 'policy'
        context = batch.contexts[own]
        scores[name] = score(cfg)(params, context, batch.tokens)
      return batch.replace(scores=scores)

    def width(got: collect_lib.Collected) -> int:
      bucket = config.learner.response_bucket or config.rollout.max_response
      longest = int(got.rollout.lengths.max())
      return min(-(-longest // bucket) * bucket, config.rollout.max_response)

    def saved(step: int, metrics: Mapping) -> None:
      checkpoints.save(step, state, dict(host), metrics)

    # ---- The loop -----------------------------------------------------------
    history = []
    if found:  # the alarms compare with the run's first steps
      history = [
        past
        for past in metrics_lib.read_metrics(writer.path)
        if 'rollout/entropy' in past
      ][: alarms.EARLY_STEPS]
    if start >= config.num_steps:
      logging.warning(
        'nothing to do: step %d of num_steps=%d is reached; raise it to go on',
        start,
        config.num_steps,
      )
    if start == 0 and not found and config.eval.every_steps:
      metrics = evaluated(0)
      writer.write(0, metrics)
    guard.wait_for_steps()
    profiler = stack.enter_context(
      profile_lib.Profiler(workdir, config.log.profile_steps)
    )
    bar = stack.enter_context(
      tqdm.tqdm(
        total=config.num_steps,
        initial=start,
        desc='train',
        unit='step',
        disable=None,
      )
    )
    for step in range(start, config.num_steps):
      profiler.at(step)
      phase[0] = 'rollout'
      filled = rolled_out(step)
      got = filled.kept
      phase[0] = 'update'
      began = time.monotonic()
      batch = scored(
        collect_lib.step_batch(
          got,
          parts.mesh,
          width=width(got),
          contexts=parts.contexts(got.prompts, got.group),
        )
      )
      teacher = parts.teacher.params if programs.to_teacher(config) else None
      state, told = update(state, batch, teacher)
      told = {name: np.asarray(x).item() for name, x in told.items()}
      phase[0] = 'other'
      metrics = collect_lib.metrics(filled.drawn) | filled.counts | told
      if parts.reference is parts.junior:  # one set of weights, two names
        metrics.setdefault('kl/reference', metrics.get('kl/junior'))
      metrics['time/update'] = time.monotonic() - began
      done = step + 1
      last = done == config.num_steps
      if config.log.rollout_every_steps and (
        step % config.log.rollout_every_steps == 0
      ):
        rows = collect_lib.rows(
          got, parts.text.tokenizer, config.seed, purpose='train'
        )
        log.write(done, rows)
      if config.eval.every_steps and (
        last or done % config.eval.every_steps == 0
      ):
        metrics |= evaluated(done)
      for message in alarms.check(metrics, history, mode=config.rollout.mode):
        logging.warning('step %d: %s', done, message)
      if len(history) < alarms.EARLY_STEPS:
        history.append(metrics)
      writer.write(done, metrics)
      bar.update()
      bar.set_postfix(reward=f'{metrics["reward/mean"]:.3f}')
      checkpoints.poll()
      leave = guard.should_leave()
      every = config.checkpoint.every_steps
      if last or leave or (every and done % every == 0):
        saved(done, metrics)
      if leave and not last:
        logging.warning('leaving after step %d, as asked', done)
        break
  return metrics


@contextlib.contextmanager
def _memory_advice(config, phase: list[str]):
  """Adds which knob to turn to an out-of-memory error."""
  try:
    yield
  except Exception as error:
    flat = config.to_dict()
    settings = {}
    for knob in _MEMORY_KNOBS:
      section, name = knob.split('.')
      settings[knob] = flat[section][name]
    advice = alarms.explain_oom(error, phase[0], settings)
    if advice:
      error.add_note(advice)
    raise

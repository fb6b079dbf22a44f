"""Evaluation: pass@k of the pair, of the senior alone, of the junior alone.

The same rollout, grader and records as in training, on held-out problems.
"""

from collections.abc import Sequence
import dataclasses
import json

from absl import logging
import numpy as np
import tqdm

from tandem.analysis import passk
from tandem.data import prompts as prompts_lib
from tandem.rewards import verifier as verifier_lib
from tandem.rollout import sampling as sampling_lib
from tandem.training import build
from tandem.training import checkpoint as checkpoint_lib
from tandem.training import collect as collect_lib
from tandem.training import mesh as mesh_lib
from tandem.training import resume
from tandem.training import rollout_log
from tandem.training import setup as setup_lib


@dataclasses.dataclass(frozen=True)
class Result:
  """One model's (or the pair's) answers to all problems."""

  correct: np.ndarray  # [problems] int; right ones among `samples`
  samples: int
  rows: list[dict]  # records for the rollout files

  def pass_at(self, k: int) -> passk.Estimate:
    """Mean pass@k with its bootstrap standard error."""
    count = np.full_like(self.correct, self.samples)
    return passk.mean_pass_at_k(count, self.correct, k)


def speakers(model: str, senior, junior):
  """Who writes when `model` is evaluated: (senior's place, junior's place)."""
  return {
    'pair': (senior, junior),
    'senior': (senior, None),
    'junior': (junior, None),
  }[model]


def run_model(
  model: str,
  collector: collect_lib.Collector,
  senior: collect_lib.Speaker,
  junior: collect_lib.Speaker | None,
  prompts: Sequence[prompts_lib.Prompt],
  *,
  samples: int,
  prompts_at_once: int,
  sampling: sampling_lib.Sampling,
  step: int,
  max_prompt: int,
) -> Result:
  """Answers every prompt `samples` times.

  Args:
    model: pair, senior or junior.
    collector: decodes and grades.
    senior: with current weights.
    junior: the frozen partner.
    prompts: the held-out problems.
    samples: n.
    prompts_at_once: problems of one decode batch; the last is filled up.
    sampling: the law.
    step: training steps done; parts the noise of evaluations.
    max_prompt: tokens.
  """
  first, second = speakers(model, senior, junior)
  correct, rows = [], []
  starts = range(0, len(prompts), prompts_at_once)
  for start in tqdm.tqdm(
    starts, desc=f'eval {model}', leave=False, disable=None
  ):
    chunk = list(prompts[start : start + prompts_at_once])
    real = len(chunk)
    # Filled up to one shape, so that one program serves; fillers are dropped.
    chunk += [chunk[0]] * (prompts_at_once - real)
    got = collector(
      first,
      second,
      chunk,
      group=samples,
      sampling=sampling,
      purpose=f'eval_{model}',
      step=step,
      first_draw=start,
      max_prompt=max_prompt,
      helper=junior if model == 'senior' else None,
    )
    right = got.rewards.reshape(-1, samples).sum(1).astype(int)
    correct.extend(right[:real].tolist())
    kept = collect_lib.rows(
      got, collector.tokenizer, collector.seed, purpose='eval'
    )
    rows.extend(row for row in kept if row['group'] < real)
  return Result(np.asarray(correct), samples, rows)


def run(config, workdir: str, *, step: int | str | None = None) -> dict:
  """Evaluates a run's checkpoint; writes DIR/eval.json.

  Args:
    config: as in training.
    workdir: of the run.
    step: a committed step, 'best' by config.checkpoint.best_metric, or None
      for the newest.

  Returns:
    What eval.json holds.

  Raises:
    ValueError: nothing to evaluate, or a setting that cannot be.
  """
  build.check(config)
  workdir = resume.opened(workdir)
  with (
    checkpoint_lib.Checkpoints(
      workdir / 'checkpoints',
      best_metric=config.checkpoint.best_metric or None,
      read_only=True,
    ) as checkpoints,
    verifier_lib.Verifier(
      config.reward.workers, config.reward.limit_s, config.reward.mode
    ) as verifier,
  ):
    parts = setup_lib.setup(
      config, workdir, verifier, evaluates=True, trains=False
    )
    if not parts.eval_prompts:
      raise ValueError(
        'no problem is held out; set data.held_out or data.eval_path.'
      )
    state, host, at = setup_lib.take_state(parts, checkpoints, config, step)
    if host is None:
      logging.warning('%s has no checkpoint: the initial weights', workdir)
    logging.info('evaluating step %d of %s', at, workdir)
    senior = parts.speaker(state.params)
    out = {'step': at, 'problems': len(parts.eval_prompts), 'models': {}}
    log = rollout_log.RolloutLog(workdir, budget_mb=config.log.rollouts_mb)
    samples = config.eval.samples
    ks = [k for k in (1, 2, 4, 8, 16, 32, 64) if k <= samples]
    for model in config.eval.models:
      result = run_model(
        model,
        parts.collector,
        senior,
        parts.junior,
        parts.eval_prompts,
        samples=samples,
        prompts_at_once=config.eval.prompts,
        sampling=build.sampling(config.eval),
        step=at,
        max_prompt=config.rollout.max_prompt,
      )
      # Beside what the run itself may have left of this step.
      log.write(at, result.rows, suffix=f'eval_{model}', replace=False)
      estimates = {k: result.pass_at(k) for k in ks}
      out['models'][model] = {
        f'pass_at_{k}': {'value': e.value, 'se': e.se}
        for k, e in estimates.items()
      }
      out[f'eval/pass_at_1/{model}'] = estimates[1].value
  out['eval/problems'] = len(parts.eval_prompts)
  if mesh_lib.is_lead():
    (workdir / 'eval.json').write_text(json.dumps(out, indent=2) + '\n')
  return out

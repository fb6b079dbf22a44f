"""What in a step's numbers should make a person look, and what to do then.

Each alarm is a line for the log: the number, what it means, and a remedy. They
are pure functions of metrics; who prints them decides how often.
"""

from collections.abc import Mapping
from collections.abc import Sequence
import re

SHARE_BOUNDS = (0.3, 0.7)
TIMEOUT_LIMIT = 0.01
COLLAPSE_RATIO = 0.1  # of the run's early entropy
COLLAPSE_FLOOR = 0.02  # nats per token
EARLY_STEPS = 5

_OOM = re.compile(
  r'RESOURCE_EXHAUSTED|out of memory|ran out of memory|Failed to allocate|'
  r'Exceeded hbm capacity|bad_alloc|Unable to allocate',
  re.IGNORECASE,
)


def _senior_share(metrics: Mapping, mode: str) -> str | None:
  share = metrics.get('rollout/senior_share')
  low, high = SHARE_BOUNDS
  if mode != 'tandem' or share is None or low <= share <= high:
    return None
  return (
    f'the senior wrote {share:.0%} of the tokens, outside {low:.0%} to '
    f'{high:.0%}: the pair is nearly one model. Look at rollout.p, rollout.cap '
    "and the schedule, and at the tokenizer's boundary ids."
  )


def _no_variance(metrics: Mapping) -> str | None:
  flat = metrics.get('advantage/degenerate')
  if flat is None or flat < 1.0:
    return None
  mean = metrics.get('reward/mean')
  side = (
    'every answer is right: take harder problems'
    if mean is not None and mean > 0.5
    else 'every answer is wrong: take easier problems, a longer response '
    'limit, or look at the verdicts in rollouts/'
  )
  return (
    'no group has any variance in its rewards, so this step teaches nothing; '
    f'{side}, raise the group size, or turn dynamic sampling on.'
  )


def _entropy(metrics: Mapping, history: Sequence[Mapping]) -> str | None:
  now = metrics.get('rollout/entropy')
  early = [
    past['rollout/entropy']
    for past in history[:EARLY_STEPS]
    if past.get('rollout/entropy') is not None
  ]
  if now is None or len(early) < EARLY_STEPS:
    return None
  start = sum(early) / len(early)
  if now >= COLLAPSE_RATIO * start and now >= COLLAPSE_FLOOR:
    return None
  return (
    f'entropy is {now:.3g} nats a token, from {start:.3g} at the start: the '
    'policy collapses and siblings stop differing. Lower the learning rate, '
    'raise the upper clip, or add a KL or entropy term.'
  )


def _timeouts(metrics: Mapping) -> str | None:
  share = metrics.get('reward/timeout')
  if share is None or share <= TIMEOUT_LIMIT:
    return None
  return (
    f'{share:.1%} of the verdicts are time-outs (each counts as wrong): raise '
    'reward.limit_s, give the grader more workers, or look at the responses '
    'with reason timeout in rollouts/.'
  )


def _nonfinite(metrics: Mapping) -> str | None:
  if not metrics.get('update/skipped'):
    return None
  return (
    "the gradient's norm is not finite, so the update was skipped. Should it "
    'come again: lower the learning rate, or compute in float32 (model.dtype).'
  )


def check(
  metrics: Mapping, history: Sequence[Mapping] = (), *, mode: str = 'solo'
) -> list[str]:
  """The alarms of one step.

  Args:
    metrics: this step's flat numbers; a name that is absent raises no alarm.
      Read: rollout/senior_share, advantage/degenerate (share of groups whose
      rewards are all equal), reward/mean, rollout/entropy (nats a token; the
      mean of -logp of the sampled ones will do), reward/timeout (share of
      verdicts), update/skipped.
    history: metrics of earlier steps, oldest first, from the run's start.
    mode: 'tandem' or 'solo'; a solo rollout has no share to watch.

  Returns:
    One message each, empty when all is well.
  """
  found = (
    _senior_share(metrics, mode),
    _no_variance(metrics),
    _entropy(metrics, history),
    _timeouts(metrics),
    _nonfinite(metrics),
  )
  return [message for message in found if message]


def explain_oom(error: BaseException, phase: str, settings: Mapping) -> str:
  """Which knobs to turn when memory ran out; '' if that is not what happened.

  Args:
    error: what was raised.
    phase: 'rollout', 'update' or 'other': whose knobs come first.
    settings: the flat config keys that matter, by name, with their values; a
      knob that is absent is still named.
  """
  if not isinstance(error, MemoryError) and not _OOM.search(str(error)):
    return ''
  show = lambda key: f'{key}={settings[key]}' if key in settings else key
  rollout = [
    f'fewer rows or tokens at once: {show("rollout.prompts")}, '
    f'{show("rollout.group")}, {show("rollout.max_response")}',
    f'split the weights: {show("mesh.tensor")} up',
    f'a smaller decode copy: {show("rollout.dtype")} to bfloat16',
  ]
  update = [
    f'smaller pieces: {show("learner.micro_rows")} down (the gradient is the '
    'same to rounding)',
    f'recompute instead of store: {show("model.remat")} to block',
    f'split weights and moments: {show("mesh.fsdp")} up',
    f'{show("optimizer.mu_dtype")} to bfloat16 saves 2 of 16 bytes a parameter',
  ]
  knobs = update + rollout if phase == 'update' else rollout + update
  lines = ''.join(f'\n  - {knob}' for knob in knobs)
  return (
    f'out of memory in {phase}. What to turn, the likeliest first:{lines}\n'
    'python -m launch.compile_ahead prints the bytes per device without one.'
  )

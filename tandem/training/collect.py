"""Responses to a batch of prompts, graded: the rollout seen from the host."""

from collections.abc import Sequence
import dataclasses
import time
from typing import Any

import jax
import numpy as np

from tandem import types
from tandem.data import batches
from tandem.data import prompts as prompts_lib
from tandem.models import decoder
from tandem.rewards import REASONS
from tandem.rewards import verifier as verifier_lib
from tandem.rollout import resolve
from tandem.rollout import sampling as sampling_lib
from tandem.rollout import turns as turns_lib
from tandem.text import tokenizer as tokenizer_lib
from tandem.training import decoding as decoding_lib
from tandem.training import keys
from tandem.training import mesh as mesh_lib
from tandem.training import rollout_log


@dataclasses.dataclass(frozen=True)
class Speaker:
  """A model ready to decode; of a frozen scorer, ready to score."""

  params: decoder.Params  # decode_params; or layers stacked, see scoring_copy
  cfg: types.ModelConfig


@dataclasses.dataclass(frozen=True)
class Collected:
  """N graded responses on the host; rows of a prompt are adjacent."""

  prompts: tuple[prompts_lib.Prompt, ...]  # B
  ids: np.ndarray  # [B, P] int32
  lengths: np.ndarray  # [B] int32; of the prompts
  group: int
  purpose: str
  step: int
  draw: np.ndarray  # [N] int32; the prompt's draw number in the step
  sample: np.ndarray  # [N] int32
  rollout: types.Rollout  # of numpy arrays
  texts: list[str]  # N
  verdicts: list[types.Verdict]  # N
  rewards: np.ndarray  # [N] float32
  seconds_rollout: float
  seconds_reward: float
  slot_steps: int  # slots by rounds of the loop
  counts: resolve.Counts | None = None  # of drafts and slots, if any

  def prompt(self, row: int) -> prompts_lib.Prompt:
    """The prompt that a row answers."""
    return self.prompts[row // self.group]


@dataclasses.dataclass(frozen=True)
class Collector:
  """Decodes and grades; all but the speakers and prompts is fixed.

  Attributes:
    tokenizer: of the pair.
    eos_ids: ids that end a response.
    boundary: [V] bool; the schedule's boundaries.
    turns: the schedule.
    verifier: the grader's pool.
    mesh: rows are spread over it.
    seed: of the run.
    max_response: T.
    decoding: how rows are decoded; it changes no token.
  """

  tokenizer: Any
  eos_ids: tuple[int, ...]
  boundary: np.ndarray
  turns: turns_lib.Turns
  verifier: verifier_lib.Verifier
  mesh: jax.sharding.Mesh
  seed: int
  max_response: int
  decoding: decoding_lib.Decoding

  def __call__(
    self,
    senior: Speaker,
    junior: Speaker | None,
    prompts: Sequence[prompts_lib.Prompt],
    *,
    group: int,
    sampling: sampling_lib.Sampling,
    purpose: str,
    step: int,
    first_draw: int = 0,
    max_prompt: int,
    prompt_bucket: int = 0,
    helper: Speaker | None = None,
  ) -> Collected:
    """One response per prompt and sample.

    Args:
      senior: who writes; alone where junior is None.
      junior: its partner.
      prompts: B of them.
      group: G samples each.
      sampling: the law.
      purpose: a name of keys.PURPOSES; parts the noise.
      step: likewise.
      first_draw: draw number of the first prompt in this step.
      max_prompt: tokens; P at most.
      prompt_bucket: P is rounded up to it; 0 for max_prompt always.
      helper: may draft where one writes alone.
    """
    start = time.monotonic()
    count = len(prompts)
    ids, lengths = batches.pad(
      [prompt.ids for prompt in prompts],
      max_prompt=max_prompt,
      bucket=prompt_bucket,
    )
    draw = np.repeat(np.arange(first_draw, first_draw + count), group)
    draw = draw.astype(np.int32)
    sample = np.tile(np.arange(group, dtype=np.int32), count)
    # Fewer prompts than row shards: each device then holds them all, and the
    # rows are what is split.
    split = count % mesh_lib.row_shards(self.mesh) == 0
    place = mesh_lib.put_rows if split else mesh_lib.put_replicated
    context = place(self.mesh, types.Context(ids=ids, lengths=lengths))
    rollout, counts = self.decoding(
      senior,
      junior,
      helper,
      context,
      mesh_lib.put_rows(
        self.mesh, keys.row_keys(self.seed, purpose, step, draw, sample)
      ),
      self.boundary,
      group=group,
      max_tokens=self.max_response,
      eos_ids=self.eos_ids,
      turns=self.turns,
      sampling=sampling,
    )
    decoded = time.monotonic()
    texts = [
      tokenizer_lib.decode(self.tokenizer, tokens[:length].tolist())
      for tokens, length in zip(rollout.tokens, rollout.lengths)
    ]
    verdicts = self._graded(
      [prompt.problem for prompt in prompts for _ in range(group)], texts
    )
    return Collected(
      prompts=tuple(prompts),
      ids=ids,
      lengths=lengths,
      group=group,
      purpose=purpose,
      step=step,
      draw=draw,
      sample=sample,
      rollout=rollout,
      texts=texts,
      verdicts=verdicts,
      rewards=np.asarray([v.reward for v in verdicts], np.float32),
      slot_steps=self.decoding.slots_of(len(draw))
      * int(rollout.lengths.max() if counts is None else counts.passes),
      seconds_rollout=decoded - start,
      seconds_reward=time.monotonic() - decoded,
      counts=counts,
    )

  def _graded(self, problems, texts: list[str]) -> list[types.Verdict]:
    """Verdicts of all rows; each host grades its share, and all know all.

    Never each host all of them: a row that runs out of time on one host only
    would have two rewards, and the hosts would part ways.
    """
    hosts = jax.process_count()
    mine = range(jax.process_index(), len(texts), hosts)
    verdicts = self.verifier.grade(
      [problems[i].answer for i in mine],
      [texts[i] for i in mine],
      [problems[i].text for i in mine],
    )
    said = mesh_lib.gather_json([dataclasses.astuple(v) for v in verdicts])
    return [
      types.Verdict(*said[i % hosts][i // hosts]) for i in range(len(texts))
    ]


def metrics(got: Collected) -> dict[str, float]:
  """The step's rollout and reward numbers, by the names of DESIGN 4."""
  rollout, rewards = got.rollout, got.rewards
  total = int(rollout.lengths.sum())
  valid = np.arange(rollout.tokens.shape[1])[None] < rollout.lengths[:, None]
  senior = valid if rollout.author is None else rollout.author & valid
  reasons = [verdict.reason for verdict in got.verdicts]
  share = lambda name: reasons.count(name) / len(reasons)
  spoken = max(int(senior.sum()), 1)
  mean = lambda x: float(np.where(senior, x, 0).sum() / spoken)
  taken = total if got.counts is None else got.counts.rounds.sum()
  out = {
    'reward/mean': float(rewards.mean()),
    # Of all verdicts; together 1.
    **{f'reward/{reason}': share(reason) for reason in REASONS},
    'rollout/senior_share': float(senior.sum() / total),
    'rollout/length_mean': total / len(rewards),
    'rollout/truncated': float(
      (rollout.finish == types.FINISH.index('length')).mean()
    ),
    'rollout/tokens_per_second': total / max(got.seconds_rollout, 1e-9),
    # Rounds of the loop, over slots, in which a slot's row had ended.
    'rollout/idle_slots': 1 - float(taken) / got.slot_steps,
    # Minus the mean log-prob of what the senior drew estimates its entropy.
    'rollout/entropy': -mean(rollout.logp_senior),
    'time/rollout': got.seconds_rollout,
    'time/reward': got.seconds_reward,
  }
  if got.counts is not None and got.counts.tested.any():
    tested, passed = got.counts.tested.sum(), got.counts.passed.sum()
    out['rollout/tokens_per_round'] = total / float(got.counts.rounds.sum())
    out['rollout/draft_acceptance'] = float(passed / max(tested, 1))
  if rollout.author is not None:
    # The senior's tokens are its own samples, so this estimates
    # KL(senior || junior); free, since both models are on record.
    out['kl/junior'] = mean(rollout.logp_senior - rollout.logp_junior)
  return out


def rows(got: Collected, tokenizer, seed: int, *, purpose: str):
  """Yields one record of the rollout files per response."""
  rollout = got.rollout
  mode = 'solo' if rollout.author is None else 'tandem'
  for i, length in enumerate(rollout.lengths):
    cut = lambda x: None if x is None else x[i, :length]  # noqa: B023
    prompt, ids = got.prompt(i), rollout.tokens[i, :length].tolist()
    text, offsets = tokenizer_lib.decode_with_offsets(tokenizer, ids)
    verdict = got.verdicts[i]
    yield rollout_log.make_row(
      step=got.step,
      purpose=purpose,
      mode=mode,
      prompt_id=prompt.problem.id,
      group=i // got.group,
      sample=int(got.sample[i]),
      draw=int(got.draw[i]),
      prompt=prompt.text,
      prompt_ids=prompt.ids,
      problem=prompt.problem.text,
      gold=prompt.problem.answer,
      ids=ids,
      text=text,
      offsets=offsets,
      author=cut(rollout.author),
      arrays={
        'logp_senior': cut(rollout.logp_senior),
        'logp_junior': cut(rollout.logp_junior),
        'raw_senior': cut(rollout.raw_senior),
        'raw_junior': cut(rollout.raw_junior),
      },
      verdict={
        'reward': verdict.reward,
        'reason': verdict.reason,
        'answer': verdict.answer,
      },
      finish=types.FINISH[int(rollout.finish[i])],
      keys={
        'seed': seed,
        'purpose': got.purpose,
        'step': got.step,
        'draw': int(got.draw[i]),
        'sample': int(got.sample[i]),
      },
    )


def step_batch(
  got: Collected,
  mesh,
  *,
  width: int,
  contexts: dict[str, types.Context] | None = None,
) -> types.StepBatch:
  """The step batch on the mesh, its response axis cut to `width`.

  Args:
    got: the whole step.
    mesh: rows are spread over it.
    width: T; at least the longest response.
    contexts: what other scorers read, numpy [N, ...], by name.
  """
  rollout, n = got.rollout, len(got.rewards)
  cut = lambda x: None if x is None else x[:, :width]
  valid = np.arange(width)[None] < rollout.lengths[:, None]
  scores = {'rollout': cut(rollout.logp_senior)}
  if rollout.author is not None:
    scores['rollout_junior'] = cut(rollout.logp_junior)
  batch = types.StepBatch(
    tokens=cut(rollout.tokens),
    valid=valid,
    author=cut(rollout.author),
    rewards=got.rewards,
    group_id=np.arange(n, dtype=np.int32) // got.group,
    episode_id=np.arange(n, dtype=np.int32),
    turn=np.zeros(n, np.int32),
    truncated=rollout.finish == types.FINISH.index('length'),
    contexts={
      'policy': types.Context(
        ids=np.repeat(got.ids, got.group, axis=0),
        lengths=np.repeat(got.lengths, got.group),
      ),
      **(contexts or {}),
    },
    scores=scores,
    group=got.group,
  )
  return mesh_lib.put_rows(mesh, batch)

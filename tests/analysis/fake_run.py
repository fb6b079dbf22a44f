"""A small made-up run on disk, for tests of whatever reads a run's files."""

import json

import numpy as np


def record(step=0, sample=0, **changes):
  """One response of the schema: two words by the senior, one by the junior."""
  text = 'six plus one is 7'
  words = ['six', ' plus', ' one', ' is', ' 7', '']
  ends = np.cumsum([len(word) for word in words]).tolist()
  return {
    'schema': 'tandem.rollout/1',
    'step': step,
    'purpose': 'train',
    'mode': 'tandem',
    'prompt_id': 'p0',
    'group': 0,
    'sample': sample,
    'draw': 0,
    'prompt': 'Q: 6 + 1?\nA:',
    'prompt_ids': [1, 2, 3],
    'problem': '6 + 1?',
    'gold': '7',
    'ids': [10, 11, 12, 13, 14, 0],
    'text': text,
    'offsets': [
      [end - len(word), end] for word, end in zip(words, ends, strict=True)
    ],
    'author': [1, 1, 0, 0, 1, 0],
    'arrays': {
      'logp_senior': [-0.1, -0.2, -0.3, -0.4, -0.5, -0.0625],
      'logp_junior': [-1.1, -1.2, -1.3, None, -1.5, -1.6],
    },
    'turns': [{'role': 'assistant', 'start': 0, 'end': 6}],
    'verdict': {'reward': float(sample % 2), 'reason': 'equal', 'answer': '7'},
    'finish': 'eos',
    'keys': {'seed': 0, 'purpose': 'train', 'step': step, 'draw': 0},
    **changes,
  }


def metrics(step, *, seed=0):
  """One line of metrics.jsonl; evaluated every second step."""
  noise = np.random.default_rng([seed, step]).uniform(-0.02, 0.02)
  line = {
    'step': step,
    'reward/mean': 0.3 + 0.05 * step + noise,
    'rollout/senior_share': 0.5 + noise,
    'rollout/length_mean': 20.0 + step,
    'rollout/truncated': 0.01,
    'time/rollout': 1.0,
    'time/reward': 0.1,
    'time/update': 2.0,
  }
  if step % 2 == 0:
    line |= {
      'eval/pass_at_1/pair': 0.37 + 0.03 * step,
      'eval/pass_at_1/senior': 0.37 + 0.06 * step,
      'eval/pass_at_1/junior': 0.37,
      'eval/problems': 400,
    }
  return line


def write(workdir, *, num_steps=7, rows=4, seed=0):
  """Writes metrics.jsonl and a rollout file for every second step."""
  folder = workdir / 'rollouts'
  folder.mkdir(parents=True)
  lines = [json.dumps(metrics(step, seed=seed)) for step in range(num_steps)]
  (workdir / 'metrics.jsonl').write_text('\n'.join(lines) + '\n')
  for step in range(0, num_steps, 2):
    write_rollouts(workdir, step, [record(step, i) for i in range(rows)])
  return workdir


def write_rollouts(workdir, step, records):
  """Writes one rollout file."""
  path = workdir / 'rollouts' / f'step_{step:06d}.jsonl'
  path.parent.mkdir(parents=True, exist_ok=True)
  path.write_text(''.join(json.dumps(line) + '\n' for line in records))
  return path

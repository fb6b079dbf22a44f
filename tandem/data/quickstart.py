"""The generated task of the quickstart: six kinds of problem in words.

Nothing is downloaded. Item i of a seed depends on (seed, i) alone, each
problem has a worked solution whose steps are single-digit arithmetic, and its
answer has two digits, so that a guess is right about once in ninety.

The demonstrations are those of an expert who slips in a known share of the
steps and carries on from the wrong number. A model trained on them starts
reinforcement learning at an accuracy that is set by design: a warm start on
clean solutions, cut off at some step, lands at chance or at 100 %.
"""

import functools
import zlib

import numpy as np

from tandem import types
from tandem.data import quickstart_kinds

SOURCE = 'quickstart'
HELD_OUT_SHARE = 8  # one solution in eight is never trained on
VOCAB = 400
CHAT_TEMPLATE = (
  "{% for message in messages %}{{ message['content'] }}"
  "{% if message['role'] == 'user' %}{{ '\\n' }}"
  '{% else %}{{ eos_token }}{% endif %}{% endfor %}'
)


def is_held_out(solution: str) -> bool:
  """Whether a worked solution belongs to the part that is never trained on.

  By the solution, not the text: the same sum told of other people is the same.
  """
  return zlib.crc32(solution.encode()) % HELD_OUT_SHARE == 0


def _make(
  seed: int, index: int, held_out: bool
) -> tuple[str, str, quickstart_kinds.Solve]:
  rng = np.random.default_rng((seed, index, int(held_out)))
  kinds = quickstart_kinds.KINDS
  kind = list(kinds)[index % len(kinds)]
  while True:
    text, solve = kinds[kind](rng)
    if is_held_out(solve(lambda digit: digit)[0]) == held_out:
      return kind, text, solve


def _problem(seed, index, held_out):
  kind, text, solve = _make(seed, index, held_out)
  solution, answer = solve(lambda digit: digit)
  return types.Problem(
    id=f'{kind}/{seed}/{index}/{"held_out" if held_out else "train"}',
    text=text,
    answer=answer,
    source=SOURCE,
    solution=solution,
  )


def problems(
  seed: int, start: int, count: int, *, held_out: bool = False
) -> list[types.Problem]:
  """Problems `start` to `start + count` of a seed, kinds in turn.

  Args:
    seed: which endless list.
    start: index of the first.
    count: how many.
    held_out: draw from the part kept for evaluation; no seed's training
      problems ever hold one with the same solution.

  Returns:
    `count` problems; item i is the same whatever `start` and `count` are.
  """
  return [
    _problem(seed, index, held_out) for index in range(start, start + count)
  ]


def demonstration(
  problem: types.Problem, rng: np.random.Generator, error_rate: float
) -> str:
  """A solution by an expert who slips in a share of the steps.

  A slip writes another digit, uniformly, and every later step carries on from
  it, so that the text stays consistent with itself and ends in a wrong box.

  Args:
    problem: one of `problems`; its id tells how to make it again.
    rng: where the slips come from.
    error_rate: probability of a slip at each step; 0 gives `solution`.

  Raises:
    ValueError: error_rate outside [0, 1], or a problem that is not ours.
  """
  if not 0 <= error_rate <= 1:
    raise ValueError(f'error_rate={error_rate}; it must lie in [0, 1].')
  parts = problem.id.split('/')
  if problem.source != SOURCE or len(parts) != 4:
    raise ValueError(
      f'problem {problem.id!r} of source {problem.source!r} was not made by '
      f'tandem.data.quickstart, so it has no steps to slip in; take it from '
      f'quickstart.problems.'
    )
  _, seed, index, part = parts
  _, _, solve = _make(int(seed), int(index), part == 'held_out')

  def slip(digit):
    if rng.random() >= error_rate:
      return digit
    return int((digit + rng.integers(1, 10)) % 10)

  return solve(slip)[0]


def demonstrations(
  seed: int, start: int, count: int, error_rate: float
) -> list[tuple[types.Problem, str]]:
  """Training problems with an erring expert's solution each.

  Item i depends on (seed, i, error_rate) only.
  """
  pairs = []
  for index in range(start, start + count):
    problem = _problem(seed, index, False)
    rng = np.random.default_rng((seed, index, 2))
    pairs.append((problem, demonstration(problem, rng, error_rate)))
  return pairs


@functools.cache
def tokenizer():
  """The task's own byte-level BPE, trained on its own text.

  At most 400 ids: pad, eos, the 256 bytes and merges. A digit is one token,
  with or without the leading space. Any text round-trips.

  Returns:
    transformers.PreTrainedTokenizerFast; its chat template writes the user's
    text and a line break.
  """
  import tokenizers
  import transformers

  bpe = tokenizers.Tokenizer(tokenizers.models.BPE())
  bpe.pre_tokenizer = tokenizers.pre_tokenizers.Sequence(
    [
      tokenizers.pre_tokenizers.Split(tokenizers.Regex(r' ?\d'), 'isolated'),
      tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False),
    ]
  )
  bpe.decoder = tokenizers.decoders.ByteLevel()
  corpus = [
    f'{problem.text}\n{problem.solution}' for problem in problems(0, 0, 1200)
  ]
  bpe.train_from_iterator(
    corpus,
    tokenizers.trainers.BpeTrainer(
      vocab_size=VOCAB,
      special_tokens=['<pad>', '<eos>'],
      initial_alphabet=tokenizers.pre_tokenizers.ByteLevel.alphabet(),
      show_progress=False,
    ),
  )
  return transformers.PreTrainedTokenizerFast(
    tokenizer_object=bpe,
    pad_token='<pad>',
    eos_token='<eos>',
    chat_template=CHAT_TEMPLATE,
    clean_up_tokenization_spaces=False,
    model_max_length=1024,
  )

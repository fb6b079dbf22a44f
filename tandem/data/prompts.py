"""Problems as prompts: the instruction, the chat template, the token ids."""

from collections.abc import Sequence
import dataclasses

from absl import logging

from tandem import types
from tandem.text import tokenizer as text_tokenizer

# METHODS section 2.3: the problem's text, then this; one user turn.
INSTRUCTION = (
  '\nPlease reason step by step, and put your final answer within \\boxed{}.'
)
OVERLONG = ('error', 'drop')


@dataclasses.dataclass(frozen=True)
class Prompt:
  """A problem as the model reads it."""

  problem: types.Problem
  text: str  # rendered
  ids: tuple[int, ...]  # its tokens, at least one


def _rendered(tokenizer, problem, instruction, chat, thinking):
  text = problem.text + instruction
  if not chat:
    return text
  return text_tokenizer.render(tokenizer, text, thinking=thinking)


def build(
  problems: Sequence[types.Problem],
  tokenizer,
  *,
  max_prompt: int,
  overlong: str = 'error',
  instruction: str = INSTRUCTION,
  chat: bool = True,
  thinking: bool = False,
) -> tuple[list[Prompt], int]:
  """Tokenises every prompt before the run starts.

  Args:
    problems: at least one.
    tokenizer: a fast transformers tokenizer.
    max_prompt: tokens that a prompt may have.
    overlong: 'error' refuses a longer one; 'drop' leaves it out and counts it.
    instruction: appended to the problem's text; '' for none.
    chat: render as one user turn of the chat template; False is plain text,
      after what the tokenizer puts before one.
    thinking: for templates with `enable_thinking`.

  Returns:
    prompts in order, and how many were dropped.

  Raises:
    ValueError: unknown `overlong`; a prompt longer than `max_prompt` under
      'error'; none left under 'drop'.

  Source: METHODS section 2.3.
  """
  if overlong not in OVERLONG:
    raise ValueError(f'overlong={overlong!r}; allowed are {list(OVERLONG)}.')
  texts = [
    _rendered(tokenizer, problem, instruction, chat, thinking)
    for problem in problems
  ]
  all_ids = tokenizer(texts, add_special_tokens=False)['input_ids']
  opening = [] if chat else text_tokenizer.opening_ids(tokenizer)
  kept, long = [], []
  for problem, text, ids in zip(problems, texts, all_ids):
    ids = opening + ids
    if len(ids) > max_prompt:
      long.append((len(ids), problem.id))
    elif len(ids) == len(opening):
      raise ValueError(f'problem {problem.id!r} has an empty prompt.')
    else:
      kept.append(Prompt(problem, text, tuple(ids)))
  if long:
    longest, name = max(long)
    told = (
      f'{len(long)} of {len(texts)} prompts are longer than '
      f'max_prompt={max_prompt}; the longest, {name!r}, has {longest} tokens'
    )
    if overlong == 'error':
      raise ValueError(
        f"{told}. Raise max_prompt, or set overlong='drop' to train without "
        f'them.'
      )
    if not kept:
      raise ValueError(f'{told}, and none is left; raise max_prompt.')
    logging.warning('%s; dropped', told)
  return kept, len(long)

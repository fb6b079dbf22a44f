"""Worked solutions as rows to imitate, for a supervised warm start."""

from collections.abc import Sequence
import dataclasses

import numpy as np

from tandem import types
from tandem.data import batches
from tandem.data import prompts as prompts_lib


@dataclasses.dataclass(frozen=True)
class Demonstrations:
  """Prompts and the responses to imitate, as a rollout would hold them."""

  ids: np.ndarray  # [N, P] int32; prompts, right-padded with zeros
  lengths: np.ndarray  # [N] int32; prompt tokens
  tokens: np.ndarray  # [N, T] int32; responses, right-padded with zeros
  token_lengths: np.ndarray  # [N] int32; response tokens, the EOS included


def pack(
  pairs: Sequence[tuple[types.Problem, str]],
  tokenizer,
  *,
  max_prompt: int,
  max_response: int,
  eos_id: int,
  instruction: str = '',
  chat: bool = True,
  bucket: int = 0,
) -> Demonstrations:
  """Tokenises (problem, solution) pairs; each response ends in EOS.

  Prompt and response are tokenised apart, as the rollout sees them: a seam
  token that only their joint text would give never occurs in decoding.

  Args:
    pairs: N of them, with the text of the response.
    tokenizer: a fast transformers tokenizer.
    max_prompt: the greatest P.
    max_response: T, the EOS included.
    eos_id: the id that ends every response.
    instruction: as in `prompts.build`.
    chat: as in `prompts.build`.
    bucket: as in `batches.padded_length`, for P.

  Raises:
    ValueError: a prompt or a response that does not fit.
  """
  problems = [problem for problem, _ in pairs]
  built, _ = prompts_lib.build(
    problems,
    tokenizer,
    max_prompt=max_prompt,
    instruction=instruction,
    chat=chat,
  )
  responses = tokenizer([text for _, text in pairs], add_special_tokens=False)[
    'input_ids'
  ]
  for problem, response in zip(problems, responses):
    if len(response) >= max_response:
      raise ValueError(
        f'the solution of problem {problem.id!r} has {len(response)} tokens and '
        f'its EOS, more than max_response={max_response}; raise it.'
      )
  ids, lengths = batches.pad(
    [prompt.ids for prompt in built], max_prompt=max_prompt, bucket=bucket
  )
  tokens, token_lengths = batches.pad(
    [[*response, eos_id] for response in responses], max_prompt=max_response
  )
  return Demonstrations(ids, lengths, tokens, token_lengths)

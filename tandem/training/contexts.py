"""Prompts under which other scorers read the policy's responses.

The teacher may read its prompt in the template's think mode. The privileged teacher is the policy itself, shown more than it was when it wrote.
Only the response's tokens are aligned; prompts may be of any length.
"""

from collections.abc import Sequence
import dataclasses
from typing import Any

import numpy as np

from tandem import types
from tandem.data import batches
from tandem.data import prompts as prompts_lib
from tandem.text import tokenizer as tokenizer_lib

PRIVILEGED = ('none', 'solution')
# Before the student's own prompt, as its first lines.
_HEADER = '[A worked solution]\n'


@dataclasses.dataclass(frozen=True)
class Contexts:
  """Builds the contexts that a loss declares.

  Attributes:
    tokenizer: of the pair.
    instruction: appended to a problem's text.
    chat: render as a user turn.
    teacher: build the teacher's context.
    teacher_thinking: in the template's think mode.
    privileged: one of PRIVILEGED; `solution` shows the worked solution.
    max_prompt: tokens of the student's prompt.
    max_extra: tokens that s+ may add; what is beyond is cut from its end.
  """

  tokenizer: Any
  instruction: str
  chat: bool
  teacher: bool
  teacher_thinking: bool
  privileged: str
  max_prompt: int
  max_extra: int

  def _ids(self, text: str, thinking: bool = False) -> list[int]:
    if not self.chat:
      opening = tokenizer_lib.opening_ids(self.tokenizer)
      return opening + tokenizer_lib.encode(self.tokenizer, text)
    text = tokenizer_lib.render(self.tokenizer, text, thinking=thinking)
    return tokenizer_lib.encode(self.tokenizer, text)

  def _solution(self, problem: types.Problem) -> str:
    if problem.solution is None:
      raise ValueError(
        f'problem {problem.id!r} has no worked solution, which '
        "privileged.kind='solution' shows to the teacher; give the data a "
        '"solution" field.'
      )
    ids = tokenizer_lib.encode(self.tokenizer, _HEADER + problem.solution)
    kept = tokenizer_lib.decode(self.tokenizer, ids[: self.max_extra])
    return kept + '\n\n'

  def __call__(
    self, prompts: Sequence[prompts_lib.Prompt], group: int
  ) -> dict[str, types.Context]:
    """{name: Context [N, ...] of numpy arrays}, siblings adjacent.

    Raises:
      ValueError: a problem without what is to be shown of it, or a context
        that is longer than it may be.
    """
    rows = {}
    problems = [prompt.problem for prompt in prompts]
    if self.teacher:
      rows['teacher'] = [
        self._ids(p.text + self.instruction, self.teacher_thinking)
        for p in problems
      ]
    if self.privileged != 'none':
      rows['privileged'] = [
        self._ids(self._solution(p) + p.text + self.instruction)
        for p in problems
      ]
    # One shape for the whole run; a template may add a few ids to the seam.
    size = self.max_prompt + self.max_extra + 16
    out = {}
    for name, ids in rows.items():
      padded, lengths = batches.pad(ids, max_prompt=size)
      out[name] = types.Context(
        ids=np.repeat(padded, group, axis=0), lengths=np.repeat(lengths, group)
      )
    return out

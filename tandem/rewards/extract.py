"""What a response claims as its answer: the last complete box, by mode.

Every function here is a linear scan in plain Python, so it is safe to run in
the caller's process; judging what was found is the workers' business.
"""

import re

MODES = ('strict', 'tolerant', 'trl_release', 'roll')

_BOX = re.compile(r'\\(?:boxed|fbox)(?![a-zA-Z])\s*')
# What may stand between two boxes that are parts of one list.
_JOIN = re.compile(
  r'(?:\\text\{\s*(?:and|or)\s*\}|\\(?:quad|qquad|[,;:!()\[\]])'
  r'|,|;|\$|\s|\b(?:and|or)\b)*'
)
_JOIN_WORD = re.compile(r',|;|\b(?:and|or)\b')
_FINAL = re.compile(
  r'(?:^|.*?\b)(?:final\s+answer|answer)\b[\s*_]*(?:is|:|=)[\s*_:]*(?P<a>.+)$',
  re.IGNORECASE,
)
_HASHES = re.compile(r'^\s*####\s*(?P<a>\S.*)$')
_FINAL_LINES = 3  # a final-answer line is among the last lines, or is none
_LINE_CHARS = 400  # ... and short


def extract(response: str, mode: str = 'strict') -> str | None:
  """Finds the answer in a response.

  Args:
    response: the decoded response, special tokens included or not.
    mode: 'strict' and 'tolerant': the last complete box after any closed
      think block; boxes joined by commas or "and" are one list; with no box
      at all, an explicit final-answer line near the end. An unclosed box or
      an unclosed think block is no answer. 'trl_release': the last complete
      box anywhere. 'roll': malformed think tags void the response, the text
      after the closing tag (else after the last blank line) is searched for
      its last complete box, and without one the whole of that text is handed
      to math-verify.

  Returns:
    The text of the answer, possibly '', or None where there is none.

  Raises:
    ValueError: if the mode is unknown.

  Source: CASES 23; Tandem RL release and ROLL `math_rule_reward_worker` as
  METHODS 2.3 and 3.3 describe them.
  """
  if mode in ('strict', 'tolerant'):
    return _strict(response)
  if mode == 'trl_release':
    boxes = _boxes(response)
    return boxes[-1][2] if boxes else None
  if mode == 'roll':
    return _roll(response)
  raise ValueError(
    f'grader mode {mode!r} is unknown; allowed: {MODES}; use "strict" unless '
    'a paper is being reproduced'
  )


def _strict(response: str) -> str | None:
  closed = response.rfind('</think>')
  if response.rfind('<think>') > closed:
    return None
  if closed >= 0:
    response = response[closed + len('</think>') :]
  boxes = _boxes(response)
  if boxes:
    return _unnest(_joined(response, boxes))
  if _BOX.search(response):
    return None  # opened and never closed: cut off, so no answer
  return _final_line(response)


def _roll(response: str) -> str | None:
  opens, closes = response.count('<think>'), response.count('</think>')
  if closes > 1 or opens > 1:
    return None
  if closes:
    before, _, after = response.partition('</think>')
    if '<think>' in after or before.find('<think>') > 0:
      return None
  else:
    if opens:
      return None
    head, blank, after = response.rpartition('\n\n')
    if not blank:
      return None
  boxes = _boxes(after)
  if boxes:
    return boxes[-1][2]
  return after.strip() or None


def _boxes(text: str) -> list[tuple[int, int, str]]:
  """Complete boxes from left to right, outermost only: (start, end, inside)."""
  found = []
  position = 0
  while match := _BOX.search(text, position):
    start, inside = match.start(), match.end()
    position = inside
    if inside >= len(text):
      break
    if text[inside] == '{':
      end = _closing(text, inside)
      if end is not None:
        found.append((start, end + 1, text[inside + 1 : end].strip()))
        position = end + 1
    elif bare := re.compile(r'-?\d[\d.,/]*|[a-zA-Z]').match(text, inside):
      found.append((start, bare.end(), bare.group().rstrip('.,')))
      position = bare.end()
  return found


def _closing(text: str, opening: int) -> int | None:
  """Index of the brace closing `text[opening]`; escaped braces do not count."""
  depth = 0
  for match in re.compile(r'\\.|[{}]', re.DOTALL).finditer(text, opening):
    brace = match.group()
    if brace == '{':
      depth += 1
    elif brace == '}':
      depth -= 1
      if depth == 0:
        return match.start()
  return None


def _joined(text: str, boxes: list[tuple[int, int, str]]) -> str:
  """The last box, with those before it that make one list with it."""
  parts = [boxes[-1][2]]
  for left, right in zip(boxes[-2::-1], boxes[:0:-1]):
    between = text[left[1] : right[0]]
    if len(between) > 60 or not _JOIN.fullmatch(between):
      break
    if not _JOIN_WORD.search(between):
      break
    parts.append(left[2])
  parts.reverse()
  return parts[0] if len(set(parts)) == 1 else ', '.join(parts)


def _unnest(answer: str) -> str:
  """A box that holds nothing but a box is that box."""
  while match := _BOX.match(answer):
    if not answer.startswith('{', match.end()):
      break
    end = _closing(answer, match.end())
    if end != len(answer) - 1:
      break
    answer = answer[match.end() + 1 : end].strip()
  return answer


def _final_line(text: str) -> str | None:
  lines = [line for line in text[-4000:].splitlines() if line.strip()]
  for line in reversed(lines[-_FINAL_LINES:]):
    if len(line) > _LINE_CHARS:
      continue
    match = _HASHES.match(line) or _FINAL.match(line)
    if match:
      answer = match.group('a').strip().strip('*_').strip()
      return answer.removesuffix('.').strip() or None
  return None

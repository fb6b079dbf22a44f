"""What a response claims as its answer: the last complete box, by mode.

Every function here is a linear scan in plain Python, so it is safe to run in
the caller's process; judging what was found is the workers' business.
"""

import re

MODES = ('strict', 'tolerant', 'trl_release', 'roll')

Box = tuple[int, int, int, int]  # start, end, start and end of the inside

_BOX = re.compile(r'\\(?:boxed|fbox)(?![a-zA-Z])')
_BRACES = re.compile(
  r'\\(?:boxed|fbox)\s*(?P<box>\{)'
  r'|\\(?:boxed|fbox)\s*(?P<bare>(?<=\s)[a-zA-Z](?![a-zA-Z])|-?\d+(?:[.,/]\d+)*)'
  r'|\\.|[{}]',
  re.DOTALL,
)
# What may stand between two boxes that are parts of one list.
_JOIN = re.compile(
  r'(?:\\text\{\s*and\s*\}|\\(?:quad|qquad|[,;:!()\[\]])'
  r'|,|;|\$|\s|\b(?:and|or)\b)*'
)
_JOIN_WORD = re.compile(r',|;|\band\b')
_FINAL = re.compile(
  r'(?:.*\b)?(?:final\s+answer|answer)\b[\s*_]*(?:is|:|=)[\s*_:]*(?P<a>.+)$'
  r'|.*答案(?:是|为|：|:|=)+\s*(?P<b>.+)$',
  re.IGNORECASE,
)
_DOLLARS = re.compile(r'\$([^$]+)\$\s*(?:[.,;].*)?')
_HASHES = re.compile(r'^\s*####\s*(?P<a>\S.*)$')
_BETWEEN = 60  # most characters between two boxes of one list
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
    return _last(response)
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
    return _joined(response, boxes)
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
  answer = _last(after)
  return after.strip() or None if answer is None else answer


def _boxes(text: str) -> list[Box]:
  """Complete boxes in the order in which they close.

  One pass with a stack and no copies, so that thousands of boxes, nested or
  never closed, cost no more than the text's length.
  """
  found = []
  opened = []  # (start of a box or None for a plain brace, start of inside)
  first = _BOX.search(text)  # braces before it can close nothing of interest
  for match in _BRACES.finditer(text, first.start()) if first else ():
    mark = match.group()
    if mark == '{':
      opened.append((None, match.end()))
    elif mark == '}':
      start, inside = opened.pop() if opened else (None, 0)
      if start is not None:
        found.append((start, match.end(), inside, match.start()))
    elif match.group('bare'):
      found.append((match.start(), match.end(), *match.span('bare')))
    elif match.group('box'):
      opened.append((match.start(), match.end()))
  return found


def _last(text: str) -> str | None:
  boxes = _boxes(text)
  return text[boxes[-1][2] : boxes[-1][3]].strip() if boxes else None


def _joined(text: str, boxes: list[Box]) -> str:
  """The last box, with those before it that make one list with it."""
  n = len(boxes) - 1
  left, parts = boxes[n][0], [_inside(text, boxes, n)]
  while True:
    while n >= 0 and boxes[n][1] > left:
      n -= 1  # it stands inside the one just taken
    if n < 0:
      break
    between = text[boxes[n][1] : left]
    if len(between) > _BETWEEN or not _JOIN.fullmatch(between):
      break
    if not _JOIN_WORD.search(between):
      break
    left = boxes[n][0]
    parts.append(_inside(text, boxes, n))
  parts.reverse()
  return parts[0] if len(set(parts)) == 1 else ', '.join(parts)


def _inside(text: str, boxes: list[Box], n: int) -> str:
  """What a box holds; a box that holds nothing but a box is that box."""
  while True:
    _, _, start, end = boxes[n]
    while start < end and text[start].isspace():
      start += 1
    while start < end and text[end - 1].isspace():
      end -= 1
    if n == 0 or boxes[n - 1][:2] != (start, end):
      return text[start:end]
    n -= 1


def _final_line(text: str) -> str | None:
  lines = [line for line in text[-4000:].splitlines() if line.strip()]
  for line in reversed(lines[-_FINAL_LINES:]):
    if len(line) > _LINE_CHARS:
      continue
    match = _HASHES.match(line) or _FINAL.match(line)
    if match:
      found = match.groupdict()
      answer = (found['a'] or found.get('b')).strip().strip('*_').strip()
      answer = answer.removesuffix('.').removesuffix('。').strip()
      # "The final answer is $x$. I hope it is correct."
      inside = _DOLLARS.fullmatch(answer)
      return (inside.group(1).strip() if inside else answer) or None
  return None

"""One response of a rollout file: its schema, checked once on the way in.

Schema "tandem.rollout/1", one response per line, one JSON object each. Only
`schema` and `text` are required, so anyone's responses can be shown:

    schema     "tandem.rollout/1"
    step       training step; purpose "train" or "eval"; mode "tandem", "solo"
    prompt_id, group, sample, draw     which prompt, and which of its samples
    prompt     text as given to the model; prompt_ids its token ids
    problem, gold                      the problem's own text and answer
    text       the response, decoded; special tokens need not appear in it
    ids        [T] response token ids
    offsets    [T] pairs [start, end): characters of `text` of each token
    author     [T] 1 senior, 0 junior, null neither; or null in solo mode
    arrays     name -> [T] numbers, null where missing (`logp_senior`, ...)
    turns      [{role, start, end}]: tokens [start, end) of one speaker's turn
    verdict    {reward, reason, answer}
    finish     "eos", "length" or "env"
    keys       {seed, purpose, step, draw, sample}: the noise it was drawn with
"""

from collections.abc import Mapping
import dataclasses
from typing import Any

SCHEMA = 'tandem.rollout/1'


@dataclasses.dataclass(frozen=True)
class Response:
  """One line of a rollout file, checked; T tokens, C characters of text."""

  text: str  # C characters
  ids: tuple[int, ...] = ()  # [T]
  offsets: tuple[tuple[int, int], ...] = ()  # [T] inside [0, C]; () if unknown
  author: tuple[int | None, ...] | None = None  # [T] 1 senior, 0 junior
  arrays: Mapping[str, tuple[float | None, ...]] = dataclasses.field(
    default_factory=dict
  )  # name -> [T]
  turns: tuple[tuple[str, int, int], ...] = ()  # (role, start, end) in tokens
  step: int | None = None
  purpose: str = ''
  mode: str = ''
  prompt_id: str = ''
  group: int | None = None
  sample: int | None = None
  draw: int | None = None
  prompt: str = ''
  problem: str = ''
  gold: str = ''
  reward: float | None = None
  reason: str = ''
  answer: str = ''
  finish: str = ''
  keys: Mapping[str, Any] = dataclasses.field(default_factory=dict)

  @property
  def num_tokens(self):
    """T, from whichever per-token field the file has; 0 where it has none."""
    sizes = [len(self.ids), len(self.offsets), len(self.author or ())]
    return max(sizes + [len(values) for values in self.arrays.values()])

  @property
  def senior_share(self):
    """Share of the authored tokens that the senior wrote; None if none is."""
    authored = [one for one in self.author or () if one is not None]
    return sum(authored) / len(authored) if authored else None


def as_number(value):
  """Returns a JSON value as float, NaN for null, or None if it is no number."""
  if value is None:
    return float('nan')
  if isinstance(value, (bool, int, float)):
    return float(value)
  return None


def _refuse(where, what, wanted, fix):
  raise ValueError(f'{where}: {what}; wanted {wanted}; {fix}.')


_CONTAINERS = {
  'ids': (list, tuple),
  'offsets': (list, tuple),
  'author': (list, tuple),
  'turns': (list, tuple),
  'arrays': Mapping,
  'verdict': Mapping,
  'keys': Mapping,
}


def _whole(value):
  return isinstance(value, int) and not isinstance(value, bool)


def _per_token(record, where):
  """Checks the per-token fields; returns ids, offsets, author, arrays."""
  text = record['text']
  ids = tuple(record.get('ids') or ())
  offsets = []
  for t, pair in enumerate(record.get('offsets') or ()):
    if (
      not isinstance(pair, (list, tuple))
      or len(pair) != 2
      or not all(map(_whole, pair))
      or not 0 <= pair[0] <= pair[1] <= len(text)
    ):
      _refuse(
        where,
        f'offsets[{t}] is {pair!r}',
        f'[start, end] inside [0, {len(text)}]',
        'offsets count characters of `text`, not bytes',
      )
    offsets.append((pair[0], pair[1]))
  author = record.get('author')
  if author is not None:
    strange = [one for one in author if one not in (0, 1, None)]
    if strange:
      _refuse(
        where,
        f'author holds {strange[0]!r}',
        '1 senior, 0 junior, null neither',
        'map the names first',
      )
    author = tuple(None if one is None else int(one) for one in author) or None
  arrays = {}
  for name, values in (record.get('arrays') or {}).items():
    if values is None:  # a model that was not there: solo mode
      continue
    if not isinstance(values, (list, tuple)):
      _refuse(where, f'arrays.{name} is {values!r}', 'a list', 'one per token')
    arrays[name] = tuple(as_number(value) for value in values)
    if None in arrays[name]:
      _refuse(where, f'arrays.{name} holds a string', 'numbers', 'convert it')
    arrays[name] = tuple(None if x != x else x for x in arrays[name])
  sizes = {'ids': ids, 'offsets': offsets, 'author': author, **arrays}
  sizes = {name: len(values) for name, values in sizes.items() if values}
  if len(set(sizes.values())) > 1:
    _refuse(
      where,
      'per-token fields differ in length: '
      + ', '.join(f'{name} {size}' for name, size in sizes.items()),
      'one entry per response token',
      'cut every field at the response length',
    )
  return ids, tuple(offsets), author, arrays


def parse_response(record, *, where='rollout'):
  """Checks one record of the schema and fills what it lacks.

  Args:
    record: mapping, one line of a rollout file.
    where: named in errors, such as 'step_000012.jsonl:3'.

  Returns:
    Response.

  Raises:
    ValueError: another schema (by name), no text, or fields that contradict
      each other.
  """
  if record.get('schema') != SCHEMA:
    _refuse(
      where,
      f'schema is {record.get("schema")!r}',
      repr(SCHEMA),
      'read it with the version of tandem that wrote it, or convert the file',
    )
  if not isinstance(record.get('text'), str):
    _refuse(
      where,
      f'text is {record.get("text")!r}',
      'the decoded response',
      'decode `ids` with the tokenizer of the run',
    )
  for name, kind in _CONTAINERS.items():
    if record.get(name) is not None and not isinstance(record[name], kind):
      _refuse(
        where,
        f'{name} is {record[name]!r:.60}',
        'an object' if kind is Mapping else 'a list',
        'see the schema in tandem/analysis/responses.py',
      )
  ids, offsets, author, arrays = _per_token(record, where)
  verdict = record.get('verdict') or {}
  step = record.get('step')
  if step is not None and not _whole(step):
    _refuse(where, f'step is {step!r}', 'a whole number', 'or leave it out')
  turns = []
  for turn in record.get('turns') or ():
    span = ()
    if isinstance(turn, Mapping):
      span = (turn.get('start'), turn.get('end'))
    if not span or not all(map(_whole, span)):
      _refuse(
        where,
        f'a turn is {turn!r}',
        '{role, start, end}',
        'start and end count response tokens',
      )
    turns.append((str(turn.get('role', '')), *span))
  reward = as_number(verdict.get('reward'))
  if reward is None:
    _refuse(
      where,
      f'verdict.reward is {verdict["reward"]!r}',
      'a number or null',
      'map words to numbers first',
    )
  texts = ('purpose', 'mode', 'prompt_id', 'prompt', 'problem', 'gold')
  return Response(
    text=record['text'],
    ids=ids,
    offsets=offsets,
    author=author,
    arrays=arrays,
    turns=tuple(turns),
    reward=None if reward != reward else reward,
    reason=str(verdict.get('reason') or ''),
    answer=str(verdict.get('answer') or ''),
    finish=str(record.get('finish') or ''),
    keys=record.get('keys') or {},
    step=step,
    **{name: record.get(name) for name in ('group', 'sample', 'draw')},
    **{
      name: '' if record.get(name) is None else str(record[name])
      for name in texts
    },
  )


def as_response(rollout):
  """Returns a Response as it is, and a record of the schema checked."""
  if isinstance(rollout, Response):
    return rollout
  return parse_response(rollout)

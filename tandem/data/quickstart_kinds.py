"""The six kinds of problem of the quickstart, and how each is solved.

Each kind is a function of a generator that returns a problem's text and a
`solve`, which writes the worked solution step by step. Every step's result goes
through `slip`, so that an expert's errors are made where steps are made and
carried on from. Numbers are made so that columns need no carry and no number
begins with a zero; a step is then one single-digit operation.
"""

from collections.abc import Callable

import numpy as np

NAMES = ('Mia', 'Leo', 'Zoe', 'Ben', 'Ann', 'Tom')
ITEMS = ('fig', 'nut', 'plum', 'pear')

# Takes the right digit of a step and returns the digit that is written down.
Slip = Callable[[int], int]
Solve = Callable[[Slip], tuple[str, str]]  # -> (solution, answer)


def _split(rng, total, parts, low):
  """Digits of at least `low` that sum to `total`."""
  spare = total - parts * low
  cuts = np.sort(rng.integers(0, spare + 1, size=parts - 1)).tolist()
  edges = [0, *cuts, spare]
  return [low + b - a for a, b in zip(edges, edges[1:])]


def _chain(slip, first, terms):
  """The text of digits added and taken in turn, modulo ten, and the result."""
  steps, value = [], first
  for sign, digit in terms:
    result = slip((value + (digit if sign == '+' else -digit)) % 10)
    steps.append(f' {value} {sign} {digit} = {result}')
    value = result
  return ' ,'.join(steps), value


def _columns(slip, ones, tens):
  """Column arithmetic: each argument is (first digit, signed terms)."""
  ones_text, one = _chain(slip, *ones)
  tens_text, ten = _chain(slip, *tens)
  return f' ones{ones_text} , tens{tens_text}', f'{ten}{one}'


def _boxed(text, answer):
  return f'{text} , so \\boxed{{{answer}}}', answer


def _dials(rng):
  """Two ten-digit dials turned up and down; they wrap."""
  start = rng.integers(0, 10, size=2)
  which = [0, 1, int(rng.integers(0, 2))]
  turns = [
    (dial, str(rng.choice(['+', '-'])), int(rng.integers(1, 6)))
    for dial in which
  ]
  moves = ', '.join(
    f'{"AB"[dial]} {"up" if sign == "+" else "down"} {digit}'
    for dial, sign, digit in turns
  )
  text = f'Dial A shows {start[0]} and B shows {start[1]}. Turn {moves}. Now?'

  def solve(slip):
    work, digits = [], []
    for dial in range(2):
      terms = [turn[1:] for turn in turns if turn[0] == dial]
      chain, digit = _chain(slip, int(start[dial]), terms)
      work.append(f' {"AB"[dial]}{chain}')
      digits.append(str(digit))
    return _boxed(' ,'.join(work), ''.join(digits))

  return text, solve


def _total(rng):
  """Three people's things added, without a carry."""
  ten, one = int(rng.integers(3, 10)), int(rng.integers(0, 10))
  tens, ones = _split(rng, ten, 3, 1), _split(rng, one, 3, 0)
  names = rng.permutation(NAMES)[:3].tolist()
  item = str(rng.choice(ITEMS))
  has = [f'{t}{o}' for t, o in zip(tens, ones)]
  text = (
    f'{names[0]} has {has[0]} {item}s, {names[1]} has {has[1]} and '
    f'{names[2]} has {has[2]}. How many in all?'
  )

  def solve(slip):
    one, ten = ([('+', d) for d in column[1:]] for column in (ones, tens))
    return _boxed(*_columns(slip, (ones[0], one), (tens[0], ten)))

  return text, solve


def _compare(rng):
  """Who of two has more, and by how many."""
  gap_ten, gap_one = int(rng.integers(2, 9)), int(rng.integers(0, 10))
  low_ten = int(rng.integers(1, 10 - gap_ten))
  low_one = int(rng.integers(0, 10 - gap_one))
  names = rng.permutation(NAMES)[:2].tolist()
  low = (names[0], low_ten, low_one)
  high = (names[1], low_ten + gap_ten, low_one + gap_one)
  first, second = (low, high) if rng.random() < 0.5 else (high, low)
  item = str(rng.choice(ITEMS))
  text = (
    f'{first[0]} has {first[1]}{first[2]} {item}s and {second[0]} has '
    f'{second[1]}{second[2]}. How many more has the one with more?'
  )

  def solve(slip):
    # A slip here takes the one for the other.
    most, least = (high, low) if slip(0) == 0 else (low, high)
    found = ' ,'.join(
      f' {rank} {name} {ten}{one}'
      for rank, (name, ten, one) in (('most', most), ('least', least))
    )
    work, answer = _columns(
      slip, (most[2], [('-', least[2])]), (most[1], [('-', least[1])])
    )
    return _boxed(f'{found} ,{work}', answer)

  return text, solve


def _run(rng, low):
  """Five digits in equal steps of at most 2, up or down, none below `low`."""
  last = int(rng.integers(low, 10))
  steps = [s for s in (-2, -1, 0, 1, 2) if low <= last - 4 * s <= 9]
  step = int(rng.choice(steps))
  return [last - step * back for back in (4, 3, 2, 1, 0)]


def _sequence(rng):
  """A list of two-digit numbers, each column in equal steps; the fifth."""
  tens, ones = _run(rng, 1), _run(rng, 0)
  while tens[0] == tens[1] and ones[0] == ones[1]:
    ones = _run(rng, 0)
  shown = ', '.join(f'{t}{o}' for t, o in zip(tens[:3], ones[:3]))
  name, item = str(rng.choice(NAMES)), str(rng.choice(ITEMS))
  text = f'{name} counts {item}s: {shown}. Go on two more. Now?'

  def solve(slip):
    work, digits = [], []
    for label, run in (('ones', ones), ('tens', tens)):
      written = list(run[:3])
      for _ in range(2):
        written.append(slip((2 * written[-1] - written[-2]) % 10))
      work.append(f' {label} ' + ' '.join(map(str, written)))
      digits.append(str(written[-1]))
    return _boxed(' ,'.join(work), ''.join(reversed(digits)))

  return text, solve


def _tally(rng):
  """Things of one sort counted in a sentence, on top of a first number."""
  wanted = str(rng.choice(ITEMS))
  picked = [
    wanted if rng.random() < 0.5 else str(rng.choice(ITEMS)) for _ in range(4)
  ]
  count = picked.count(wanted)
  ten, last = int(rng.integers(1, 10)), int(rng.integers(count, 10))
  name = str(rng.choice(NAMES))
  text = (
    f'{name} has {ten}{last - count} {wanted}s. Then {name} gets a '
    f'{", a ".join(picked)}. How many {wanted}s?'
  )

  def solve(slip):
    work, one = [], last - count
    for thing in picked:
      one = slip((one + (thing == wanted)) % 10)
      word = 'yes' if thing == wanted else 'no'
      work.append(f' {thing} {word} {ten}{one}')
    return _boxed(' ,'.join(work), f'{ten}{one}')

  return text, solve


def _story(rng):
  """Two people put their things together, then some are eaten."""
  item = str(rng.choice(ITEMS))
  names = rng.permutation(NAMES)[:2].tolist()
  columns = []
  for low in (1, 0):  # no number begins with a zero
    left = int(rng.integers(low, 10 - low))
    eaten = int(rng.integers(low, 10 - left))
    columns.append((*_split(rng, left + eaten, 2, low), eaten))
  tens, ones = columns
  text = (
    f'{names[0]} has {tens[0]}{ones[0]} {item}s. {names[1]} gives {names[0]} '
    f'{tens[1]}{ones[1]}. {names[0]} eats {tens[2]}{ones[2]}. '
    f'How many are left?'
  )

  def solve(slip):
    one, ten = (
      (column[0], [('+', column[1]), ('-', column[2])])
      for column in (ones, tens)
    )
    return _boxed(*_columns(slip, one, ten))

  return text, solve


KINDS = {
  'dials': _dials,
  'total': _total,
  'compare': _compare,
  'sequence': _sequence,
  'tally': _tally,
  'story': _story,
}

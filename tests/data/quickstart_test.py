"""The generated task: right answers, honest split, errors by design."""

import collections
import re

import numpy as np
import pytest

from tandem import types
from tandem.data import quickstart
from tandem.data import quickstart_kinds
from tandem.text import boundaries
from tandem.text import tokenizer as text_tokenizer

KINDS = list(quickstart_kinds.KINDS)
COUNT = 200 * len(KINDS)


@pytest.fixture(scope='module')
def sample():
  return quickstart.problems(1, 0, COUNT)


def boxed(text):
  return re.search(r'\\boxed\{(\d\d)\}$', text).group(1)


# Each kind's answer by ordinary arithmetic on the text alone.


def answer_dials(text):
  shown = [int(n) for n in re.findall(r'shows (\d)', text)]
  for dial, way, by in re.findall(r'([AB]) (up|down) (\d)', text):
    shown['AB'.index(dial)] += int(by) if way == 'up' else -int(by)
  return '{}{}'.format(*(value % 10 for value in shown))


def numbers(text):
  return [int(n) for n in re.findall(r'\d+', text)]


def answer_sequence(text):
  first, second, third = numbers(text)
  assert second - first == third - second != 0
  return str(first + 4 * (second - first))


def answer_tally(text):
  wanted = re.search(r'How many (\w+)s\?', text).group(1)
  listed = text.partition('gets')[2].partition('.')[0]
  return str(numbers(text)[0] + len(re.findall(rf'a {wanted}\b', listed)))


def answer_story(text):
  has, given, eaten = numbers(text)
  return str(has + given - eaten)


ANSWERS = {
  'dials': answer_dials,
  'total': lambda text: str(sum(numbers(text))),
  'compare': lambda text: str(max(numbers(text)) - min(numbers(text))),
  'sequence': answer_sequence,
  'tally': answer_tally,
  'story': answer_story,
}


@pytest.mark.parametrize('kind', KINDS)
def test_answers_are_right(sample, kind):
  mine = [p for p in sample if p.id.startswith(f'{kind}/')]
  assert len(mine) == COUNT // len(KINDS)
  for problem in mine:
    # Two digits each; a sum below ten keeps its zero.
    assert problem.answer == ANSWERS[kind](problem.text).zfill(2)
    assert problem.answer == boxed(problem.solution)
    assert problem.source == 'quickstart'


def test_an_item_depends_on_seed_and_index_only(sample):
  assert quickstart.problems(1, 50, 20) == sample[50:70]
  texts = {p.text for p in sample}
  assert len(texts) > 0.9 * COUNT
  other = {p.text for p in quickstart.problems(2, 0, COUNT)}
  assert len(texts & other) < 0.1 * COUNT
  assert len({p.id for p in sample}) == COUNT


def test_a_guess_is_right_less_than_once_in_fifty(sample):
  # Over all kinds the commonest answer's true share is about 1.2 %; a sample
  # of 1,200 goes past 2 % once in a thousand.
  (_, most), *_ = collections.Counter(p.answer for p in sample).most_common()
  assert most < 0.02 * COUNT
  # Nor does copying a number of the problem help much.
  copied = [re.findall(rf'\b{p.answer}\b', p.text) != [] for p in sample]
  assert np.mean(copied) < 0.08


def test_no_training_problem_has_a_held_out_solution(sample):
  held = quickstart.problems(9, 0, 600, held_out=True)
  solutions = {p.solution for p in held}
  assert solutions.isdisjoint(p.solution for p in sample)
  demonstrated = quickstart.demonstrations(3, 0, 600, 0.0)
  assert solutions.isdisjoint(text for _, text in demonstrated)
  assert {p.id.split('/')[0] for p in held} == set(KINDS)
  for problem in held[:60]:
    kind = problem.id.split('/')[0]
    assert problem.answer == ANSWERS[kind](problem.text).zfill(2)


def test_an_expert_without_errors_is_the_solution(sample):
  for problem in sample[:60]:
    rng = np.random.default_rng(0)
    assert quickstart.demonstration(problem, rng, 0.0) == problem.solution
  held = quickstart.problems(1, 0, 12, held_out=True)
  for problem in held:
    assert quickstart.demonstration(problem, rng, 0.0) == problem.solution


def test_the_share_of_slips_sets_the_accuracy():
  right = collections.defaultdict(list)
  for problem, text in quickstart.demonstrations(0, 0, 2400, 0.25):
    right[problem.id.split('/')[0]].append(boxed(text) == problem.answer)
  shares = {kind: np.mean(values) for kind, values in right.items()}
  # Three to four steps each: 0.75 ** 4 = .32, 0.75 ** 3 = .42, and slips that
  # cancel; the standard error is .025.
  assert all(0.22 < share < 0.50 for share in shares.values()), shares
  assert 0.32 < np.mean(list(shares.values())) < 0.40


def test_a_slip_is_carried_on():
  slipped = 0
  for problem, text in quickstart.demonstrations(0, 0, 300, 0.5):
    if problem.id.split('/')[0] not in ('total', 'story'):
      continue
    ones, tens = re.findall(r'(?:ones|tens) ([\d +=,-]*\d)', text)
    ends = []
    for column in (ones, tens):
      (a, b), (c, d) = re.findall(r'(\d) [+-] \d = (\d)', column)
      assert b == c  # the next step starts from what was written
      ends.append(d)
    assert boxed(text) == ends[1] + ends[0]
    slipped += text != problem.solution
  assert slipped > 80


def test_demonstrations_are_reproducible():
  whole = quickstart.demonstrations(4, 0, 40, 0.25)
  assert quickstart.demonstrations(4, 30, 10, 0.25) == whole[30:]
  assert [p for p, _ in whole] == quickstart.problems(4, 0, 40)


def test_what_cannot_be_demonstrated_is_refused(sample):
  rng = np.random.default_rng(0)
  with pytest.raises(ValueError, match=r'error_rate=1.5'):
    quickstart.demonstration(sample[0], rng, 1.5)
  other = types.Problem(id='gsm8k/1', text='x', answer='1', source='gsm8k')
  with pytest.raises(ValueError, match="'gsm8k/1'.*was not made by"):
    quickstart.demonstration(other, rng, 0.1)


# --------------------------------------------------------------- tokenizer


def test_prompts_and_responses_are_short(sample):
  tokenizer = quickstart.tokenizer()
  count = lambda text: len(text_tokenizer.encode(tokenizer, text))
  for problem in sample[:300]:
    assert count(text_tokenizer.render(tokenizer, problem.text)) <= 32
    assert count(problem.solution) + 1 <= 40  # the eos with it


def test_tokenizer_is_small_lossless_and_has_boundaries(tmp_path, sample):
  tokenizer = quickstart.tokenizer()
  assert 256 < len(tokenizer) <= quickstart.VOCAB
  assert (tokenizer.pad_token_id, tokenizer.eos_token_id) == (0, 1)
  assert text_tokenizer.stop_ids(tokenizer) == [1]
  for text in [sample[0].solution, 'Ünïcode 数学 😀\t\n\n', '  100km 2+2=4']:
    ids = text_tokenizer.encode(tokenizer, text)
    assert tokenizer.decode(ids) == text
  assert tokenizer.tokenize('x42 42') == ['x', '4', '2', 'Ġ4', '2']
  table = boundaries.boundary_table(
    tokenizer, len(tokenizer), cache_dir=tmp_path
  )
  ids = text_tokenizer.encode(tokenizer, sample[0].solution)
  assert 0.5 < table[ids].mean() < 1.0
  prompt = text_tokenizer.render(tokenizer, sample[0].text)
  assert prompt == sample[0].text + '\n'


def test_tokenizer_training_is_deterministic():
  again = quickstart.tokenizer.__wrapped__()
  assert again.get_vocab() == quickstart.tokenizer().get_vocab()
  assert boundaries.tokenizer_hash(again) == boundaries.tokenizer_hash(
    quickstart.tokenizer()
  )

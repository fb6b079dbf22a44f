"""What counts as the answer of a response, by mode (CASES 23)."""

import time

import pytest

from tandem.rewards import extract

THINK = 'I guess \\boxed{1}.</think>'


@pytest.mark.parametrize(
  ('response', 'answer'),
  [
    (r'\boxed{1} then \boxed{2}', '2'),  # the last, not the first
    (r'\boxed{\frac{1}{2}}', r'\frac{1}{2}'),
    (r'\boxed{\{1,2\}}', r'\{1,2\}'),  # escaped braces do not count
    (r'\boxed{\left\{ x \right.}', r'\left\{ x \right.'),
    (r'\boxed{\boxed{3}}', '3'),
    (r'\boxed {4}', '4'),
    (r'\boxed 5', '5'),
    (r'\boxed5.', '5'),
    (r'\fbox{6}', '6'),
    (r'\boxed{}', ''),
    (r'\boxed{7', None),  # cut off
    (r'\boxed{\frac{1}{2}', None),
    (r'\boxed{8} and later \boxed{9', '8'),  # the last complete one
    (r'\boxed{10 \boxed{11}', '11'),
    (r'a set } of braces { \boxed{12}', '12'),
    # Thinking.
    (THINK + r'It is \boxed{2}.', '2'),
    (THINK, None),
    (r'<think>\boxed{1}', None),
    (r'<think>\boxed{1}</think> \boxed{2} <think> \boxed{3}', None),
    (r'<think>a</think> b </think> \boxed{4}', '4'),
    # Several boxes that make one list, and those that do not.
    (r'$\boxed{1}, \boxed{2}$ and $\boxed{3}$', '1, 2, 3'),
    (r'\boxed{1},\quad\boxed{2}', '1, 2'),
    (r'\boxed{1} \text{ and } \boxed{2}', '1, 2'),
    (r'\boxed{2} or \boxed{3}', '3'),
    (r'first \boxed{1}, then we find \boxed{2}', '2'),
    (r'\boxed{6}, \boxed{6}', '6'),
    # No box: a clear final-answer line, and never just any number.
    ('We get 41.\n\nFinal Answer: **42**', '42'),
    (
      'The final answer is $\\frac{1}{2}$. I hope it is correct.',
      r'\frac{1}{2}',
    ),
    ('#### 18', '18'),
    ('答案是 5。', '5'),
    ('So there are 12 of them.', None),
    ('The answer is 3.\na\nb\nc\nd', None),
    ('', None),
  ],
)
def test_strict(response, answer):
  assert extract.extract(response) == answer
  assert extract.extract(response, 'tolerant') == answer


@pytest.mark.parametrize(
  ('response', 'answer'),
  [
    (r'\boxed{1} and \boxed{2}', '2'),
    (r'<think>\boxed{1}', '1'),
    (r'\boxed{3', None),
    ('Final Answer: 4', None),
  ],
)
def test_trl_release_takes_the_last_complete_box_anywhere(response, answer):
  assert extract.extract(response, 'trl_release') == answer


@pytest.mark.parametrize(
  ('response', 'answer'),
  [
    (r'<think>a</think>\boxed{1}', '1'),
    (r'a</think>\boxed{1}', '1'),  # the prompt opened it
    (r'a</think>b</think>\boxed{1}', None),
    (r'a</think>b<think>\boxed{1}', None),
    (r'x<think>a</think>\boxed{1}', None),
    (r'<think>\boxed{1}', None),
    ('work\n\nso \\boxed{2}', '2'),
    (r'so \boxed{2}', None),  # neither a closing tag nor a blank line
    ('\\boxed{1}\n\nso it is 2', 'so it is 2'),
  ],
)
def test_roll_rejects_malformed_thinking(response, answer):
  assert extract.extract(response, 'roll') == answer


def test_extraction_is_linear():
  start = time.process_time()
  for bomb in (
    r'\boxed{' * 30_000,
    r'\boxed{' * 15_000 + '}' * 15_000,
    '$' * 100_000,
    'answer ' * 20_000,
    r'\boxed{1}, ' * 20_000,
  ):
    extract.extract(bomb)
    extract.extract(bomb + '\n\n', 'roll')
  assert time.process_time() - start < 3


def test_unknown_mode_is_named():
  with pytest.raises(ValueError, match='lenient'):
    extract.extract('', 'lenient')

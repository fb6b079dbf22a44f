"""Pairs of gold and answer, by category, and the rules that decide them."""

import json
import pathlib
import sys
import time

import pytest

from tandem import rewards
from tandem.rewards import equivalence
from tandem.rewards import extract

SHARED = pathlib.Path(__file__).parents[3] / 'shared/data/grader_cases.jsonl'

EQUAL = {
  'case 22': [
    ('1024', '2^{10}'),
    ('x^2+2x+1', '(x+1)^2'),
    (r'\frac{1}{2}', '0.5'),
    ('½', '0.5'),
  ],
  'numbers': [
    ('12345', '12,345'),
    ('12345', r'12{,}345'),
    ('12345', r'12\,345'),
    ('1234567', '1 234 567'),
    ('0.000255', '2.55e-4'),
    ('2.55e-10', r'2.55 \times 10^{-10}'),
    ('070', '70'),
    (r'\frac{1}{6}', r'0.1\overline{6}'),
    ('.5', r'\frac12'),
    ('10^{6}', '1000000'),
    ('seven', '7'),
    (r'33\frac{1}{3}', r'\frac{100}{3}'),
    ('2.75', '2 3/4'),
    ('0', r'\sqrt{2}\sqrt{3}-\sqrt{6}'),
    ('3^{2^{100}}', '9^{2^{99}}'),
    ('-1.5', r'-1\frac{1}{2}'),
  ],
  'unicode': [
    ('-5', '−5'),
    ('42', '４２'),
    ('42', '٤٢'),
    ('8', '2³'),
    (r'\sqrt{2}', '√2'),
    (r'\frac{\pi}{3}', 'π/3'),
    (r'2\frac12', '2½'),
    (r'x \ge 2', 'x ≥ 2'),
    (r'a_{1}', 'a₁'),
    (r'6\sqrt{3}', '6 × √(3)'),
  ],
  'algebra': [
    (r'\frac{\sqrt{3}}{3}', r'\frac{1}{\sqrt3}'),
    (r'\sqrt{50}', r'5\sqrt{2}'),
    (r'\sin^2 x', r'1-\cos^2 x'),
    (r'2\ln x', r'\ln x^2'),
    ('(a+b)(a-b)', 'a^2-b^2'),
    (r'\frac{n(n+1)}{2}', r'\binom{n+1}{2}'),
    (r'\log_2 8', '3'),
    (r'e^{i\pi}', '-1'),
    ('-2', r'\sqrt[3]{-8}'),
    (r'\sum_{k=1}^{10} k', '55'),
    (r'\frac{1}{3}', r'\int_0^1 x^2 dx'),
    (r'|x|', r'\sqrt{x^2}'),
    ('-2', r'\begin{vmatrix} 1 & 2 \\ 3 & 4 \end{vmatrix}'),
  ],
  'degrees and units': [
    ('75', r'75^\circ'),
    (r'30^{\circ}', '30 degrees'),
    (r'\frac{\pi}{4}', r'45^\circ'),
    ('18', r'18 \text{ cm}^2'),
    (r'5 \text{ m}', r'500 \text{ cm}'),
    (r'90 \text{ km/h}', r'25 \text{ m/s}'),
    (r'2 \text{ hours}', '120 minutes'),
    (r'60 \text{ mph}', r'60 \text{ miles per hour}'),
    (r'3 \text{ square feet}', r'3 \mathrm{ft}^2'),
    (r'\$18.90', '18.9'),
    ('50 cents', r'\$0.50'),
  ],
  'percent': [
    (r'45\%', '0.45'),
    (r'45\%', '45'),
    (r'12.5\%', r'\frac{1}{8}'),
    (r'33\frac{1}{3}\%', r'\frac{1}{3}'),
    ('20', '20 percent'),
  ],
  'sets and lists': [
    ('1, 2', '2, 1'),
    (r'\{1,2\}', '2, 1'),
    (r'\{1, 2\}', r'\{2, 1, 1\}'),
    (r'-1 \text{ or } 4', r'x = 4 \text{ or } x = -1'),
    ('x=1, y=2', '(1, 2)'),
    ('(1, 2)', 'y=2, x=1'),
    ('(x,y)=(3,4)', '(3,4)'),
    (r'2 \pm \sqrt{3}', r'\{2-\sqrt3, 2+\sqrt3\}'),
    (r'\emptyset', r'\{\}'),
    (r'(1,2), (3,4)', r'\{(3,4), (1,2)\}'),
    (r'\begin{pmatrix} 1 \\ 2 \end{pmatrix}', '(1, 2)'),
    (r'\langle 1, -2 \rangle', '(1,-2)'),
  ],
  'intervals': [
    ('[2,5)', r'2 \le x < 5'),
    (r'(-\infty, 3]', r'x \leq 3'),
    (r'(-\infty,5)\cup(5,\infty)', r'x \neq 5'),
    (r'(-\infty,5)\cup(5,\infty)', r'\mathbb{R} \setminus \{5\}'),
    ('(0,3)', r'(0,2) \cup [1,3)'),
    ('[-1,1]', r'\{x \mid x^2 \le 1\}'),
    (r'x < -5 \text{ or } x > 5', r'(5,\infty)\cup(-\infty,-5)'),
    ('(2,5)', ']2,5['),
    ('x>3', r'(3, \infty)'),
    (r'x \in [1,2]', '[1,2]'),
    ('all real numbers', r'(-\infty,\infty)'),
  ],
  'equations': [
    ('x=5', '5'),
    ('5', '5 = x'),
    ('y = 2x + 1', 'y - 2x = 1'),
    ('3x - 2y + 4 = 0', '6x - 4y = -8'),
    ('y = e^{2x}', r'\ln y = 2x'),
    ('f(x) = x^2', 'x^2'),
    ('2x + y < 3', '3 > y + 2x'),
  ],
  'bases, ratios, times': [
    ('11', '1011_2'),
    ('312_7', r'312_{7}'),
    ('312_7', r'312 \text{ (base 7)}'),
    ('2:4', '1:2'),
    (r'7:32', r'\frac{7}{32}'),
    (r'1:25 \text{ PM}', '13:25'),
  ],
  'text': [
    (r'\text{north}', 'North'),
    ('(C)', r'\text{C}'),
    ('C', r'\text{(C) } 42'),
    (r'\text{No solution}', 'no solutions'),
    (r'\text{even}', 'Even.'),
  ],
}

DIFFERENT = {
  'numbers': [
    (r'\frac{1}{3}', '0.333'),
    (r'\sqrt{2}', '1.41421356'),
    ('1', '1.000000000000001'),
    ('12345', '12,346'),
    ('2.55e-10', '2.55e-9'),
    (r'\frac{11}{4}', r'2 \cdot \frac{3}{4}'),
    (r'\frac{1}{2^{89}}', r'\frac{1}{2^{88}}'),
    ('100,000,000', r'100,000,000\pi'),
    ('10^{100}', '10^{100}+1'),
    ('720', '6!+1'),
    ('3^{-174762.6667}', '3^{-762.6667}'),
    ('0', 'e^{-300}'),
    ('3^{2^{100}}', '9^{2^{98}}'),
  ],
  'algebra': [
    ('x', r'\sqrt{x^2}'),
    (r'\lfloor\frac{2n-1}{5}\rfloor', r'\lfloor\sqrt{n-1}\rfloor'),
    ('a_{12}', 'a_{21}'),
    ('X', 'x'),
    ('f(2)', 'f(3)'),
    ('I(0)', 'g(0)'),
    (r'\infty', r'-\infty'),
    (r'\infty', r'\frac{1}{0}'),
    ('5', 'n'),
    ('42', 'print(42)'),
    ('8', 'lambda: 8'),
    (r'\begin{pmatrix} 1 & 0 \\ 0 & 1 \end{pmatrix}', '1'),
  ],
  'degrees and units': [
    (r'5 \text{ m}', r'5 \text{ cm}'),
    (r'5 \text{ m}', r'5 \text{ m}^2'),
    (r'45^\circ', r'54^\circ'),
    ('45', r'\frac{\pi}{4}'),
    ('7', r'7 \text{ hours}.9'),
    (r'3 \text{ dollars}', r'3 \text{ cents}'),
  ],
  'percent': [(r'45\%', '0.045'), ('0.5', '50'), ('0.45', r'0.45\%')],
  'sets and lists': [
    ('3', '3, 4, 5'),
    ('(1,2)', '(2,1)'),
    ('1, 2', '1, 2, 3'),
    (r'5 \pm 2\sqrt6', r'5 \pm 2\sqrt5'),
    ('1, 2, \\ldots, n', '1, 3, \\ldots, n'),
    ('x=1, y=2', 'x=2, y=1'),
    (
      r'\begin{pmatrix} 1 & 2 \end{pmatrix}',
      r'\begin{pmatrix} 1 \\ 2 \end{pmatrix}',
    ),
  ],
  'intervals': [
    ('(3,8]', '(3,8)'),
    ('[2,12)', '2,12'),
    (r'x \le 3', 'x < 3'),
    ('x > 2', 'n > 2'),
    ('(0,1)', r'\{0,1\}'),
  ],
  'equations': [
    ('x=5', 'x=-5'),
    ('x^2+y^2=25', 'x^2+y^2=5'),
    ('3x-2y+4=0', '6x-4y+4=0'),
    ('x=4', '4 \\cdot 2 = 8'),
    ('2x+y<3', '2x+y>3'),
    ('y=e^{2x}', r'(y-e^{2x})(y-1)=0'),
  ],
  'bases, ratios, times': [
    ('312_7', '312_8'),
    ('312_7', '312'),
    ('1:2', '2:1'),
    ('2:30', '1:15'),
    (r'1:25 \text{ PM}', r'1:25 \text{ AM}'),
  ],
  'text': [
    (r'\text{listen}', r'\text{silent}'),
    ('(C)', '(D)'),
    (r'\text{yes}', r'\text{no}'),
    ('9', r'\text{your answer}'),
  ],
}


def _cases(table):
  return [
    pytest.param(*pair, id=f'{kind}-{n}')
    for kind, pairs in table.items()
    for n, pair in enumerate(pairs)
  ]


@pytest.mark.parametrize(('gold', 'answer'), _cases(EQUAL))
def test_equal_both_ways(gold, answer):
  assert equivalence.judge(gold, answer, None, 'strict') == 'equal'
  assert equivalence.judge(answer, gold, None, 'strict') == 'equal'


@pytest.mark.parametrize(('gold', 'answer'), _cases(DIFFERENT))
def test_different_both_ways(gold, answer):
  assert equivalence.judge(gold, answer, None, 'strict') != 'equal'
  assert equivalence.judge(answer, gold, None, 'strict') != 'equal'


@pytest.mark.parametrize(
  'bomb',
  [
    '9^{9^{9^{9}}}',
    '10^{10^{10^{10}}}',
    '9^9^9^9^9',
    '99999999!',
    '((99!)!)!',
    r'\binom{10^{12}}{10^{11}}',
    'e^{e^{e^{e^{10}}}}',
    r'\sum_{k=1}^{10^{12}} k',
    r'\sin(10^{10^{9}})',
    r'\int_0^{10} e^{e^{e^{x}}} dx',
    r'\lfloor \pi^{10^{9}} \rfloor',
    '(' * 3000 + '1' + ')' * 3000,
    '1' * 3999 + '!',
    r'\{' + ','.join(map(str, range(700))) + r'\}',
    '1' * 5000,
    r'\{x \mid x^{50}+x-1 \le 0\}',
    r'(1+x)^{100000}',
    r'\cosh(10^{9})',
  ],
)
def test_bombs_are_harmless(bomb):
  sys.setrecursionlimit(30_000)
  start = time.process_time()
  try:
    for gold in ('4', r'\{1,2,3\}', '[0,1]', 'x=y+1', '3.5'):
      assert equivalence.judge(gold, bomb, None, 'strict') in (
        'refused',
        'different',
        'unparsed',
      )
      assert equivalence.judge(gold, bomb, None, 'tolerant') != 'equal'
  finally:
    sys.setrecursionlimit(1000)
  assert time.process_time() - start < 4


def test_the_question_settles_conventions():
  ask = 'What percentage of the students passed?'
  assert equivalence.judge(r'0.5\%', '0.5', None, 'strict') == 'different'
  assert equivalence.judge(r'0.5\%', '0.5', ask, 'strict') == 'equal'
  ask = 'Write the sum in base 7.'
  assert equivalence.judge('312_7', '312', ask, 'strict') == 'equal'


@pytest.mark.parametrize(
  ('gold', 'answer', 'reason'),
  [
    ('4.5e33', r'4.49 \times 10^{33}', 'equal'),
    ('4.5e33', r'4.44 \times 10^{33}', 'different'),
    ('0.33', r'\frac{1}{3}', 'equal'),
    ('1.41', r'\sqrt{2}', 'equal'),
    ('1.41', r'1.4', 'different'),
    ('2.5508', '2.55', 'equal'),
    (r'\frac{1}{3}', '0.33', 'different'),  # the gold is exact
    ('100', '101', 'different'),
  ],
)
def test_tolerant_rounds_to_the_gold(gold, answer, reason):
  assert equivalence.judge(gold, answer, None, 'tolerant') == reason
  strict = equivalence.judge(gold, answer, None, 'strict')
  assert strict == 'different'


def test_published_modes():
  judge = equivalence.judge
  for mode in ('trl_release', 'roll'):
    assert judge(r'\frac{1}{2}', '0.5', None, mode) == 'equal'
    assert judge('3', '4', None, mode) == 'different'
    # Inherited leniency, which strict does not have.
    assert judge(r'\sqrt{2}', '1.41421356', None, mode) == 'equal'
  assert judge('m', 'b=m', None, 'trl_release') == 'equal'
  assert judge('3', 'ab' * 80, None, 'trl_release') == 'refused'
  assert judge('3', 'ab' * 80, None, 'roll') != 'equal'


def test_reasons():
  reasons = {
    ('4', None): 'no_box',
    ('4', ''): 'unparsed',
    ('4', r'\frac{\frac{1}'): 'unparsed',
    ('4', '9^{9^{9^9}}'): 'refused',
    ('4', r'\text{four or so}'): 'different',
    ('4', '4'): 'equal',
  }
  for (gold, answer), reason in reasons.items():
    assert equivalence.judge(gold, answer, None, 'strict') == reason
  assert set(reasons.values()) < set(rewards.REASONS)


@pytest.mark.skipif(
  not SHARED.exists(), reason=f'{SHARED} is not here: 266 cases not run'
)
def test_shared_grader_cases(capsys):
  rows = [json.loads(line) for line in SHARED.read_text().splitlines()]
  with rewards.Verifier(workers=2, limit_s=2.0) as verifier:
    verdicts = verifier.grade(
      [row['gold'] for row in rows], [row['prediction_text'] for row in rows]
    )
    assert verifier.counts['timeout'] == verifier.counts['crashed'] == 0
  counted = [
    (row, verdict)
    for row, verdict in zip(rows, verdicts)
    if not row.get('policy', '').startswith('convention:')
  ]
  wrong = [row['id'] for row, v in counted if bool(v.reward) != row['correct']]
  with capsys.disabled():
    print(f' [{len(counted) - len(wrong)} of {len(counted)} right; {wrong}]')
  assert len(wrong) <= 0.05 * len(counted)


def test_fast_path_says_what_the_judge_says():
  from tandem.rewards import answer as answer_lib

  for gold, answer in [('7', '7'), ('7', '+8'), ('070', '70'), ('a b', 'a b')]:
    reason = answer_lib.at_once(gold, answer, 'strict')
    assert reason == equivalence.judge(gold, answer, None, 'strict')
    assert reason is not None
  assert answer_lib.at_once('7', '7', 'roll') is None
  assert extract.MODES == ('strict', 'tolerant', 'trl_release', 'roll')

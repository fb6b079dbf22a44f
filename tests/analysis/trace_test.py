"""The trace page and its terminal form: authors, numbers, hostile text."""

import html.parser
import json
import re

import numpy as np
import pytest

from tandem.analysis import trace
from tandem.analysis import trace_page
from tests.analysis import fake_run


class Page(html.parser.HTMLParser):
  """Collects what a browser would see: tags, and (class, text) of tokens."""

  def __init__(self, text):
    super().__init__()
    self.tags, self.tokens, self.text = [], [], ''
    self._token = None
    self._in_text = False
    self.numbers = None
    self.feed(text)

  def handle_starttag(self, tag, attrs):
    attrs = dict(attrs)
    self.tags.append((tag, attrs))
    if tag == 'div':
      self._in_text = attrs.get('class') == 'text'
    if tag == 'b' and self._in_text:
      self._token = attrs['class']
      self.tokens.append([self._token, ''])

  def handle_endtag(self, tag):
    if tag == 'b':
      self._token = None
    if tag == 'div':
      self._in_text = False

  def handle_data(self, data):
    tag, attrs = self.tags[-1] if self.tags else ('', {})
    if tag == 'script' and attrs.get('id') == 'numbers' and not self.numbers:
      self.numbers = json.loads(data)
    if self._token:
      self.tokens[-1][1] += data
    if self._in_text:
      self.text += data


def test_tokens_carry_their_author():
  page = Page(trace.trace_html([fake_run.record()]))
  assert page.tokens == [
    ['s', 'six'],
    ['s', ' plus'],
    ['j', ' one'],
    ['j', ' is'],
    ['s', ' 7'],
    ['j', '·'],  # EOS has no text of its own
  ]
  assert page.numbers[0]['arrays']['logp_senior'][5] == -0.0625
  assert page.numbers[0]['arrays']['logp_junior'][3] is None
  assert page.numbers[0]['ids'] == [10, 11, 12, 13, 14, 0]


def test_facts_and_filters():
  rollouts = [
    fake_run.record(step, sample, purpose=purpose)
    for step, sample, purpose in [(2, 0, 'train'), (10, 1, 'eval')]
  ]
  page = trace.trace_html(rollouts, title='A <run>')
  assert '<title>A &lt;run&gt;</title>' in page
  for phrase in ('senior 50%', 'finish eos', 'reward 1', 'gold 7', '6 tokens'):
    assert phrase in page
  articles = [a for tag, a in Page(page).tags if tag == 'article']
  assert [
    (a['data-step'], a['data-reward'], a['data-purpose']) for a in articles
  ] == [('2', '0', 'train'), ('10', '1', 'eval')]
  options = re.findall(r'<option value="([^"]*)"', page)
  # Steps in order of number, not of text.
  assert options == ['', '2', '10', '', '0', '1', '', 'eval', 'train']


HOSTILE = (
  '</script><script>alert(1)</script><img src=x onerror=alert(1)>&lt;"\''
)


def test_hostile_text_stays_text():
  record = fake_run.record(
    text=HOSTILE,
    offsets=[[i, i + 1] for i in range(6)],
    prompt=HOSTILE,
    problem=HOSTILE,
    gold=HOSTILE,
    prompt_id=HOSTILE,
    purpose=HOSTILE,
    finish=HOSTILE,
    arrays={HOSTILE: [0.0] * 6},
    ids=[HOSTILE] * 6,
    verdict={'reward': 1, 'reason': HOSTILE, 'answer': HOSTILE},
    turns=[
      {'role': HOSTILE, 'start': 0, 'end': 3},
      {'role': HOSTILE, 'start': 3, 'end': 6},
    ],
  )
  text = trace.trace_html([record], title=HOSTILE)
  page = Page(text)
  tags = [tag for tag, _ in page.tags]
  assert tags.count('script') == 2
  assert 'img' not in tags
  assert not [a for _, attrs in page.tags for a in attrs if a[:2] == 'on']
  assert ''.join(text for _, text in page.tokens) == HOSTILE[:6]
  assert page.numbers[0]['ids'] == [HOSTILE] * 6
  assert list(page.numbers[0]['arrays']) == [HOSTILE]
  assert text.count('</script>') == 2


def test_page_forbids_the_network():
  page = trace.trace_html([fake_run.record()])
  assert "default-src 'none'" in page
  assert not re.search(r'(src|href)=|https?://|@import|url\(', page)


def test_control_characters_are_made_visible():
  text = 'a\x1b[2Jb\rc\x00d\x9be\u202ef\ud800'
  record = fake_run.record(text=text, offsets=[[i, i + 1] for i in range(6)])
  for shown in (
    trace.trace_html([record]),
    trace.trace_ansi(record, color=False),
  ):
    shown.encode('utf-8')
    assert not set('\x1b\r\x00\x9b\u202e') & set(shown)
    assert '␛' in shown


def test_offsets_that_overlap_or_leave_gaps():
  # One character in two byte pieces, and a span that no token covers.
  record = fake_run.record(
    text='é is [x] ok',
    ids=[1, 2, 3, 4],
    offsets=[[0, 1], [0, 1], [1, 4], [8, 11]],
    author=[1, 0, 0, 1],
    arrays={},
  )
  page = Page(trace.trace_html([record]))
  assert page.tokens == [['s', 'é'], ['j', '·'], ['j', ' is'], ['s', ' ok']]
  assert page.text == 'é· is [x] ok'


def test_solo_foreign_and_empty():
  solo = trace.trace_html([fake_run.record(author=None)])
  assert {kind for kind, _ in Page(solo).tokens} == {'n'}
  assert 'no authors' in solo
  bare = {'schema': 'tandem.rollout/1', 'text': 'hello', 'author': [1, 0]}
  assert 'authors cannot be placed' in trace.trace_html([bare])
  assert 'hello' in trace.trace_ansi(bare)
  with pytest.raises(ValueError, match='no responses to show'):
    trace.trace_html([])


def test_turns_are_headed_by_their_role():
  record = fake_run.record(
    author=[1, 1, None, None, 0, 0],
    turns=[
      {'role': 'assistant', 'start': 0, 'end': 2},
      {'role': 'tool', 'start': 2, 'end': 4},
      {'role': 'assistant', 'start': 4, 'end': 6},
    ],
  )
  page = trace.trace_html([record])
  assert page.count('class="role"') == 3
  assert '[tool]\n one is' in trace.trace_ansi(record, color=False)


def test_ansi_colours():
  shown = trace.trace_ansi(fake_run.record(), color=True)
  body = shown.split('\n')[1]
  assert body == (
    '\x1b[38;5;32msix plus\x1b[0m'
    '\x1b[4;38;5;166m one is\x1b[0m'
    '\x1b[38;5;32m 7\x1b[0m'
  )


def test_no_color(monkeypatch):
  monkeypatch.setenv('NO_COLOR', '1')
  shown = trace.trace_ansi(fake_run.record())
  assert '\x1b' not in shown
  assert shown.split('\n')[1] == 'six plus‹ one is› 7'
  monkeypatch.setenv('NO_COLOR', '')  # the convention: empty means unset
  assert '\x1b[' in trace.trace_ansi(fake_run.record())


def test_frame_holds_the_whole_page():
  frame = Page(trace.trace_frame([fake_run.record()]))
  attrs = dict(frame.tags)['iframe']
  assert attrs['srcdoc'] == trace.trace_html([fake_run.record()])
  assert attrs['sandbox'] == 'allow-scripts'


def luminance(colour):
  parts = np.array([int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)])
  linear = np.where(
    parts <= 0.04045, parts / 12.92, ((parts + 0.055) / 1.055) ** 2.4
  )
  return linear @ [0.2126, 0.7152, 0.0722]


@pytest.mark.parametrize('theme', ['light', 'dark'])
def test_contrast(theme):
  # WCAG 2: text at 4.5 : 1 (AA) on each background; authors reach 7 (AAA).
  colours = {
    name: luminance(value) for name, value in trace_page.COLOURS[theme].items()
  }
  contrast = lambda a, b: (max(a, b) + 0.05) / (min(a, b) + 0.05)
  for name in ('page', 'senior', 'junior'):
    assert contrast(colours['ink'], colours[name]) >= 7, name
  assert contrast(colours['muted'], colours['page']) >= 4.5


def test_large_page_is_compact():
  # Hundreds of responses must open: under 100 bytes a token, two arrays each.
  size = 2000
  record = fake_run.record(
    text='word ' * size,
    ids=list(range(size)),
    offsets=[[5 * i, 5 * i + 5] for i in range(size)],
    author=[i % 2 for i in range(size)],
    arrays={
      name: (-np.random.default_rng(0).exponential(size=size)).tolist()
      for name in ('logp_senior', 'logp_junior')
    },
    turns=[],
  )
  page = trace.trace_html([record])
  assert len(page) - len(trace.trace_html([fake_run.record()])) < 100 * size

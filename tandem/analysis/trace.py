"""Who wrote what: responses with their authors in colour, as HTML and ANSI."""

import base64
import hashlib
import html
import json
import math
import os

from tandem.analysis import responses
from tandem.analysis import trace_page

# Foreground colours of the 256-colour table, legible on black and on white.
_ANSI = {'s': '\x1b[38;5;32m', 'j': '\x1b[4;38;5;166m', 'n': ''}
_ANSI_DIM, _ANSI_END = '\x1b[2m', '\x1b[0m'


def _visible(text):
  """Makes control characters visible, so that no text can act on its reader.

  Escapes would move a terminal's cursor, a carriage return hide a line, an
  override of direction reorder what follows, a lone surrogate break UTF-8.
  """
  out = []
  for character in text:
    code = ord(character)
    if character in '\n\t' or 0x20 <= code < 0x7F:
      out.append(character)
    elif code < 0x20:
      out.append(chr(0x2400 + code))
    elif code == 0x7F:
      out.append('\u2421')
    elif (
      code <= 0x9F
      or 0xD800 <= code <= 0xDFFF
      or 0x202A <= code <= 0x202E
      or 0x2066 <= code <= 0x2069
    ):
      out.append('\ufffd')
    else:
      out.append(character)
  return ''.join(out)


def _pieces(response):
  """Splits a response into (kind, token index or None, text) in order.

  Kinds: 's' senior, 'j' junior, 'n' neither, 'gap' text that no token covers,
  'role' the name of the turn that starts here. Tokens that share a character
  (byte-level pieces of it) show it once, on the first.
  """
  text, author = response.text, response.author
  if not response.offsets:
    return [('gap', None, text)]
  starts = {start: role for role, start, _ in response.turns}
  pieces, cursor = [], 0
  for t, (start, end) in enumerate(response.offsets):
    if start > cursor:
      pieces.append(('gap', None, text[cursor:start]))
      cursor = start
    if t in starts and len(response.turns) > 1:
      pieces.append(('role', None, starts[t]))
    one = author[t] if author is not None else None
    kind = 'n' if one is None else 'sj'[1 - one]
    pieces.append((kind, t, text[max(start, cursor) : max(end, cursor)]))
    cursor = max(cursor, end)
  if cursor < len(text):
    pieces.append(('gap', None, text[cursor:]))
  return pieces


def _share(response):
  share = response.senior_share
  return 'no authors' if share is None else f'senior {share:.0%}'


def _reward(response):
  return '' if response.reward is None else f'{response.reward:g}'


def _facts(response):
  """Returns the one-line summary of a response, as a list of phrases."""
  facts = []
  if response.step is not None:
    facts.append(f'step {response.step}')
  facts += [text for text in (response.purpose, response.mode) if text]
  if response.prompt_id:
    facts.append(f'prompt {response.prompt_id}')
  facts += [
    f'{name} {value}'
    for name, value in (('group', response.group), ('sample', response.sample))
    if value is not None
  ]
  facts.append(f'reward {_reward(response) or "none"}')
  facts += [response.reason] if response.reason else []
  facts += [f'answer {response.answer}'] if response.answer else []
  facts += [f'gold {response.gold}'] if response.gold else []
  facts += [f'finish {response.finish}'] if response.finish else []
  if response.num_tokens:
    facts.append(f'{response.num_tokens} tokens')
  facts.append(_share(response))
  return [_visible(fact) for fact in facts]


def _rounded(value):
  """Returns a JSON number of 5 digits, or None: JSON has no infinity."""
  if value is None or not math.isfinite(value):
    return None if value is None or value != value else str(value)
  return float(f'{value:.5g}')


def _emphasised(fact):
  """Escapes a phrase; the reward stands out."""
  text = html.escape(fact)
  return f'<strong>{text}</strong>' if fact.startswith('reward ') else text


def _article(response):
  parts = [
    f'<article data-step="{html.escape(str(response.step))}"',
    f' data-reward="{_reward(response)}"',
    f' data-purpose="{html.escape(response.purpose)}">\n<header>',
    ' · '.join(map(_emphasised, _facts(response))),
    '</header>\n',
  ]
  for title in ('problem', 'prompt'):
    value = getattr(response, title)
    # The first newline after <pre> is eaten by the parser: give it one to eat.
    if value:
      parts.append(
        f'<details><summary>{title}</summary><pre>\n'
        f'{html.escape(_visible(value))}</pre></details>\n'
      )
  parts.append('<div class="text">')
  for kind, _, text in _pieces(response):
    text = html.escape(_visible(text))
    if kind == 'gap':
      parts.append(text)
    elif kind == 'role':
      parts.append(f'<i class="role">{text}</i>')
    else:
      # A token without text of its own (EOS) still needs a place to hover.
      parts.append(f'<b class="{kind}">{text or "·"}</b>')
  parts.append('</div>\n')
  if not response.offsets and response.num_tokens:
    parts.append(
      '<p class="note">The file has no offsets: authors cannot be placed.</p>\n'
    )
  parts.append('</article>\n')
  return ''.join(parts)


def _select(name, values):
  options = ''.join(
    f'<option value="{html.escape(value)}">{html.escape(value)}</option>'
    for value in values
  )
  return (
    f'<label>{name} <select name="{name}"><option value="">all</option>'
    f'{options}</select></label>'
  )


def _sorted_numbers(values):
  return sorted({value for value in values if value}, key=float)


def trace_html(rollouts, *, title='Tandem trace'):
  """A self-contained page of responses, each token in its author's colour.

  Hovering a token shows its position, id and every per-token array of the
  file (both models' log-probs); the page filters by step, reward and purpose.
  It needs no network and its policy forbids any; texts are escaped.

  Args:
    rollouts: sequence of responses.Response, or of records of the schema.
    title: of the page.

  Returns:
    The HTML document.

  Raises:
    ValueError: no response to show.
  """
  rollouts = list(map(responses.as_response, rollouts))
  if not rollouts:
    raise ValueError(
      'no responses to show; wanted at least one; widen --step, --purpose or '
      '--limit.'
    )
  numbers = [
    {
      'ids': list(response.ids),
      'arrays': {
        _visible(name): [_rounded(value) for value in values]
        for name, values in response.arrays.items()
      },
    }
    for response in rollouts
  ]
  # Inside <script> only "<" can end the element or open a comment.
  data = json.dumps(numbers, separators=(',', ':')).replace('<', '\\u003c')
  digest = base64.b64encode(
    hashlib.sha256(trace_page.SCRIPT.encode()).digest()
  ).decode()
  steps = _sorted_numbers(
    str(response.step) for response in rollouts if response.step is not None
  )
  purposes = sorted({response.purpose for response in rollouts} - {''})
  title = html.escape(_visible(title))
  return ''.join(
    [
      '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">\n',
      '<meta http-equiv="Content-Security-Policy" content="default-src '
      "'none'; style-src 'unsafe-inline'; script-src 'sha256-",
      f'{digest}\'">\n',
      '<meta name="viewport" content="width=device-width">\n',
      f'<title>{title}</title>\n<style>{trace_page.STYLE}</style></head>\n',
      f'<body><h1>{title}</h1>\n<nav>',
      '<span><b class="s">senior</b> <b class="j">junior</b> '
      '<b class="n">neither</b></span>',
      _select('step', steps),
      _select('reward', _sorted_numbers(map(_reward, rollouts))),
      _select('purpose', purposes) if len(purposes) > 1 else '',
      '<span id="shown"></span></nav>\n',
      *map(_article, rollouts),
      '<div id="tip"></div>\n',
      f'<script type="application/json" id="numbers">{data}</script>\n',
      f'<script>{trace_page.SCRIPT}</script>\n</body></html>\n',
    ]
  )


def trace_frame(rollouts, *, height=480):
  """`trace_html` inside a frame, for a notebook: styles do not leak out.

  Args:
    rollouts: as `trace_html` takes.
    height: of the frame in pixels.

  Returns:
    An HTML fragment.
  """
  page = html.escape(trace_html(rollouts))
  return (
    f'<div><iframe sandbox="allow-scripts" srcdoc="{page}" '
    f'style="width:100%;height:{int(height)}px;border:0"></iframe></div>'
  )


def trace_ansi(rollout, *, color=None):
  """One response for a terminal: senior blue, junior orange and underlined.

  Args:
    rollout: responses.Response, or a record of the schema.
    color: None asks the environment: NO_COLOR, set and not empty, turns
      colours off. Without colours the junior's words stand in ‹ ›.

  Returns:
    Text of several lines, without a final newline. Control characters of the
    response are made visible.
  """
  if color is None:
    color = not os.environ.get('NO_COLOR')
  rollout = responses.as_response(rollout)
  head = ' · '.join(_facts(rollout))
  key = 'junior in ‹ ›'
  if color:
    key = ' '.join(
      f'{_ANSI[name[0]]}{name}{_ANSI_END}' for name in ('senior', 'junior')
    )
    head = f'{_ANSI_DIM}{head}{_ANSI_END}'
  if rollout.author is not None:
    head = f'{head} ({key})'
  # Runs of one author in one piece: fewer escapes, and whole words to select.
  merged = []
  for kind, _, text in _pieces(rollout):
    if kind == 'role':
      kind, text = 'gap', f'\n[{text}]\n'
    kind = 'n' if kind == 'gap' else kind
    if merged and merged[-1][0] == kind:
      merged[-1][1] += text
    else:
      merged.append([kind, text])
  body = []
  for kind, text in merged:
    text = _visible(text)
    if not text or kind == 'n':
      body.append(text)
    elif color:
      body.append(f'{_ANSI[kind]}{text}{_ANSI_END}')
    else:
      body.append(f'‹{text}›' if kind == 'j' else text)
  return f'{head}\n{"".join(body)}'

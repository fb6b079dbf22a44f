"""The fixed parts of the trace page: colours, style, script. No network."""

# Dark ink on a light tint, and the reverse in the dark; the junior is also
# underlined, so that colour is never the only sign.
COLOURS = {
  'light': {
    'ink': '#16191d',
    'page': '#ffffff',
    'senior': '#cfe6fb',
    'junior': '#ffdfb8',
    'muted': '#565d66',
    'line': '#cfd4da',
  },
  'dark': {
    'ink': '#f1f3f5',
    'page': '#14171a',
    'senior': '#0f4a7d',
    'junior': '#7a3f00',
    'muted': '#a9b1ba',
    'line': '#3a4048',
  },
}


def _variables(theme):
  return ''.join(f'--{name}:{value};' for name, value in COLOURS[theme].items())


STYLE = (
  ':root{color-scheme:light dark;' + _variables('light') + '}\n'
  '@media (prefers-color-scheme:dark){:root{' + _variables('dark') + '}}\n'
  """
body{margin:0 auto;max-width:62rem;padding:1rem;background:var(--page);
color:var(--ink);font:16px/1.5 system-ui,sans-serif}
h1{font-size:1.3rem;margin:0}
nav{position:sticky;top:0;background:var(--page);padding:.5rem 0;z-index:1;
border-bottom:1px solid var(--line);display:flex;gap:1rem;flex-wrap:wrap}
article{border:1px solid var(--line);border-radius:6px;margin:1rem 0;
padding:.6rem .9rem;content-visibility:auto;contain-intrinsic-size:auto 12rem}
article[hidden]{display:none}
header,summary,.note,i{color:var(--muted);font-size:.85rem;font-style:normal}
header strong{color:var(--ink)}
.text,pre{font:14px/1.7 ui-monospace,monospace;white-space:pre-wrap;
overflow-wrap:anywhere;unicode-bidi:isolate;margin:.4rem 0}
pre{line-height:1.4;max-height:24rem;overflow:auto}
b{font-weight:normal;border-radius:2px}
b:hover{outline:2px solid var(--ink)}
.s{background:var(--senior)}
.j{background:var(--junior);text-decoration:underline dotted;
text-underline-offset:3px}
.role{display:block;margin-top:.5rem}
#tip{position:fixed;display:none;pointer-events:none;z-index:2;
background:var(--ink);color:var(--page);padding:.4rem .6rem;border-radius:4px;
font:12px/1.5 ui-monospace,monospace;white-space:pre;max-width:90vw}
"""
)

# Filters hide articles; hovering a token shows its row of numbers, found by
# the token's place among the <b> of its article.
SCRIPT = """
'use strict';
const articles = [...document.querySelectorAll('article')];
const filters = [...document.querySelectorAll('select')];
const shown = document.getElementById('shown');
function filter() {
  let count = 0;
  for (const article of articles) {
    article.hidden = filters.some(
      f => f.value !== '' && article.dataset[f.name] !== f.value);
    count += !article.hidden;
  }
  shown.textContent = count + ' of ' + articles.length + ' responses';
}
filters.forEach(f => f.addEventListener('change', filter));
filter();
const rows = JSON.parse(document.getElementById('numbers').textContent);
const tip = document.getElementById('tip');
document.addEventListener('mouseover', event => {
  const token = event.target;
  if (token.tagName !== 'B' || !token.closest('.text')) {
    tip.style.display = 'none';
    return;
  }
  const article = token.closest('article');
  const t = [...article.querySelectorAll('.text b')].indexOf(token);
  const row = rows[articles.indexOf(article)];
  const who = {s: 'senior', j: 'junior', n: 'no author'}[token.className];
  const lines = ['position ' + t + ' \\u00b7 ' + who];
  if (row.ids.length) lines.push('id ' + row.ids[t]);
  for (const name in row.arrays) {
    const x = row.arrays[name][t];
    lines.push(name + ' ' + (x === null ? '\\u2014' : x));
  }
  tip.textContent = lines.join('\\n');
  tip.style.display = 'block';
  const box = token.getBoundingClientRect();
  const left = Math.min(box.left, innerWidth - tip.offsetWidth - 8);
  const below = box.bottom + 6;
  tip.style.left = Math.max(left, 8) + 'px';
  tip.style.top = (below + tip.offsetHeight > innerHeight
    ? box.top - tip.offsetHeight - 6 : below) + 'px';
});
"""

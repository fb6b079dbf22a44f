"""One spelling for what can be typed in many: Unicode, LaTeX dressing."""

# ruff: noqa: SIM905  (lists of words are easier to read as words)

import re
import unicodedata

_SUPER = str.maketrans('⁰¹²³⁴⁵⁶⁷⁸⁹⁺⁻⁽⁾ⁿⁱ', '0123456789+-()ni')
_SUB = str.maketrans('₀₁₂₃₄₅₆₇₈₉₊₋₍₎', '0123456789+-()')
_VULGAR = {
  '½': (1, 2), '⅓': (1, 3), '⅔': (2, 3), '¼': (1, 4), '¾': (3, 4),
  '⅕': (1, 5), '⅖': (2, 5), '⅗': (3, 5), '⅘': (4, 5), '⅙': (1, 6),
  '⅚': (5, 6), '⅐': (1, 7), '⅛': (1, 8), '⅜': (3, 8), '⅝': (5, 8),
  '⅞': (7, 8), '⅑': (1, 9), '⅒': (1, 10),
}  # fmt: skip
_SIGNS = {
  '−': '-', '–': '-', '—': '-', '‐': '-', '‑': '-', '‒': '-', '﹣': '-',
  '×': r'\times ', '⋅': r'\cdot ', '·': r'\cdot ', '∙': r'\cdot ',
  '•': r'\cdot ', '∗': '*', '÷': r'\div ', '∕': '/', '⁄': '/', '±': r'\pm ',
  '∓': r'\mp ', '≤': r'\le ', '≦': r'\le ', '⩽': r'\le ', '≥': r'\ge ',
  '≧': r'\ge ', '⩾': r'\ge ', '≠': r'\ne ', '∞': r'\infty ', '∪': r'\cup ',
  '∩': r'\cap ', '∖': r'\setminus ', '∈': r'\in ', '∉': r'\notin ',
  '∅': r'\emptyset ', 'Ø': r'\emptyset ', 'ø': r'\emptyset ',
  '∧': r'\wedge ', '∨': r'\vee ', '∣': '|',
  '°': r'^\circ ', 'º': r'^\circ ', '˚': r'^\circ ', '∘': r'\circ ',
  '√': r'\sqrt ', '∛': r'\sqrt[3]', '∜': r'\sqrt[4]', 'ℝ': r'\mathbb{R}',
  'ℤ': r'\mathbb{Z}', 'ℕ': r'\mathbb{N}', 'ℚ': r'\mathbb{Q}',
  'ℂ': r'\mathbb{C}', '…': r'\ldots ', '⋯': r'\ldots ', '⟨': r'\langle ',
  '⟩': r'\rangle ', '〈': r'\langle ', '〉': r'\rangle ', '⌊': r'\lfloor ',
  '⌋': r'\rfloor ', '⌈': r'\lceil ', '⌉': r'\rceil ', '′': "'", '″': "''",
  '’': "'", '“': '', '”': '', '٫': '.', '٬': ',', '、': ',', '。': '.',
  '٪': r'\%', '％': r'\%', '≈': r'\approx ', '∠': '', '€': r'\text{ euro}',
  '£': r'\text{ pound}', '￥': '', '¥': '', 'µ': r'\mu ', '∶': ':',
  '→': r'\to ', '⇒': r'\implies ', '∑': r'\sum ', '∏': r'\prod ',
  '∫': r'\int ', '\u2061': '', '\u2062': '', '\u2063': ',', '\u200b': '',
  '\ufeff': '', '\u2009': r'\,', '\u202f': r'\,', '\u00a0': ' ',
}  # fmt: skip
_GREEK = {
  letter: '\\' + name + ' '
  for letter, name in zip(
    'αβγδεζηθικλμνξπρστυφχψωΓΔΘΛΞΠΣΦΨΩϕϵ',
    'alpha beta gamma delta epsilon zeta eta theta iota kappa lambda mu nu xi '
    'pi rho sigma tau upsilon phi chi psi omega Gamma Delta Theta Lambda Xi Pi '
    'Sigma Phi Psi Omega phi epsilon'.split(),
  )
}

_SPACING = re.compile(
  r'\\(?:(?:left|right)(?![a-zA-Z])\.?|quad|qquad|displaystyle|textstyle'
  r'|limits|middle|[bB]igg?[lrm]?|allowbreak|nobreak|hfill|thinspace|nonumber|null'
  r'|phantom\{[^{}]*\}|hspace\*?\{[^{}]*\}|vspace\*?\{[^{}]*\}|strut)'
  r'(?![a-zA-Z])'
)
_REPEATING = re.compile(
  r'(?<!\d)(\d+)\.(\d*)\s*\\(?:overline|bar|dot)\s*(?:\{\s*(\d+)\s*\}|(\d))'
)
# Thousands grouped in a way that can mean nothing else.
_GROUPED = re.compile(
  r'(?<![\d.,])\d{1,3}(?:(?:\{,\}\s*(?:\\!)?|,\s*\\!\s*|\\,)\d{3})+(?!\d)'
)
_RENAMES = (
  (r'\\[dtc]frac(?![a-zA-Z])', r'\\frac'),
  (r'\\[dt]binom(?![a-zA-Z])', r'\\binom'),
  (r'\\(?:leq|leqslant|leqq)(?![a-zA-Z])', r'\\le '),
  (r'\\(?:geq|geqslant|geqq)(?![a-zA-Z])', r'\\ge '),
  (r'\\(?:neq|not\s*=)(?![a-zA-Z])', r'\\ne '),
  (r'\\(?:lt)(?![a-zA-Z])', '<'),
  (r'\\(?:gt)(?![a-zA-Z])', '>'),
  (r'\\(?:dots|cdots|dotsc|dotsb|dotso)(?![a-zA-Z])', r'\\ldots '),
  (r'\\(?:varnothing|O)(?![a-zA-Z])', r'\\emptyset '),
  (r'\\(?:lbrace)(?![a-zA-Z])', r'\\{'),
  (r'\\(?:rbrace)(?![a-zA-Z])', r'\\}'),
  (r'\\(?:lvert|rvert|vert)(?![a-zA-Z])', '|'),
  (r'\\(?:lbrack)(?![a-zA-Z])', '['),
  (r'\\(?:rbrack)(?![a-zA-Z])', ']'),
  (r'\\(?:colon)(?![a-zA-Z])', ':'),
  (r'\\(?:backslash|smallsetminus)(?![a-zA-Z])', r'\\setminus '),
  (r'\\(?:lor|vee)(?![a-zA-Z])', r'\\text{ or }'),
  (r'\\(?:land|wedge)(?![a-zA-Z])', r'\\text{ and }'),
  (r'\\(?:degree|degrees)(?![a-zA-Z])', r'^\\circ '),
  (r'\\(?:varphi)(?![a-zA-Z])', r'\\phi '),
  (r'\\(?:varepsilon)(?![a-zA-Z])', r'\\epsilon '),
  (r'\^\s*\{\s*\\circ\s*\}', r'^\\circ '),
  (r'\\(?:percent)(?![a-zA-Z])', r'\\%'),
  (r'\\(?:angle|triangle|measuredangle|nobreakspace)(?![a-zA-Z])', ' '),
  (r'\\(?:textdollar)(?![a-zA-Z])', r'\\$'),
  (r'\\(?:Reals|R)(?![a-zA-Z])', r'\\mathbb{R}'),
  (r'\\mathbb\s*([RZNQC])(?![a-zA-Z])', r'\\mathbb{\1}'),
)
_RENAMES = tuple((re.compile(a), b) for a, b in _RENAMES)
# Dressing whose content is meant as mathematics, or as a word.
_BARE = re.compile(
  r'\\(?:mathbf|mathit|mathsf|mathtt|mathcal|mathnormal|boldsymbol|bm|pmb'
  r'|ensuremath|underline|overline|boxed|fbox|displaystyle|textsc)\s*'
  r'\{([^{}]*(?:\{[^{}]*(?:\{[^{}]*\}[^{}]*)*\}[^{}]*)*)\}'
)
_WORDS = re.compile(
  r'\\(?:textbf|textit|textrm|textnormal|textsf|texttt|textup|emph|mathrm|mbox'
  r'|hbox|operatorname\*?|rm|bf)\s*(?=\{)'
)


def normalise(text: str) -> str:
  """Rewrites an answer into the spelling that the parser reads.

  Digits of any script become ASCII, signs become LaTeX commands, delimiters
  of mathematics and mere spacing go; nothing that carries meaning is touched.
  Thin spaces between digits are kept as `\\,`: they group thousands.
  """
  text = _unicode(text.strip())
  text = re.sub(r'(?<!\\)%.*\n', '\n', text) if '\n' in text else text
  text = re.sub(r'\\\\\[[\d.]+(?:pt|em|ex|mm|cm)\]', r'\\\\ ', text)
  text = re.sub(r'(?<!\\)\\[()\[\]]|(?<!\\)\$', ' ', text)
  text = _GROUPED.sub(lambda m: re.sub(r'\D', '', m.group()), text)
  text = re.sub(r'(?<=\d)\{,\}(?=\d)', '.', text)  # a decimal comma, braced
  text = _REPEATING.sub(_repeating, text)
  if r'\begin' not in text:  # there a double backslash starts a row
    text = re.sub(r'\\\\(?=[a-zA-Z])', r'\\', text)
  text = _SPACING.sub(' ', text)
  text = re.sub(r'(?<!\\)\\!|\\negthinspace(?![a-zA-Z])', '', text)
  text = re.sub(r'(?<!\\)\\[;:> ]|~', ' ', text)
  for pattern, spelling in _RENAMES:
    text = pattern.sub(spelling, text)
  text = _WORDS.sub(r'\\text', text)
  before = None
  while before != text:
    before = text
    text = _BARE.sub(r'{\1}', text)
  return _trim(text)


def _trim(text: str) -> str:
  before = None
  while before != text:
    before = text
    text = text.strip().rstrip('.;,').rstrip()
    text = text.removesuffix('\\')
    text = text.removeprefix('**').removesuffix('**')
  return text


def _repeating(match: re.Match) -> str:
  """`0.1\\overline{6}` as the fraction that it is."""
  whole, fixed, *cycles = match.groups()
  cycle = cycles[0] or cycles[1]
  value = int(whole + fixed + cycle) - int(whole + fixed)
  scale = 10 ** len(fixed) * (10 ** len(cycle) - 1)
  return rf'(\frac{{{value}}}{{{scale}}})'


def _unicode(text: str) -> str:
  if text.isascii():
    return text
  text = re.sub(
    f'[{"".join(_VULGAR)}]',
    lambda m: r'\frac{{{}}}{{{}}}'.format(*_VULGAR[m.group()]),
    text,
  )
  text = re.sub(
    '[⁰¹²³⁴⁵⁶⁷⁸⁹⁺⁻⁽⁾ⁿⁱ]+',
    lambda m: '^{' + m.group().translate(_SUPER) + '}',
    text,
  )
  text = re.sub(
    '[₀₁₂₃₄₅₆₇₈₉₊₋₍₎]+',
    lambda m: '_{' + m.group().translate(_SUB) + '}',
    text,
  )
  for letter in set(text):
    if letter in _SIGNS:
      text = text.replace(letter, _SIGNS[letter])
  text = unicodedata.normalize('NFKC', text)
  letters = []
  for letter in text:
    if not letter.isascii():
      if unicodedata.category(letter) == 'Nd':
        letter = str(unicodedata.digit(letter))
      else:
        letter = _SIGNS.get(letter) or _GREEK.get(letter, letter)
    letters.append(letter)
  return ''.join(letters)

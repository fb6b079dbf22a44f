"""Units of measurement: what they are called, and how they convert.

A unit is (scale, dimensions): the factor to base units and the powers of each
dimension, as a sorted tuple of pairs. A word that is not in the table is a
dimension of its own (apples), so that unlike things never convert.
"""

from fractions import Fraction
import re

_LENGTH = {
  'm': 1, 'meter': 1, 'metre': 1, 'km': 1000, 'kilometer': 1000,
  'kilometre': 1000, 'cm': '1/100', 'centimeter': '1/100',
  'centimetre': '1/100', 'mm': '1/1000', 'millimeter': '1/1000',
  'dm': '1/10', 'decimeter': '1/10', 'nm': '1e-9', 'nanometer': '1e-9',
  'um': '1e-6', 'micrometer': '1e-6', 'micron': '1e-6', 'angstrom': '1e-10',
  'in': '0.0254', 'inch': '0.0254', 'inche': '0.0254', 'ft': '0.3048',
  'feet': '0.3048', 'foot': '0.3048', 'yd': '0.9144', 'yard': '0.9144',
  'mi': '1609.344', 'mile': '1609.344',
}  # fmt: skip
_TIME = {
  's': 1, 'sec': 1, 'second': 1, 'ms': '1/1000', 'min': 60, 'minute': 60,
  'h': 3600, 'hr': 3600, 'hour': 3600, 'day': 86400, 'week': 604800,
}  # fmt: skip
_MASS = {
  'g': 1, 'gram': 1, 'kg': 1000, 'kilogram': 1000, 'mg': '1/1000',
  'milligram': '1/1000', 'lb': '453.59237', 'pound': '453.59237',
  'oz': '28.349523125', 'ounce': '28.349523125', 'ton': 1000000,
  'tonne': 1000000,
}  # fmt: skip
_MONEY = {'dollar': 1, 'usd': 1, 'buck': 1, 'cent': '1/100', 'penny': '1/100'}
_VOLUME = {'l': '1/1000', 'liter': '1/1000', 'litre': '1/1000'}
_VOLUME |= {'ml': '1e-6', 'milliliter': '1e-6', 'cc': '1e-6'}
_OTHER = {
  'degree': ('angle', 1), 'radian': ('radian', 1), 'rad': ('radian', 1),
  'hz': ('cycle', 1), 'unit': ('unit', 1), 'kelvin': ('kelvin', 1),
  'mole': ('mole', 1), 'mol': ('mole', 1), 'volt': ('volt', 1),
  'ohm': ('ohm', 1), 'watt': ('watt', 1), 'kw': ('watt', 1000),
  'newton': ('newton', 1), 'joule': ('joule', 1), 'kj': ('joule', 1000),
  'ampere': ('ampere', 1), 'pascal': ('pascal', 1), 'pa': ('pascal', 1),
  'kpa': ('pascal', 1000), 'ev': ('ev', 1),
}  # fmt: skip
_CASED = {'N': 'newton', 'J': 'joule', 'W': 'watt', 'V': 'volt', 'K': 'kelvin'}
_CASED |= {'L': 'liter', 'Hz': 'hz', 'A': 'ampere', 'C': 'coulomb'}
_COMPOUND = {'mph': 'mile per hour', 'kph': 'km per hour', 'kmh': 'km per hour'}
_COMPOUND |= {'fps': 'foot per second', 'acre': 'acre', 'sq': 'square'}

TABLE = {}
for _dimension, _names in (
  ('length', _LENGTH), ('time', _TIME), ('mass', _MASS), ('money', _MONEY),
):  # fmt: skip
  for _name, _scale in _names.items():
    TABLE[_name] = (Fraction(_scale), ((_dimension, 1),))
for _name, _scale in _VOLUME.items():
  TABLE[_name] = (Fraction(_scale), (('length', 3),))
for _name, (_dimension, _scale) in _OTHER.items():
  TABLE[_name] = (Fraction(_scale), ((_dimension, 1),))

Unit = tuple[Fraction, tuple[tuple[str, int], ...]]

_PIECE = re.compile(r'[a-zA-Z]+|\^\s*\{?\s*-?\d+\s*\}?|[/*·]|\\cdot|\\\$|\d+')


def is_unit(word: str) -> bool:
  """Whether a run of letters names a unit, plural or not."""
  return _entry(word) is not None or word.lower() in _COMPOUND


def parse_unit(text: str) -> Unit:
  """Reads a unit such as `cm^2`, `miles per hour`, `square feet`, `m/s^2`."""
  scale, powers = Fraction(1), {}
  sign, prefix, last = 1, 1, None
  words = ' '.join(_COMPOUND.get(w, w) for w in text.split())
  for piece in _PIECE.findall(words):
    lower = piece.lower()
    if piece == '/' or lower in ('per', 'a', 'an', 'each'):
      sign = -1 if piece == '/' or lower == 'per' else sign
    elif lower in ('square', 'squared', 'cubic', 'cubed'):
      power = 2 if lower.startswith('s') else 3
      if lower in ('squared', 'cubed') and last:
        scale, last = _apply(powers, scale, last, power)
      else:
        prefix = power
    elif piece.startswith('^'):
      if last:
        power = int(re.sub(r'[^\d-]', '', piece))
        if abs(power) <= 10:
          scale, last = _apply(powers, scale, last, power)
    elif piece[0].isalpha() or piece == r'\$':
      if lower in _FILLERS:
        continue
      unit = _entry('dollar' if piece == r'\$' else piece)
      unit = unit or (Fraction(1), ((_singular(lower), 1),))
      last = (unit, sign)
      for name, power in unit[1]:
        powers[name] = powers.get(name, 0) + sign * prefix * power
      scale *= unit[0] ** (sign * prefix)
      prefix = 1
  return scale, tuple(sorted((n, p) for n, p in powers.items() if p))


_FILLERS = {'of', 'the', 'in', 'total', 'about', 'approximately', 'old', 'long'}
_FILLERS -= {'in'}


def _apply(powers, scale, last, power):
  """Raises the unit just read to a power, once."""
  (factor, dimensions), sign = last
  for name, old in dimensions:
    powers[name] += sign * old * (power - 1)
  return scale * factor ** (sign * (power - 1)), None


def _entry(word: str) -> Unit | None:
  if word in _CASED:
    name = _CASED[word]
    return TABLE.get(name, (Fraction(1), ((name, 1),)))
  lower = word.lower()
  return TABLE.get(lower) or (
    TABLE.get(_singular(lower)) if len(lower) > 2 else None
  )


def _singular(word: str) -> str:
  if word.endswith('ies') and len(word) > 4:
    return word[:-3] + 'y'
  if word.endswith('s') and not word.endswith('ss') and len(word) > 2:
    return word[:-1]
  return word


_DIMENSIONS = frozenset(
  name for _, powers in TABLE.values() for name, _ in powers
)


def known(dimensions: tuple[tuple[str, int], ...]) -> bool:
  """Whether every dimension is a physical one, no word of its own."""
  return bool(dimensions) and all(n in _DIMENSIONS for n, _ in dimensions)

"""math-verify's LaTeX parser and sympy, for notation that ours lacks.

Integrals, limits and derivatives as answers, mostly. Only tame input goes in:
what is short, and holds no tower of powers.
"""

import re

import sympy

from tandem.rewards import values
from tandem.rewards.tokens import TooBig

_MAX_CHARS = 200
_TOWER = re.compile(r'\^\s*\{[^{}]*\^|\^\s*-?\w\s*\^|\d{6,}|!')
_NOTATION = re.compile(r'\\(?:int|lim|sum|prod|frac\{d)')


def equal(
  gold: str, answer: str, golds: list[tuple], answers: list[tuple]
) -> bool | None:
  """Compares where our parser read only one side; None if sympy cannot say.

  Raises:
    TooBig: for input that sympy may choke on.
  """
  if not _NOTATION.search(gold + answer):
    return None
  sides = []
  for text, trees in ((gold, golds), (answer, answers)):
    if trees:
      try:
        sides.append(values.evaluate(trees[0]))
      except (values.NotNumeric, values.Undefined):
        return None
    else:
      sides.append(_value(text))
    if sides[-1] is None:
      return None
  return values.same(*sides)


def _value(text: str) -> values.Number | None:
  if len(text) > _MAX_CHARS or _TOWER.search(text):
    raise TooBig('for sympy')
  from latex2sympy2_extended import latex2sympy

  try:
    found = latex2sympy(text)
    if not isinstance(found, sympy.Expr) or found.free_symbols:
      return None
    found = found.doit()
    if not found.is_number or found.has(sympy.Integral, sympy.Limit):
      return None
    return _number(found)
  except Exception:  # the parser's errors are of many kinds
    return None


def _number(found: sympy.Expr) -> values.Number | None:
  import mpmath

  digits = found.evalf(values.DIGITS)
  real, imaginary = digits.as_real_imag()
  with mpmath.workdps(values.DIGITS):
    return mpmath.mpc(str(real), str(imaginary))

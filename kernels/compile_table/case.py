"""What a kernel folder asks to have compiled."""

from collections.abc import Callable
import importlib
import importlib.util
import pkgutil
import re
from typing import Any
from typing import NamedTuple

import jax

from tandem import kernels


class Case(NamedTuple):
  """A program for one kind of target; `compile_cases` of a folder lists them."""

  name: str  # 'token_logprob/pallas_tpu/qwen3_4b': begins with the folder
  platform: str  # 'tpu' or 'gpu': whose targets compile it
  # From a mesh of one described device (axis 'data') to (function, its
  # ShapeDtypeStructs); leaves without sharding are put on that device. What is
  # heavy belongs in here.
  build: Callable[[jax.sharding.Mesh], tuple[Callable[..., Any], tuple]]
  full: bool = False  # real sizes: minutes, for slow tests
  calls: int = 1  # kernels that the compiled text must hold, at the least
  refused: str | None = None  # every target must refuse it, with this reason
  refused_on: tuple[tuple[str, str], ...] = ()  # (target, reason): only these

  def expected(self, target: str) -> str | None:
    """A regular expression of the reason to refuse it, or None: it compiles."""
    return dict(self.refused_on).get(target, self.refused)

  def fault(self, target: str, answer: dict[str, Any]) -> str | None:
    """What is wrong with the worker's answer for a target, or None."""
    reason, got = self.expected(target), answer.get('refused')
    if reason is None and got is not None:
      return f'{self.name} must compile for {target}; refused: {got}'
    if reason is not None and not re.search(reason, got or ''):
      return f'{target} must refuse {self.name} for {reason!r}; got {got}'
    if reason is None and answer['calls'] < self.calls:
      calls = f'{answer["calls"]} kernels in {target}, not {self.calls}'
      return f'{self.name}: {calls}'
    return None


def discover() -> list[Case]:
  """The cases of every `kernels/<name>/cases.py`.

  Raises:
    ValueError: two cases of one name, or a name outside its folder's.
  """
  found = {}
  for package in sorted(pkgutil.iter_modules(kernels.__path__)):
    name = f'{kernels.__name__}.{package.name}.cases'
    if not importlib.util.find_spec(name):
      continue
    for case in importlib.import_module(name).compile_cases():
      if case.name in found or not case.name.startswith(f'{package.name}/'):
        raise ValueError(
          f'{name}: case {case.name!r} must begin with {package.name + "/"!r} '
          'and be its only one; rename it.'
        )
      found[case.name] = case
  return list(found.values())

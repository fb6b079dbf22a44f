"""Graded responses per second, worker processes and all."""

from collections.abc import Iterator
import itertools
from typing import Any

from tandem.benchmark import timing
from tandem.rewards import verifier as verifier_lib

# Gold and answer: equal as they stand, equal after thought, different.
PAIRS = (
  ('42', '42'),
  (r'\frac{1}{2}', '0.5'),
  (r'\sqrt{8}', r'2\sqrt{2}'),
  ('(x+1)^2', 'x^2+2x+1'),
  (r'\{1, 2, 3\}', r'\{3, 2, 1\}'),
  (r'[0, \infty)', r'x \ge 0'),
  (r'\frac{\pi}{4}', r'\arctan 1'),
  ('17', '18'),
  ('x+1', 'x-1'),
  (r'12\%', '0.12'),
)


def run(*, quick: bool = False, repeats: int = 5) -> Iterator[dict[str, Any]]:
  """Yields the rate of one and of two workers."""
  count = 10 if quick else 500
  pairs = list(itertools.islice(itertools.cycle(PAIRS), count))
  golds = [gold for gold, _ in pairs]
  # All texts differ, so that nothing is remembered from one to the next.
  texts = [
    rf'Step {n}: as shown, the answer is \boxed{{{answer}}}.'
    for n, (_, answer) in enumerate(pairs)
  ]
  for workers in (1,) if quick else (2, 1):
    with verifier_lib.Verifier(workers=workers) as verifier:
      grade = lambda: verifier.grade(golds, texts)  # noqa: B023
      seconds = timing.interleaved({'': grade}, repeats)['']
    name = 'grader/items_per_second'
    if workers != 2 and not quick:
      name += f'/workers{workers}'
    yield timing.line(
      name, seconds, 'items/s', work=count, workers=workers, items=count
    )

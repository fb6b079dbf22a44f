"""Who may draft, and who may add to a draft that stands."""

DRAFTERS = ('junior', 'senior', 'holder', 'lookup')


def check(junior, draft_tokens, drafter, solo, slots) -> None:
  """Raises ValueError where no one can draft so; see speculative.counted."""
  if drafter not in DRAFTERS:
    raise ValueError(
      f'drafter={drafter!r} is unknown; one of {", ".join(DRAFTERS)}.'
    )
  if draft_tokens < 1:
    raise ValueError(
      f'draft_tokens={draft_tokens} must be at least 1, which is lockstep.'
    )
  if junior is None and drafter != 'lookup' and draft_tokens > 1:
    raise ValueError(
      f'drafter={drafter!r} needs two models, but junior is None; give one, or '
      "draft with drafter='lookup'."
    )
  if solo and drafter in ('senior', 'holder'):
    raise ValueError(
      f'drafter={drafter!r} has the senior draft for itself; in solo mode the '
      "drafter is 'junior' or 'lookup'."
    )
  if slots is not None and slots < 1:
    raise ValueError(
      f'slots={slots} must be at least 1; None gives every row a slot.'
    )


def bonus(drafter: str, k: int, pair: bool, turns) -> str | None:
  """Who may add a token to a round whose draft stands: resolve's `bonus`.

  Not at k=1, which is lockstep; not where both proposals name the author; and
  not where the drafter of the next round is not known.
  """
  if k == 1 or drafter not in ('senior', 'junior'):
    return None
  if not pair:
    return 'either'
  if turns.schedule == 'strict_word':
    return None
  return 'senior' if drafter == 'junior' else 'junior'


def bonus_chance(drafter: str, pair: bool, turns) -> float:
  """The chance that who may add a token holds the turn, for draft_length."""
  chances = {'either': 1.0, 'senior': turns.p, 'junior': 1 - turns.p}
  return chances.get(bonus(drafter, 2, pair, turns), 0.0)

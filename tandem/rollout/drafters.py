"""Who may draft, and who may add to a draft that stands."""

DRAFTERS = ('junior', 'senior', 'holder', 'lookup')


def check(junior, draft_tokens, drafter, context, solo, slots) -> None:
  """Raises ValueError where no one can draft so; see speculative.counted."""
  if drafter not in DRAFTERS:
    raise ValueError(
      f'drafter={drafter!r} is unknown; one of {", ".join(DRAFTERS)}.'
    )
  if draft_tokens < 1:
    raise ValueError(
      f'draft_tokens={draft_tokens} must be at least 1, which is lockstep.'
    )
  one = drafter in ('junior', 'senior')
  if context is not None and (context < 1 or not one):
    raise ValueError(
      f'draft_context={context} with drafter={drafter!r}: it is how many of its '
      'last tokens the junior or the senior drafts from, at least 1; None is all.'
    )
  alone = drafter == 'senior' and context is not None
  needs_two = drafter != 'lookup' and not alone
  if junior is None and needs_two and draft_tokens > 1:
    raise ValueError(
      f'drafter={drafter!r} needs two models, but junior is None; give one, or '
      "draft with drafter='lookup', or 'senior' with a draft_context."
    )
  if solo and drafter in ('senior', 'holder') and not alone:
    raise ValueError(
      f'drafter={drafter!r} has the senior draft for itself; in solo mode the '
      "drafter is 'junior' or 'lookup', or 'senior' with a draft_context."
    )
  if slots is not None and slots < 1:
    raise ValueError(
      f'slots={slots} must be at least 1; None gives every row a slot.'
    )


def room(context: int, k: int) -> int:
  """Slots behind the context of a cut cache: it serves until they are full."""
  return max(context // 2, k)


def bonus(
  drafter: str, k: int, pair: bool, turns, context: int | None = None
) -> str | None:
  """Who may add a token to a round whose draft stands: resolve's `bonus`.

  Not at k=1, which is lockstep; not where both proposals name the author; not
  where the drafter of the next round is not known; and not where both models
  read the draft, since then both are asked at every position.
  """
  if k == 1 or drafter not in ('senior', 'junior') or context:
    return None
  if not pair:
    return 'either'
  if turns.schedule == 'strict_word':
    return None
  return 'senior' if drafter == 'junior' else 'junior'


def bonus_chance(
  drafter: str, pair: bool, turns, context: int | None = None
) -> float:
  """The chance that who may add a token holds the turn, for draft_length."""
  chances = {'either': 1.0, 'senior': turns.p, 'junior': 1 - turns.p}
  return chances.get(bonus(drafter, 2, pair, turns, context), 0.0)

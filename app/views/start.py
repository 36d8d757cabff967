"""The candidates that a search begins with, on which its efficiency depends."""

from __future__ import annotations

from greenfast.search.loop.plan import SearchPlan


def start_of(plan: SearchPlan) -> str:
    """One phrase: `cold`, or `warm` and from what, and whether times are modelled beside it."""
    modelled = f"idle cores model up to {plan.modelled} points of each template"
    return f"{_known_first(plan)}; {modelled}" if plan.modelled else _known_first(plan)


def _known_first(plan: SearchPlan) -> str:
    if plan.cold:
        return "cold: no presets, no history"
    if not plan.neighbours:
        return "warm: presets first"
    scopes = list(dict.fromkeys(neighbour.scope for neighbour in plan.neighbours))
    warm = f"warm: the best of other scopes first ({'; '.join(scopes)}), then presets"
    known = sum(len(history.points) for each in plan.neighbours if (history := each.history))
    return f"{warm}; the model knows {known} outcomes of theirs" if known else warm

"""The expectation of a person for a search, beside its result."""

from __future__ import annotations

from greenfast.app.views.schemas import BestOut, ExpectationOut
from greenfast.db.rows import TrialRow
from greenfast.search.loop.plan import SearchPlan


def expectation_of(plan: SearchPlan, best: BestOut | TrialRow | None) -> ExpectationOut | None:
    """None if nothing was stated at submission."""
    if not plan.hypothesis and plan.expected_gain is None and not plan.cost:
        return None
    ratio = best.ratio_to_baseline if best is not None else None
    gain = 1 - ratio if ratio is not None else None
    return ExpectationOut(
        hypothesis=plan.hypothesis,
        expected_gain=plan.expected_gain,
        gain=gain,
        cost=plan.cost,
        sentence=_sentence(plan, gain, (best.time_kind or "") if best is not None else ""),
    )


def _sentence(plan: SearchPlan, gain: float | None, kind: str) -> str:
    parts = [f"Hypothesis: {plan.hypothesis.rstrip('.')}."] if plan.hypothesis else []
    came_out = f"the {kind} gain is {gain:.1%}" if gain is not None else "no gain is known"
    expected = (
        f"{plan.expected_gain:.1%} was expected, and " if plan.expected_gain is not None else ""
    )
    whole = f"{expected}{came_out}."
    parts.append(whole[0].upper() + whole[1:])
    if plan.cost:
        parts.append(f"Expected cost: {plan.cost}.")
    return " ".join(parts)

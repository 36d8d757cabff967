"""The Pareto front of a search: the correct trials that no other beats in every objective."""

from __future__ import annotations

from collections.abc import Sequence

from pydantic import Field

from greenfast.app.views.base_schemas import Output
from greenfast.app.views.schemas import TrialOut
from greenfast.db.store import Store
from greenfast.search.errors import UsageError, unknown_name
from greenfast.search.strategies.objectives import OBJECTIVES, front_of

DEFAULT = ("time", "registers")  # of a search that had the time alone
LONGEST_FRONT = 500
UNITS = {"time": "us", "registers": "", "shared_memory": "bytes", "error": "max abs"}
WHOLE = frozenset({"registers", "shared_memory"})


class FrontTrialOut(TrialOut):
    objectives: dict[str, float] = Field(description="the figures that put it on the front")
    is_best: bool = Field(description="the search's best: its fastest correct candidate")


class ParetoOut(Output):
    search_id: str
    objectives: list[str]
    searched: list[str] = Field(description="the objectives that the search itself had")
    time_kind: str | None
    correct: int = Field(
        description="trials with correct results and all of these figures, slower ones included"
    )
    front: int = Field(description="trials that no other beats in every objective")
    items: list[FrontTrialOut] = Field(
        description=f"the front, fastest first, at most {LONGEST_FRONT}"
    )


def chosen_objectives(names: Sequence[str] | None, searched: Sequence[str]) -> tuple[str, ...]:
    """The objectives of a view: as named, else the search's, else time and registers."""
    if not names:
        return tuple(searched) if len(searched) > 1 else DEFAULT
    for name in names:
        if name not in OBJECTIVES:
            raise unknown_name("objective", name, OBJECTIVES)
    if len(set(names)) != len(names):
        raise UsageError("an objective is named twice", code="repeated_objective")
    return tuple(name for name in OBJECTIVES if name in names)


def pareto(store: Store, search_id: str, names: Sequence[str] | None = None) -> ParetoOut:
    """The front of a search for some objectives."""
    search, searched = store.search(search_id), store.plan(search_id).objectives
    objectives = chosen_objectives(names, searched)
    outcomes = store.outcomes(search_id, objectives)
    best = store.best(search_id)
    front = [outcomes[place] for place in front_of([each.values for each in outcomes])]
    return ParetoOut(
        search_id=search_id,
        objectives=list(objectives),
        searched=list(searched),
        time_kind=search.time_kind,
        correct=len(outcomes),
        front=len(front),
        items=[
            FrontTrialOut(
                **TrialOut.model_validate(store.trial(search_id, each.number)).model_dump(),
                objectives=dict(zip(objectives, each.values, strict=True)),
                is_best=best is not None and best.number == each.number,
            )
            for each in front[:LONGEST_FRONT]
        ],
    )


def figure(name: str, value: float) -> str:
    """An objective's value as tables show it."""
    return f"{value:,.0f}" if name in WHOLE else f"{value:.4g}"

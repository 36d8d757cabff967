"""The ancestors of a trial's candidate, and what changed from each parent to its child."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pydantic import Field

from greenfast.app.views.base_schemas import Output
from greenfast.app.views.schemas import ChangeOut
from greenfast.db.rows import TrialRow

if TYPE_CHECKING:
    from greenfast.db.store import Store

MOST_ANCESTORS = 64


class ParentOut(Output):
    digest: str = Field(description="the parent's candidate")
    number: int | None = Field(
        description="the first trial of this search that tried it; null: it is of another search"
    )
    changed: list[ChangeOut] = Field(
        description="the values that the child changed; `before`: the parent's"
    )


class GenerationOut(Output):
    """A trial of the lineage."""

    generation: int = Field(description="0: the trial itself, 1: its parents, and so on")
    number: int
    template: str
    origin: str
    preset: str
    state: str
    verdict: str | None
    time_median_us: float | None
    time_kind: str | None
    time_mode: str | None
    ratio_to_baseline: float | None
    time_band: float | None
    parents: list[ParentOut]


class LineageOut(Output):
    search_id: str
    number: int
    items: list[GenerationOut] = Field(
        description=f"the trial, then its ancestors by generation, at most {MOST_ANCESTORS + 1}"
    )
    complete: bool = Field(description="false: it has further ancestors in this search")

    @property
    def ancestors(self) -> list[GenerationOut]:
        return self.items[1:]


@dataclass(frozen=True)
class _Step:
    """One generation of a walk: its trials, and the numbers of their parents by digest."""

    trials: tuple[TrialRow, ...]
    numbers: dict[str, int]


def lineage(store: Store, search_id: str, number: int) -> LineageOut:
    """The trial and its ancestors in this search; UsageError `unknown_trial`."""
    rows: dict[int, TrialRow] = {}
    steps: list[_Step] = []
    numbers, room = [number], MOST_ANCESTORS + 1
    while numbers and room:
        trials = tuple(store.trial(search_id, each) for each in numbers[:room])
        rows.update((trial.number, trial) for trial in trials)
        room -= len(trials)
        step = _Step(trials, store.numbers_of(search_id, _parents(trials)))
        steps.append(step)
        # A candidate that was tried again may be its own ancestor: each trial is visited once.
        left_out = numbers[len(trials) :]
        numbers = left_out or sorted(set(step.numbers.values()) - rows.keys())
    return LineageOut(
        search_id=search_id,
        number=number,
        items=[
            _generation_out(generation, trial, step.numbers, store, rows)
            for generation, step in enumerate(steps)
            for trial in step.trials
        ],
        complete=not numbers,
    )


def _parents(trials: Iterable[TrialRow]) -> set[str]:
    return {digest for trial in trials for digest in trial.parents}


def _generation_out(
    generation: int,
    trial: TrialRow,
    numbers: dict[str, int],
    store: Store,
    rows: dict[int, TrialRow],
) -> GenerationOut:
    parents = []
    for digest in trial.parents:
        known = numbers.get(digest)
        if known is not None and known not in rows:  # behind the most that are listed
            rows[known] = store.trial(trial.search_id, known)
        changed = _changes(rows[known], trial) if known is not None else []
        parents.append(ParentOut(digest=digest, number=known, changed=changed))
    return GenerationOut(
        generation=generation,
        parents=parents,
        **{
            name: getattr(trial, name)
            for name in GenerationOut.model_fields
            if name not in ("generation", "parents")
        },
    )


def _changes(parent: TrialRow, child: TrialRow) -> list[ChangeOut]:
    if parent.template != child.template:
        return [ChangeOut(name="template", before=parent.template, after=child.template)]
    return [
        ChangeOut(name=name, before=parent.parameters.get(name), after=value)
        for name, value in child.parameters.items()
        if parent.parameters.get(name) != value
    ]

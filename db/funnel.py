"""How far trials came, from rows grouped by (verdict, stage, reason, outcomes of the gates)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from greenfast.db.rows import Counts
from greenfast.search.gates import GATES
from greenfast.search.verdict import Stage

Group = tuple[str | None, str | None, str | None, str | None, int]
STAGES = (Stage.RENDER, Stage.COMPILE, *(Stage(gate.name) for gate in GATES))


def counts_of(groups: Sequence[Group]) -> Counts:
    """A gate is passed only where it said so: one that could not judge counts under `unavailable`."""
    verdicts, stages, reasons = Counter[str](), Counter[str](), Counter[str]()
    reached, passed, unavailable = Counter[str](), Counter[str](), Counter[str]()
    running = 0
    for verdict, stage, reason, outcomes, count in groups:
        if verdict is None:
            running += count
            continue
        verdicts[verdict] += count
        if verdict == "rejected":
            stages[stage] += count
            reasons[reason] += count
        gates = dict(word.split("=") for word in (outcomes or "").split())
        for one in reached_stages(stage):
            outcome = "passed" if one in (Stage.RENDER, Stage.COMPILE) else gates.get(one)
            reached[one] += count * (outcome != "skipped")
            if one != stage:
                passed[one] += count * (outcome == "passed")
                unavailable[one] += count * (outcome == "unavailable")
    return Counts(
        total=sum(verdicts.values()),
        running=running,
        by_verdict=dict(verdicts),
        by_stage=dict(stages),
        by_reason=dict(reasons),
        funnel=tuple((str(one), reached[one], passed[one]) for one in STAGES),
        unavailable={str(one): number for one, number in unavailable.items() if number},
    )


def reached_stages(ended_at: str | None) -> tuple[Stage, ...]:
    """The stages up to the one that said no; all of them when none did."""
    return STAGES if ended_at is None else STAGES[: STAGES.index(Stage(ended_at)) + 1]

"""The funnel of gates, from trials grouped by (verdict, stage, reason, gate outcomes)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from greenfast.db.rows import Counts
from greenfast.search.gates import GATES
from greenfast.search.verdict import Stage, VerdictName

Group = tuple[str | None, str | None, str | None, str | None, int]
STAGES = (Stage.RENDER, Stage.COMPILE, *(Stage(gate.name) for gate in GATES))


def counts_of(groups: Sequence[Group]) -> Counts:
    """The counts of trials. A gate that could not judge counts as `unavailable`, not as passed."""
    verdicts, stages, reasons = Counter[str](), Counter[str](), Counter[str]()
    reached, passed, unavailable = Counter[str](), Counter[str](), Counter[str]()
    running = 0
    for verdict, stage, reason, outcomes, count in groups:
        if verdict is None:
            running += count
            continue
        verdicts[verdict] += count
        if verdict == VerdictName.REJECTED:
            stages[stage or ""] += count
            reasons[reason or ""] += count
        gates = dict(word.split("=") for word in (outcomes or "").split())
        for step in reached_stages(stage):
            outcome = "passed" if step in (Stage.RENDER, Stage.COMPILE) else gates.get(step)
            reached[step] += count * (outcome != "skipped")
            if step != stage:
                passed[step] += count * (outcome == "passed")
                unavailable[step] += count * (outcome == "unavailable")
    return Counts(
        total=sum(verdicts.values()),
        running=running,
        by_verdict=dict(verdicts),
        by_stage=dict(stages),
        by_reason=dict(reasons),
        funnel=tuple((str(step), reached[step], passed[step]) for step in STAGES),
        unavailable={str(step): number for step, number in unavailable.items() if number},
    )


def reached_stages(ended_at: str | None) -> tuple[Stage, ...]:
    """The stages up to the one that ended the trial; all of them when none did."""
    return STAGES if ended_at is None else STAGES[: STAGES.index(Stage(ended_at)) + 1]

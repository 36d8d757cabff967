"""Notes on single lines of a trial's source: findings, bank conflicts, sectors."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from greenfast.db.rows import TrialDetail
from greenfast.search.verdict import LineCost

ACCESSES = {
    "shared_read": "shared read",
    "shared_write": "shared write",
    "global_read": "global read",
    "global_write": "global write",
}
VISIBLE_FACTOR = 1.005  # below it a factor would be written as 1.00


@dataclass(frozen=True)
class Note:
    """Text beside or below a line. `kind`: "finding" | "cost"."""

    kind: str
    text: str
    is_bad: bool  # a defect, or a cost above the ideal
    number: int | None = None  # of a finding, as the safety gate lists them


def notes_of(trial: TrialDetail) -> dict[int, list[Note]]:
    """Notes by line of the source's text, from 1; a line without notes is not in it."""
    notes: dict[int, list[Note]] = defaultdict(list)
    for number, finding in enumerate(trial.gates.get("safety", {}).get("findings", ()), 1):
        kind, line, other = finding["kind"], finding["source_line"], finding["other_source_line"]
        if line:
            notes[line].append(Note("finding", f"{kind}: {finding['sentence']}", True, number))
        if other and other != line:
            text = f"{kind}: the other access of finding {number}"
            notes[other].append(Note("finding", text, True, number))
    for cost in counted_lines(trial):
        if cost.source_line:
            notes[cost.source_line].append(cost_note(cost))
    return dict(notes)


def counted_workload(trial: TrialDetail) -> str | None:
    """The workload that the counters at the lines are of: the first that has any."""
    return next((timing["workload"] for timing in _timings(trial) if timing.get("lines")), None)


def counted_lines(trial: TrialDetail) -> list[LineCost]:
    """The line costs of that workload."""
    lines = next((timing["lines"] for timing in _timings(trial) if timing.get("lines")), ())
    return [LineCost(**line) for line in lines]


def cost_note(cost: LineCost) -> Note:
    """`shared read: 2.50 x bank conflicts, 5,120 wavefronts`."""
    is_above = cost.factor > VISIBLE_FACTOR
    if cost.is_shared:
        words = f"{cost.factor:.2f} x bank conflicts" if is_above else "no bank conflicts"
        text = f"{words}, {cost.wavefronts:,} wavefronts"
    else:
        words = f"{cost.factor:.2f} x the sectors needed" if is_above else "coalesced"
        text = f"{words}, {cost.sectors:,} sectors"
    return Note("cost", f"{ACCESSES.get(cost.kind, cost.kind)}: {text}", is_above)


def _timings(trial: TrialDetail) -> tuple[Mapping[str, Any], ...]:
    return tuple(trial.gates.get("performance", {}).get("timings", ()))

"""What a trial's gates know of single lines of its source: findings, bank conflicts, sectors."""

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


@dataclass(frozen=True)
class Note:
    """Words beside or below a line. `kind`: "finding" | "cost"."""

    kind: str
    text: str
    is_bad: bool  # a defect, or a cost above the ideal
    number: int | None = None  # of a finding, as the safety gate lists them


def notes_of(trial: TrialDetail) -> dict[int, list[Note]]:
    """By line of the source's text, from 1; lines that nothing is known of are not in it."""
    found: dict[int, list[Note]] = defaultdict(list)
    for number, one in enumerate(trial.gates.get("safety", {}).get("findings", ()), 1):
        if one["source_line"]:
            found[one["source_line"]].append(
                Note("finding", f"{one['kind']}: {one['sentence']}", True, number)
            )
        if one["other_source_line"] and one["other_source_line"] != one["source_line"]:
            found[one["other_source_line"]].append(
                Note(
                    "finding", f"{one['kind']}: the other access of finding {number}", True, number
                )
            )
    for one in counted_lines(trial):
        if one.source_line:
            found[one.source_line].append(cost_note(one))
    return dict(found)


def counted_workload(trial: TrialDetail) -> str | None:
    """Whose counters stand at the lines: the first timed workload's that has some."""
    return next((timing["workload"] for timing in _timings(trial) if timing.get("lines")), None)


def counted_lines(trial: TrialDetail) -> list[LineCost]:
    lines = next((timing["lines"] for timing in _timings(trial) if timing.get("lines")), ())
    return [LineCost(**line) for line in lines]


def cost_note(one: LineCost) -> Note:
    """`shared read: 2.50 x bank conflicts, 5,120 wavefronts`."""
    if one.is_shared:
        what = f"{one.factor:.2f} x bank conflicts" if one.factor > 1.005 else "no bank conflicts"
        text = f"{ACCESSES[one.kind]}: {what}, {one.wavefronts:,} wavefronts"
    else:
        what = f"{one.factor:.2f} x the sectors needed" if one.factor > 1.005 else "coalesced"
        text = f"{ACCESSES.get(one.kind, one.kind)}: {what}, {one.sectors:,} sectors"
    return Note("cost", text, one.factor > 1.005)


def _timings(trial: TrialDetail) -> tuple[Mapping[str, Any], ...]:
    return tuple(trial.gates.get("performance", {}).get("timings", ()))

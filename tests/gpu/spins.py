"""Candidates of the stopwatch kernel."""

from __future__ import annotations

from greenfast.search.space.candidate import Candidate, Origin, OriginKind


def spin(cycles: int, twin: int = 0) -> Candidate:
    """Waits for `cycles` clock cycles; twins differ in their source only."""
    return Candidate(
        "stopwatch", "spin", (("cycles", cycles), ("twin", twin)), Origin(OriginKind.SEEDED)
    )

"""Gate 4: races, uninitialised reads, accesses out of bounds that happen to give right results."""

from __future__ import annotations

from search.gates.base import Subject, unavailable
from search.verdict import GateResult


class SafetyGate:
    name = "safety"

    def judge(self, subject: Subject) -> GateResult:
        return unavailable(self.name, "no target of this version checks for races and uninitialised reads, "
                                      "so nothing is claimed about them")

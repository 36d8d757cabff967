"""Faults in a row: after so many, the machine is broken, not the candidates."""

from __future__ import annotations

from dataclasses import dataclass

from greenfast.search.verdict import Faulted, Verdict

FAULTS_IN_A_ROW = 5


@dataclass
class FaultStreak:
    """The faults since the last trial with a verdict on its candidate."""

    count: int = 0
    failure: str = ""  # the reason to end the search; it stays

    def learn(self, verdict: Verdict) -> None:
        if not isinstance(verdict, Faulted):
            self.count = 0
            return
        self.count += 1
        if self.count >= FAULTS_IN_A_ROW:
            last = f"The last one ({verdict.code}): {verdict.message.rstrip('.')}."
            self.failure = f"{self.count} faults in a row. {last}"

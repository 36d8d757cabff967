"""The differences between a candidate and the baseline of its search."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from greenfast.search.space.candidate import Candidate
from greenfast.search.text import written


@dataclass(frozen=True)
class Change:
    """One value that differs from the baseline's."""

    name: str
    before: Any
    after: Any

    def __str__(self) -> str:
        return f"{self.name} {written(self.before)} -> {written(self.after)}"


def changes(baseline: Candidate | None, candidate: Candidate) -> tuple[Change, ...]:
    """The parameters that differ. Those of different templates are not compared."""
    if baseline is None:
        return ()
    if baseline.template != candidate.template:
        return (Change("template", baseline.template, candidate.template),)
    before = baseline.values()
    return tuple(
        Change(name, before.get(name), value)
        for name, value in candidate.parameters
        if before.get(name) != value
    )

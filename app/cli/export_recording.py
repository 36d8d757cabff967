"""The rows of a recording, as the exports for other tuners read trials."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from greenfast.search.recordings.contents import Recording, Row
from greenfast.search.recordings.shelf import find_recording
from greenfast.search.verdict import VerdictName

PREFIX = "replay:"


@dataclass(frozen=True)
class RecordedTrial:
    """A row with the fields of a stored trial that an export uses."""

    number: int
    template: str
    parameters: dict[str, Any]
    verdict: str
    stage: str | None
    reason: str | None
    time_median_us: float | None
    finding: str
    source_digest: str | None
    recorded_at: str
    ratio_to_baseline: float | None = None
    time_kind: str = "replayed"


def recorded_trials(target: str) -> tuple[Recording, tuple[RecordedTrial, ...]]:
    """The recording of `replay:NAME`, and the rows of the template that it swept."""
    recording = find_recording(target.removeprefix(PREFIX))
    heading = recording.heading
    return recording, tuple(
        RecordedTrial(
            number=row.number,
            template=row.template,
            parameters=dict(recording.parameters(row)),
            verdict=VerdictName.GREEN if row.stage is None else VerdictName.REJECTED,
            stage=row.stage,
            reason=row.reason,
            time_median_us=_time_us(row),
            finding=row.sentence,
            source_digest=row.source_digest or None,
            recorded_at=heading.recorded_at,
        )
        for row in recording.rows
        if row.template == heading.template
    )


def _time_us(row: Row) -> float | None:
    """The geometric mean of its workloads' medians."""
    medians: Sequence[float] = [statistics.median(times.samples) for times in row.times]
    return math.exp(statistics.fmean(map(math.log, medians))) if medians else None

"""Verdicts on configurations of imported spaces: another tuner's figures, without code or checks.

A configuration with a figure is `green` at best: nothing shows that it was correct or safe.
"""

from __future__ import annotations

from greenfast.search.acceptance import ratio_of_medians
from greenfast.search.recordings.contents import Recording, Row
from greenfast.search.targets.base import Question
from greenfast.search.verdict import (
    CorrectnessEvidence,
    Green,
    PerformanceEvidence,
    PtxasEvidence,
    Reason,
    Rejected,
    SafetyEvidence,
    Stage,
    TimeKind,
    Timing,
    Unavailable,
    Verdict,
)

BAND = 1.0  # the file tells no scatter: every difference orders


def imported_verdict(recording: Recording, row: Row, question: Question) -> Verdict:
    """The verdict that the file's row supports."""
    name = recording.heading.name
    if row.stage is not None and row.reason is not None:
        sentence = f"replayed from {name}: {row.sentence}"
        return Rejected(Stage(row.stage), Reason(row.reason), sentence)
    ptxas: Unavailable[PtxasEvidence] = Unavailable(
        Stage.PTXAS.value, "an imported space holds no assembler's figures"
    )
    correctness: Unavailable[CorrectnessEvidence] = Unavailable(
        Stage.CORRECTNESS.value,
        "an imported space holds no code, so its results cannot be checked; "
        "the tuner that wrote the file called this configuration valid",
    )
    safety: Unavailable[SafetyEvidence] = Unavailable(
        Stage.SAFETY.value, "an imported space holds no code, so its accesses cannot be checked"
    )
    return Green((ptxas, correctness, _time(recording, row, question), safety))


def _time(recording: Recording, row: Row, question: Question) -> Unavailable[PerformanceEvidence]:
    heading = recording.heading
    (times,) = row.times
    (figure,) = times.samples
    weight = question.weights[0] if question.weights else 1.0
    timing = Timing(
        heading.workloads[0].name,
        figure,
        TimeKind.REPLAYED,
        "",
        (("floor_us", times.floor_us),),
        f"replayed from {heading.name}, row {row.number}: {times.note}",
        mode=times.mode,
        weight=weight,
    )
    ratio = (
        ratio_of_medians((timing,), question.baseline) if question.baseline is not None else None
    )
    source = dict(heading.environment)["imported_from"]
    words = "" if ratio is None else f"; {ratio:.4f} of the baseline's"
    sentence = (
        f"replayed, not measured now: {timing.time_median_us:.6g} us ({times.note}) on "
        f"{heading.device.title}, from the imported file {source}{words}"
    )
    return Unavailable(
        Stage.PERFORMANCE.value,
        sentence,
        PerformanceEvidence((timing,), ratio, BAND, None),
    )

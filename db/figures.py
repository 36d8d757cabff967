"""The figures of a recorded trial. This table is the one place that defines them.

A new figure is a field of `Figures` with its value in `figures`, and a column of the same name in
db/models.py with a migration. The rows of lists, sorting and the fields of REST follow from here.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, fields
from typing import Any, TypeVar

from greenfast.db.changes import Change
from greenfast.db.convert import storable
from greenfast.search.acceptance import weights_of
from greenfast.search.timing import geometric_mean
from greenfast.search.verdict import (
    CorrectnessEvidence,
    Faulted,
    PerformanceEvidence,
    PtxasEvidence,
    Rejected,
    Timing,
    Trial,
    Verdict,
    gate_result,
    performance_of,
    verdict_name,
)

E = TypeVar("E")


def _figure(doc: str = "", *, sortable: bool = False) -> Any:
    return field(metadata={"doc": doc, "sortable": sortable})


@dataclass(frozen=True, kw_only=True)
class Figures:
    """Values by which lists show, filter and sort trials. None: there is no finite value."""

    verdict: str | None = _figure()
    stage: str | None = _figure("of a rejection or fault")
    reason: str | None = _figure("of a rejection")
    fault_code: str | None = _figure()
    sentence: str = _figure("of a rejection: its changes against the baseline, then the finding")
    finding: str = _figure("the finding of the gate alone")
    time_median_us: float | None = _figure("geometric mean over the workloads", sortable=True)
    time_kind: str | None = _figure("measured, modelled or replayed")
    time_mode: str | None = _figure(
        "of a measured or replayed time: hot (data in L2), cold, or both of several workloads"
    )
    time_band: float | None = _figure("a factor: times closer than this cannot be distinguished")
    ratio_to_baseline: float | None = _figure("below 1 is faster")
    registers: int | None = _figure(sortable=True)
    spill_bytes: int | None = _figure()
    smem_bytes: int | None = _figure("static and dynamic shared memory", sortable=True)
    max_abs_error: float | None = _figure(
        "also null where the error is not finite: `gates` then names it", sortable=True
    )
    duration_s: float | None = _figure(sortable=True)
    device_index: int | None = _figure("the number of the GPU that measured its time")
    machine_code: str | None = _figure("a digest of what a GPU executes, without names")


FIGURES = tuple(figure.name for figure in fields(Figures))
SORTABLE = tuple(figure.name for figure in fields(Figures) if figure.metadata["sortable"])


def figures(trial: Trial, changed: Sequence[Change], baseline: str) -> Figures:
    """The figures of a trial that differs from `baseline` by `changed`."""
    verdict = trial.verdict
    time = _performance(verdict)
    ptxas = _evidence(verdict, "ptxas", PtxasEvidence)
    correctness = _evidence(verdict, "correctness", CorrectnessEvidence)
    return Figures(
        verdict=str(verdict_name(verdict)),
        stage=str(verdict.stage) if isinstance(verdict, (Rejected, Faulted)) else None,
        reason=str(verdict.reason) if isinstance(verdict, Rejected) else None,
        fault_code=verdict.code if isinstance(verdict, Faulted) else None,
        sentence=storable(sentence(verdict, changed, baseline)),
        finding=storable(sentence(verdict, (), baseline)),
        time_median_us=_mean(time.timings) if time else None,
        time_kind=str(time.timings[0].time_kind) if time else None,
        time_mode=time.mode or None if time else None,
        time_band=_finite(time.band) if time else None,
        ratio_to_baseline=_finite(time.ratio_to_baseline) if time else None,
        registers=ptxas.registers if ptxas else None,
        spill_bytes=ptxas.spill_bytes if ptxas else None,
        smem_bytes=ptxas.smem_static_bytes + ptxas.smem_dynamic_bytes if ptxas else None,
        max_abs_error=_finite(correctness.max_abs_error) if correctness else None,
        duration_s=_finite(trial.duration_s),
        device_index=time.timings[0].device_index if time else None,
        machine_code=(ptxas.machine_code or None) if ptxas else None,
    )


def outcomes(verdict: Verdict) -> str:
    """`ptxas=passed safety=skipped`: a column that the funnel counts by."""
    return " ".join(f"{gate.gate}={gate.outcome}" for gate in verdict.gates)


def sentence(verdict: Verdict, changed: Sequence[Change], baseline: str) -> str:
    """A rejection's changes, then the finding of its gate. It names no cause without evidence."""
    if isinstance(verdict, Rejected):
        differences = ", ".join(map(str, changed))
        if differences:
            return f"{differences} (against {baseline}): {verdict.sentence}"
        return verdict.sentence
    if isinstance(verdict, Faulted):
        return verdict.message
    performance = gate_result(verdict, "performance")
    return performance.sentence if performance else ""


def _performance(verdict: Verdict) -> PerformanceEvidence | None:
    evidence = performance_of(verdict)
    return evidence if evidence is not None and evidence.timings else None


def _evidence(verdict: Verdict, gate: str, kind: type[E]) -> E | None:
    result = gate_result(verdict, gate)
    evidence = result.evidence if result else None
    return evidence if isinstance(evidence, kind) else None


def _mean(timings: Sequence[Timing]) -> float | None:
    """Weighted geometric mean. A single time keeps its value to the last bit."""
    times = [timing.time_median_us for timing in timings]
    if len(times) == 1:
        return _finite(times[0])
    if not all(0 < time < math.inf for time in times):
        return None
    return geometric_mean(times, weights_of(timings))


def _finite(value: float | None) -> float | None:
    return float(value) if value is not None and math.isfinite(value) else None

"""The columns of a recorded trial: what people sort by, and the sentence that says what came of it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from greenfast.db.convert import storable
from greenfast.db.rows import Change
from greenfast.search.space.candidate import Candidate
from greenfast.search.timing import geometric_mean
from greenfast.search.verdict import (
    CorrectnessEvidence,
    Faulted,
    PtxasEvidence,
    Rejected,
    Trial,
    Verdict,
    gate_result,
    performance_of,
    verdict_name,
)


def figures(trial: Trial, changed: Sequence[Change], baseline: str) -> dict[str, Any]:
    """Values of the trial's columns by name; None where there is nothing finite to say."""
    verdict = trial.verdict
    judged = isinstance(verdict, (Rejected, Faulted))
    return {
        "verdict": verdict_name(verdict),
        "stage": str(verdict.stage) if judged else None,
        "reason": str(verdict.reason) if isinstance(verdict, Rejected) else None,
        "fault_code": verdict.code if isinstance(verdict, Faulted) else None,
        "outcomes": " ".join(f"{gate.gate}={gate.outcome}" for gate in verdict.gates),
        "sentence": storable(sentence(verdict, changed, baseline)),
        "duration_s": _finite(trial.duration_s),
        **_time(verdict),
        **_ptxas(verdict),
        **_errors(verdict),
    }


def changes(baseline: Candidate | None, candidate: Candidate) -> tuple[Change, ...]:
    """What differs from the baseline; parameters of different templates are not compared."""
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


def sentence(verdict: Verdict, changed: Sequence[Change], baseline: str) -> str:
    """A rejection names what changed, then what its gate found: no cause that the evidence does not show."""
    if isinstance(verdict, Rejected):
        what = ", ".join(map(str, changed))
        return f"{what} (against {baseline}): {verdict.sentence}" if what else verdict.sentence
    if isinstance(verdict, Faulted):
        return verdict.message
    performance = gate_result(verdict, "performance")
    return performance.sentence if performance else ""


def _time(verdict: Verdict) -> dict[str, Any]:
    evidence = performance_of(verdict)
    if evidence is None or not evidence.timings:
        return {}
    times = [timing.time_median_us for timing in evidence.timings]
    return {
        "time_median_us": _mean(times),
        "time_kind": str(evidence.timings[0].time_kind),
        "time_mode": evidence.mode or None,
        "time_band": _finite(evidence.band),
        "ratio_to_baseline": _finite(evidence.ratio_to_baseline),
    }


def _mean(times: Sequence[float]) -> float | None:
    """Geometric mean; a single time stays what it is, to the last bit."""
    if len(times) == 1:
        return _finite(times[0])
    if not all(0 < time_ < math.inf for time_ in times):
        return None
    return geometric_mean(times)


def _ptxas(verdict: Verdict) -> dict[str, Any]:
    found = gate_result(verdict, "ptxas")
    evidence = found.evidence if found else None
    if not isinstance(evidence, PtxasEvidence):
        return {}
    return {
        "registers": evidence.registers,
        "spill_bytes": evidence.spill_bytes,
        "smem_bytes": evidence.smem_static_bytes + evidence.smem_dynamic_bytes,
    }


def _errors(verdict: Verdict) -> dict[str, Any]:
    found = gate_result(verdict, "correctness")
    evidence = found.evidence if found else None
    if not isinstance(evidence, CorrectnessEvidence):
        return {}
    return {"max_abs_error": _finite(evidence.max_abs_error)}


def _finite(value: float | None) -> float | None:
    return float(value) if value is not None and math.isfinite(value) else None

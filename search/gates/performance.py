"""Gate 3: time, against the baseline. Where time is only modelled the gate orders and does not judge."""

from __future__ import annotations

import math

from search.cases import workload_case
from search.errors import Fault
from search.gates.base import Subject, unavailable
from search.memory import problem
from search.reference import answer
from search.targets.base import Failure
from search.verdict import GateResult, Outcome, PerformanceEvidence, Timing


class PerformanceGate:
    name = "performance"

    def judge(self, subject: Subject) -> GateResult:
        problems = []
        for workload in subject.workloads:
            case = workload_case(workload, subject.seed)
            problems.append(problem(subject.kernel, subject.template, subject.point, case,
                                    answer(subject.kernel, case), optional_outputs=False))
        timings = subject.target.measure(subject.program, subject.cubin, problems)
        if isinstance(timings, Failure):
            return GateResult(self.name, Outcome.FAILED, timings.sentence, None, timings.reason)
        evidence = PerformanceEvidence(timings, _ratio(timings, subject.baseline), subject.target.band)
        if subject.target.measures:
            raise Fault("measured times are not judged by this version", code="not_built")
        return unavailable(self.name, _modelled_sentence(evidence), evidence)


def _ratio(timings: tuple[Timing, ...], baseline: tuple[Timing, ...] | None) -> float | None:
    """Geometric mean over the workloads of time / baseline's time."""
    if baseline is None:
        return None
    base = {one.workload: one.time_median_us for one in baseline}
    logs = [math.log(one.time_median_us / base[one.workload]) for one in timings]
    return math.exp(sum(logs) / len(logs))


def _modelled_sentence(evidence: PerformanceEvidence) -> str:
    times = ", ".join(f"{one.workload} {one.time_median_us:.2f} us (limited by {one.limited_by})"
                      for one in evidence.timings)
    return f"modelled, not measured: {times}; times within a factor of {evidence.band:g} are not told apart"

"""Gate 3: compares times with the baseline's. Modelled times are ordered, not judged."""

from __future__ import annotations

from greenfast.search.acceptance import (
    WORDS,
    accept,
    acceptance_sentence,
    below_bound,
    ratio_of_medians,
)
from greenfast.search.gates.base import Baseline, Subject
from greenfast.search.gates.correctness import compare
from greenfast.search.oracle.problem import Problem
from greenfast.search.targets.base import Execution, Failure, Rival
from greenfast.search.timing import Decision
from greenfast.search.verdict import (
    Failed,
    Passed,
    PerformanceEvidence,
    Reason,
    Timing,
    Unavailable,
)

BINDING_SHARE = 0.8  # of the longest resource's time


PerformanceResult = (
    Passed[PerformanceEvidence] | Failed[PerformanceEvidence] | Unavailable[PerformanceEvidence]
)


class PerformanceGate:
    name = "performance"
    compares = True

    def judge(self, subject: Subject, baseline: Baseline | None = None) -> PerformanceResult:
        against = baseline.subject if baseline is not None else None
        rival = Rival(against.program, timed_problems(against)) if against is not None else None
        timings = subject.target.measure(
            subject.program,
            subject.machine_code,
            timed_problems(subject),
            rival,
            lambda execution: left_wrong(subject, execution),
        )
        if isinstance(timings, Failure):
            return Failed(self.name, timings.sentence, timings.reason)
        timings = subject.conditions.weighted(timings)
        if subject.target.measures:
            return self._measured(subject, timings)
        return self._modelled(subject, timings, baseline)

    def _modelled(
        self, subject: Subject, timings: tuple[Timing, ...], baseline: Baseline | None
    ) -> PerformanceResult:
        """A modelled time orders candidates. An impossible one is the model's fault and orders
        nothing."""
        if (impossible := below_bound(timings)) is not None:
            return Unavailable(
                self.name,
                _implausible_sentence(impossible, subject.target.device.title),
                PerformanceEvidence(timings, None, subject.target.band),
            )
        evidence = PerformanceEvidence(timings, _ratio(timings, baseline), subject.target.band)
        return Unavailable(self.name, _modelled_sentence(evidence), evidence)

    def _measured(self, subject: Subject, timings: tuple[Timing, ...]) -> PerformanceResult:
        """Only a time that is faster than the baseline's by `min_gain` passes."""
        acceptance = accept(timings, subject.conditions.min_gain)
        evidence = PerformanceEvidence(
            timings, acceptance.ratio, subject.target.band, acceptance.interval
        )
        sentence = acceptance_sentence(acceptance, subject.target.device.title)
        if acceptance.impossible is not None:
            return Failed(self.name, sentence, Reason.IMPLAUSIBLE, evidence)
        times = ", ".join(
            f"{timing.workload} {timing.time_median_us:.2f} us ({timing.note})"
            for timing in timings
        )
        if acceptance.decision is None:
            return Unavailable(self.name, f"measured: {times}; {sentence}", evidence)
        if acceptance.reason is not None:
            return Failed(self.name, f"{sentence}; {times}", acceptance.reason, evidence)
        return Passed(self.name, f"{sentence}; {times}", evidence)


def same_as_baseline(subject: Subject, baseline: Baseline) -> Failed[PerformanceEvidence]:
    """The result of a candidate that runs the baseline's machine code: it has the same time."""
    return Failed(
        PerformanceGate.name,
        f"{WORDS[Decision.SAME]}: it runs the same machine code",
        Reason.SAME,
        PerformanceEvidence(baseline.timings, 1.0, subject.target.band),
    )


def timed_problems(subject: Subject, seed: int | None = None) -> tuple[Problem, ...]:
    """Each workload as it is timed; its inputs are of `seed`."""
    return subject.timed if seed is None else subject.with_seed(seed).timed


def left_wrong(subject: Subject, execution: Execution) -> Failure | None:
    """Compare the outputs of the timed launches with the reference."""
    checks, reason = compare(subject, execution)
    return (
        Failure(reason, next(check.sentence for check in checks if not check.passed))
        if reason
        else None
    )


def _ratio(timings: tuple[Timing, ...], baseline: Baseline | None) -> float | None:
    return ratio_of_medians(timings, baseline.timings) if baseline is not None else None


def binding_limits(timing: Timing) -> tuple[str, ...]:
    """The resources that limit a modelled time: each alone takes nearly as long as the longest."""
    if not timing.limits:
        return (timing.limited_by,)
    longest = timing.limits[0][1]
    return tuple(name for name, us in timing.limits if us >= BINDING_SHARE * longest)


def _implausible_sentence(timing: Timing, device: str) -> str:
    return (
        f"implausible, so not ranked: the modelled time of {timing.workload}, "
        f"{timing.time_median_us:.2f} us, is below the {timing.bound_us:.2f} us that its "
        f"compulsory work takes at the peaks of {device}; this is a fault of the model, not of the "
        "candidate"
    )


def _modelled_sentence(evidence: PerformanceEvidence) -> str:
    times = ", ".join(
        f"{timing.workload} {timing.time_median_us:.2f} us "
        f"(limited by {' and '.join(binding_limits(timing))})"
        for timing in evidence.timings
    )
    return (
        f"modelled, not measured: {times}; times within a factor of {evidence.band:g} "
        "cannot be distinguished"
    )

"""Gate 3: time, against the baseline. Where time is only modelled the gate orders and does not judge."""

from __future__ import annotations

import math
from dataclasses import replace

from greenfast.search.acceptance import REASONS, WORDS, measured_decision
from greenfast.search.gates.base import Subject, passed, unavailable
from greenfast.search.gates.correctness import compare
from greenfast.search.oracle.cases import workload_case
from greenfast.search.oracle.problem import Problem, lay_out
from greenfast.search.targets.base import Execution, Failure, Rival
from greenfast.search.timing import LOOKS, SCREEN_RATIO, Decision
from greenfast.search.verdict import GateResult, Outcome, PerformanceEvidence, Reason, Timing

BINDING_SHARE = 0.8  # of the longest resource's time


class PerformanceGate:
    name = "performance"

    def judge(self, subject: Subject) -> GateResult:
        against = subject.rival()
        rival = Rival(against.program, timed_problems(against)) if against else None
        timings = subject.target.measure(
            subject.program,
            subject.cubin,
            timed_problems(subject),
            rival,
            lambda execution: left_wrong(subject, execution),
        )
        if isinstance(timings, Failure):
            return GateResult(self.name, Outcome.FAILED, timings.sentence, None, timings.reason)
        if subject.target.measures:
            return self._measured(subject, timings)
        return self._modelled(subject, timings)

    def _modelled(self, subject: Subject, timings: tuple[Timing, ...]) -> GateResult:
        """A modelled time orders candidates. One that cannot be is the model's fault, so it orders nothing."""
        if (impossible := below_bound(timings)) is not None:
            return unavailable(
                self.name, _implausible_sentence(impossible, subject.target.device.title)
            )
        evidence = PerformanceEvidence(
            timings, _ratio(timings, subject.baseline()), subject.target.band
        )
        return unavailable(self.name, _modelled_sentence(evidence), evidence)

    def _measured(self, subject: Subject, timings: tuple[Timing, ...]) -> GateResult:
        """FASTER by `min_gain` passes; a time that cannot be is refused before it is compared."""
        times = ", ".join(
            f"{timing.workload} {timing.time_median_us:.2f} us ({timing.note})"
            for timing in timings
        )
        if (impossible := below_bound(timings)) is not None:
            sentence = (
                f"{impossible.workload} took {impossible.time_median_us:.3f} us; its compulsory work takes "
                f"{bound_of(impossible):.3f} us at the peaks of {subject.target.device.title}"
            )
            return GateResult(
                self.name,
                Outcome.FAILED,
                sentence,
                PerformanceEvidence(timings, None, subject.target.band),
                Reason.IMPLAUSIBLE,
            )
        if not all(timing.baseline_samples for timing in timings):
            evidence = PerformanceEvidence(timings, None, subject.target.band)
            return unavailable(
                self.name,
                f"measured: {times}; compared with nothing: this is the baseline, which the "
                "others are compared with, or no right baseline is there",
                evidence,
            )
        decision, interval = measured_decision(timings)
        low, ratio, high = interval.ratios
        evidence = PerformanceEvidence(timings, ratio, subject.target.band, (low, high))
        blocks = min(len(timing.samples) // 2 for timing in timings)
        sentence = f"{WORDS[decision]}: {ratio:.4f} of its time [{low:.4f}, {high:.4f}]; {times}"
        if decision is Decision.SLOWER and blocks < LOOKS[0]:
            screen = f"at least {SCREEN_RATIO:g} times its time in each of {blocks} blocks, too few for an interval"
            sentence = f"{screen}: {sentence}"
        if decision is not Decision.FASTER:
            return GateResult(self.name, Outcome.FAILED, sentence, evidence, REASONS[decision])
        if ratio > 1 - subject.min_gain:
            short = f"by less than the {subject.min_gain:.1%} that was asked for, {sentence}"
            return GateResult(self.name, Outcome.FAILED, short, evidence, Reason.SAME)
        return passed(self.name, sentence, evidence)


def bound_of(timing: Timing) -> float:
    """The least time that its workload can take on the device; 0: not known."""
    return dict(timing.detail).get("floor_us", 0.0)


def below_bound(timings: tuple[Timing, ...]) -> Timing | None:
    """The first time that no device of this kind can reach."""
    return next((timing for timing in timings if timing.time_median_us < bound_of(timing)), None)


def timed_problems(subject: Subject) -> tuple[Problem, ...]:
    """Each workload as it is timed: without the outputs that nobody has to ask for."""
    cases = [workload_case(workload, subject.seed) for workload in subject.workloads]
    return tuple(
        replace(
            lay_out(
                subject.kernel,
                subject.template,
                subject.point,
                case,
                subject.target.case_data(subject.kernel, case),
                optional_outputs=False,
            ),
            mode=subject.mode,
        )
        for case in cases
    )


def left_wrong(subject: Subject, execution: Execution) -> Failure | None:
    """The timed launches' own outputs are held to the reference, too."""
    checks, reason = compare(subject, execution)
    return (
        Failure(reason, next(check.sentence for check in checks if not check.passed))
        if reason
        else None
    )


def _ratio(timings: tuple[Timing, ...], baseline: tuple[Timing, ...] | None) -> float | None:
    """Geometric mean over the workloads of time / baseline's time."""
    if baseline is None:
        return None
    base = {one.workload: one.time_median_us for one in baseline}
    logs = [math.log(timing.time_median_us / base[timing.workload]) for timing in timings]
    return math.exp(sum(logs) / len(logs))


def binding_limits(timing: Timing) -> tuple[str, ...]:
    """The resources that hold a modelled time up: alone, each would take nearly as long as the longest."""
    if not timing.limits:
        return (timing.limited_by,)
    longest = timing.limits[0][1]
    return tuple(name for name, us in timing.limits if us >= BINDING_SHARE * longest)


def _implausible_sentence(timing: Timing, device: str) -> str:
    return (
        f"implausible, so not ranked: the modelled time of {timing.workload}, {timing.time_median_us:.2f} us, is below "
        f"the {bound_of(timing):.2f} us that its compulsory work takes at the peaks of {device}; this is a fault of the "
        "model, not of the candidate"
    )


def _modelled_sentence(evidence: PerformanceEvidence) -> str:
    times = ", ".join(
        f"{timing.workload} {timing.time_median_us:.2f} us (limited by {' and '.join(binding_limits(timing))})"
        for timing in evidence.timings
    )
    return f"modelled, not measured: {times}; times within a factor of {evidence.band:g} are not told apart"

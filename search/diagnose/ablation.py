"""Ablation: the effect of each feature and each number of a winner.

Each arm is the winner with one parameter changed. It goes through the same gates, and is then timed
in turns with the winner over all blocks. Intervals are corrected for the number of arms
(Bonferroni), and widened by the scatter between processes, since code with another feature lies
elsewhere in memory. A plain flip is fooled by settings that were tuned together, so for arms that
matter the other parameters are tuned again for a few trials with the arm's value: best-with is
compared with best-without.

A modelled or replayed time tells apart only what differs by more than its band.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

from greenfast.search.acceptance import weights_of
from greenfast.search.diagnose.ablation_points import Arm, Pooled, retuned_points
from greenfast.search.diagnose.defaults import RETUNED
from greenfast.search.errors import Fault
from greenfast.search.gates.base import Subject
from greenfast.search.kernels.expressions import Value
from greenfast.search.kernels.workloads import Items
from greenfast.search.loop.confirmation import prepared, timed_in_turns
from greenfast.search.loop.evaluate import EvaluationContext, evaluate, timings_of
from greenfast.search.space.candidate import Candidate, Origin, OriginKind
from greenfast.search.space.space import Space
from greenfast.search.targets.base import Failure
from greenfast.search.text import written
from greenfast.search.timing import (
    PROCESS_FREEDOM,
    PROCESS_SIGMA,
    SAME_BAND,
    block_log_ratios,
    combined,
    median_interval,
    student,
)
from greenfast.search.verdict import (
    Accepted,
    Faulted,
    Green,
    PerformanceEvidence,
    PtxasEvidence,
    Rejected,
    Stage,
    Timing,
    Verdict,
    evidence_of,
    verdict_name,
)

FAMILY_CONFIDENCE = 0.95  # of all intervals of an ablation together
CHANGED_SHARE = 0.01  # a counter that changes by less is not named


class Effect(StrEnum):
    """The effect of the winner's value, compared with the arm's."""

    HELPS = "helps"
    NO_EFFECT = "no_effect"
    HURTS = "hurts"
    UNCLEAR = "unclear"


@dataclass(frozen=True)
class Counter:
    """A figure of the winner and of the arm."""

    name: str
    before: float
    after: float


@dataclass(frozen=True)
class Measurement:
    """One point against the winner. `ratio`: its time / the winner's; above 1 it is slower."""

    parameters: Items
    source_digest: str | None
    verdict: str
    stage: str = ""  # of a rejection
    reason: str = ""
    sentence: str = ""
    ratio: float | None = None  # None: it was not timed
    log_ratios: tuple[float, ...] = ()  # of the blocks, measured only
    time_us: float | None = None
    winner_us: float | None = None
    counters: tuple[Counter, ...] = ()

    @property
    def is_timed(self) -> bool:
        return self.ratio is not None


@dataclass(frozen=True)
class ArmResult:
    """All that was measured for one arm."""

    parameter: str
    before: Value
    after: Value
    kind: str
    refused: str = ""
    alone: Measurement | None = None  # None: there is no such point
    retuned: tuple[Measurement, ...] = ()
    best: Measurement | None = None  # the fastest with the arm's value, measured once more
    along: Items = ()  # another parameter that had to change with it
    tied: str = ""  # the constraint that ties the two

    @property
    def name(self) -> str:
        return f"{self.parameter}={written(self.after)}"

    @property
    def change(self) -> str:
        """The change in words, for sentences."""
        others = (f"{name}={written(value)}" for name, value in self.along)
        return " and ".join((self.name, *others))


@dataclass(frozen=True)
class Finding:
    """The judgement on one arm."""

    arm: ArmResult
    effect: Effect
    ratio: float | None  # of the arm alone
    low: float | None
    high: float | None
    best_ratio: float | None  # after the others were tuned again
    best_low: float | None
    best_high: float | None
    pooled: Pooled | None
    sentence: str


@dataclass(frozen=True)
class Scale:
    """How times of this target are judged."""

    kind: str  # measured | modelled | replayed
    band: float  # a factor: modelled or replayed times closer than this are not told apart
    comparisons: int  # arms of the ablation, over which intervals hold together

    @property
    def is_measured(self) -> bool:
        return self.kind == "measured"


def corrected_interval(
    log_ratios: Sequence[float], comparisons: int
) -> tuple[float, float, float] | None:
    """(low, ratio, high) that hold together for all comparisons; None for too few blocks.

    Bonferroni's correction of the sign test's interval, widened to what one process can tell: the
    same code differs from one process to the next.
    """
    outside = (1 - FAMILY_CONFIDENCE) / max(1, comparisons)
    interval = median_interval(log_ratios, 1 - outside) if log_ratios else None
    if interval is None or not math.isfinite(interval.low):
        return None
    half = student(outside / 2, PROCESS_FREEDOM) * PROCESS_SIGMA
    low = min(interval.low, interval.median - half)
    high = max(interval.high, interval.median + half)
    return math.exp(low), math.exp(interval.median), math.exp(high)


def effect_of(measurement: Measurement | None, scale: Scale) -> Effect:
    """UNCLEAR for what was not timed, and for what the target's times cannot tell."""
    if measurement is None or measurement.ratio is None:
        return Effect.UNCLEAR
    if not scale.is_measured:
        if measurement.ratio >= scale.band:
            return Effect.HELPS
        return Effect.HURTS if measurement.ratio <= 1 / scale.band else Effect.UNCLEAR
    interval = corrected_interval(measurement.log_ratios, scale.comparisons)
    if interval is None:
        return Effect.UNCLEAR
    low, _, high = interval
    if low > 1:
        return Effect.HELPS
    if high < 1:
        return Effect.HURTS
    within = 1 - SAME_BAND - _process_half(scale) <= low and high <= (
        1 + SAME_BAND + _process_half(scale)
    )
    return Effect.NO_EFFECT if within else Effect.UNCLEAR


def _process_half(scale: Scale) -> float:
    """How far one process can be off, as a share of the time."""
    outside = (1 - FAMILY_CONFIDENCE) / max(1, scale.comparisons)
    return math.expm1(student(outside / 2, PROCESS_FREEDOM) * PROCESS_SIGMA)


@dataclass(frozen=True)
class Ablation:
    """The winner of one ablation and the context in which its arms are measured."""

    context: EvaluationContext  # with the winner as baseline
    space: Space
    winner: Candidate
    timings: tuple[Timing, ...] | None
    verdict: Verdict
    subject: Subject | None  # of a target that measures

    def measure(self, parameters: Items) -> Measurement:
        """One point through the gates, and against the winner. Fault for our own failures."""
        candidate = Candidate(
            self.winner.kernel,
            self.winner.template,
            parameters,
            Origin(OriginKind.SEEDED, (self.winner.digest,)),
        )
        done = evaluate(candidate, self.context, lambda: self.timings)
        verdict = done.verdict
        if isinstance(verdict, Faulted):
            raise Fault(verdict.message, code=verdict.code)
        source = done.source.digest if done.source is not None else None
        if isinstance(verdict, Rejected) and verdict.stage is not Stage.PERFORMANCE:
            return Measurement(
                parameters, source, "rejected", verdict.stage, verdict.reason, verdict.sentence
            )
        timings = self._in_turns(candidate) if self.subject else timings_of(verdict)
        base = self._measurement(parameters, source, verdict)
        if isinstance(timings, Failure):
            return replace(base, sentence=timings.sentence, reason=str(timings.reason))
        return self._timed(base, verdict, timings)

    def _in_turns(self, candidate: Candidate) -> tuple[Timing, ...] | Failure:
        assert self.subject is not None
        return timed_in_turns(prepared(self.context, candidate), self.subject)

    @staticmethod
    def _measurement(parameters: Items, source: str | None, verdict: Verdict) -> Measurement:
        correct = isinstance(verdict, (Accepted, Green))
        stage, reason = (
            (str(verdict.stage), str(verdict.reason)) if isinstance(verdict, Rejected) else ("", "")
        )
        name = str(verdict_name(verdict)) if correct else "slower"
        return Measurement(parameters, source, name, stage, reason)

    def _timed(
        self, base: Measurement, verdict: Verdict, timings: tuple[Timing, ...] | None
    ) -> Measurement:
        if not timings:
            return base
        counters = counters_between(self.verdict, verdict)
        time_us = _time_us(timings)
        if self.subject is None:
            winner_us = _time_us(self.timings or ())
            ratio = time_us / winner_us if time_us and winner_us else None
            return replace(
                base, ratio=ratio, time_us=time_us, winner_us=winner_us, counters=counters
            )
        rows = [block_log_ratios(timing.samples, timing.baseline_samples) for timing in timings]
        logs = combined(rows, weights_of(timings))
        middle = median_interval(logs, 0.5).median
        return replace(
            base,
            ratio=math.exp(middle),
            log_ratios=logs,
            time_us=time_us,
            winner_us=time_us / math.exp(middle) if time_us else None,
            counters=counters,
        )


def _time_us(timings: Iterable[Timing]) -> float | None:
    """The weighted geometric mean over the workloads."""
    rows = tuple(timings)
    if not rows:
        return None
    total = sum(timing.weight for timing in rows)
    return math.exp(sum(timing.weight * math.log(timing.time_median_us) for timing in rows) / total)


def begin(context: EvaluationContext, winner: Candidate, space: Space) -> Ablation:
    """Evaluate the winner again. A Fault if it gets no verdict, or is wrong now."""
    context.target.prepare()
    done = evaluate(winner, replace(context, baseline=None))
    if isinstance(done.verdict, Faulted):
        raise Fault(done.verdict.message, code=done.verdict.code)
    if isinstance(done.verdict, Rejected) and done.verdict.stage is not Stage.PERFORMANCE:
        raise Fault(
            f"the winner is wrong when it is evaluated again: {done.verdict.sentence}",
            code="winner_wrong",
            mend="its files have not changed, so look for a race with `greenfast check`",
        )
    against = replace(context, baseline=winner, min_gain=0.0)
    subject = prepared(against, winner) if context.target.measures else None
    return Ablation(against, space, winner, timings_of(done.verdict), done.verdict, subject)


def measured_arm(
    ablation: Ablation,
    arm: Arm,
    scale: Scale,
    earlier: Iterable[Items] = (),
    retune: int = RETUNED,
    measure: Callable[[Items], Measurement] | None = None,
) -> ArmResult:
    """Measure an arm; tune the other values again if it matters."""
    measure = measure or ablation.measure
    result = ArmResult(
        arm.parameter, arm.before, arm.after, arm.kind, arm.refused, along=arm.along, tied=arm.tied
    )
    if arm.refused:
        return result
    alone = measure(arm.parameters)
    result = replace(result, alone=alone)
    if effect_of(alone, scale) not in (Effect.HELPS, Effect.HURTS) or not retune:
        return result
    points = retuned_points(ablation.space, arm, earlier, retune, ablation.context.seed)
    retuned = tuple(measure(point) for point in points)
    timed = [each for each in (alone, *retuned) if each.ratio is not None]
    best = min(timed, key=lambda each: each.ratio or math.inf)
    if best is not alone and scale.is_measured:
        best = measure(best.parameters)  # the fastest of several looks faster than it is
    return replace(result, retuned=retuned, best=best)


def judged(result: ArmResult, scale: Scale, pooled: Pooled | None = None) -> Finding:
    """The finding on one arm, from what is stored: anybody can compute it again."""
    alone, best = result.alone, result.best
    final = best if best is not None and best.is_timed else alone
    effect = effect_of(final, scale)
    numbers = _interval_of(alone, scale)
    best_numbers = _interval_of(best, scale)
    finding = Finding(result, effect, *numbers, *best_numbers, pooled, "")
    return replace(finding, sentence=_sentence(finding, scale))


def _interval_of(
    measurement: Measurement | None, scale: Scale
) -> tuple[float | None, float | None, float | None]:
    """(ratio, low, high)"""
    if measurement is None or measurement.ratio is None:
        return None, None, None
    if not scale.is_measured:
        return measurement.ratio, None, None
    interval = corrected_interval(measurement.log_ratios, scale.comparisons)
    if interval is None:
        return measurement.ratio, None, None
    return interval[1], interval[0], interval[2]


def _sentence(finding: Finding, scale: Scale) -> str:
    arm = finding.arm
    subject = f"{arm.parameter}={written(arm.before)}"
    if arm.refused:
        return f"{subject}: {arm.name} is not a valid point with the other values: {arm.refused}"
    alone = arm.alone
    assert alone is not None
    if alone.verdict == "rejected":
        wrong = alone.stage in (Stage.CORRECTNESS, Stage.SAFETY)
        return (
            f"{subject}: the kernel is {'not correct' if wrong else 'rejected'} with {arm.change} "
            f"({alone.stage}: {alone.reason}), so there is no time to compare: {alone.sentence}"
        )
    if finding.ratio is None:
        return f"{subject}: {arm.change} has no time to compare {alone.sentence}".strip()
    words = {
        Effect.HELPS: "helps",
        Effect.HURTS: "hurts",
        Effect.NO_EFFECT: "has no effect",
        Effect.UNCLEAR: "is unclear",
    }[finding.effect]
    others = " and ".join(name for name, _ in arm.along)
    tied = f" ({others} changes too, since alone: {arm.tied})" if arm.tied else ""
    parts = [f"{subject} {words}: {_alone_words(finding, scale)}{tied}"]
    if finding.best_ratio is not None and arm.retuned:
        parts.append(_best_words(finding, scale))
    if counters := _counter_words(alone.counters):
        parts.append(counters)
    if finding.pooled is not None:
        parts.append(
            f"{finding.pooled.pairs} earlier pairs of trials that differ only in "
            f"{arm.parameter}: {finding.pooled.ratio:.3f} times as long with {arm.name}, slower in "
            f"{finding.pooled.slower}"
        )
    return "; ".join(parts)


def _alone_words(finding: Finding, scale: Scale) -> str:
    ratio = f"{finding.ratio:.3f}"
    if not scale.is_measured:
        if finding.effect is Effect.UNCLEAR:
            return (
                f"the {scale.kind} times with and without it are within the band of a factor "
                f"{scale.band:g}, so they prove nothing"
            )
        return f"with {finding.arm.change} the {scale.kind} time is {ratio} times as long"
    if finding.low is None or finding.high is None:
        return f"with {finding.arm.change} it takes {ratio} times as long, from too few blocks"
    return (
        f"with {finding.arm.change} it takes {ratio} times as long [{finding.low:.3f}, "
        f"{finding.high:.3f}]"
    )


def _best_words(finding: Finding, scale: Scale) -> str:
    count, best = len(finding.arm.retuned), f"{finding.best_ratio:.3f}"
    interval = (
        f" [{finding.best_low:.3f}, {finding.best_high:.3f}]"
        if finding.best_low is not None and finding.best_high is not None
        else ""
    )
    return (
        f"after {count} trials with the other values tuned again, the best with "
        f"{finding.arm.name} takes {best} times as long{interval if scale.is_measured else ''}"
    )


def counters_between(winner: Verdict, arm: Verdict) -> tuple[Counter, ...]:
    """Figures of both candidates that differ: the assembler's, and what their times show."""
    before, after = _figures(winner), _figures(arm)
    return tuple(
        Counter(name, before[name], after[name])
        for name in before
        if name in after
        and abs(after[name] - before[name])
        > CHANGED_SHARE * max(abs(before[name]), abs(after[name]))
    )


def _figures(verdict: Verdict) -> dict[str, float]:
    figures: dict[str, float] = {}
    ptxas = evidence_of(verdict.gates, PtxasEvidence)
    if ptxas is not None:
        figures = {
            "registers": ptxas.registers,
            "spilled bytes": ptxas.spill_bytes,
            "shared memory bytes": ptxas.smem_static_bytes + ptxas.smem_dynamic_bytes,
            "occupancy": ptxas.occupancy,
        }
    performance = evidence_of(verdict.gates, PerformanceEvidence)
    for kind in ("shared", "global") if performance is not None else ():
        assert performance is not None
        lines = [
            line
            for timing in performance.timings
            for line in timing.lines
            if line.is_shared == (kind == "shared")
        ]
        ideal = sum(
            line.wavefronts_ideal if line.is_shared else line.sectors_ideal for line in lines
        )
        if ideal:
            name = "bank-conflict factor" if kind == "shared" else "sectors per needed sector"
            figures[name] = sum(line.transactions for line in lines) / ideal
    return figures


def _counter_words(counters: Sequence[Counter]) -> str:
    return ", ".join(
        f"{each.name} {_figure(each.before)} -> {_figure(each.after)}" for each in counters
    )


def _figure(value: float) -> str:
    return f"{value:.0f}" if value == round(value) else f"{value:.3g}"

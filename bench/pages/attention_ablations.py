"""Tables of docs/attention.md about the winners' values, judged again from stored ablations."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from bench.gpu.attention_rows import WORKLOADS
from bench.gpu.winner_ablations import results_of, timed_points
from bench.pages.figures import interval
from bench.pages.sections import rows, table
from bench.results import Row
from greenfast.search.devices.facts import device
from greenfast.search.diagnose.ablation import Effect, Finding, Scale, judged
from greenfast.search.diagnose.ablation_points import Arm, TimedPoint, pooled_pairs
from greenfast.search.kernels.catalogue import REPOSITORY_TEMPLATES, Catalogue
from greenfast.search.space.space import Space
from greenfast.search.text import written

RESULT = "h200/winner_ablations"
NAMED = 3  # values named in a winner's row


@dataclass(frozen=True)
class Lesson:
    """One change of one value in one winner."""

    workload: str
    template: str
    finding: Finding

    @property
    def change(self) -> tuple[str, str, str, str]:
        arm = self.finding.arm
        along = (f" with {name}={written(value)}" for name, value in arm.along)
        after = written(arm.after) + "".join(along)
        return self.template, arm.parameter, written(arm.before), after

    @property
    def ratio(self) -> float | None:
        """Time with the other value over the winner's, after tuning where that was done."""
        finding = self.finding
        return finding.best_ratio if finding.best_ratio is not None else finding.ratio

    @property
    def ends(self) -> list[float | None]:
        finding = self.finding
        if finding.best_ratio is not None:
            return [finding.best_low, finding.best_high]
        return [finding.low, finding.high]


def lessons_of(row: Row) -> list[Lesson]:
    """Every change that was measured for one winner, with the pairs of its stored search."""
    scale = Scale("measured", 1.0, row["comparisons"])
    kernel = Catalogue([REPOSITORY_TEMPLATES]).kernel("attention")
    compiled = kernel.workload(row["workload"]).compile_time(kernel)
    space = Space(kernel.template(row["template"]), compiled, device("h200"))
    points = [
        TimedPoint("", parameters, us, row["workload"])
        for us, parameters in timed_points(row["workload"], space)
    ]
    lessons = []
    for result in results_of(row).values():
        arm = Arm(result.parameter, result.before, result.after, result.kind, ())
        finding = judged(result, scale, pooled_pairs(arm, points))
        lessons.append(Lesson(row["workload"], row["template"], finding))
    return lessons


def stored_lessons() -> list[list[Lesson]]:
    """By winner, in the order of the page's tables."""
    by_workload = {row["workload"]: row for row in rows(RESULT)}
    ordered = [name for name in WORKLOADS if name in by_workload]
    return [lessons_of(by_workload[name]) for name in ordered]


def ablated_winners(
    winners: Callable[[], Sequence[Sequence[Lesson]]] = stored_lessons,
) -> str:
    """A row for each winner: how its changes came out, and which of its values matter most."""
    lines = []
    for lessons in winners():
        if not lessons:
            continue
        counts = [sum(lesson.finding.effect is effect for lesson in lessons) for effect in Effect]
        lines.append((lessons[0].workload, len(lessons), *counts, _named(lessons)))
    return table(
        (
            "winner of",
            "changes",
            "helps",
            "no effect",
            "hurts",
            "unclear",
            "values that matter most: time with another value / the winner's",
        ),
        lines,
    )


def _named(lessons: Iterable[Lesson]) -> str:
    helping = [
        lesson
        for lesson in lessons
        if lesson.finding.effect is Effect.HELPS and lesson.ratio is not None
    ]
    helping.sort(key=lambda lesson: -(lesson.ratio or 0.0))
    strongest: dict[str, Lesson] = {}
    for lesson in helping:
        strongest.setdefault(lesson.finding.arm.parameter, lesson)
    return "; ".join(
        f"`{lesson.finding.arm.parameter}={written(lesson.finding.arm.before)}` "
        f"({lesson.ratio:.3f} with {written(lesson.finding.arm.after)})"
        for lesson in list(strongest.values())[:NAMED]
    )


def value_lessons(
    winners: Callable[[], Sequence[Sequence[Lesson]]] = stored_lessons,
) -> str:
    """A row for each change of one value, over all winners in which it was measured."""
    by_change: dict[tuple[str, str, str, str], list[Lesson]] = defaultdict(list)
    for lessons in winners():
        for lesson in lessons:
            if lesson.ratio is not None:
                by_change[lesson.change].append(lesson)
    lines = [_value_line(change, by_change[change]) for change in sorted(by_change)]
    return table(
        (
            "template",
            "winners' value",
            "changed to",
            "helps",
            "no effect",
            "hurts",
            "unclear",
            "least and largest time ratio",
        ),
        lines,
    )


def _value_line(change: tuple[str, str, str, str], lessons: Sequence[Lesson]) -> tuple[object, ...]:
    template, parameter, before, after = change
    counts = [sum(lesson.finding.effect is effect for lesson in lessons) for effect in Effect]
    ordered = sorted(lessons, key=lambda lesson: lesson.ratio or 0.0)
    ends = [ordered[0], ordered[-1]] if len(ordered) > 1 else ordered
    figures = "; ".join(
        f"{lesson.ratio:.3f} {interval(lesson.ends)} {lesson.workload}" for lesson in ends
    )
    return f"`{template}`", f"`{parameter}={before}`", f"`{after}`", *counts, figures


SECTIONS = {"ablations": ablated_winners, "values": value_lessons}

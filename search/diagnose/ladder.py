"""A ladder of features: from a correct preset to a wrong candidate, one parameter a step.

The first step that fails names the value that the candidate cannot have.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from greenfast.search.diagnose.ablation_points import differs_in
from greenfast.search.errors import Fault, GreenfastError
from greenfast.search.gates.correctness import CorrectnessGate
from greenfast.search.gates.safety import SafetyGate
from greenfast.search.kernels.expressions import Value
from greenfast.search.kernels.workloads import Items
from greenfast.search.loop.evaluate import EvaluationContext, prepare
from greenfast.search.space.candidate import (
    Candidate,
    Origin,
    OriginKind,
    complete_parameters,
    preset_candidate,
)
from greenfast.search.space.space import Space
from greenfast.search.text import written
from greenfast.search.verdict import Failed, Rejected, Stage

MOST_RUNGS = 24
MOST_PRESETS = 2  # tried as a start
RIGHT, WRONG = "right", "wrong"


@dataclass(frozen=True)
class Rung:
    """One step: the parameters that changed, and whether the point is still correct."""

    changed: tuple[str, ...]  # name=value
    parameters: Items
    outcome: str  # RIGHT | WRONG
    stage: str = ""
    reason: str = ""
    sentence: str = ""


@dataclass(frozen=True)
class Ladder:
    """`start`: the preset it begins with. Empty rungs: there is no way, for the reason in why."""

    start: str
    rungs: tuple[Rung, ...]
    why: str = ""

    @property
    def first_failing(self) -> Rung | None:
        return next((rung for rung in self.rungs if rung.outcome == WRONG), None)

    @property
    def sentence(self) -> str:
        if self.why:
            return self.why
        failing = self.first_failing
        if failing is None:
            return (
                f"every point between {self.start} and the candidate passed here, the candidate "
                "included: the failure is not repeated in each run"
            )
        before = len(self.rungs[: self.rungs.index(failing)])
        steps = "1 step passes" if before == 1 else f"{before} steps pass"
        return (
            f"from {self.start}, which is correct, {steps}; the first that fails sets "
            f"{', '.join(failing.changed)} ({failing.stage}: {failing.reason})"
        )


Judge = Callable[[Items], Rung]


def climb(
    context: EvaluationContext, candidate: Candidate, failing: tuple[str, ...], stage: str
) -> Ladder:
    """Walk from the nearest correct preset to the candidate.

    `failing`: names of the checks that failed; points are judged on these. `stage`: where the
    candidate failed. Fault for our own failures.
    """
    template = context.kernel.template(candidate.template)
    space = Space(template, context.compiled, context.target.device)
    judge = _judge(context, candidate, failing, stage)
    wrong: list[str] = []
    for name, start in _presets(space, candidate.parameters)[:MOST_PRESETS]:
        label = f"{template.name}:{name}"
        if start == candidate.parameters:
            return Ladder(label, (), f"the candidate is the preset {label} itself")
        if judge(start).outcome == WRONG:
            wrong.append(label)
            continue
        rungs: list[Rung] = []
        for changed, point in steps(space, start, candidate.parameters):
            rungs.append(replace(judge(point), changed=changed))
            if rungs[-1].outcome == WRONG or len(rungs) == MOST_RUNGS:
                break
        return Ladder(label, tuple(rungs))
    if wrong:
        return Ladder(
            "",
            (),
            f"{' and '.join(wrong)} fail the same checks, so the mistake is in what all points of "
            f"the template {template.name} share, and not in a value",
        )
    return Ladder("", (), f"template {template.name} has no valid preset to begin with")


def _presets(space: Space, parameters: Items) -> list[tuple[str, Items]]:
    """The valid presets, those with the fewest differences first."""
    points = []
    for preset in space.template.presets:
        try:
            point = preset_candidate(space.template, preset.name, space.compiled).parameters
        except GreenfastError:  # the preset is for other compile-time values
            continue
        if space.why_not(point) is None:
            points.append((preset.name, point))
    return sorted(points, key=lambda pair: len(differs_in(space.template, pair[1], parameters)))


def steps(space: Space, start: Items, goal: Items) -> Iterator[tuple[tuple[str, ...], Items]]:
    """Valid points from `start` to `goal`, each with its changes: one parameter if possible.

    If no single change is valid, the smallest group of the remaining ones is changed at once.
    """
    template, target, at = space.template, dict(goal), start
    while remaining := list(differs_in(template, at, goal)):
        following = None
        for count in range(1, len(remaining) + 1):
            following = _following(space, at, target, remaining, count)
            if following is not None:
                break
        assert following is not None, "the goal itself is valid"
        names, point = following
        if point == at:
            return
        yield tuple(f"{name}={written(target[name])}" for name in names), point
        at = point


def _following(
    space: Space, at: Items, target: dict[str, Value], remaining: list[str], count: int
) -> tuple[tuple[str, ...], Items] | None:
    """The first valid point that changes `count` of the remaining parameters, in their order."""
    for first in range(len(remaining) - count + 1):
        names = tuple(remaining[first : first + count])
        values = {**dict(at), **{name: target[name] for name in names}}
        point = complete_parameters(space.template, values, space.compiled)
        fewer = len(differs_in(space.template, point, tuple(target.items()))) < len(remaining)
        if fewer and space.why_not(point) is None:
            return names, point
    return None


def _judge(
    context: EvaluationContext, candidate: Candidate, failing: tuple[str, ...], stage: str
) -> Judge:
    checks = tuple(check for check in context.kernel.checks if check.name in failing)
    if checks:
        kernel = replace(context.kernel, checks=checks)
        context = replace(context, kernel=kernel, workloads=(), sizes_secret=None)
    context = replace(context, siblings=None)

    def judge(parameters: Items) -> Rung:
        point = Candidate(
            candidate.kernel, candidate.template, parameters, Origin(OriginKind.SEEDED)
        )
        subject = prepare(point, context, with_cubin=context.target.measures)
        if isinstance(subject, Rejected):
            return Rung((), parameters, WRONG, subject.stage, subject.reason, subject.sentence)
        result = CorrectnessGate().judge(subject)
        if isinstance(result, Failed):
            return Rung((), parameters, WRONG, Stage.CORRECTNESS, result.reason, result.sentence)
        if stage == Stage.SAFETY:
            safety = SafetyGate().judge(subject)
            if isinstance(safety, Failed):
                return Rung((), parameters, WRONG, Stage.SAFETY, safety.reason, safety.sentence)
        if context.stop.is_set():
            raise Fault("the ladder was stopped", code="interrupted")
        return Rung((), parameters, RIGHT)

    return judge

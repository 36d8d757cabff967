"""Ablations of winners: run, stored arm by arm, and read again."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from greenfast.app.views.ablation_schemas import (
    AblationOut,
    CounterOut,
    FindingOut,
    MeasurementOut,
    PooledOut,
)
from greenfast.app.views.ledger_scope import searches_of_scope
from greenfast.app.views.trial_names import best_number
from greenfast.app.wiring import Services
from greenfast.db import convert
from greenfast.db.ledger import Note, NoteKind
from greenfast.search.diagnose.ablation import (
    FAMILY_CONFIDENCE,
    Ablation,
    ArmResult,
    Effect,
    Finding,
    Measurement,
    Scale,
    begin,
    effect_of,
    judged,
    measured_arm,
)
from greenfast.search.diagnose.ablation_points import (
    FEATURE,
    Arm,
    Pooled,
    TimedPoint,
    arms_of,
    pooled_pairs,
)
from greenfast.search.diagnose.defaults import RETUNED
from greenfast.search.errors import UsageError
from greenfast.search.kernels.workloads import Items
from greenfast.search.loop.plan import SearchPlan
from greenfast.search.verdict import CORRECT, Trial, performance_of

if TYPE_CHECKING:
    from greenfast.db.rows import TrialRow
    from greenfast.db.store import Store

PAGE = 500
HEAD = ""  # the name of the note that describes the ablation
MOST_POINTS = 20_000


@dataclass(frozen=True)
class AblationHead:
    """The facts at the start of an ablation."""

    candidate_digest: str
    arms: tuple[str, ...]  # names, in order
    comparisons: int
    retune: int
    time_kind: str
    band: float
    environment: tuple[tuple[str, str], ...]

    @property
    def scale(self) -> Scale:
        return Scale(self.time_kind, self.band, self.comparisons)


def run_ablation(
    services: Services,
    search_id: str,
    number: int | None = None,
    *,
    retune: int = RETUNED,
    fresh: bool = False,
    say: Callable[[str], None] = lambda text: None,
    go_on: Callable[[], bool] = lambda: True,
) -> AblationOut:
    """Measure what is missing of a winner's ablation, and return all of it.

    Each arm is stored when it is measured, so an interrupted ablation continues where it stopped.
    Features come before numbers; none begins after `go_on` was false.
    """
    store = services.store
    number = best_number(store, search_id) if number is None else number
    trial = _correct(store, search_id, number)
    plan, catalogue = store.plan(search_id), services.catalogue_of(search_id)
    context = replace(
        services.context(plan, catalogue),
        mode=plan.mode,
        weights=dict(zip(plan.workloads, plan.weights, strict=False)),
    )
    space = context.target.space(context.kernel.template(trial.candidate.template), plan.compiled)
    arms = arms_of(space, trial.candidate.parameters)
    try:
        context.target.prepare()
        ablation = begin(context, trial.candidate, space)
        head = _head(services, ablation, trial, arms, retune)
        known = _continued(store, search_id, number, head, fresh)
        earlier = tuple(point.parameters for point in sorted_points(store, search_id, trial))
        for arm in sorted(arms, key=lambda arm: arm.kind != FEATURE):
            old = known.get(arm.name)
            if old is not None and not _is_to_tune(old, head):
                continue
            if not go_on():
                break
            result = measured_arm(
                ablation, arm, head.scale, earlier, retune, _measure(ablation, old)
            )
            if result == old:
                continue
            note = convert.value_json("arm", result)
            store.note(search_id, number, NoteKind.ARM, note, name=arm.name)
            say(judged(result, head.scale).sentence)
    finally:
        services.give_back_gpus()
    ablated = stored_ablation(store, search_id, number)
    assert ablated is not None
    return ablated


def _is_to_tune(result: ArmResult, head: AblationHead) -> bool:
    """Whether a stored arm matters and its other values were not tuned again."""
    effect = effect_of(result.alone, head.scale)
    return head.retune > 0 and not result.retuned and effect in (Effect.HELPS, Effect.HURTS)


def _measure(ablation: Ablation, old: ArmResult | None) -> Callable[[Items], Measurement]:
    """Measures points; the arm's own is taken from what is stored."""
    alone = old.alone if old is not None else None

    def measure(point: Items) -> Measurement:
        if alone is not None and point == alone.parameters:
            return alone
        return ablation.measure(point)

    return measure


def _correct(store: Store, search_id: str, number: int) -> Trial:
    trial = store.recorded(search_id, number)
    row = store.trial(search_id, number)
    if trial is None or row.verdict not in CORRECT:
        raise UsageError(
            f"trial {number} of search {search_id} is not correct, so there is nothing to ablate",
            code="not_correct",
            mend="`greenfast explain` examines wrong trials",
        )
    return trial


def _head(
    services: Services, ablation: Ablation, trial: Trial, arms: Iterable[Arm], retune: int
) -> AblationHead:
    evidence = performance_of(ablation.verdict)
    timings = evidence.timings if evidence is not None else ()
    kind = str(timings[0].time_kind) if timings else "modelled"
    names = tuple(arm.name for arm in arms)
    environment = services.environment(ablation.context)
    return AblationHead(
        trial.candidate.digest,
        names,
        sum(not arm.refused for arm in arms),
        retune,
        kind,
        evidence.band if evidence is not None else 1.0,
        tuple(sorted((name, str(value)) for name, value in environment.items())),
    )


def _continued(
    store: Store, search_id: str, number: int, head: AblationHead, fresh: bool
) -> dict[str, ArmResult]:
    """The arms that are measured already; an ablation begun elsewhere is begun again."""
    notes = store.notes(search_id, NoteKind.ARM, number)
    stored = _head_of(notes)
    if stored is not None and not fresh and replace(stored, retune=head.retune) == head:
        if stored.retune < head.retune:
            store.note(search_id, number, NoteKind.ARM, convert.value_json("head", head), name=HEAD)
        return {
            note.name: convert.value_of("arm", ArmResult, note.note)
            for note in notes
            if note.name != HEAD
        }
    if notes:
        store.forget_notes(search_id, number, NoteKind.ARM)
    note = convert.value_json("head", head)
    store.note(search_id, number, NoteKind.ARM, note, name=HEAD)
    return {}


def _head_of(notes: Iterable[Note]) -> AblationHead | None:
    note = next((note for note in notes if note.name == HEAD), None)
    return convert.value_of("head", AblationHead, note.note) if note else None


def stored_ablation(store: Store, search_id: str, number: int | None = None) -> AblationOut | None:
    """The ablation of a trial, of the newest one where no trial is named; None without any."""
    notes = store.notes(search_id, NoteKind.ARM, number)
    heads = [note for note in notes if note.name == HEAD]
    if not heads:
        return None
    number = heads[-1].number
    notes = tuple(note for note in notes if note.number == number)
    head = _head_of(notes)
    assert head is not None
    results = {
        note.name: convert.value_of("arm", ArmResult, note.note)
        for note in notes
        if note.name != HEAD
    }
    trial = store.recorded(search_id, number)
    assert trial is not None
    points = scope_points(store, search_id, trial)
    findings = [
        judged(results[name], head.scale, _pooled(results[name], points))
        for name in head.arms
        if name in results
    ]
    return AblationOut(
        search_id=search_id,
        number=number,
        time_kind=head.time_kind,
        band=head.band,
        comparisons=head.comparisons,
        confidence=FAMILY_CONFIDENCE,
        complete=len(findings) == len(head.arms),
        environment=dict(head.environment),
        caveats=caveats(store, search_id, number, head, store.plan(search_id)),
        summary=summary(findings, head),
        findings=[_finding_out(finding) for finding in findings],
        recorded_at=max(note.recorded_at for note in notes),
    )


def caveats(
    store: Store, search_id: str, number: int, head: AblationHead, plan: SearchPlan
) -> list[str]:
    """The limits of what the ablation shows."""
    sentences = []
    if head.time_kind != "measured":
        sentences.append(
            f"Times are {head.time_kind}, not measured. Differences below a factor of "
            f"{head.band:g} are not judged: such changes are unclear."
        )
    else:
        sentences.append(
            "Each arm was timed in one process. Intervals are widened by what one process can be "
            "off (0.8 % standard deviation), and hold together for all arms."
        )
        confirmation = store.confirmation(search_id)
        if (
            confirmation is None
            or confirmation.confirmation.trial != number
            or not confirmation.confirmation.confirmed
        ):
            sentences.append(
                f"Trial {number} is not confirmed in fresh processes: that it is the best is not "
                "certain, and the effects are those of its values, not of the best design."
            )
    sentences.append(
        f"The effects hold for {', '.join(plan.workloads)} on {plan.target}, and for the winner's "
        "other values."
    )
    return sentences


def summary(findings: Iterable[Finding], head: AblationHead) -> str:
    """One sentence on the whole ablation."""
    rows = list(findings)
    counts = {effect: sum(row.effect is effect for row in rows) for effect in Effect}
    helps = sorted(
        (row for row in rows if row.effect is Effect.HELPS),
        key=lambda row: -(row.best_ratio or row.ratio or 0.0),
    )
    wrong = sum(row.arm.alone is not None and row.arm.alone.verdict == "rejected" for row in rows)
    first = (
        f"Of {len(head.arms)} changes of one value, {counts[Effect.HELPS]} make the winner slower, "
        f"{counts[Effect.HURTS]} faster, {counts[Effect.NO_EFFECT]} change nothing, and "
        f"{counts[Effect.UNCLEAR]} are unclear"
    )
    first += f" ({wrong} of them are not correct)." if wrong else "."
    if helps:
        named = ", ".join(
            f"{row.arm.parameter} ({(row.best_ratio or row.ratio):.3f} times with {row.arm.name})"
            for row in helps[:3]
        )
        first += f" What matters most: {named}."
    return first


def scope_points(store: Store, search_id: str, trial: Trial) -> list[TimedPoint]:
    """Correct, timed trials of the winner's template in its scope."""
    points: list[TimedPoint] = []
    for name in searches_of_scope(store, search_id):
        for row in each_trial(store, name):
            if row.template != trial.candidate.template or row.verdict is None:
                continue
            ratio = row.ratio_to_baseline or (1.0 if row.is_baseline else None)
            timed = ratio if ratio is not None else row.time_median_us
            if timed and (row.verdict in CORRECT or row.stage == "performance"):
                parameters: Items = tuple(row.parameters.items())
                points.append(TimedPoint(f"{name}/{row.number}", parameters, timed, name))
        if len(points) >= MOST_POINTS:
            break
    return points


def sorted_points(store: Store, search_id: str, trial: Trial) -> list[TimedPoint]:
    """The same, the fastest first."""
    return sorted(scope_points(store, search_id, trial), key=lambda point: point.ratio)


def each_trial(store: Store, search_id: str) -> Iterable[TrialRow]:
    cursor = None
    while True:
        page = store.trials(search_id, limit=PAGE, cursor=cursor)
        yield from page.items
        cursor = page.next_cursor
        if cursor is None:
            return


def _pooled(result: ArmResult, points: list[TimedPoint]) -> Pooled | None:
    arm = Arm(result.parameter, result.before, result.after, result.kind, ())
    return pooled_pairs(arm, points)


def _finding_out(finding: Finding) -> FindingOut:
    arm = finding.arm
    return FindingOut(
        parameter=arm.parameter,
        before=arm.before,
        after=arm.after,
        along=dict(arm.along),
        kind=arm.kind,
        effect=str(finding.effect),
        sentence=finding.sentence,
        refused=arm.refused,
        ratio=finding.ratio,
        ratio_low=finding.low,
        ratio_high=finding.high,
        best_ratio=finding.best_ratio,
        best_low=finding.best_low,
        best_high=finding.best_high,
        pooled=PooledOut.model_validate(finding.pooled) if finding.pooled else None,
        alone=_measurement_out(arm.alone) if arm.alone else None,
        retuned=[_measurement_out(each) for each in arm.retuned],
    )


def _measurement_out(measured: Measurement) -> MeasurementOut:
    return MeasurementOut(
        parameters=dict(measured.parameters),
        source_digest=measured.source_digest,
        verdict=measured.verdict,
        stage=measured.stage,
        reason=measured.reason,
        sentence=measured.sentence,
        ratio=measured.ratio,
        time_us=measured.time_us,
        winner_us=measured.winner_us,
        blocks=len(measured.log_ratios),
        counters=[CounterOut.model_validate(counter) for counter in measured.counters],
    )

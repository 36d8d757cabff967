"""Reports: a search or a tuning as a lab note that anybody can recompute from the store."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from datetime import UTC, datetime

from greenfast.app.views.ablation_schemas import AblationOut
from greenfast.app.views.ablations import each_trial, stored_ablation
from greenfast.app.views.confirmations import confirmation_out, peer_out, ranked
from greenfast.app.views.designs import Designs
from greenfast.app.views.importances import importances
from greenfast.app.views.ledger_memory import Reuse, reused_trials
from greenfast.app.views.negatives import ThemeOut, themes_of
from greenfast.app.views.progress import beats_baseline, standing_of
from greenfast.app.views.report_schemas import (
    CitedTrialOut,
    PointOut,
    QuestionOut,
    ReportOut,
    SearchReportOut,
    StageOut,
)
from greenfast.app.views.report_state import fault_counts, state_sentence
from greenfast.app.views.schemas import FunnelStep
from greenfast.app.views.start import start_of
from greenfast.app.views.trial_names import search_named
from greenfast.app.wiring import Services
from greenfast.db.rows import ConfirmationRow, SearchRow, TrialRow
from greenfast.db.store import Store
from greenfast.search.diagnose.explanation import EXPLAINED
from greenfast.search.errors import UsageError
from greenfast.search.gates.version import CHECKS
from greenfast.search.loop.plan import SearchPlan
from greenfast.search.loop.spending import is_budget_spent
from greenfast.search.shipped import own_version
from greenfast.search.status import SearchStatus
from greenfast.search.text import written
from greenfast.search.verdict import CORRECT, VerdictName

MOST_STEPS = 12
MOST_MISSES = 4  # trials that were rejected only for their time, the fastest of them
TUNING_PREFIX = "t_"


def report_of(services: Services, name: str) -> ReportOut:
    """The report of a search, or of a tuning by its id; UsageError for an unknown name."""
    store = services.store
    if name.startswith(TUNING_PREFIX):
        tuning = store.tuning(name)
        ids = [search.id for search in tuning.searches]
        title = f"{tuning.name}: {len(ids)} {'search' if len(ids) == 1 else 'searches'}"
    else:
        ids = [search_named(store, name)]
        title = store.search(ids[0]).name
    return ReportOut(
        title=title,
        searches=[search_report(services, search_id) for search_id in ids],
        version=own_version(),
        created_at=datetime.now(UTC).isoformat(timespec="seconds").replace("+00:00", "Z"),
    )


def search_report(services: Services, search_id: str) -> SearchReportOut:
    """The report of one search, read from the store now."""
    store = services.store
    row, plan = store.search(search_id), store.plan(search_id)
    trials = [trial for trial in each_trial(store, search_id) if trial.verdict is not None]
    best = store.best(search_id)
    base = next((trial for trial in trials if trial.is_baseline), None)
    counts, confirmation = store.counts(search_id), store.confirmation(search_id)
    ablation = stored_ablation(store, search_id)
    themes = themes_of(store, search_id, trials)
    stages = list(_stages(services, plan, trials, best))
    kept = reused_trials(store, search_id)
    report = importances(store, search_id, trials[::-1])
    band = max((trial.time_band or 1.0 for trial in trials), default=1.0)
    return SearchReportOut(
        id=search_id,
        name=row.name,
        status=row.status,
        kernel=row.kernel,
        state=state_sentence(row),
        question=_question(store, row, plan, best, base),
        setup=list(_setup(store, row, plan, trials)),
        trials=len(trials),
        reused=len(kept),
        time_kind=row.time_kind or "",
        band=band,
        funnel=[
            FunnelStep(stage=stage, reached=reached, passed=passed)
            for stage, reached, passed in counts.funnel
        ],
        by_reason=counts.by_reason,
        faulted=fault_counts(trials),
        stages=stages,
        winner=best.number if best is not None else None,
        winner_sentence=_winner(store, row, best, base),
        confirmation=confirmation_out(confirmation) if confirmation else None,
        peers=ranked([peer_out(peer) for peer in store.peers(search_id)]),
        ablation=ablation,
        themes=themes,
        importances=report.templates,
        next_steps=list(next_steps(services, row, trials, best, ablation, themes)),
        points=[
            PointOut(number=point.number, time_us=point.time_median_us, best_us=point.best_us)
            for point in store.best_so_far(search_id)
        ],
        cited=_cited(trials, stages, themes, best, ablation, kept, compared_trials(confirmation)),
    )


def _question(
    store: Store,
    row: SearchRow,
    plan: SearchPlan,
    best: TrialRow | None,
    base: TrialRow | None,
) -> QuestionOut:
    templates = ", ".join(row.templates)
    sentence = (
        f"Which candidate of {row.kernel} ({templates}) is the fastest correct one for "
        f"{', '.join(row.workloads)} on {row.target}?"
    )
    ratio = best.ratio_to_baseline if best is not None and not best.is_baseline else None
    return QuestionOut(
        sentence=sentence,
        hypothesis=plan.hypothesis,
        expected_gain=plan.expected_gain,
        gain=1 - ratio if ratio is not None else None,
        cost=plan.cost,
        answer=_answer(store, row, plan, best, base),
    )


def _answer(
    store: Store,
    row: SearchRow,
    plan: SearchPlan,
    best: TrialRow | None,
    base: TrialRow | None,
) -> str:
    if best is None:
        return "No candidate was correct, so there is no answer yet."
    if best.is_baseline:
        return "No candidate was faster than the baseline."
    if base is None or best.ratio_to_baseline is None:
        return f"Trial {best.number} is the fastest correct one. There is no baseline to compare."
    gain = f"{1 - best.ratio_to_baseline:.1%}"
    kind = best.time_kind or ""
    if not beats_baseline(store, row, best):
        close = (
            f" {kind.capitalize()} times within a factor of {best.time_band:g} cannot be "
            "distinguished."
            if kind != "measured" and best.time_band
            else ""
        )
        answer = f"No candidate has been shown to be faster than the baseline.{close}"
    else:
        answer = f"Trial {best.number} gains {gain} of the baseline's {kind} time."
    if plan.expected_gain is not None:
        answer += f" The expected gain was {plan.expected_gain:.1%}; the {kind} one is {gain}."
    return answer


def _setup(
    store: Store, row: SearchRow, plan: SearchPlan, trials: list[TrialRow]
) -> Iterator[tuple[str, str]]:
    yield "kernel", f"{row.kernel}, files {plan.kernel_digest[:12]}"
    yield "workloads", ", ".join(row.workloads)
    yield "templates", ", ".join(row.templates)
    yield "target", row.target
    yield "strategy", f"{row.strategy}, seed {row.seed}"
    yield "start", start_of(plan)
    yield "baseline", row.baseline
    environment = store.trial(row.id, trials[-1].number).environment if trials else {}
    for name in ("device", "gpu", "driver", "toolchain", "greenfast", CHECKS):
        if environment.get(name):
            yield name, environment[name]
    yield "times", f"{row.time_kind or 'none'}{f', {row.time_mode}' if row.time_mode else ''}"
    yield "spent", f"{row.spent_s:.0f} s over {len(trials)} trials"


def _stages(
    services: Services, plan: SearchPlan, trials: list[TrialRow], best: TrialRow | None
) -> Iterator[StageOut]:
    """The baseline, the presets, each trial that became the best, near misses, and the winner."""
    designs = Designs(services.catalogue, plan.kernel, plan.compiled)
    roles: dict[int, str] = {}
    for trial in trials:
        if trial.is_baseline:
            roles[trial.number] = "baseline"
        elif trial.preset:
            roles.setdefault(trial.number, "preset")
    steps = list(_steps(trials))
    for number in steps[-MOST_STEPS:]:
        roles.setdefault(number, "step")
    for number in _misses(trials):
        roles.setdefault(number, "near miss")
    if best is not None and not best.is_baseline:
        roles[best.number] = "winner"
    for trial in trials:
        role = roles.get(trial.number)
        if role is None:
            continue
        rejected = trial.verdict == VerdictName.REJECTED
        yield StageOut(
            number=trial.number,
            role=role,
            design=str(designs.of(trial.template, trial.parameters)),
            verdict=trial.verdict or "",
            status=f"{trial.stage}: {trial.reason}" if rejected else str(trial.verdict),
            time_us=trial.time_median_us,
            ratio=trial.ratio_to_baseline,
            registers=trial.registers,
            spill_bytes=trial.spill_bytes,
            smem_bytes=trial.smem_bytes,
            finding=trial.finding if rejected else "",
        )


def _steps(trials: Iterable[TrialRow]) -> Iterator[int]:
    """The numbers of the correct trials that became the best when they were recorded."""
    best = float("inf")
    for trial in trials:
        if trial.verdict in CORRECT and trial.time_median_us and trial.time_median_us < best:
            best = trial.time_median_us
            yield trial.number


def _misses(trials: Iterable[TrialRow]) -> list[int]:
    """Trials rejected for their time only, the fastest first."""
    slow = [
        trial
        for trial in trials
        if trial.verdict == VerdictName.REJECTED
        and trial.stage == "performance"
        and trial.ratio_to_baseline is not None
    ]
    ordered = sorted(slow, key=lambda trial: trial.ratio_to_baseline or 0.0)
    return [trial.number for trial in ordered[:MOST_MISSES]]


def _winner(store: Store, row: SearchRow, best: TrialRow | None, base: TrialRow | None) -> str:
    if best is None:
        return "There is no correct candidate."
    if best.is_baseline:
        return "The baseline is the fastest correct candidate."
    parts = [standing_of(store, best)]
    if best.time_kind == "measured" and store.confirmation(row.id) is None:
        parts.append("It was not timed again in fresh processes.")
    if base is not None and best.ratio_to_baseline is not None:
        parts.append(f"Its time is {best.ratio_to_baseline:.3f} of the baseline's.")
    return " ".join(filter(None, parts))


def next_steps(
    services: Services,
    row: SearchRow,
    trials: list[TrialRow],
    best: TrialRow | None,
    ablation: AblationOut | None,
    themes: list[ThemeOut],
) -> Iterator[str]:
    """Ideas to try next, each with its reason."""
    if best is None:
        yield from _without_a_correct_candidate(row, trials)
        yield from _going_on(row)
        return
    if row.time_kind != "measured":
        yield (
            f"Times are {row.time_kind}. Run the same search on the GPU (--target cuda:0) before "
            "anything is called faster."
        )
    elif services.store.confirmation(row.id) is None:
        yield f"Time the winner again in fresh processes: `greenfast confirm {row.id}`."
    if ablation is None:
        yield f"Measure the effect of each value of the winner: `greenfast ablate {row.id}`."
    else:
        for finding in ablation.findings:
            if finding.effect == "hurts":
                yield (
                    f"Try {finding.parameter}={written(finding.after)}: the ablation found it "
                    "faster than the winner's value."
                )
    if themes:
        values = ", ".join(
            " with ".join(f"{name}={written(value)}" for name, value in theme.values.items())
            for theme in themes[:3]
        )
        yield f"Leave out the values that never helped: {values}."
    if row.status == SearchStatus.COMPLETED and is_budget_spent(row.cause):
        yield (
            f"The space has untried points: `greenfast search --resume {row.id} --extend "
            f"{max(10, len(trials) // 2)}` continues it."
        )
    yield from _going_on(row)


def _without_a_correct_candidate(row: SearchRow, trials: list[TrialRow]) -> Iterator[str]:
    """The first wrong trial: explained where it ran, shown where it did not come so far."""
    rejected = [trial for trial in trials if trial.verdict == VerdictName.REJECTED]
    ran = next((trial for trial in rejected if trial.stage in EXPLAINED), None)
    if ran is not None:
        yield f"No candidate is correct. `greenfast explain {row.id}/{ran.number}` looks why."
    elif rejected:
        first = rejected[0]
        yield (
            f"No candidate came to run. `greenfast show {row.id}/{first.number}` has the whole "
            f"message of {first.stage}."
        )


def _going_on(row: SearchRow) -> Iterator[str]:
    """A search that stopped before its end can continue."""
    if row.status in (SearchStatus.PAUSED, SearchStatus.FAILED):
        yield f"The search stopped early: `greenfast search --resume {row.id}` continues it."


def compared_trials(confirmation: ConfirmationRow | None) -> set[int]:
    """The trials that the winner was timed against in fresh processes."""
    comparisons = confirmation.confirmation.comparisons if confirmation is not None else ()
    return {each.other_trial for each in comparisons if each.other_trial is not None}


def _cited(
    trials: list[TrialRow],
    stages: list[StageOut],
    themes: list[ThemeOut],
    best: TrialRow | None,
    ablation: AblationOut | None,
    kept: Mapping[int, Reuse],
    compared: Collection[int],
) -> list[CitedTrialOut]:
    """Every trial that the report names, in order."""
    numbers = {stage.number for stage in stages} | set(compared)
    numbers |= {theme.example for theme in themes}
    numbers |= {best.number} if best is not None else set()
    numbers |= {ablation.number} if ablation is not None else set()
    return [
        CitedTrialOut(
            number=trial.number,
            verdict=trial.verdict or "",
            template=trial.template,
            parameters=trial.parameters,
            time_us=trial.time_median_us,
            source_digest=trial.source_digest,
            repeats=_name(kept.get(trial.number)),
        )
        for trial in trials
        if trial.number in numbers
    ]


def _name(reuse: Reuse | None) -> str:
    return f"{reuse.search_id}/{reuse.number}" if reuse is not None else ""


def require_report(services: Services, name: str) -> ReportOut:
    """The report; UsageError `no_trials` for a search that has none yet."""
    report = report_of(services, name)
    if not any(search.trials for search in report.searches):
        raise UsageError(
            f"{name} has no recorded trial yet", code="no_trials", mend="wait for the first"
        )
    return report

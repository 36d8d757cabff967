"""`/searches/{id}/trials/{n}`: one candidate, its verdict, and the evidence for it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from fastapi import APIRouter, Request, Response
from fastapi.responses import PlainTextResponse

from greenfast.app.dashboard.annotations import counted_workload, notes_of
from greenfast.app.dashboard.highlight import cuda_lines
from greenfast.app.dashboard.page_ledger import explanation_of, known_of
from greenfast.app.dashboard.page_search import baseline_of, designs_of
from greenfast.app.dashboard.pages import PageRoute, render, services_of
from greenfast.app.views.designs import Design
from greenfast.app.views.next_steps import check_of_trial
from greenfast.app.views.probe_hint import probe_of
from greenfast.app.views.stage_times import SHOWN_FROM_S
from greenfast.app.views.submitting import author_record
from greenfast.db.rows import SearchRow, TrialDetail, TrialRow
from greenfast.db.store import Store
from greenfast.search.errors import GreenfastError, UsageError
from greenfast.search.kernels.catalogue import Catalogue
from greenfast.search.loop.stage_clock import Wait
from greenfast.search.text import abridged
from greenfast.search.verdict import Stage, VerdictName

LONGEST_LOG = 64_000  # characters
MOST_CHECKS = 400
MOST_LIMITS = 3  # named in words; the others are in the table
BEFORE_GATES = (Stage.RENDER, Stage.COMPILE)

router = APIRouter(route_class=PageRoute)


@dataclass(frozen=True)
class Setting:
    """A parameter of the candidate beside the baseline's."""

    name: str
    value: Any
    baseline: Any  # None: the baseline's template has no such parameter
    changed: bool
    doc: str
    numerics_same: bool


@dataclass(frozen=True)
class Cost:
    """The time of one resource, or the count of one class of instructions."""

    name: str
    value: float
    share: float  # of the largest value


@router.get("/searches/{search_id}/trials/{number}")
def trial_page(request: Request, search_id: str, number: int) -> Response:
    services = services_of(request)
    store = services.store
    search, trial = store.search(search_id), store.trial(search_id, number)
    baseline = baseline_of(store, search_id)
    counts = store.counts(search_id)
    source = store.source(trial.source_digest) if trial.source_digest else None
    design = designs_of(services, search).of(trial.template, trial.parameters)
    return render(
        "trial.html",
        {
            "search": search,
            "trial": trial,
            "baseline": baseline,
            "steps": early_steps(trial, bool(source)),
            "checks": ordered_checks(trial),
            "most_checks": MOST_CHECKS,
            "limits": costs(trial, "limits"),
            "mixes": costs(trial, "mix"),
            "most_limits": MOST_LIMITS,
            "settings": settings(services.catalogue, search.kernel, trial, baseline),
            "log": abridged(trial.log.replace("\r\n", "\n"), LONGEST_LOG),
            "parents": parents(store, trial),
            "submission": author_record(store, search_id, trial.template),
            "source": source,
            "lines": cuda_lines(source.text, notes_of(trial)) if source else None,
            "counted": counted_workload(trial),
            "design": design,
            "best": getattr(store.best(search_id), "number", None),
            "waited_s": waited_s(trial),
            "commands": commands(services.catalogue, search, trial, design),
            **explanation_of(services, search, trial),
            **known_of(services, trial),
            "previous": number - 1 if number > 0 else None,
            "next": number + 1 if number + 1 < counts.total + counts.running else None,
        },
    )


@router.get("/searches/{search_id}/trials/{number}/source.cu")
def source_file(request: Request, search_id: str, number: int) -> Response:
    """The source as a file; its name contains no text of the user's."""
    store = services_of(request).store
    trial = store.trial(search_id, number)
    if not trial.source_digest:
        raise UsageError(
            f"trial {number} has no source: its template did not render", code="unknown_source"
        )
    source = store.source(trial.source_digest)
    name = f"{source.kernel}_{source.template}_{source.digest[:12]}.cu"
    return PlainTextResponse(
        source.text, headers={"Content-Disposition": f'attachment; filename="{name}"'}
    )


def parents(store: Store, trial: TrialDetail) -> list[tuple[str, int | None]]:
    """(digest, number of the trial that tried it) of each parent; None: it is of another search."""
    numbers = store.numbers_of(trial.search_id, trial.parents) if trial.parents else {}
    return [(digest, numbers.get(digest)) for digest in trial.parents]


def waited_s(trial: TrialRow) -> float | None:
    """How long the trial waited; None if that is too short to show."""
    seconds = (trial.stage_seconds or {}).get(str(Wait.WAITING), 0.0)
    return seconds if seconds >= SHOWN_FROM_S else None


def commands(
    catalogue: Catalogue, search: SearchRow, trial: TrialDetail, design: Design
) -> list[tuple[str, str]]:
    """(purpose, command) of what shows more about a rejected candidate."""
    steps = []
    if probe := probe_of(catalogue, search, trial):
        steps.append(("To find the stage that goes wrong:", probe))
    if command := check_of_trial(search, trial, design):
        steps.append(("To look for races and bad accesses by line:", command))
    return steps


def early_steps(trial: TrialDetail, has_source: bool) -> list[dict[str, Any]]:
    """Rendering and compiling in the form of gates; a gate's result implies that both passed."""
    steps: list[dict[str, Any]] = []
    for stage in BEFORE_GATES:
        if trial.stage == stage:
            outcome = "failed" if trial.verdict == VerdictName.REJECTED else "fault"
            steps.append(_step(stage, outcome, trial.sentence, trial.reason))
            break
        if trial.gates or (stage is Stage.RENDER and has_source):
            steps.append(_step(stage, "passed"))
    return steps


def _step(
    stage: Stage, outcome: str, sentence: str = "", reason: str | None = None
) -> dict[str, Any]:
    return {"gate": str(stage), "outcome": outcome, "sentence": sentence, "reason": reason}


def ordered_checks(trial: TrialDetail) -> list[dict[str, Any]]:
    """Failed checks first, each group in the order in which it ran."""
    checks = trial.gates.get("correctness", {}).get("checks", ())
    return sorted(checks, key=lambda check: bool(check["passed"]))


def costs(trial: TrialDetail, kind: str) -> dict[str, list[Cost]]:
    """The `limits` or the `mix` of each timed workload, the largest first."""
    tables = {}
    for timing in trial.gates.get("performance", {}).get("timings", ()):
        values = sorted(timing.get(kind, {}).items(), key=lambda item: -item[1])
        largest = values[0][1] or 1.0 if values else 1.0
        tables[timing["workload"]] = [Cost(name, value, value / largest) for name, value in values]
    return tables


def settings(
    catalogue: Catalogue, kernel: str, trial: TrialRow, baseline: TrialRow | None
) -> list[Setting]:
    """Every parameter with the baseline's value and its description, changed ones first."""
    known = documented(catalogue, kernel, trial.template)
    base = baseline.parameters if baseline else {}
    rows = []
    for name, value in trial.parameters.items():
        doc, same = known.get(name, ("", False))
        changed = name in base and not trial.is_baseline and base[name] != value
        rows.append(Setting(name, value, base.get(name), changed, doc, same))
    return sorted(rows, key=lambda row: not row.changed)


def documented(catalogue: Catalogue, kernel: str, template: str) -> dict[str, tuple[str, bool]]:
    """(description, same numerics) by parameter; empty when the kernel or template is gone."""
    try:
        parameters = catalogue.kernel(kernel).template(template).parameters
    except GreenfastError:
        return {}
    return {parameter.name: (parameter.doc, parameter.numerics_same) for parameter in parameters}

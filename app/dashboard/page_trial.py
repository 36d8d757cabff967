"""`/searches/{id}/trials/{n}`: one candidate, its verdict, and everything that the verdict rests on."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from fastapi import APIRouter, Request, Response
from fastapi.responses import PlainTextResponse

from greenfast.app.dashboard.annotations import counted_workload, notes_of
from greenfast.app.dashboard.highlight import cuda_lines
from greenfast.app.dashboard.page_search import baseline_of
from greenfast.app.dashboard.pages import PageRoute, render, services_of
from greenfast.app.dashboard.words import shortened
from greenfast.app.views.probe_hint import probe_of
from greenfast.db.rows import TrialDetail, TrialRow
from greenfast.search.errors import GreenfastError, UsageError
from greenfast.search.kernels.catalogue import Catalogue
from greenfast.search.verdict import Stage

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
    """What one resource takes, or one class of instructions has, and its share of the largest."""

    name: str
    value: float
    share: float


@router.get("/searches/{search_id}/trials/{number}")
def trial_page(request: Request, search_id: str, number: int) -> Response:
    services = services_of(request)
    store = services.store
    search, trial = store.search(search_id), store.trial(search_id, number)
    baseline = baseline_of(store, search_id)
    counts = store.counts(search_id)
    source = store.source(trial.source_digest) if trial.source_digest else None
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
            "log": shortened(trial.log),
            "source": source,
            "lines": cuda_lines(source.text, notes_of(trial)) if source else None,
            "counted": counted_workload(trial),
            "probe": probe_of(services.catalogue, search, trial),
            "previous": number - 1 if number > 0 else None,
            "next": number + 1 if number + 1 < counts.total + counts.running else None,
        },
    )


@router.get("/searches/{search_id}/trials/{number}/source.cu")
def source_file(request: Request, search_id: str, number: int) -> Response:
    """The source as a file; its name is made of greenfast's own words only."""
    store = services_of(request).store
    trial = store.trial(search_id, number)
    if not trial.source_digest:
        raise UsageError(f"trial {number} has no source: rendering said no", code="unknown_source")
    source = store.source(trial.source_digest)
    name = f"{source.kernel}_{source.template}_{source.digest[:12]}.cu"
    return PlainTextResponse(
        source.text, headers={"Content-Disposition": f'attachment; filename="{name}"'}
    )


def early_steps(trial: TrialDetail, has_source: bool) -> list[dict[str, Any]]:
    """Rendering and compiling in the form of gates: a gate's result says that both went well."""
    found = []
    for stage in BEFORE_GATES:
        if trial.stage == stage:
            found.append(
                {
                    "gate": str(stage),
                    "outcome": "failed" if trial.verdict == "rejected" else "fault",
                    "sentence": trial.sentence,
                    "reason": trial.reason,
                }
            )
            break
        if trial.gates or (stage is Stage.RENDER and has_source):
            found.append({"gate": str(stage), "outcome": "passed", "sentence": "", "reason": None})
    return found


def ordered_checks(trial: TrialDetail) -> list[dict[str, Any]]:
    """Failed checks first, each group in the order in which it ran."""
    return sorted(
        trial.gates.get("correctness", {}).get("checks", ()), key=lambda one: one["passed"]
    )


def costs(trial: TrialDetail, which: str) -> dict[str, list[Cost]]:
    """For each timed workload its `limits` or its `mix`, the largest first."""
    found = {}
    for timing in trial.gates.get("performance", {}).get("timings", ()):
        values = sorted(timing.get(which, {}).items(), key=lambda item: -item[1])
        found[timing["workload"]] = [
            Cost(name, value, value / (values[0][1] or 1.0)) for name, value in values
        ]
    return found


def settings(
    catalogue: Catalogue, kernel: str, trial: TrialRow, baseline: TrialRow | None
) -> list[Setting]:
    """Every parameter with the baseline's value, changed ones first, and what its template says of it."""
    known = documented(catalogue, kernel, trial.template)
    base = baseline.parameters if baseline else {}
    found = []
    for name, value in trial.parameters.items():
        doc, same = known.get(name, ("", False))
        changed = bool(base) and not trial.is_baseline and base.get(name) != value
        found.append(Setting(name, value, base.get(name), changed, doc, same))
    return sorted(found, key=lambda one: not one.changed)


def documented(catalogue: Catalogue, kernel: str, template: str) -> dict[str, tuple[str, bool]]:
    """Doc and numerics by parameter; empty when the kernel's files are gone or changed since."""
    try:
        parameters = catalogue.kernel(kernel).template(template).parameters
    except GreenfastError:
        return {}
    return {parameter.name: (parameter.doc, parameter.numerics_same) for parameter in parameters}

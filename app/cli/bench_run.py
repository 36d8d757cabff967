"""Presets and stored trials, timed again side by side: the work of `greenfast bench`."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from greenfast.app.cli.trial_run import evaluated_report
from greenfast.app.views.designs import Designs
from greenfast.app.views.trial_names import TrialName, trial_named
from greenfast.app.wiring import Services
from greenfast.search.errors import UsageError
from greenfast.search.kernels.catalogue import Catalogue
from greenfast.search.kernels.spec import KernelSpec
from greenfast.search.loop.evaluate import EvaluationContext, evaluate, timings_of
from greenfast.search.loop.plan import NO_BASELINE, SearchPlan, SearchRequest
from greenfast.search.space.candidate import Candidate, preset_candidate
from greenfast.search.verdict import gate_result

JSON = dict[str, Any]


@dataclass(frozen=True)
class BenchRequest:
    """The candidates to time, as the command line names them."""

    names: tuple[str, ...]  # KERNEL/TEMPLATE:PRESET, SEARCH/NUMBER or SEARCH
    workloads: tuple[str, ...] = ()
    target: str | None = None
    seed: int | None = None
    repeat: int = 1
    mode: str | None = None


@dataclass(frozen=True)
class Stored:
    """A trial that is named, with the plan of its search."""

    name: TrialName
    plan: SearchPlan
    candidate: Candidate
    source_digest: str | None


@dataclass(frozen=True)
class Bench:
    """Everything to be timed, under one plan."""

    plan: SearchPlan
    context: EvaluationContext
    candidates: tuple[tuple[str, Candidate, str | None], ...]  # name, point, stored source
    designs: Designs
    repeat: int


def prepare_bench(services: Services, request: BenchRequest) -> Bench:
    """Resolve all names; UsageError if they are of different kernels or kernel files."""
    stored = {name: _stored(services, name) for name in request.names if not _is_preset(name)}
    presets = [name for name in request.names if name not in stored]
    kernels = {trial.plan.kernel for trial in stored.values()}
    kernels |= {name.partition("/")[0] for name in presets}
    if len(kernels) > 1:
        raise UsageError(
            f"the candidates are of different kernels: {', '.join(sorted(kernels))}",
            code="different_kernels",
            mend="time candidates of one kernel at a time",
        )
    if len({trial.plan.kernel_digest for trial in stored.values()}) > 1:
        raise UsageError(
            "the trials ran with different files of their kernel",
            code="different_kernels",
            mend="`greenfast compare` shows the times that are stored",
        )
    first = next(iter(stored.values()), None)
    catalogue = services.catalogue_of(first.name.search_id) if first else services.catalogue
    kernel = catalogue.kernel(kernels.pop())
    plan = _plan(services, request, catalogue, kernel, first.plan if first else None)
    context = services.context(plan, catalogue)
    candidates = tuple(
        (name, _of_preset(kernel, name, plan), None)
        if name in presets
        else (str(stored[name].name), stored[name].candidate, stored[name].source_digest)
        for name in request.names
    )
    if len({candidate.digest for _, candidate, _ in candidates}) < len(candidates):
        raise UsageError(
            "two of the names are the same candidate",
            code="repeated_candidate",
            mend="name each once; --repeat times it several times",
        )
    for _, candidate, _ in candidates:
        template = kernel.template(candidate.template)
        context.target.space(template, context.compiled).require(candidate.parameters)
    designs = Designs(catalogue, kernel.name, plan.compiled)
    return Bench(plan, context, candidates, designs, request.repeat)


def run_bench(bench: Bench, on_row: Callable[[JSON], None]) -> Iterator[JSON]:
    """A row for each candidate and round. The others are compared with the first."""
    bench.context.target.prepare()
    (_, baseline, _), *_ = bench.candidates
    against = replace(bench.context, baseline=baseline, mode=bench.plan.mode)
    for turn in range(bench.repeat):
        first = evaluate(baseline, bench.context)
        times = timings_of(first.verdict)
        for number, (name, candidate, digest) in enumerate(bench.candidates):
            done = first if number == 0 else evaluate(candidate, against, lambda t=times: t)  # type: ignore[misc]
            report = evaluated_report(done)
            performance = gate_result(done.verdict, "performance")
            interval = getattr(performance and performance.evidence, "ratio_interval", None)
            row = {
                "candidate": name,
                "design": str(bench.designs.of(candidate.template, candidate.values())),
                "round": turn + 1,
                "is_first": number == 0,
                **{key: value for key, value in report.items() if key != "gates"},
                "ratio_interval": list(interval) if interval else None,
                "band": report["gates"]["performance"].get("band"),
                "timings": [
                    {"workload": timing["workload"], "time_median_us": timing["time_median_us"]}
                    for timing in report["gates"]["performance"].get("timings", ())
                ],
                "same_source": None if digest is None else report["source_digest"] == digest,
            }
            on_row(row)
            yield row


def _is_preset(name: str) -> bool:
    return ":" in name


def _stored(services: Services, name: str) -> Stored:
    store = services.store
    subject = trial_named(store, name)
    assert subject.number is not None
    recorded = store.recorded(subject.search_id, subject.number)
    if recorded is None:
        raise UsageError(
            f"trial {subject} has no verdict yet", code="unknown_trial", mend="wait for it"
        )
    return Stored(
        subject, store.plan(subject.search_id), recorded.candidate, recorded.source_digest
    )


def _plan(
    services: Services,
    request: BenchRequest,
    catalogue: Catalogue,
    kernel: KernelSpec,
    of_search: SearchPlan | None,
) -> SearchPlan:
    templates = {name.partition("/")[2].partition(":")[0] for name in request.names if ":" in name}
    search = SearchRequest(
        kernel=kernel.name,
        workloads=request.workloads or (of_search.workloads if of_search else None),
        templates=tuple(sorted(templates)) or None,
        target=request.target or (of_search.target if of_search else None),
        trials=1,
        seed=request.seed,
        baseline=NO_BASELINE,
        mode=request.mode or (of_search.mode if of_search else None),
    )
    return services.plan(search, catalogue)


def _of_preset(kernel: KernelSpec, name: str, plan: SearchPlan) -> Candidate:
    template, preset = kernel.preset(name.partition("/")[2])
    return preset_candidate(template, preset.name, plan.compiled)


def exit_code(rows: Sequence[JSON]) -> int:
    """0: all are correct; 1: one is rejected; 3: a fault prevented a verdict."""
    verdicts = {str(row["verdict"]) for row in rows}
    if "faulted" in verdicts:
        return 3
    return 1 if "rejected" in verdicts else 0

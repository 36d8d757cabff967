"""`greenfast tune`: search for every workload of a file, and put what serves them in one bundle."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from greenfast.app.cli.files import require_folder, write_output
from greenfast.app.cli.options import AsJson, Output, Seed, Target, WorkloadFile, Workloads
from greenfast.app.cli.output import console, print_json, table
from greenfast.app.cli.resuming import refuse_settings
from greenfast.app.cli.search_options import (
    KernelArgument,
    ModeOption,
    NameOption,
    StrategyOption,
    TemplateOption,
)
from greenfast.app.cli.services import opened_services
from greenfast.app.views.terminal import say
from greenfast.app.views.trial_names import tuning_named
from greenfast.runtime.fallbacks import FALLBACK_WORDS, FALLBACKS, use_words
from greenfast.search.dispatch.table import DispatchGroup, DispatchTable, table_json
from greenfast.search.dispatch.within import DEFAULT_WITHIN_PERCENT
from greenfast.search.errors import UsageError
from greenfast.search.kernels.catalogue import Catalogue
from greenfast.search.kernels.workload_files import read_workloads
from greenfast.search.status import SearchStatus
from greenfast.search.verdict import TimeKind

if TYPE_CHECKING:
    from greenfast.app.service.worker import Stop
    from greenfast.app.wiring import Services
    from greenfast.db.rows import SearchRow, TuningRow

MODELLED = (
    "The times are modelled: within a factor of 2 they cannot be distinguished, so "
    "tune again on the GPU before you use the table."
)
TrialsOption = Annotated[
    int | None,
    typer.Option(
        "--trials",
        metavar="N",
        help="Try at most N candidates for each set of compile-time values. "
        "[default: 40, or none with --seconds or --gpu-seconds]",
    ),
]
SecondsOption = Annotated[
    float | None,
    typer.Option(
        "--seconds",
        metavar="S",
        help="For each set of compile-time values, start no trial after S seconds.",
    ),
]
GpuSecondsOption = Annotated[
    float | None,
    typer.Option(
        "--gpu-seconds",
        metavar="N",
        help="For each set of compile-time values, start no trial after the GPUs have worked for N "
        "seconds, summed over all GPUs.",
    ),
]
WithinOption = Annotated[
    float,
    typer.Option(
        "--within",
        metavar="PERCENT",
        help="Keep as few kernels as possible, each within PERCENT of the best on its workloads.",
    ),
]
ResumeOption = Annotated[
    str | None,
    typer.Option(
        "--resume",
        metavar="TUNING_ID",
        help="Continue an interrupted tuning here; `last` is the newest.",
    ),
]


def tune(
    context: typer.Context,
    kernel: KernelArgument = None,
    workload: Workloads = None,
    workloads: WorkloadFile = None,
    template: TemplateOption = None,
    target: Target = None,
    trials: TrialsOption = None,
    seconds: SecondsOption = None,
    gpu_seconds: GpuSecondsOption = None,
    strategy: StrategyOption = None,
    seed: Seed = None,
    mode: ModeOption = None,
    within: WithinOption = DEFAULT_WITHIN_PERCENT,
    name: NameOption = None,
    output: Output = None,
    resume: ResumeOption = None,
    as_json: AsJson = False,
) -> int:
    """Tune a kernel for your workloads, and save one bundle that serves them all.

    Each set of compile-time values (for attention: head size, type, mask) gets its own search. The
    bundle holds the fewest kernels that are fast on all workloads, and the table that picks one of
    them by size. On an emulator, times are modelled, and the bundle is marked accordingly.

    Ctrl-C stops; --resume continues.

    Exit codes: 0 the bundle is written, 1 no correct candidate, 3 a search failed, 130 Ctrl-C.
    """
    from greenfast.app.service.worker import Stop
    from greenfast.search.loop.plan import SearchRequest
    from greenfast.search.loop.tuning import TuningRequest

    if (kernel is None) == (resume is None):
        raise UsageError(
            "name a kernel or --resume TUNING_ID, and not both", code="bad_command_line"
        )
    settings: dict[str, Any] = {
        "name": name,
        "target": target,
        "strategy": strategy,
        "trials": trials,
        "seconds": seconds,
        "gpu_seconds": gpu_seconds,
        "seed": seed,
        "mode": mode,
    }
    if resume is not None:
        refuse_settings(context, "tuning", allowed=("resume", "output", "as_json"))
    require_folder(output)
    with opened_services() as services:
        stop = Stop(services.settings.drain_s, on_force=services.interrupt)
        stop.on_signals()
        if resume is not None:
            tuning = tuning_named(services.store, resume)
        else:
            templates = tuple(template) if template else None
            request = SearchRequest(kernel=str(kernel), templates=templates, **settings)
            rows = given_workloads(request.kernel, workload, workloads, services.catalogue)
            tuning = services.submit_tuning(TuningRequest(request, rows, within))
        say(f"tuning {tuning.id}: {tuning.name} on {tuning.target}")
        code = run_searches(services, tuning, stop)
        return code or _bundled(services, tuning.id, output, as_json)


def given_workloads(
    kernel_name: str, texts: list[str] | None, file: Path | None, catalogue: Catalogue
) -> tuple[tuple[str, float], ...]:
    """The workloads of --workload, then of the file; without either, the kernel's first."""
    from greenfast.search.loop.plan import default_workloads

    kernel = catalogue.kernel(kernel_name)
    given = texts or (() if file is not None else default_workloads(kernel))
    rows = read_workloads(file, kernel) if file is not None else ()
    return (
        *((text, 1.0) for text in given),
        *((row.workload.name, row.weight) for row in rows),
    )


def run_searches(services: Services, tuning: TuningRow, stop: Stop) -> int:
    """Run what is left of each search; 0, or the exit code that ends the command."""
    from greenfast.app.cli.search_run import EXIT_FAILED, EXIT_INTERRUPTED, resumed, run_here
    from greenfast.app.service.worker import Left
    from greenfast.search.loop.sink import Ended

    for number, row in enumerate(tuning.searches, 1):
        if row.status == SearchStatus.COMPLETED:
            continue
        say(f"search {number} of {len(tuning.searches)}, {row.id}: {_compiled(services, row)}")
        report = run_here(services, resumed(services, row.id), stop)
        if report.left is Left.STOPPED:
            pause_waiting(services, tuning.id)
            say(f"`greenfast tune --resume {tuning.id}` continues the tuning")
            return EXIT_INTERRUPTED
        if report.ended is not Ended.COMPLETED:
            say(
                f"search {row.id} {report.ended}: {report.why}; "
                f"`greenfast tune --resume {tuning.id}` tries again"
            )
            return EXIT_FAILED if report.ended is Ended.FAILED else 1
    return 0


def pause_waiting(services: Services, tuning_id: str) -> None:
    """Keep workers from taking the searches that wait: the user stopped the tuning."""
    for row in services.store.tuning(tuning_id).searches:
        if row.status == SearchStatus.QUEUED:
            services.store.request_control(row.id, "pause")


def _compiled(services: Services, row: SearchRow) -> str:
    values = services.store.plan(row.id).compiled
    words = ", ".join(f"{name}={value}" for name, value in values)
    count = len(row.workloads)
    counted = f"{count} {'workload' if count == 1 else 'workloads'}"
    return f"{counted} with {words}" if words else counted


def _bundled(services: Services, tuning_id: str, output: Path | None, as_json: bool) -> int:
    from greenfast.app.bundle.tuning import dispatch_table, tuning_bundle

    tuning = services.store.tuning(tuning_id)
    try:
        dispatch, kernels = dispatch_table(services, tuning)
    except UsageError as error:
        if error.code != "no_kernel":
            raise
        say(f"greenfast: {error}")
        return 1
    packed = tuning_bundle(services, tuning_id)
    path = output or Path(packed.file_name)
    write_output(path, packed.content)
    say(f"written to {path}")
    if as_json:
        print_json(
            {
                "id": tuning.id,
                "path": str(path),
                "bytes": len(packed.content),
                "sha256": packed.sha256,
                "searches": [row.id for row in tuning.searches],
                "kernels": len(kernels),
                "dispatch": table_json(dispatch),
            }
        )
    else:
        show_dispatch(dispatch)
    return 0


def show_dispatch(dispatch: DispatchTable) -> None:
    """Print the rules of each group, then the time of each workload."""
    out = console()
    if dispatch.time_kind == TimeKind.MODELLED:
        out.print(MODELLED)
    for group in dispatch.groups:
        values = ", ".join(f"{name}={value}" for name, value in group.compiled)
        rows: list[tuple[Any, ...]] = [
            (group.sizes_of(rule), use_words(rule.use)) for rule in group.rules
        ]
        library = f"{FALLBACK_WORDS}, else " if dispatch.kernel in FALLBACKS else ""
        rows.append(("outside of the tuned sizes", f"{library}{group.outside}"))
        out.print(table(("sizes", "kernel"), rows, title=values))
        out.print(_workloads_table(group, dispatch.time_kind))
        if group.regret is not None:
            out.print(
                "A workload that the tuning had not seen would have taken "
                f"{group.regret.geomean:.3f} of the best time on average, "
                f"{group.regret.worst:.3f} at worst (each was left out once)."
            )


def _workloads_table(group: DispatchGroup, time_kind: str) -> Any:
    return table(
        ("workload", "weight", "kernel", f"time ({time_kind})", "of best", "of baseline", "peers"),
        [
            (
                row.name,
                f"{row.weight:g}",
                use_words(row.use),
                f"{dict(row.times_us)[row.use]:.2f} us",
                f"{dict(row.times_us)[row.use] / row.best_us:.3f}",
                "-" if row.ratio is None else f"{row.ratio:.3f}",
                ", ".join(f"{peer.ratio:.3f} of {peer.name}" for peer in row.peers) or "-",
            )
            for row in group.workloads
        ],
    )

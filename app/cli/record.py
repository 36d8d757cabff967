"""`greenfast record`: measure a space on a GPU and keep it as a file for `replay:NAME`."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from greenfast.app.cli.options import AsJson, Kernel, Seed, Workloads
from greenfast.app.cli.output import duration, print_json
from greenfast.app.settings import Settings
from greenfast.app.views.terminal import say
from greenfast.search.cores import usable_cores
from greenfast.search.errors import UsageError
from greenfast.search.loop.sweep_journal import finish as write_journal
from greenfast.search.recordings.file import SUFFIX
from greenfast.search.recordings.shelf import NAME
from greenfast.search.shipped import own_version
from greenfast.search.targets import require_one_device

if TYPE_CHECKING:
    from greenfast.app.wiring import Services
    from greenfast.search.loop.sweep import Progress, Sweeping, SweepOrder

EXIT_DONE, EXIT_INCOMPLETE = 0, 1
LOOK_S = 2.0  # between two lines of progress
MOST_FAULTS = 5  # printed


TemplateOption = Annotated[
    str, typer.Option("--template", metavar="NAME", help="The template to measure.")
]
OutOption = Annotated[
    Path, typer.Option("--out", "-o", metavar="FILE", help=f"The file to write: NAME{SUFFIX}.")
]
TargetOption = Annotated[
    str, typer.Option("--target", metavar="TARGET", help="The GPU to measure on.")
]
SettingsOption = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="NAME=VALUE,...",
        help="The values of a parameter, or NAME=all; may be repeated. Other parameters keep "
        "one value.",
    ),
]
PresetOption = Annotated[
    str | None,
    typer.Option(
        "--preset",
        metavar="NAME",
        help="Take the values of the other parameters from a preset instead of the defaults.",
    ),
]
BaselineOption = Annotated[
    str | None,
    typer.Option(
        "--baseline",
        metavar="TEMPLATE:PRESET",
        help="The candidate that each one alternates with. [default: the kernel's own]",
    ),
]
CheckSeedsOption = Annotated[
    int, typer.Option("--check-seeds", metavar="N", min=1, help="At most N seeds per check.")
]
SecondsOption = Annotated[
    float | None,
    typer.Option(
        "--seconds", metavar="S", help="Stop after S seconds; the same command continues."
    ),
]
FinishOption = Annotated[
    bool,
    typer.Option("--finish", help="Write the file from an incomplete sweep, and stop."),
]
DryRunOption = Annotated[bool, typer.Option("--dry-run", help="Count the candidates, and stop.")]


def record(
    kernel: Kernel,
    template: TemplateOption,
    out: OutOption,
    workload: Workloads = None,
    target: TargetOption = "cuda:0",
    settings: SettingsOption = None,
    preset: PresetOption = None,
    baseline: BaselineOption = None,
    check_seeds: CheckSeedsOption = 1,
    seed: Seed = None,
    seconds: SecondsOption = None,
    finish: FinishOption = False,
    dry_run: DryRunOption = False,
    as_json: AsJson = False,
) -> int:
    """Measure every valid combination of parameter values on a GPU and keep all results as a file.

    `replay:NAME` then answers from that file on machines without a GPU. Ctrl-C keeps the results
    so far; the same command continues.

    Exit codes: 0 the recording is complete, 1 candidates are missing.
    """
    from greenfast.app.wiring import Services

    name = recording_name(out)
    if finish:
        return _finish(out, as_json)
    require_one_device(target, "greenfast record")
    services = Services(Settings.from_environment())
    try:
        order = _order(
            services,
            name,
            kernel,
            tuple(workload or ()),
            template,
            tuple(settings or ()),
            preset,
            baseline,
            check_seeds,
            seed or 0,
        )
        if dry_run:
            return _count(order, target, as_json)
        sweeping = _swept(services, order, target, out, seconds)
    finally:
        services.close()
    return _ended(sweeping, out, as_json)


def recording_name(out: Path) -> str:
    """NAME of replay:NAME; UsageError for a file name that no target could name."""
    name = out.name.removesuffix(SUFFIX)
    if not out.name.endswith(SUFFIX) or not NAME.match(name):
        raise UsageError(
            f"a recording's file is called NAME{SUFFIX}, not {out.name!r}",
            code="bad_output",
            mend="NAME consists of lowercase letters, digits, '-', '_' and '.'",
        )
    if not out.parent.is_dir():
        raise UsageError(
            f"{out} cannot be written: there is no such folder",
            code="unwritable_output",
            mend="choose another file with --out",
        )
    return name


def _order(
    services: Services,
    name: str,
    kernel_name: str,
    workloads: tuple[str, ...],
    template_name: str,
    settings: tuple[str, ...],
    preset: str | None,
    baseline: str | None,
    check_seeds: int,
    seed: int,
) -> SweepOrder:
    from greenfast.search.loop.plan import default_workloads, shared_compile_time
    from greenfast.search.loop.sweep import SweepOrder
    from greenfast.search.recordings.lattice import lattice_of

    kernel = services.catalogue.kernel(kernel_name)
    swept = tuple(kernel.workload(name) for name in workloads or default_workloads(kernel))
    shared_compile_time(kernel, list(swept))
    template = kernel.template(template_name)
    for workload in swept:
        template.check_supports(workload)
    start = dict(template.preset(preset).parameters) if preset else None
    return SweepOrder(
        name,
        kernel,
        swept,
        template.name,
        lattice_of(template, settings, start),
        baseline or kernel.baseline,
        seed,
        check_seeds,
    )


def _count(order: SweepOrder, target: str, as_json: bool) -> int:
    """Print how many candidates a sweep has; needs no GPU when the target is an emulator."""
    from greenfast.search.loop.target_space import target_device
    from greenfast.search.recordings.lattice import lattice_points
    from greenfast.search.space.space import Space

    compiled = order.workloads[0].compile_time(order.kernel)
    space = Space(order.kernel.template(order.template), compiled, target_device(target))
    candidates = len(lattice_points(space, order.lattice))
    if as_json:
        print_json({"candidates": candidates})
    else:
        print(f"{candidates} candidates of {order.kernel.name} {order.template}")
    return EXIT_DONE


def _swept(
    services: Services, order: SweepOrder, target: str, out: Path, seconds: float | None
) -> Sweeping:
    """Measure until the sweep is complete, or `seconds` have passed."""
    from greenfast.search.loop.sweep import Sweep

    sweep = Sweep(
        order,
        services.target(target),
        services.toolchain,
        services.catalogue.include_dirs,
        own_version(),
    )
    say(
        f"{sweep.total} candidates of {order.kernel.name} {order.template}, including the "
        f"baseline {order.baseline}"
    )
    try:
        return sweep.run(out, 2 * usable_cores(), seconds, ProgressLines())
    except KeyboardInterrupt:
        say("stopped; the same command continues where this one ended")
        raise


class ProgressLines:
    """One line on stderr every LOOK_S seconds, and the last."""

    def __init__(self) -> None:
        self._next = 0.0

    def __call__(self, progress: Progress) -> None:
        now = time.monotonic()
        if now < self._next and progress.done < progress.total:
            return
        self._next = now + LOOK_S
        left = f", {duration(progress.seconds_left)} left" if progress.seconds_left else ""
        say(
            f"{progress.done}/{progress.total} candidates, {progress.timed} timed, "
            f"{progress.per_second:.1f} a second{left}"
        )


def _finish(out: Path, as_json: bool) -> int:
    """Write the recording from the journal of an incomplete sweep."""
    from greenfast.search.loop.sweep import Sweeping

    recording = write_journal(out)
    return _ended(Sweeping(recording, len(recording.rows), len(recording.rows)), out, as_json)


def _ended(sweeping: Sweeping, out: Path, as_json: bool) -> int:
    for fault in sweeping.faults[:MOST_FAULTS]:
        say(f"greenfast: not recorded: {fault}")
    complete = sweeping.recording is not None and sweeping.recording.heading.complete
    if sweeping.recording is None:
        say(
            f"{sweeping.done} of {sweeping.total} candidates are recorded; "
            "the same command continues, --finish writes a recording of these"
        )
    else:
        say(
            f"written to {out}: {sweeping.done} candidates, "
            f"{sweeping.recording.heading.timed} timed; "
            f"use it as --target replay:{sweeping.recording.heading.name}"
        )
    if as_json:
        print_json(
            {
                "path": str(out),
                "candidates": sweeping.total,
                "recorded": sweeping.done,
                "complete": complete,
                "timed": sweeping.recording.heading.timed if sweeping.recording else None,
                "bytes": out.stat().st_size if sweeping.recording else None,
                "faults": list(sweeping.faults),
            }
        )
    return EXIT_DONE if complete else EXIT_INCOMPLETE

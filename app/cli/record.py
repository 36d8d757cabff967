"""`greenfast record`: sweep a sub-lattice on a GPU and keep it as a file that `replay:NAME` answers from."""

from __future__ import annotations

import time
from collections import Counter
from dataclasses import asdict
from pathlib import Path
from statistics import geometric_mean
from typing import Annotated

import typer

from greenfast.app.cli.output import console, duration, microseconds, print_json, say, table
from greenfast.app.cli.trial import AsJson, Kernel, Seed, Workloads
from greenfast.app.settings import Settings
from greenfast.app.wiring import Services, own_version
from greenfast.search.cores import usable_cores
from greenfast.search.errors import UsageError
from greenfast.search.loop.plan import default_workloads, shared_compile_time, target_device
from greenfast.search.loop.sweep import Progress, Sweep, Sweeping, SweepOrder
from greenfast.search.loop.sweep_journal import finish as write_journal
from greenfast.search.recordings.contents import checks_digest
from greenfast.search.recordings.file import SUFFIX
from greenfast.search.recordings.lattice import lattice_of, lattice_points
from greenfast.search.recordings.rules import time_us
from greenfast.search.recordings.shelf import NAME, find_recording
from greenfast.search.space.space import Space
from greenfast.search.verdict import Reason

EXIT_DONE, EXIT_INCOMPLETE = 0, 1
FASTEST = 5
LOOK_S = 2.0  # between two lines of progress


def add_record_commands(app: typer.Typer) -> None:
    app.command("record")(record)
    app.command("recording")(recording)


def record(
    kernel: Kernel,
    template: Annotated[str, typer.Option("--template", help="Template whose space is swept.")],
    out: Annotated[Path, typer.Option("--out", "-o", help=f"File to write: NAME{SUFFIX}.")],
    workload: Workloads = None,
    target: Annotated[str, typer.Option("--target", help="A GPU.")] = "cuda:0",
    settings: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="NAME=VALUE,...",
            help="A parameter's values, or NAME=all; others by default.",
        ),
    ] = None,
    preset: Annotated[
        str | None, typer.Option("--preset", help="Others as in this preset.")
    ] = None,
    baseline: Annotated[
        str | None, typer.Option("--baseline", help="template:preset, timed in turns.")
    ] = None,
    check_seeds: Annotated[
        int, typer.Option("--check-seeds", min=1, help="Seeds of each check, at most.")
    ] = 1,
    seed: Seed = None,
    seconds: Annotated[
        float | None, typer.Option("--seconds", help="Then stop; run it again to go on.")
    ] = None,
    finish: Annotated[
        bool, typer.Option("--finish", help="Write what an unfinished sweep left.")
    ] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Count the candidates and stop.")
    ] = False,
    as_json: AsJson = False,
) -> int:
    """Sweep every valid point of the chosen values on a GPU. Ctrl-C keeps what is measured; the same command goes on.

    Exits 0 when the recording is complete, 1 when candidates are missing.
    """
    name = recording_name(out)
    if finish:
        recording = write_journal(out)
        return _ended(Sweeping(recording, len(recording.rows), len(recording.rows)), out, as_json)
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
        sweep = Sweep(
            order,
            services.target(target),
            services.toolchain,
            services.catalogue.include_dirs,
            own_version(),
        )
        say(
            f"{sweep.total} candidates of {kernel} {template}, the baseline {order.baseline} among them"
        )
        try:
            left = sweep.run(out, 2 * usable_cores(), seconds, ProgressLines())
        except KeyboardInterrupt:
            say("stopped; the same command goes on where this one ended")
            raise
    finally:
        services.close()
    return _ended(left, out, as_json)


def recording(
    name: Annotated[
        str, typer.Argument(metavar="NAME", help="Of replay:NAME; see `greenfast targets`.")
    ],
    as_json: AsJson = False,
) -> int:
    """What a recording holds: its space, where and how it was made, what came out, and its fastest candidates."""
    found = find_recording(name.removeprefix("replay:"))
    heading = found.heading
    kernel = Services(Settings.from_environment()).catalogue.kernel(heading.kernel)
    checks = (
        "as they are today"
        if checks_digest(kernel) == heading.checks_digest
        else "others than today's"
    )
    fastest = sorted(
        (row for row in found.rows if row.times and row.reason != Reason.IMPLAUSIBLE),
        key=lambda row: geometric_mean([time_us(each) for each in row.times]),
    )[:FASTEST]
    said = Counter(
        f"{row.stage}: {row.reason}" if row.stage else "faster" for row in found.rows[1:]
    )
    if as_json:
        print_json(
            {
                "name": heading.name,
                "kernel": heading.kernel,
                "template": heading.template,
                "workloads": list(found.workload_names()),
                "baseline": heading.baseline,
                "space": {key: list(values) for key, values in heading.lattice},
                "candidates": heading.candidates,
                "timed": heading.timed,
                "complete": heading.complete,
                "verdicts": dict(said),
                "device": heading.device.title,
                "environment": dict(heading.environment),
                "protocol": asdict(heading.protocol),
                "checks": checks,
                "recorded_at": heading.recorded_at,
                "sha256": found.sha256,
                "fastest": [
                    {
                        "parameters": dict(found.parameters(one)),
                        "time_us": [time_us(each) for each in one.times],
                        "time_kind": "replayed",
                    }
                    for one in fastest
                ],
            }
        )
        return EXIT_DONE
    out = console()
    out.print(
        table(
            ("", ""),
            [
                (
                    "candidates",
                    f"{heading.candidates}, {heading.timed} timed"
                    + ("" if heading.complete else "; incomplete"),
                ),
                (
                    "of",
                    f"{heading.kernel} {heading.template} on {', '.join(found.workload_names())}",
                ),
                ("baseline", heading.baseline),
                ("checks", checks),
                ("verdicts", ", ".join(f"{count} {what}" for what, count in said.most_common())),
                ("recorded", f"{heading.recorded_at} on {heading.device.title}"),
                ("sha256", found.sha256),
            ],
        )
    )
    out.print(
        table(
            ("space", "values"),
            [(key, ", ".join(map(str, values))) for key, values in heading.lattice],
        )
    )
    out.print(table(("environment", ""), [*heading.environment, *asdict(heading.protocol).items()]))
    fixed = {key for key, values in heading.lattice if len(values) == 1}
    out.print(
        table(
            ("fastest", "parameters"),
            [
                (
                    ", ".join(microseconds(time_us(each), "replayed") for each in one.times),
                    " ".join(
                        f"{key}={value}" for key, value in found.parameters(one) if key not in fixed
                    ),
                )
                for one in fastest
            ],
        )
    )
    return EXIT_DONE


def recording_name(out: Path) -> str:
    """NAME of replay:NAME; UsageError for a file name that could not be found again."""
    name = out.name.removesuffix(SUFFIX)
    if not out.name.endswith(SUFFIX) or not NAME.match(name):
        raise UsageError(
            f"a recording's file is called NAME{SUFFIX}, not {out.name!r}",
            code="bad_output",
            mend="NAME is of small letters, digits, '-', '_' and '.'",
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
    kernel = services.catalogue.kernel(kernel_name)
    chosen = tuple(kernel.workload(workload) for workload in workloads or default_workloads(kernel))
    shared_compile_time(kernel, list(chosen))
    template = kernel.template(template_name)
    for one in chosen:
        template.check_supports(one)
    start = dict(template.preset(preset).parameters) if preset else None
    return SweepOrder(
        name,
        kernel,
        chosen,
        template.name,
        lattice_of(template, settings, start),
        baseline or kernel.baseline,
        seed,
        check_seeds,
    )


def _count(order: SweepOrder, target: str, as_json: bool) -> int:
    """How many candidates a sweep has: needs no GPU when the target is an emulated one."""
    compiled = order.workloads[0].compile_time(order.kernel)
    space = Space(order.kernel.template(order.template), compiled, target_device(target))
    found = len(lattice_points(space, order.lattice))
    text = f"{found} candidates of {order.kernel.name} {order.template}"
    print_json({"candidates": found}) if as_json else print(text)
    return EXIT_DONE


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
            f"{progress.done}/{progress.total} candidates, {progress.timed} timed, {progress.per_second:.1f} a second"
            f"{left}"
        )


def _ended(left: Sweeping, out: Path, as_json: bool) -> int:
    for fault in left.faults[:5]:
        say(f"greenfast: not recorded: {fault}")
    complete = left.recording is not None and left.recording.heading.complete
    if left.recording is None:
        say(
            f"{left.done} of {left.total} candidates are recorded; the same command goes on, --finish writes what is "
            "there"
        )
    else:
        say(
            f"written to {out}: {left.done} candidates, {left.recording.heading.timed} timed; use it as "
            f"replay:{left.recording.heading.name}"
        )
    if as_json:
        print_json(
            {
                "path": str(out),
                "candidates": left.total,
                "recorded": left.done,
                "complete": complete,
                "timed": left.recording.heading.timed if left.recording else None,
                "bytes": out.stat().st_size if left.recording else None,
                "faults": list(left.faults),
            }
        )
    return EXIT_DONE if complete else EXIT_INCOMPLETE

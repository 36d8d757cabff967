"""`greenfast workloads`: a kernel's workloads, and a check of one's own."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from greenfast.app.cli.options import AsJson, Kernel
from greenfast.app.cli.output import console, print_json, table
from greenfast.app.settings import Settings
from greenfast.search.errors import UsageError
from greenfast.search.kernels.spec import KernelSpec
from greenfast.search.kernels.workload_files import WeightedWorkload, read_workloads

if TYPE_CHECKING:
    from greenfast.app.views.choice_schemas import WorkloadOut


def workloads(
    kernel: Kernel,
    file: Annotated[
        Path | None,
        typer.Argument(metavar="FILE", help="Check this .toml, .json or .csv file instead."),
    ] = None,
    workload: Annotated[
        list[str] | None,
        typer.Option(
            "--workload", metavar="NAME|VALUES", help="Check this workload; may be repeated."
        ),
    ] = None,
    as_json: AsJson = False,
) -> int:
    """List the workloads of a kernel, or check your own.

    A workload is a shape and option set: a name from this list, or values such as
    B=8,H=16,S_q=577,D=64,dtype=bf16. Values that you leave out have defaults.

    Exit codes: 0 all of them can be searched, 2 at least one cannot.
    """
    from greenfast.app.views.listings import workload_out
    from greenfast.app.wiring import Services

    spec = Services(Settings.from_environment()).catalogue.kernel(kernel)
    rows = _requested(spec, file, workload or [])
    shown = [workload_out(spec, row.workload) for row in rows]
    if as_json:
        print_json(
            [
                {**out.model_dump(), "weight": row.weight}
                for out, row in zip(shown, rows, strict=True)
            ]
        )
        return 0
    console().print(_table(spec, rows, shown))
    return 0


def _requested(
    kernel: KernelSpec, file: Path | None, texts: list[str]
) -> tuple[WeightedWorkload, ...]:
    """The workloads to show; UsageError for those that do not fit the kernel or this machine."""
    from greenfast.search.loop.limits import require_memory

    if file is None and not texts:
        return tuple(WeightedWorkload(workload, 1.0) for workload in kernel.workloads)
    rows = read_workloads(file, kernel) if file is not None else ()
    rows += tuple(WeightedWorkload(kernel.workload(text), 1.0) for text in texts)
    refused: list[UsageError] = []
    for row in rows:
        try:
            require_memory(kernel, row.workload)
        except UsageError as error:
            refused.append(error)
    if refused:
        raise UsageError(
            "; ".join(error.message for error in refused),
            code=refused[0].code,
            mend=refused[0].mend,
        )
    return rows


def _table(
    kernel: KernelSpec, rows: tuple[WeightedWorkload, ...], shown: list[WorkloadOut]
) -> object:
    names = kernel.workload_form.names
    return table(
        ("workload", *names, "GFLOP", "MB", "weight"),
        [
            (
                out.name,
                *(({**out.dims, **out.options})[name] for name in names),
                f"{out.flop / 1e9:.3g}",
                f"{out.bytes / 1e6:.3g}",
                f"{row.weight:g}",
            )
            for out, row in zip(shown, rows, strict=True)
        ],
    )

"""`greenfast lint`: a kernel's files checked without running a candidate."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from greenfast.app.cli.options import AsJson
from greenfast.app.cli.output import print_json
from greenfast.app.cli.services import opened_services
from greenfast.app.views.own_kernels import hidden_kernels
from greenfast.app.views.terminal import say
from greenfast.search.devices.facts import device
from greenfast.search.errors import UsageError
from greenfast.search.kernels.catalogue import Catalogue, kernels_below
from greenfast.search.text import visible

if TYPE_CHECKING:
    from greenfast.app.wiring import Services
    from greenfast.search.diagnose.lint import Problem

EXIT_PROBLEMS = 2


def lint(
    kernel: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[KERNEL|PATH]",
            help="A kernel, its folder, or a folder of kernels. [default: all kernels that are "
            "not shipped with greenfast]",
        ),
    ] = None,
    gpu: Annotated[
        str, typer.Option("--device", metavar="NAME", help="The GPU whose limits apply.")
    ] = "h200",
    as_json: AsJson = False,
) -> int:
    """Check a kernel's files without running a candidate, and print every problem.

    It reads kernel.toml and the templates, looks for names that nothing uses, renders every preset
    and a sample of points, calls reference.py at small sizes and judges it, compiles a few
    candidates that show the parameters' values, and compares the arguments of their entries with
    kernel.toml.

    Exit codes: 0 no problem, 2 at least one.
    """
    from greenfast.search.diagnose.lint import lint_kernel, sorted_problems, usable_toolchain

    with opened_services() as services:
        for sentence in hidden_kernels(services.catalogue):
            say(f"greenfast: {sentence}")
        folders = _folders(kernel or [], services.catalogue)
        toolchain = usable_toolchain(lambda: services.toolchain)
        reports: dict[Path, Sequence[Problem]] = {}
        for folder in folders:
            headers = _headers(services, folder)
            found = sorted_problems(lint_kernel(folder, headers, device(gpu), toolchain))
            reports[folder] = found
            if not as_json:
                _show(folder, found)
    problems = [problem for report in reports.values() for problem in report]
    if as_json:
        print_json(
            {
                "kernels": [str(folder) for folder in folders],
                "problems": [asdict(problem) for problem in problems],
            }
        )
    elif problems:
        print(f"{len(problems)} problem{'s' if len(problems) > 1 else ''}")
    if toolchain is None:
        say(
            "greenfast: no usable CUDA compiler, so no candidate was compiled and the entries' "
            "arguments were not compared (greenfast doctor describes what is missing)"
        )
    return EXIT_PROBLEMS if problems else 0


def _show(folder: Path, problems: Sequence[Problem]) -> None:
    for problem in problems:
        print(f"{visible(problem.sentence)} [{problem.code}]", flush=True)
    if not problems:
        print(f"{visible(folder.name)}: no problems", flush=True)


def _folders(names: list[str], catalogue: Catalogue) -> tuple[Path, ...]:
    """The kernels' folders; UsageError for a name that is no kernel and no folder."""
    if not names:
        own = [folder for kernels in catalogue.own.values() for folder in kernels.values()]
        if not own:
            raise UsageError(
                "there are no kernels of your own",
                code="no_kernels",
                mend="`greenfast new kernel NAME` writes one; or name a kernel or folder",
            )
        return tuple(dict.fromkeys(folder.resolve() for folder in own))
    folders: list[Path] = []
    for name in names:
        path = Path(name)
        # A folder of that name that holds no kernel, such as one of results, does not hide it.
        is_known = name in catalogue.folders
        if os.sep in name or (path.is_dir() and not (is_known and not _holds_kernels(path))):
            folders += _of_path(path)
        elif is_known:
            folders.append(catalogue.folders[name])
        else:
            catalogue.kernel(name)
    return tuple(dict.fromkeys(folder.resolve() for folder in folders))


def _holds_kernels(path: Path) -> bool:
    return (path / "kernel.toml").exists() or bool(kernels_below(path))


def _of_path(path: Path) -> list[Path]:
    if (path / "kernel.toml").exists():
        return [path]
    below = list(kernels_below(path).values())
    if not below:
        raise UsageError(
            f"{visible(path)} holds no kernel",
            code="no_kernels",
            mend="a kernel's folder holds kernel.toml",
        )
    return below


def _headers(services: Services, folder: Path) -> tuple[Path, ...]:
    own = folder.parent / "include"
    return ((own,) if own.is_dir() else ()) + services.catalogue.include_dirs

"""`greenfast toolkit`: the NVRTC and CUDA headers in use, and installing others."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from greenfast.app.cli.options import AsJson
from greenfast.app.cli.output import console, print_json, styled, table
from greenfast.app.cli.services import opened_services
from greenfast.app.settings import Settings
from greenfast.app.views.terminal import say
from greenfast.search.errors import Fault, UsageError
from greenfast.search.toolchain.toolkit import (
    RELEASE,
    TOOLKIT_VARIABLE,
    Toolkit,
    private_folder,
    toolkit_place,
)

EXIT_WORKS, EXIT_REFUSED = 0, 2


class Action(StrEnum):
    INSTALL = "install"


def toolkit(
    action: Annotated[
        Action | None,
        typer.Argument(metavar="install", help="Install a toolkit into the data folder."),
    ] = None,
    wheels: Annotated[
        Path | None,
        typer.Option(
            "--wheels",
            metavar="FOLDER",
            exists=True,
            file_okay=False,
            help="With install: a folder of wheel files to use, without a network.",
        ),
    ] = None,
    as_json: AsJson = False,
) -> int:
    """Show the NVRTC and CUDA headers that greenfast compiles with, or install others.

    `greenfast toolkit install` puts the release that greenfast is tested with into the data folder
    and uses it from then on. No package of this Python environment changes. Exits 0 when the
    toolkit compiles a known kernel correctly, else 2.
    """
    if action is Action.INSTALL:
        _show(_install(wheels), None, as_json)
        return EXIT_WORKS
    if wheels is not None:
        raise UsageError("--wheels is for `greenfast toolkit install`", code="bad_command_line")
    with opened_services() as services:
        in_use, refusal = services.toolchain.toolkit, None
        try:
            services.toolchain.require_correct_code()
        except Fault as fault:
            refusal = fault
    _show(in_use, refusal, as_json)
    return EXIT_WORKS if refusal is None else EXIT_REFUSED


def _install(wheels: Path | None) -> Toolkit:
    from greenfast.search.toolchain.toolkit_install import install_toolkit

    settings = Settings.from_environment()
    settings.prepare_data()
    data = settings.data.absolute()
    say(f"installing CUDA {RELEASE} into {private_folder(data)} ...")
    installed = install_toolkit(data, wheels)
    place = toolkit_place(data)
    if place.folder != private_folder(data):
        say(f"greenfast uses {place.folder} until you unset {TOOLKIT_VARIABLE}")
    return installed


def _json(in_use: Toolkit, refusal: Fault | None) -> dict[str, Any]:
    return {
        "nvrtc": in_use.nvrtc_version,
        "folder": None if in_use.place.folder is None else str(in_use.place.folder),
        "reason": in_use.place.reason,
        "versions": dict(in_use.versions),
        "libraries": list(in_use.libraries),
        "include_dirs": list(in_use.include_dirs),
        "status": "ok" if refusal is None else "refused",
        "detail": "" if refusal is None else refusal.message,
        "mend": "" if refusal is None else refusal.mend,
    }


def _show(in_use: Toolkit, refusal: Fault | None, as_json: bool) -> None:
    if as_json:
        print_json(_json(in_use, refusal))
        return
    place = in_use.place
    rows: list[tuple[str, object]] = [
        ("from", f"{place.folder}: {place.reason}" if place.folder else place.reason),
        *in_use.versions,
        *(("library", path) for path in in_use.libraries),
        *(("headers", path) for path in in_use.include_dirs),
        ("known kernel", styled("ok") if refusal is None else refusal.message),
    ]
    if refusal is not None:
        rows.append(("what to do", refusal.mend))
    console().print(table(("", ""), rows))

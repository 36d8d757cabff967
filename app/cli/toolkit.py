"""`greenfast toolkit`: the NVRTC and CUDA headers in use, and installing others."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from greenfast.app.cli.lists import opened_services
from greenfast.app.cli.output import console, print_json, styled, table
from greenfast.app.cli.trial import AsJson
from greenfast.app.settings import Settings
from greenfast.app.views.terminal import say
from greenfast.search.errors import Fault
from greenfast.search.toolchain.toolkit import (
    RELEASE,
    TOOLKIT_VARIABLE,
    Toolkit,
    private_folder,
    toolkit_place,
)

EXIT_WORKS, EXIT_REFUSED = 0, 2


def add_toolkit_commands(app: typer.Typer) -> None:
    commands = typer.Typer(rich_markup_mode=None)
    commands.callback(invoke_without_command=True)(toolkit)
    commands.command("install")(install)
    app.add_typer(commands, name="toolkit")


def toolkit(context: typer.Context, as_json: AsJson = False) -> int:
    """The NVRTC and CUDA headers that greenfast compiles with, and why these.

    Exits 0 when they compile a known kernel correctly, else 2.
    """
    if context.invoked_subcommand is not None:
        return EXIT_WORKS
    with opened_services() as services:
        in_use, refusal = services.toolchain.toolkit, None
        try:
            services.toolchain.require_right()
        except Fault as fault:
            refusal = fault
    if as_json:
        print_json(_json(in_use, refusal))
    else:
        _show(in_use, refusal)
    return EXIT_WORKS if refusal is None else EXIT_REFUSED


def install(
    wheels: Annotated[
        Path | None,
        typer.Option(
            "--wheels",
            exists=True,
            file_okay=False,
            help="Folder of wheel files to install from, without a network.",
        ),
    ] = None,
    as_json: AsJson = False,
) -> int:
    """Install the CUDA compiler and headers that greenfast is tested with into the data folder.

    No package of this Python environment changes. The new compiler is used from now on.
    """
    from greenfast.search.toolchain.toolkit_install import install_toolkit

    settings = Settings.from_environment()
    settings.prepare_data()
    data = settings.data.absolute()
    say(f"installing CUDA {RELEASE} into {private_folder(data)} ...")
    installed = install_toolkit(data, wheels)
    place = toolkit_place(data)
    if place.folder != private_folder(data):
        say(f"greenfast uses {place.folder} until you unset {TOOLKIT_VARIABLE}")
    if as_json:
        print_json(_json(installed, None))
    else:
        _show(installed, None)
    return EXIT_WORKS


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


def _show(in_use: Toolkit, refusal: Fault | None) -> None:
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

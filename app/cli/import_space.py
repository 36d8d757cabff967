"""`greenfast import-space`: a measured space of another tuner as a replay target."""

from __future__ import annotations

import re
import shutil
import tempfile
from pathlib import Path
from typing import Annotated

import typer

from greenfast.app.cli.new_files import write_kernel
from greenfast.app.cli.options import AsJson
from greenfast.app.cli.output import print_json
from greenfast.app.settings import Settings
from greenfast.app.views.terminal import say
from greenfast.search.errors import UsageError
from greenfast.search.kernels.catalogue import Catalogue, load_kernel
from greenfast.search.recordings.file import SUFFIX, write
from greenfast.search.recordings.foreign import ForeignSpace, read_space
from greenfast.search.recordings.foreign_kernel import kernel_texts, parameters_of
from greenfast.search.recordings.foreign_objectives import MICROSECONDS, Wish
from greenfast.search.recordings.shelf import recording_names
from greenfast.search.text import one_line, shortened, visible

_SHORT = {1e6: "s", 1e3: "ms", 1.0: "us", 1e-3: "ns"}  # units of time by their microseconds
_NAME = re.compile(r"[a-z][a-z0-9_]{0,47}\Z")
ENDINGS = (
    ".gz",
    ".bz2",
    ".xz",
    ".zst",
    ".json",
    ".jsonl",
    ".csv",
    ".tsv",
    ".txt",
    "_T4",
    "_t4",
    ".T4",
    ".t4",
    "_cache",
    "-results",
    "_results",
)


FileArgument = Annotated[
    Path,
    typer.Argument(
        metavar="FILE",
        help="A T4 result file, a Kernel Tuner cache, JSON of KTT or CLTune, or a table (CSV), "
        "plain or compressed (gzip, bz2, xz).",
    ),
]
NameOption = Annotated[
    str | None,
    typer.Option(
        "--name", metavar="NAME", help="The name of kernel and target. [default: the file's]"
    ),
]
ObjectiveOption = Annotated[
    str | None,
    typer.Option(
        "--objective",
        metavar="NAME",
        help="The measurement to minimise; a rate such as GFLOP/s is maximised. "
        "[default: the time, else the file's own objective]",
    ),
]
DirectionOption = Annotated[
    bool | None,
    typer.Option(
        "--higher-is-better/--lower-is-better",
        help="The objective's direction. [default: higher for rates and scores]",
    ),
]
ParametersOption = Annotated[
    str | None,
    typer.Option(
        "--parameters",
        metavar="NAME,...",
        help="The columns of a table that are parameters. [default: all that do not describe "
        "the run]",
    ),
]
ReplaceOption = Annotated[
    bool, typer.Option("--replace", help="Replace an imported space of this name.")
]


def import_space(
    file: FileArgument,
    name: NameOption = None,
    objective: ObjectiveOption = None,
    higher_is_better: DirectionOption = None,
    parameters: ParametersOption = None,
    replace: ReplaceOption = False,
    as_json: AsJson = False,
) -> int:
    """Make a target from a space that another tuner measured.

    `greenfast search NAME --target replay:NAME` then searches it. The file's configurations are the
    whole space; those that failed are rejected with the file's reason. Nothing is compiled or
    checked, because there is no code.
    """
    from greenfast.search.recordings.imported import imported_recording

    columns = tuple(name.strip() for name in (parameters or "").split(",") if name.strip())
    space = read_space(file, wish=Wish(objective, higher_is_better, columns))
    known = own_name(file, name)
    settings = Settings.from_environment()
    settings.prepare_data()
    spaces = settings.data / "spaces"
    folder, recording = spaces / known, settings.data / "recordings" / f"{known}{SUFFIX}"
    require_free(known, folder, replace)
    known_parameters = parameters_of(space)
    title = shortened(one_line(f"{space.kernel or known} on {space.device or 'a GPU'}"), 90)
    with tempfile.TemporaryDirectory(prefix="importing-", dir=settings.data) as beside:
        made = write_kernel(
            Path(beside), known, kernel_texts(known, space, known_parameters, title)
        )
        imported = imported_recording(known, file, space, known_parameters, load_kernel(made))
        write(Path(beside) / recording.name, imported)
        put(made, folder, Path(beside) / recording.name, recording)
    report(known, space, as_json)
    return 0


def put(made: Path, folder: Path, made_recording: Path, recording: Path) -> None:
    """Move a finished space to its place, or leave the one that was there before.

    Only renames remain to be done, so a killed process hardly ever leaves half of a space.
    """
    folder.parent.mkdir(parents=True, exist_ok=True)
    recording.parent.mkdir(parents=True, exist_ok=True)
    before = made.with_name(".before")
    if folder.is_dir():
        folder.rename(before)
    try:
        made.rename(folder)
        made_recording.rename(recording)
    except OSError:
        shutil.rmtree(folder, ignore_errors=True)
        if before.is_dir():
            before.rename(folder)
        raise


def own_name(file: Path, name: str | None) -> str:
    """The name of kernel and target: the given one, or one made of the file's."""
    if name is None:
        stem = file.name
        while ending := next((each for each in ENDINGS if stem.endswith(each)), ""):
            stem = stem.removesuffix(ending)
        name = re.sub(r"[^a-z0-9]+", "_", stem.lower()).strip("_")[:48]
        name = name if name[:1].isalpha() else f"space_{name}"[:48]
    if not _NAME.match(name):
        raise UsageError(
            f"a space cannot be called {shortened(visible(repr(name)), 60)}",
            code="bad_name",
            mend="names are small letters, digits and _, begin with a letter, and have at most "
            "48 characters",
        )
    return name


def require_free(name: str, folder: Path, replace: bool) -> None:
    """UsageError for a name that a kernel or recording already has."""
    imported = folder.is_dir()
    if imported and replace:
        return
    if name in Catalogue.from_environment().names() or name in recording_names():
        raise UsageError(
            f"a kernel or recording called {name} already exists",
            code="name_taken",
            mend="give --replace to import it again" if imported else "give another --name",
        )


def report(name: str, space: ForeignSpace, as_json: bool) -> None:
    """Print what was imported."""
    valid = [result.figure for result in space.results if result.figure is not None]
    failed = len(space.results) - len(valid)
    if as_json:
        print_json(
            {
                "name": name,
                "target": f"replay:{name}",
                "format": space.form,
                "objective": space.objective,
                "unit": space.unit,
                "device": space.device,
                "parameters": list(space.parameters),
                "left_out": list(space.left_out),
                "configurations": len(space.results),
                "failed": failed,
                "best": min(valid),
            }
        )
        return
    short = _SHORT.get(MICROSECONDS.get(space.unit.lower(), 0.0), space.unit)
    unit = f" in {short}" if short else ""
    say(
        f"{name}: {_counted(len(space.results), 'configuration')} of "
        f"{_counted(len(space.parameters), 'parameter')} "
        f"({space.form}, {space.objective}{unit}), {failed:,} of them failed"
    )
    if space.left_out:
        columns = shortened(one_line(", ".join(space.left_out)), 200)
        say(f"columns that are no parameters: {columns} (--parameters A,B chooses others)")
    if space.scale:
        say(f"searches show {space.scale}{space.objective} in the place of times: lower is better")
    say(f"greenfast search {name} --target replay:{name}")


def _counted(number: int, noun: str) -> str:
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"

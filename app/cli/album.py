"""`greenfast album`: kernels that are wrong on purpose, and the gate that must catch each."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from greenfast.app.cli.options import AsJson
from greenfast.app.cli.output import print_json
from greenfast.app.settings import Settings
from greenfast.search.errors import UsageError
from greenfast.search.text import visible

if TYPE_CHECKING:
    from greenfast.app.wiring import Services
    from greenfast.search.diagnose.album import Entry, Judged

EXIT_AS_EXPECTED, EXIT_UNEXPECTED = 0, 1
IMPATIENT_S = 3.0  # the deadline of a run that is expected not to end


def album(
    only: Annotated[
        str | None,
        typer.Option(
            "--only", metavar="TEXT", help="Run the entries whose kernel or name contains TEXT."
        ),
    ] = None,
    as_json: AsJson = False,
) -> int:
    """Run the album: small kernels, each wrong in one way, and correct ones.

    Each wrong kernel must be caught by the gate that its entry names, and each correct one must
    pass. Exit codes: 0 all entries end as expected, 1 at least one does not.
    """
    from greenfast.app.wiring import Services

    services = Services(Settings.from_environment())
    judged: list[Judged] = []
    try:
        for result in _judged(services, _entries(only)):
            judged.append(result)
            if not as_json:
                print(visible(_line(result)), flush=True)
    finally:
        services.close()
    unexpected = sum(bool(result.sentence) for result in judged)
    if as_json:
        print_json([_json(result) for result in judged])
    else:
        print(f"\n{len(judged) - unexpected} of {len(judged)} entries end as expected")
    return EXIT_UNEXPECTED if unexpected else EXIT_AS_EXPECTED


def _entries(only: str | None) -> list[Entry]:
    from greenfast.search.diagnose.album import entries

    selected = [
        entry
        for entry in entries()
        if not only or only in f"{entry.kernel} {entry.name} {entry.kernel}-{entry.name}"
    ]
    if not selected:
        raise UsageError(
            f"no entry of the album contains {only!r}",
            code="unknown_entry",
            mend="`greenfast album` runs all of them",
        )
    return selected


def _judged(services: Services, selected: list[Entry]) -> Iterator[Judged]:
    """Each entry's result, in order; a few entries run at a time."""
    from greenfast.search.diagnose.album import catalogue_of, judge
    from greenfast.search.loop.plan import DEFAULT_TARGET
    from greenfast.search.targets.base import runner

    services.target(DEFAULT_TARGET).prepare()

    def work(entry: Entry) -> Judged:
        target = (
            services.target(DEFAULT_TARGET, IMPATIENT_S)
            if entry.impatient
            else services.target(DEFAULT_TARGET)
        )
        with tempfile.TemporaryDirectory(prefix="greenfast-album-") as folder:
            kernels = catalogue_of(entry, Path(folder))
            return judge(entry, kernels, runner(target), services.toolchain)

    pool = ThreadPoolExecutor(services.settings.window)
    try:
        yield from pool.map(work, selected)
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


def _line(result: Judged) -> str:
    word = "WRONG" if result.sentence else "ok   "
    line = f"{word} {result.entry.kernel:10} {result.entry.name:40} {result.got}"
    return f"{line}; {result.sentence}" if result.sentence else line


def _json(result: Judged) -> dict[str, object]:
    return {
        "kernel": result.entry.kernel,
        "name": result.entry.name,
        "expected": result.entry.expected,
        "got": result.got,
        "ok": not result.sentence,
        "why": result.sentence,
    }

"""`greenfast cache`: what the cache of compiled kernels holds, and clearing it."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any

import typer

from greenfast.app.cli.options import AsJson
from greenfast.app.cli.output import console, print_json, table
from greenfast.app.settings import Settings
from greenfast.app.views.terminal import say
from greenfast.search.errors import Fault
from greenfast.search.toolchain.cache_room import KINDS, CacheRoom, bytes_below


def cache(
    clear: Annotated[
        bool, typer.Option("--clear", help="Remove everything that is not in use.")
    ] = False,
    as_json: AsJson = False,
) -> int:
    """Show the compiled kernels in the data folder, and their limit; --clear removes them.

    They are compiled again when they are needed. The files of the kernels that searches ran with
    are listed, too; the database has them all. Beyond GREENFAST_CACHE_MIB, the least recently
    used ones are removed automatically. The builds of the emulator are not part of the limit;
    --clear leaves the newest. Nothing that was used in the last two minutes is removed.
    """
    settings = Settings.from_environment()
    room = CacheRoom(settings.cache, settings.cache_mib << 20)
    if clear:
        try:
            room.clear()
        except OSError as error:
            raise Fault(
                f"the cache {settings.cache} cannot be cleared: {error.strerror}",
                code="cache_unwritable",
                mend="remove the folder yourself, or set GREENFAST_DATA to another one",
            ) from error
    rows = [*_kinds(room), _builds(room)]
    if as_json:
        print_json({"folder": str(settings.cache), "limit_mib": settings.cache_mib, "kinds": rows})
        return 0
    cells = [
        (row["kind"], f"{row['entries']:,}", f"{row['bytes'] / 2**20:,.1f}", row["oldest_use"])
        for row in rows
    ]
    console().print(table(("", "entries", "MiB", "oldest use"), cells))
    say(f"{settings.cache}: at most {settings.cache_mib:,} MiB of kernels")
    return 0


def _kinds(room: CacheRoom) -> list[dict[str, Any]]:
    entries = room.entries()
    rows = []
    for kind in KINDS:
        own = [entry for entry in entries if entry.kind == kind]
        size = sum(entry.size_bytes for entry in own)
        rows.append(_row(kind, len(own), size, own[0].used if own else None))
    return rows


def _builds(room: CacheRoom) -> dict[str, Any]:
    builds = room.builds()
    return _row("emulator builds", len(builds), sum(map(_own_bytes, builds)), None)


def _own_bytes(build: Path) -> int:
    return bytes_below(build) - bytes_below(build / "modules")


def _row(kind: str, entries: int, size_bytes: int, used: float | None) -> dict[str, Any]:
    day = datetime.fromtimestamp(used, UTC).strftime("%Y-%m-%d %H:%M UTC") if used else None
    return {"kind": kind, "entries": entries, "bytes": size_bytes, "oldest_use": day}

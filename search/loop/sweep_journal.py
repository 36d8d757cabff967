"""The journal beside an unfinished recording.

Each row is written at once, so that nothing is measured twice.
"""

from __future__ import annotations

import json
import os
from pathlib import Path

from greenfast.search.errors import Fault, UsageError
from greenfast.search.recordings.contents import Heading, Recording, Row, plan_digest, recording_of
from greenfast.search.recordings.file import heading_json, heading_of, row_json, row_of, write


class Journal:
    """Appends rows; opening a journal of the same sweep continues it."""

    def __init__(self, path: Path, heading: Heading) -> None:
        self.path = path
        self.rows = _read(path, heading)
        self.run = max((row.run for row in self.rows), default=-1) + 1
        try:
            self._file = path.open("w" if not self.rows else "r+", encoding="utf-8")
            self._file.write("\n".join([_first_line(heading), *map(row_json, self.rows)]) + "\n")
            self._file.truncate()  # a row that a killed process left half written
            self._file.flush()
        except OSError as error:
            raise UsageError(
                f"{path} cannot be written: {error.strerror}",
                code="unwritable_output",
                mend="choose another file with --out",
            ) from error

    def add(self, row: Row) -> None:
        """Append a row and flush it to the system, so that a killed process loses nothing."""
        try:
            self._file.write(row_json(row) + "\n")
            self._file.flush()
        except OSError as error:
            raise Fault(
                f"{self.path} cannot be written: {error.strerror}", code="disk_full"
            ) from error
        self.rows.append(row)

    def close(self) -> None:
        self._file.flush()
        os.fsync(self._file.fileno())
        self._file.close()

    def remove(self) -> None:
        self.close()
        self.path.unlink(missing_ok=True)


def journal_path(out: Path) -> Path:
    return out.with_name(out.name + ".journal")


def finish(out: Path) -> Recording:
    """Write `out` from the journal beside it, marked as incomplete; needs no GPU."""
    path = journal_path(out)
    if out.exists():
        raise UsageError(
            f"{out} already exists", code="output_exists", mend="choose another file with --out"
        )
    lines = path.read_text("utf-8", "replace").split("\n") if path.exists() else [""]
    try:
        heading = heading_of(path.name, json.loads(lines[0])["heading"])
    except (ValueError, KeyError, TypeError):
        raise UsageError(
            f"{path} is not a journal of a sweep", code="no_journal", mend="run the sweep first"
        ) from None
    rows = _rows(lines)
    if not rows:
        raise UsageError(
            f"{path} holds no candidate yet", code="no_journal", mend="run the sweep first"
        )
    recording = recording_of(heading, rows, complete=False)
    write(out, recording)
    path.unlink()
    return recording


def _first_line(heading: Heading) -> str:
    return json.dumps({"sweep": plan_digest(heading), "heading": heading_json(heading)})


def _read(path: Path, heading: Heading) -> list[Row]:
    """The rows already written; UsageError when they belong to another sweep."""
    if not path.exists():
        return []
    lines = path.read_text("utf-8", "replace").split("\n")
    try:
        sweep = json.loads(lines[0])["sweep"]
    except (ValueError, KeyError, TypeError):
        sweep = None
    if sweep != plan_digest(heading):
        raise UsageError(
            f"{path} is the journal of another sweep, or was made with other files, another GPU, "
            "driver or toolchain",
            code="journal_differs",
            mend="remove it, or choose another file with --out",
        )
    return _rows(lines)


def _rows(lines: list[str]) -> list[Row]:
    """Rows by number. The last line may be incomplete after a kill."""
    rows: dict[int, Row] = {}
    for line in lines[1:]:
        try:
            row = row_of(line)
        except (ValueError, KeyError, TypeError, IndexError, AttributeError):
            break
        rows[row.number] = row
    return [rows[number] for number in sorted(rows)]

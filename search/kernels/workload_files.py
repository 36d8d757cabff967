"""Files of workloads: TOML, JSON or CSV, each row with sizes, options, a label and a weight.

    [[workloads]]                       # .toml
    name = "vit"                        # optional
    weight = 12                         # optional, default 1: how much this workload counts
    dims = { B = 8, H = 16, S_q = 577, D = 64 }
    options = { dtype = "bf16" }

.json holds a list of such objects, or an object whose `workloads` is one. In both, a text may stand
for a table: a workload's name, or values such as "B=8,H=16,S_q=577,D=64". .csv has a column for
each dim and option that it gives, and optional columns `name` and `weight`.
"""

from __future__ import annotations

import csv
import io
import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from greenfast.search.errors import SpecError, UsageError
from greenfast.search.kernels.author_files import parsed_toml
from greenfast.search.kernels.plain_file import read_plain_file
from greenfast.search.kernels.spec import KernelSpec
from greenfast.search.kernels.workloads import Workload
from greenfast.search.text import not_parsed, shortened, visible

ENDINGS = (".toml", ".json", ".csv")
LARGEST_FILE_BYTES = 2**20
MOST_WORKLOADS = 1000
LARGEST_WEIGHT = 1e15
SHOWN_FAULTS = 20
ROW_KEYS = ("name", "weight", "dims", "options")
TOP_KEYS = ("workloads", "traced")  # `traced`: what `greenfast trace` saw, for people


@dataclass(frozen=True)
class WeightedWorkload:
    workload: Workload
    weight: float  # > 0


def read_workloads(path: Path, kernel: KernelSpec) -> tuple[WeightedWorkload, ...]:
    """The workloads of a file; one UsageError for all of its rows that are wrong."""
    rows: list[WeightedWorkload] = []
    faults: list[str] = []
    places: dict[str, str] = {}  # of the first workload of each name
    for place, row in _rows(path):
        try:
            rows.append(workload_of(row, kernel, place))
        except UsageError as error:
            faults.append(error.message)
            continue
        name = rows[-1].workload.name
        if places.setdefault(name, place) != place:
            faults.append(f"{place}: {name} is in {places[name]} already")
    if faults:
        more = f"; and {len(faults) - SHOWN_FAULTS} more" if len(faults) > SHOWN_FAULTS else ""
        raise UsageError(
            f"{_shown(path)}: " + "; ".join(faults[:SHOWN_FAULTS]) + more,
            code="bad_workloads_file",
            mend=f"a workload of {kernel.name} is for example {kernel.workload_form.example}",
        )
    if not rows:
        raise UsageError(f"{_shown(path)}: no workload is in it", code="bad_workloads_file")
    return tuple(rows)


def workload_of(row: object, kernel: KernelSpec, where: str) -> WeightedWorkload:
    """The workload of a row with ROW_KEYS, or of a text; UsageError that begins with `where`."""
    if isinstance(row, str):
        return WeightedWorkload(_named(row, kernel, where), 1.0)
    if not isinstance(row, Mapping):
        raise UsageError(
            f"{where}: {_short(row)} is no text and no table with dims", code="bad_workload"
        )
    faults: list[str] = []
    values: dict[str, object] = {}
    for key in row:
        if key in kernel.workload_form.names:
            faults.append(f"{key} belongs under {'dims' if _is_dim(kernel, key) else 'options'}")
            values[key] = row[key]
        elif key not in ROW_KEYS:
            faults.append(f"unknown key {visible(key)!r}")
    for key in ("dims", "options"):
        part = row.get(key) or {}
        if isinstance(part, Mapping):
            values.update(part)
        else:
            faults.append(f"{key} is not a table")
    name, weight = str(row.get("name") or ""), row.get("weight", 1.0)
    if (
        isinstance(weight, bool)
        or not isinstance(weight, (int, float))
        or not 0 < weight <= LARGEST_WEIGHT
    ):
        faults.append(
            f"the weight {_short(weight)}; weights are numbers above 0, at most {LARGEST_WEIGHT:g}"
        )
    try:
        workload = kernel.named(kernel.workload_form.workload(values, label=name, where=where))
    except UsageError as error:
        raise UsageError(
            "; ".join((error.message, *faults)), code=error.code, mend=error.mend
        ) from error
    if faults:
        raise UsageError(f"{where}: {'; '.join(faults)}", code="bad_workload")
    return WeightedWorkload(workload, float(weight))


def _named(text: str, kernel: KernelSpec, where: str) -> Workload:
    """The workload of a name, or of values such as `B=8,S_q=577`."""
    try:
        return kernel.workload(text)
    except (UsageError, SpecError) as error:
        raise UsageError(f"{where}: {error.message}", code="bad_workload") from error


def _is_dim(kernel: KernelSpec, name: str) -> bool:
    return name in (dim.name for dim in kernel.dims)


def _rows(path: Path) -> Iterator[tuple[str, object]]:
    """Each row, and its place in the file."""
    text, ending = _text(path), path.suffix.lower()
    try:
        if ending == ".csv":
            rows: Any = _csv_rows(text)
        else:
            rows = parsed_toml(text, _shown(path)) if ending == ".toml" else _json(text)
    except SpecError as error:
        raise UsageError(error.message, code="bad_workloads_file") from error
    except (ValueError, csv.Error, RecursionError) as error:
        raise UsageError(
            f"{_shown(path)}: not valid {ending[1:].upper()}: {shortened(not_parsed(error), 120)}",
            code="bad_workloads_file",
        ) from error
    if isinstance(rows, Mapping):
        unknown = sorted(rows.keys() - TOP_KEYS)
        if unknown and "workloads" in rows:
            raise UsageError(
                f"{_shown(path)}: unknown key {visible(unknown[0])!r} beside the workloads",
                code="bad_workloads_file",
                mend="known: " + ", ".join(TOP_KEYS),
            )
        rows = rows.get("workloads")
    if not isinstance(rows, list):
        form = "[[workloads]] tables" if ending == ".toml" else '[{"dims": {...}}, ...]'
        raise UsageError(
            f"{_shown(path)}: a list of workloads is needed, written {form}",
            code="bad_workloads_file",
        )
    if len(rows) > MOST_WORKLOADS:
        raise UsageError(
            f"{_shown(path)}: {len(rows)} workloads; at most {MOST_WORKLOADS} are read",
            code="bad_workloads_file",
        )
    for number, row in enumerate(rows, 1):
        yield row if ending == ".csv" else (f"row {number}", row)


def _json(text: str) -> Any:
    """The value; ValueError for an object that has a key twice, of which Python keeps the last."""

    def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        _require_once([key for key, _ in pairs])
        return dict(pairs)

    return json.loads(text, object_pairs_hook=unique)


def _require_once(names: Iterable[str]) -> None:
    repeated = [name for name, count in Counter(names).items() if name and count > 1]
    if repeated:
        raise ValueError(f"{repeated[0]} occurs twice")


def _csv_rows(text: str) -> list[tuple[str, dict[str, Any]]]:
    """The rows below the first line, which names the columns, and the line that each ends in."""
    rows = csv.DictReader(io.StringIO(text, newline=None), strict=True)
    for separator in ";\t":
        if any(separator in name for name in rows.fieldnames or ()):
            raise ValueError(f"columns are separated by commas, not by {separator!r}")
    _require_once(name.strip() for name in rows.fieldnames or ())
    return [(f"line {rows.line_num}", _csv_row(row)) for row in rows]


def _csv_row(row: Mapping[str | None, Any]) -> dict[str, Any]:
    """A line of a CSV file: empty cells are left out, and numbers are read as such."""
    cells = {
        (name or "").strip(): _number(cell.strip())
        for name, cell in row.items()
        if isinstance(cell, str) and cell.strip()
    }
    if None in row:
        cells["a cell without a column"] = ""
    known: dict[str, Any] = {key: cells.pop(key) for key in ("name", "weight") if key in cells}
    return {**known, "dims": cells}


def _number(text: str) -> int | float | str:
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text


def _text(path: Path) -> str:
    if path.suffix.lower() not in ENDINGS:
        raise UsageError(
            f"{_shown(path)}: a file of workloads ends in {', '.join(ENDINGS)}",
            code="bad_workloads_file",
        )
    try:
        data = read_plain_file(path, LARGEST_FILE_BYTES)
        if len(data) > LARGEST_FILE_BYTES:
            raise UsageError(
                f"{_shown(path)}: larger than {LARGEST_FILE_BYTES >> 20} MiB",
                code="bad_workloads_file",
            )
        return data.decode("utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "it is not UTF-8 text"
        raise UsageError(
            f"{_shown(path)} cannot be read: {reason}", code="bad_workloads_file"
        ) from error


def _shown(path: Path) -> str:
    return shortened(visible(path), 120)


def _short(value: object) -> str:
    return shortened(visible(repr(value)), 60)

"""Joins a run of runtime_set that ran out of time with the stored results.

    python -m bench.gpu.grid_join FOLDER [--times]

Needs no GPU. FOLDER is the output of `bench.gpu.runtime_set`. A cell gets the times of both runs.
For a kernel that both runs timed, the newer time counts; the times of one that only the older run
timed are scaled by the median ratio of those that both timed. The set is made from these times. The
tables of the sixty shapes and the drawn shapes then get the rows whose kernel the new set uses, the
newer row if there are two, so a ratio always comes from a single run. A shape of the sixty that no
run called with the set's kernel keeps its newest row.

--times joins only the times of cells, and leaves them in FOLDER. Use it after a run of some cells
(`grid_times --kind`); then make the set from FOLDER and time its calls. A stored drawn call that
was slower than PyTorch becomes a drawn shape of its cell, so that the cell gets another kernel.
"""

from __future__ import annotations

import json
from collections.abc import Container, Mapping, Sequence
from hashlib import sha256
from itertools import chain
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory

from bench.command_line import script_parser
from bench.gpu import grid_set
from bench.gpu.grid_shapes import cells, key, place_of
from bench.gpu.lost_calls import lost_calls
from bench.gpu.measured_gpu import add_gpu, kernel_of, result_of, set_name
from bench.gpu.rule_regret import DTYPES
from bench.gpu.runtime_pool import Design, Point, design, stored_points
from bench.gpu.runtime_set import stored_form
from bench.gpu.runtime_shapes import shapes
from bench.gpu.set_files import sealed
from bench.gpu.tuned_set import SETS, Part, moved, read_part, renumbered
from bench.results import Row, find_result, read_result, write_result

Time = float | dict[str, float]  # in microseconds, or with its interval
BEFORE = " (before"  # behind a label that stands for another kernel in the newer run


def main() -> int:
    parser = script_parser(__doc__)
    parser.add_argument("folder", type=Path, metavar="FOLDER")
    parser.add_argument("--kept", type=Path, help="a folder for compiled kernels")
    add_gpu(parser)
    parser.add_argument("--times", action="store_true", help="join times alone, in FOLDER")
    options = parser.parse_args()
    gpu: str = options.gpu
    if options.times:
        for dtype in DTYPES:
            for name, value in joined_times(dtype, options.folder, gpu).items():
                write_result(name, value, options.folder)
        return 0
    older = {name: find_result(name) for dtype in DTYPES for name in tables_of(dtype, gpu)}
    drawn_before = find_result(f"{gpu}/drawn_calls")
    for dtype in DTYPES:
        for name, value in joined_times(dtype, options.folder, gpu).items():
            write_result(name, value)
    make_set(options.folder / set_name(gpu), options.kept, gpu)
    for dtype in DTYPES:
        for name in tables_of(dtype, gpu):
            newer = stored_form(read_result(name, options.folder))
            write_result(name, joined_table(newer, older[name], dtype, gpu))
    newer = read_result(f"{gpu}/drawn_calls", options.folder)
    write_result(f"{gpu}/drawn_calls", joined_drawn(newer, drawn_before, gpu))
    return 0


def tables_of(dtype: str, gpu: str) -> tuple[str, ...]:
    return (result_of("runtime_table", dtype, gpu),)


# ---- times of cells ----


def joined_times(dtype: str, folder: Path, gpu: str) -> dict[str, Row]:
    """The results of a type, by name."""
    names = results_of(dtype, gpu)
    newer = {name: find_result(name, folder) for name in names}  # some cells alone have no pool
    older = {name: find_result(name) for name in names}
    pool = names[0]
    points = newest_points(folder, gpu)
    labels = frozenset(points)
    label_of = {design(point): label for label, point in points.items()}
    places = set(map(key, cells()))
    joined: dict[str, Row] = {}
    for name in names:
        known = stored_points(older[name])
        names_now = renamed(known, labels, label_of)
        points |= {names_now[label]: point for label, point in known.items()}
        before = [
            with_labels(row, names_now)
            for row in older[name].get("rows", ())
            if name == pool or place_of(row) in places
        ]
        if "between" in name:
            before += lost_calls(find_result(f"{gpu}/drawn_calls"), dtype, label_of, gpu)
        joined[name] = {
            **(newer[name] or older[name]),
            "environment": both(newer[name], older[name]),
            "rows": rows_of(newer[name].get("rows", ()), before),
        }
    for name in names:
        used = {label for row in joined[name]["rows"] for label in row["times"]}
        joined[name]["points"] = {
            label: {"template": point.template, "parameters": point.parameters}
            for label, point in points.items()
            if label in used
        }
    return joined


def results_of(dtype: str, gpu: str) -> list[str]:
    names = ("runtime_pool", "runtime_grid", "runtime_between")
    return [result_of(name, dtype, gpu) for name in names]


def newest_points(folder: Path, gpu: str) -> dict[str, Point]:
    """Of both types, so that a label means the same kernel in both."""
    points: dict[str, Point] = {}
    for name in chain.from_iterable(results_of(dtype, gpu) for dtype in DTYPES):
        points |= stored_points(find_result(name, folder))
    return points


def renamed(
    known: Mapping[str, Point], taken: Container[str], label_of: Mapping[Design, str]
) -> dict[str, str]:
    """By label of the older run: the newer's for the same design, or one that is free."""

    def free(label: str, point: Point) -> str:
        digest = sha256(json.dumps(design(point)).encode()).hexdigest()
        return f"{label} (before, {digest[:8]})" if label in taken else label

    return {
        label: label_of.get(design(point)) or free(label.partition(BEFORE)[0], point)
        for label, point in known.items()
    }


def with_labels(row: Row, names: Mapping[str, str]) -> Row:
    times = {names.get(label, label): us for label, us in row["times"].items()}
    return {**row, "times": times}


def rows_of(newer: Sequence[Row], older: Sequence[Row]) -> list[Row]:
    """A row for each shape; where several are of one shape, the first has the newest times."""
    rows: dict[tuple[int, str], Row] = {}
    for row in (*reversed(older), *reversed(newer)):
        before = rows.get(which(row))
        rows[which(row)] = row if before is None else with_older_times(row, before)
    return [rows[each] for each in sorted(rows)]


def which(row: Row) -> tuple[int, str]:
    """What a row is about; those of the sixty shapes have no family."""
    return row.get("family", -1), row["shape"]


def with_older_times(row: Row, before: Row) -> Row:
    both_timed = row["times"].keys() & before["times"].keys()
    # One time of a run may be far too long; PyTorch's is among them.
    scale = median(us_of(row["times"][it]) / us_of(before["times"][it]) for it in both_timed)
    older = {label: scaled(time, scale) for label, time in before["times"].items()}
    return {**row, "times": {**older, **row["times"]}}


def us_of(time: Time) -> float:
    return time["us"] if isinstance(time, dict) else time


def scaled(time: Time, scale: float) -> Time:
    """With its interval."""
    if isinstance(time, dict):
        return {name: us if name == "rough" else us * scale for name, us in time.items()}
    return round(time * scale, 3)


def both(newer: Row, older: Row) -> Row:
    environment: Row = (newer or older)["environment"]
    dates = {result["environment"]["date"] for result in (newer, older) if result}
    return {**environment, "dates": sorted(dates)}


def make_set(measured: Path, kept: Path | None, gpu: str) -> None:
    """A new set, of both types; what was shipped has another text of kernel.toml, perhaps."""
    with TemporaryDirectory(prefix="greenfast-set-") as folder:
        name = set_name(gpu)
        out = Path(folder) / name
        for dtype in DTYPES:
            content, report = grid_set.made(dtype, kept=kept, gpu=gpu)
            out.write_bytes(grid_set.with_others(content, out, dtype))
            print(dtype, json.dumps(report), flush=True)
        (SETS / name).write_bytes(as_measured(out.read_bytes(), measured.read_bytes()))


def as_measured(content: bytes, older: bytes) -> bytes:
    """The set with the kernels that ran, where a template has changed since they were timed."""
    ran = read_part(older, "the set that ran")
    new = read_part(content, "the new set")
    by_design = {design_in(ran, row): row for row in ran.kernels}
    files = {name: data for name, data in new.files.items() if name != "manifest.json"}
    rows = []
    for row in new.kernels:
        before = by_design.get(design_in(new, row), row)
        if before["source_digest"] != row["source_digest"]:
            print(f"{row['template']} {before['source_digest'][:12]} as it ran", flush=True)
            files |= moved(ran.files, before, row["id"])
            rows.append(renumbered(before, row["id"]))
        else:
            rows.append(row)
    return sealed(files, {**new.manifest, "kernels": rows})


def design_in(part: Part, row: Row) -> Design:
    """As `design`, with the compile-time values."""
    parameters = json.loads(part.files[f"kernels/{row['id']}/launch.json"])["parameters"]
    template, values = design(Point(row["template"], parameters))
    return template, values + json.dumps(row["compiled"], sort_keys=True)


# ---- tables of what was called ----


def joined_table(newer: Row, older: Row, dtype: str, gpu: str) -> Row:
    from bench.gpu.runtime_calls import summary

    runs = [{row["shape"]: row for row in result.get("rows", ())} for result in (newer, older)]
    rows = []
    for shape in shapes():
        dims = {name: getattr(shape, name) for name in ("B", "H", "H_kv", "S_q", "S_kv", "D")}
        used = kernel_of(dims, dtype, shape.mask, gpu)
        measured = [run[shape.name] for run in runs if shape.name in run]
        same = [row for row in measured if row["kernel"] == used]
        rows.append({**(same or measured)[0], "tuned": shape.tuned})
    return {"environment": both(newer, older), "rows": rows, "summary": summary(rows)}


def joined_drawn(newer: Row, older: Row, gpu: str) -> Row:
    """A row for each drawn shape, if there is one, of a call with the kernel that the set uses, or
    that PyTorch served. Other rows name that kernel as `other_kernel`."""
    rows: dict[tuple[str, str, str], Row] = {}
    for row in (*newer["rows"], *older.get("rows", ())):
        which = (row["shape"], row["dtype"], row["mask"])
        used = kernel_of(row["dims"], row["dtype"], row["mask"], gpu)
        now = {name: value for name, value in row.items() if name != "other_kernel"}
        if row["kernel"] != used:
            now["other_kernel"] = used
        if which not in rows or ("other_kernel" in rows[which] and row["kernel"] == used):
            rows[which] = now
    timed = [row for row in rows.values() if "times" in row or "other_kernel" not in row]
    return {**newer, "environment": both(newer, older), "rows": timed}


if __name__ == "__main__":
    raise SystemExit(main())

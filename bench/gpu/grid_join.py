"""Joins a run of runtime_set that ran out of time with the stored results.

    python -m bench.gpu.grid_join FOLDER [--times]

Needs no GPU. FOLDER is the output of `bench.gpu.runtime_set`. A cell gets the times of both runs.
For a kernel that both runs timed, the newer time counts; a kernel that only the older run timed
keeps its ratio to PyTorch's time. The set is made from these times. The tables of the sixty shapes
and the drawn shapes then get the rows whose kernel the new set uses, the newer row if there are
two, so a ratio always comes from a single run. A shape of the sixty that no run called with the
set's kernel keeps its newest row, marked `other_kernel`.

--times joins only the times of cells, and leaves them in FOLDER. Use it after a run of some cells
(`grid_times --kind`); then make the set from FOLDER and time its calls.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

from bench.command_line import script_parser
from bench.gpu import grid_set
from bench.gpu.grid_shapes import Place, cells, key, place_of
from bench.gpu.grid_times import FALLBACK
from bench.gpu.measured_gpu import GPU_NAMES, add_gpu, result_of, set_name
from bench.gpu.rule_regret import DTYPES
from bench.gpu.runtime_pool import Design, Point, design, stored_points
from bench.gpu.runtime_set import stored_form
from bench.gpu.runtime_shapes import shapes
from bench.gpu.set_files import sealed
from bench.gpu.tuned_set import SETS, Part, moved, read_part, renumbered
from bench.results import Row, find_result, read_result, write_result

BEFORE = " (before)"  # behind a label that stands for another kernel in the newer run


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
    names = [
        result_of(name, dtype, gpu) for name in ("runtime_pool", "runtime_grid", "runtime_between")
    ]
    newer = {name: read_result(name, folder) for name in names}
    older = {name: find_result(name) for name in names}
    points: dict[str, Point] = {}
    for result in newer.values():
        points |= stored_points(result)
    label_of = {design(point): label for label, point in points.items()}
    pool, grid, between = names
    joined: dict[str, Row] = {pool: newer[pool]}
    for name in (grid, between):
        known = stored_points(older[name])
        names_now = renamed(known, points, label_of)
        points |= {names_now[label]: point for label, point in known.items()}
        before = [with_labels(row, names_now) for row in older[name].get("rows", ())]
        joined[name] = {
            **newer[name],
            "environment": both(newer[name], older[name]),
            "rows": rows_of(newer[name]["rows"], before, one_a_cell=name == grid),
        }
    for name in names:
        used = {label for row in joined[name]["rows"] for label in row["times"]}
        joined[name]["points"] = {
            label: {"template": point.template, "parameters": point.parameters}
            for label, point in points.items()
            if label in used
        }
    return joined


def renamed(
    known: Mapping[str, Point], points: Mapping[str, Point], label_of: Mapping[Design, str]
) -> dict[str, str]:
    """By label of the older run: the newer's for the same design, or one that is free."""
    return {
        label: label_of.get(design(point), label + BEFORE if label in points else label)
        for label, point in known.items()
    }


def with_labels(row: Row, names: Mapping[str, str]) -> Row:
    times = {names.get(label, label): us for label, us in row["times"].items()}
    return {**row, "times": times}


def rows_of(newer: Sequence[Row], older: Sequence[Row], *, one_a_cell: bool) -> list[Row]:
    known = {key(cell) for cell in cells()}
    before = [row for row in older if place_of(row) in known]
    if not one_a_cell:
        return [*newer, *before]
    rows: dict[Place, Row] = {place_of(row): row for row in before}
    for row in newer:
        place = place_of(row)
        rows[place] = with_older_times(row, rows[place]) if place in rows else row
    return [rows[place] for place in sorted(rows)]


def with_older_times(row: Row, before: Row) -> Row:
    scale = row["times"][FALLBACK] / before["times"][FALLBACK]
    older = {label: round(us * scale, 3) for label, us in before["times"].items()}
    return {**row, "times": {**older, **row["times"]}}


def both(newer: Row, older: Row) -> Row:
    environment: Row = newer["environment"]
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
        row = (same or measured)[0]
        rows.append({**row, "tuned": shape.tuned} | ({} if same else {"other_kernel": used}))
    return {"environment": both(newer, older), "rows": rows, "summary": summary(rows)}


def joined_drawn(newer: Row, older: Row, gpu: str) -> Row:
    """Drawn shapes that a run called with the kernel that the set uses, or that PyTorch serves."""
    rows: dict[tuple[str, str, str], Row] = {}
    for row in (*newer["rows"], *older.get("rows", ())):
        which = (row["shape"], row["dtype"], row["mask"])
        if which not in rows and row["kernel"] == kernel_of(
            row["dims"], row["dtype"], row["mask"], gpu
        ):
            rows[which] = row
    return {**newer, "environment": both(newer, older), "rows": list(rows.values())}


def kernel_of(dims: Row, dtype: str, mask: str, gpu: str) -> str | None:
    import greenfast

    sizes: Iterable[tuple[str, int]] = dims.items()
    answer = greenfast.explain(
        "attention", gpu=GPU_NAMES[gpu], dtype=dtype, mask=mask, **dict(sizes)
    )
    return answer.kernel


if __name__ == "__main__":
    raise SystemExit(main())

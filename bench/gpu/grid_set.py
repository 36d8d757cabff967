"""The shipped set of attention kernels, from times on grids of shapes (grid_times).

    python -m bench.gpu.grid_set [--dtype bf16] [--results FOLDER] [--out SET.zip] [--kept FOLDER]
                                 [--gpu h200]

Needs no GPU. It reads h200/runtime_grid, runtime_between and runtime_pool (with the suffix _fp16
for fp16) from bench/results or another folder. bench.gpu.grid_rules gives cells of the grids a
kernel. Those of the sixty shapes that may be tuned on have a rule each. All other shapes go to the
library. Where a run on the H200 did not time a kernel on the neighbours of a cell that it wins, its
times are estimated (estimated_times). Kernels and rules of the other type stay in SET.zip as they
are. --kept is a folder for compiled kernels.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from bench.command_line import script_parser
from bench.gpu.estimated_times import GRID
from bench.gpu.grid_rules import Judged, judged, rules_of, uses
from bench.gpu.grid_shapes import Place, key
from bench.gpu.grid_times import FALLBACK
from bench.gpu.measured_gpu import DEFAULT, add_gpu, result_of, set_name
from bench.gpu.runtime_calls import PEERS
from bench.gpu.runtime_pool import Point, own_times, stored_points, valid_entry
from bench.gpu.set_files import Built, Entry, built, bundle_bytes
from bench.gpu.tuned_set import DIMS, SETS, joined_parts, read_part
from bench.gpu.waves import Waves, waves_of
from bench.results import RESULTS, Row, read_result
from greenfast.runtime.archive import read_archive
from greenfast.runtime.read_bundle import kernel_set
from greenfast.search.cores import usable_cores
from greenfast.search.devices.facts import device
from greenfast.search.kernels.catalogue import REPOSITORY_TEMPLATES, Catalogue
from greenfast.search.kernels.spec import KernelSpec
from greenfast.search.toolchain import Toolchain

POOL = "runtime_pool"
EXACTLY_WON = 0.97  # of the library's time, at most, on a shape that was measured itself
BEYOND = 1.5  # how far the region goes beyond what was measured


def main() -> int:
    parser = script_parser(__doc__)
    parser.add_argument("--dtype", choices=("bf16", "fp16"), default="bf16")
    parser.add_argument("--out", type=Path, help="the set; default: the shipped one")
    parser.add_argument("--kept", type=Path, help="a folder for compiled kernels")
    parser.add_argument("--results", type=Path, default=RESULTS, help="a folder of results")
    add_gpu(parser)
    options = parser.parse_args()
    out = options.out or SETS / set_name(options.gpu)
    content, report = made(options.dtype, options.results, options.kept, options.gpu)
    out.write_bytes(with_others(content, out, options.dtype))
    kernel_set(read_archive(out), out.stem)  # which the runtime has to read
    print(json.dumps(report))
    return 0


def made(
    dtype: str, folder: Path = RESULTS, kept: Path | None = None, gpu: str = DEFAULT
) -> tuple[bytes, Row]:
    """The set of one type from the results in a folder, and what it serves."""
    singles, points = sixty(dtype, folder, gpu), measured_points(dtype, folder, gpu)
    return grid_set(judged(dtype, folder, gpu), singles, points, dtype, kept, gpu)


def sixty(dtype: str = "bf16", folder: Path = RESULTS, gpu: str = DEFAULT) -> list[Row]:
    """Of the sixty shapes, those that may be tuned on and on which every template was timed.

    The first bf16 times are older than the template `decode`, which few query rows are for.
    """
    return [
        row
        for row in read_result(result_of(POOL, dtype, gpu), folder)["rows"]
        if row["tuned"] and (_has_decode(row) or _has_many_rows(row))
    ]


def measured_points(dtype: str, folder: Path = RESULTS, gpu: str = DEFAULT) -> dict[str, Point]:
    """What the labels stood for when they were timed; SystemExit where two results differ."""
    points: dict[str, Point] = {}
    for name, of in ((GRID, dtype), (POOL, dtype), (GRID, "bf16")):
        for label, point in stored_points(read_result(result_of(name, of, gpu), folder)).items():
            if points.setdefault(label, point) != point:
                raise SystemExit(f"{name}: {label!r} is another kernel than in another result")
    return points


def _has_decode(row: Row) -> bool:
    return any(name.startswith("decode ") for name in row["times"])


def _has_many_rows(row: Row) -> bool:
    return row["shape"].startswith(("prefill", "cross")) and row["dims"]["S_q"] > 1


def grid_set(
    everything: Sequence[Judged],
    singles: Sequence[Row],
    points: Mapping[str, Point],
    dtype: str,
    kept: Path | None,
    gpu: str = DEFAULT,
) -> tuple[bytes, Row]:
    """The bundle, and what it serves. `singles`: measured shapes beside the grids."""
    catalogue = Catalogue([REPOSITORY_TEMPLATES])
    kernel = catalogue.kernel("attention")
    entries: list[Entry] = []
    groups: list[_Group] = []
    for width, mask in sorted({kind_of(row) for row in (*(it.row for it in everything), *singles)}):
        group = [item for item in everything if kind_of(item.row) == (width, mask)]
        alone = [row for row in singles if kind_of(row) == (width, mask)]
        by_cell = uses(group)
        won = [label for row in alone if (label := won_by(row)) is not None]
        labels = sorted({*by_cell.values(), *won})
        ids = {label: f"k{len(entries) + at}" for at, label in enumerate(labels)}
        compiled = {"D": width, "dtype": dtype, "mask": mask}
        for label in labels:
            entry = valid_entry(kernel, points[label], compiled, label, gpu)
            if entry is None:
                raise SystemExit(f"{label} is excluded for {compiled}: templates changed")
            entries.append(entry)
        if labels:
            groups.append(_Group(compiled, group, by_cell, alone, ids))
    kernels, versions = compiled_kernels(catalogue, kernel, entries, kept, gpu)
    waves = {f"k{number}": waves_of(item, device(gpu)) for number, item in enumerate(kernels)}
    stay = staying(points)
    rows = [dispatch_group(group, stay, waves) for group in groups]
    content = bundle_bytes(kernel, kernels, rows, device(gpu), name="measured", toolchain=versions)
    return content, {
        "bytes": len(content),
        "kernels": len(kernels),
        "rules": sum(len(row["rules"]) for row in rows),
        "points": len(everything),
        "served": sum(len(group.served) for group in groups),
    }


@dataclass(frozen=True)
class _Group:
    """The cells and shapes of one set of compile-time values, and the kernels that they use."""

    compiled: Row
    cells: Sequence[Judged]
    served: Mapping[Place, str]  # labels
    alone: Sequence[Row]  # shapes with a rule each
    ids: Mapping[str, str]  # by label


def compiled_kernels(
    catalogue: Catalogue, kernel: KernelSpec, entries: Sequence[Entry], kept: Path | None, gpu: str
) -> tuple[list[Built], dict[str, str]]:
    """The entries' kernels in their order, and the versions of what compiled them."""
    with (
        TemporaryDirectory(prefix="greenfast-set-") as folder,
        ThreadPoolExecutor(usable_cores()) as threads,
    ):
        toolchain = Toolchain(kept or Path(folder), usable_cores())
        try:
            toolchain.require_correct_code()
            kernels = threads.map(
                lambda entry: built(catalogue, kernel, entry, device(gpu), toolchain), entries
            )
            return list(kernels), dict(toolchain.identity)
        finally:
            toolchain.close()


def with_others(content: bytes, path: Path, dtype: str) -> bytes:
    """`content`, of one type, with the kernels and groups of other types in `path`."""
    parts = [read_part(content, "the new kernels")]
    if path.exists():
        others = read_part(
            path.read_bytes(), str(path), lambda compiled: compiled["dtype"] != dtype
        )
        parts.append(others)
    parts.sort(key=lambda part: sorted(row["compiled"]["dtype"] for row in part.kernels))
    return joined_parts(parts)


def dispatch_group(group: _Group, staying: frozenset[str], waves: Mapping[str, Waves]) -> Row:
    cells, alone, served, ids = group.cells, group.alone, group.served, group.ids
    return {
        "compiled": group.compiled,
        "region": region_of([item.row["dims"] for item in cells] + [row["dims"] for row in alone]),
        "rules": [
            *(exactly(row, ids) for row in alone),
            *rules_of(cells, ids, staying, waves),
            {"when": [], "use": "library"},
        ],
        "outside": "library",
        "workloads": [
            workload_of(item, served[key(item.cell)], ids)
            for item in cells
            if served.get(key(item.cell)) in item.row["times"] and item.is_own
        ]
        + [single_of(row, ids) for row in alone],
        "regret": {},
    }


def staying(points: Mapping[str, Point]) -> frozenset[str]:
    """The labels of kernels whose blocks walk the row tiles of a batch."""
    return frozenset(
        label for label, it in points.items() if it.parameters.get("scheduler") == "persistent"
    )


def kind_of(row: Row) -> tuple[int, str]:
    return row["dims"]["D"], row["mask"]


def region_of(measured: Sequence[Row]) -> Row:
    """Up to BEYOND times what was measured; of B and H it is the product that counts."""
    heads = max(dims["B"] * dims["H"] for dims in measured)
    most = {name: max(dims[name] for dims in measured) for name in ("S_q", "S_kv")}
    return {name: [1, int(BEYOND * most.get(name, heads))] for name in DIMS}


def workload_of(item: Judged, label: str, ids: Mapping[str, str]) -> Row:
    time_us = item.row["times"][label]
    return {
        "name": item.row["shape"],
        "dims": {name: item.row["dims"][name] for name in DIMS},
        "weight": 1.0,
        "use": ids[label],
        "times_us": {ids[label]: time_us},
        "best_us": min(item.row["times"].values()),
        "ratio": item.ratios[label],
        "peers": [FALLBACK],
    }


def peer_us(row: Row) -> float:
    return float(min(row["times"][name]["us"] for name in PEERS if name in row["times"]))


def won_by(row: Row) -> str | None:
    """The label of the fastest kernel on the shape; None if the library stays."""
    times = own_times(row)
    label = min(times, key=lambda name: times[name], default=None)
    if label is None or times[label] > EXACTLY_WON * row["times"][FALLBACK]["us"]:
        return None
    return label


def exactly(row: Row, ids: Mapping[str, str]) -> Row:
    """What was measured on a shape comes before what is expected of its cell."""
    label, dims = won_by(row), row["dims"]
    return {
        "when": [{"value": name, "above": dims[name] - 1, "at_most": dims[name]} for name in DIMS],
        "use": ids[label] if label else "library",
    }


def single_of(row: Row, ids: Mapping[str, str]) -> Row:
    times, label = own_times(row), won_by(row)
    use = ids[label] if label else "library"
    return {
        "name": row["shape"],
        "dims": row["dims"],
        "weight": 1.0,
        "use": use,
        "times_us": {ids[label]: time for label, time in times.items() if label in ids},
        "best_us": min([peer_us(row), *times.values()]),
        "ratio": times[label] / peer_us(row) if label else 1.0,
        "peers": [name for name in PEERS if name in row["times"]],
    }


if __name__ == "__main__":
    raise SystemExit(main())

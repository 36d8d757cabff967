"""The shipped set of attention kernels, from times on grids of shapes (grid_times).

    python -m bench.gpu.grid_set [--dtype bf16] [--out SET.zip] [--kept FOLDER] [--all]

Needs no GPU. It reads h200/runtime_grid and h200/runtime_pool (for fp16 those with _fp16 behind),
and gives a point's cell a kernel where that takes at most 0.97 of the time of PyTorch's default,
which would run in its place, and is no slower than 1.05 of it on the points beside. A few percent
are given up for fewer kernels. Where no grid was measured, those of the sixty shapes decide that
may be tuned on (with --all: all), each for itself, and for shapes near by with the same ratio of
heads, and B H, S_q and S_kv within a factor of 1.5. All other shapes go to the library. Kernels and
rules of the other type stay in SET.zip as they are. --kept is a folder for compiled kernels.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from math import exp, log
from pathlib import Path
from tempfile import TemporaryDirectory

from bench.command_line import script_parser
from bench.gpu.grid_shapes import Cell, Place, beside, cells, key, place_of
from bench.gpu.grid_times import FALLBACK, result_of
from bench.gpu.runtime_calls import PEERS
from bench.gpu.runtime_pool import own_times, pool_points, valid_entry
from bench.gpu.set_files import Built, built, bundle_bytes
from bench.gpu.tuned_set import DIMS, GPU, SETS, joined_parts, read_part
from bench.results import Row, read_result
from greenfast.search.cores import usable_cores
from greenfast.search.devices.facts import device
from greenfast.search.kernels.catalogue import REPOSITORY_TEMPLATES, Catalogue
from greenfast.search.toolchain import Toolchain

WON = 0.97  # of the library's time, at most
NEVER_ABOVE = 1.05  # of the library's time, on the points beside
GIVEN_UP = 1.03  # for fewer kernels
NEAR = 1.5


def main() -> int:
    parser = script_parser(__doc__)
    parser.add_argument("--dtype", choices=("bf16", "fp16"), default="bf16")
    parser.add_argument("--out", type=Path, default=SETS / f"attention-{GPU}.zip")
    parser.add_argument("--kept", type=Path, help="a folder for compiled kernels")
    parser.add_argument("--all", action="store_true", help="make rules from all sixty shapes")
    options = parser.parse_args()
    rows = read_result(f"h200/{result_of('runtime_grid', options.dtype)}")["rows"]
    content, report = grid_set(rows, sixty(options.dtype, options.all), options.dtype, options.kept)
    options.out.write_bytes(with_others(content, options.out, options.dtype))
    print(json.dumps(report))
    return 0


@dataclass(frozen=True)
class Judged:
    """A measured cell: by label, the ratio to the library's time; 1 where none is measured."""

    cell: Cell
    row: Row
    ratios: dict[str, float]
    scores: dict[str, float]  # of the labels that may serve it

    @property
    def best(self) -> float:
        return min(self.scores.values(), default=1.0)


def judged(rows: Sequence[Row]) -> list[Judged]:
    by_place = {key(cell): cell for cell in cells()}
    known = {place: row for row in rows if (place := place_of(row)) in by_place}
    ratios = {
        place: {name: us / row["times"][FALLBACK] for name, us in own_times(row).items()}
        for place, row in known.items()
    }
    result = []
    for place, row in known.items():
        near = [ratios[other] for other in beside(place) if other in ratios]
        scores = {
            name: score(own, [item.get(name, 1.0) for item in near])
            for name, own in ratios[place].items()
            if own <= WON and all(item.get(name, 1.0) <= NEVER_ABOVE for item in near)
        }
        result.append(Judged(by_place[place], row, ratios[place], scores))
    return result


def score(own: float, near: Sequence[float]) -> float:
    """The geometric mean with the points beside; the point itself counts twice."""
    return exp((2 * log(own) + sum(map(log, near))) / (2 + len(near)))


def uses(group: Sequence[Judged]) -> dict[Place, str]:
    """A label for each cell that a kernel serves: as few labels as serve all nearly as well."""
    left = [item for item in group if item.scores]
    label_of: dict[Place, str] = {}
    while left:
        served: dict[str, list[Judged]] = defaultdict(list)
        for item in left:
            for name, score in item.scores.items():
                if score <= GIVEN_UP * item.best:
                    served[name].append(item)
        label = max(sorted(served), key=lambda name: len(served[name]))
        label_of |= {key(item.cell): label for item in served[label]}
        left = [item for item in left if key(item.cell) not in label_of]
    return label_of


def rules_of(group: Sequence[Judged], ids: dict[str, str]) -> list[Row]:
    """Rules in the order of the grids; neighbours along the last axis are joined."""
    served = uses(group)
    rules: list[Row] = []
    last: Place | None = None
    for item in sorted(group, key=lambda item: key(item.cell)):
        place = key(item.cell)
        if place not in served:
            continue
        use, when = ids[served[place]], [dict(part) for part in item.cell.when]
        if rules and rules[-1]["use"] == use and last == before(place):
            for joined, part in zip(rules[-1]["when"], when, strict=True):
                joined["at_most"] = max(joined["at_most"], part["at_most"])
        else:
            rules.append({"when": when, "use": use})
        last = place
    return rules


def before(place: Place) -> Place:
    """The neighbour before on the last axis."""
    family, width, at = place
    return family, width, (*at[:-1], at[-1] - 1)


def sixty(dtype: str = "bf16", every: bool = False) -> list[Row]:
    """Of the sixty shapes, those that may be tuned on and that lie on no grid that was measured."""
    return [
        row
        for row in read_result(f"h200/{result_of('runtime_pool', dtype)}")["rows"]
        if (every or row["tuned"])
        and row["shape"].startswith(("prefill", "cross"))
        and row["dims"]["S_q"] > 1
    ]


def grid_set(
    rows: Sequence[Row], singles: Sequence[Row], dtype: str, kept: Path | None
) -> tuple[bytes, Row]:
    """The bundle, and what it serves. `singles`: measured shapes beside the grids."""
    catalogue = Catalogue([REPOSITORY_TEMPLATES])
    kernel = catalogue.kernel("attention")
    points, everything = pool_points(kernel), judged(rows)
    kernels: list[Built] = []
    groups: list[Row] = []
    served = 0
    with TemporaryDirectory(prefix="greenfast-set-") as folder:
        toolchain = Toolchain(kept or Path(folder), usable_cores())
        try:
            toolchain.require_right()
            kinds = sorted({kind_of(row) for row in (*rows, *singles)})
            for width, mask in kinds:
                group = [item for item in everything if kind_of(item.row) == (width, mask)]
                alone = [row for row in singles if kind_of(row) == (width, mask)]
                by_cell = uses(group)
                served += len(by_cell)
                near = [rule for row in alone if (rule := rule_of(row)) is not None]
                labels = sorted({*by_cell.values(), *(rule["use"] for rule in near)})
                ids = {label: f"k{len(kernels) + at}" for at, label in enumerate(labels)}
                compiled = {"D": width, "dtype": dtype, "mask": mask}
                for label in labels:
                    entry = valid_entry(kernel, points[label], compiled, label, GPU)
                    if entry is None:
                        raise SystemExit(f"{label} is excluded for {compiled}: templates changed")
                    kernels.append(built(catalogue, kernel, entry, device(GPU), toolchain))
                if labels:
                    groups.append(dispatch_group(compiled, group, by_cell, alone, ids))
            versions = dict(toolchain.identity)
        finally:
            toolchain.close()
    content = bundle_bytes(
        kernel, kernels, groups, device(GPU), name="measured", toolchain=versions
    )
    return content, {
        "bytes": len(content),
        "kernels": len(kernels),
        "rules": sum(len(group["rules"]) for group in groups),
        "points": len(everything),
        "served": served,
    }


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


def dispatch_group(
    compiled: Row,
    group: Sequence[Judged],
    served: dict[Place, str],
    alone: Sequence[Row],
    ids: dict[str, str],
) -> Row:
    near = sorted(
        (rule for row in alone if (rule := rule_of(row)) is not None),
        key=lambda rule: rule["ratio"],
    )
    return {
        "compiled": compiled,
        "region": region_of([item.row["dims"] for item in group] + [row["dims"] for row in alone]),
        "rules": [
            *(exactly(row, ids) for row in alone),
            *rules_of(group, ids),
            *({"when": rule["when"], "use": ids[rule["use"]]} for rule in near),
            {"when": [], "use": "library"},
        ],
        "outside": "library",
        "workloads": [
            workload_of(item, served[key(item.cell)], ids)
            for item in group
            if key(item.cell) in served
        ]
        + [single_of(row, ids) for row in alone],
        "regret": {},
    }


def kind_of(row: Row) -> tuple[int, str]:
    return row["dims"]["D"], row["mask"]


def region_of(measured: Sequence[Row]) -> Row:
    """Up to NEAR beyond what was measured; of B and H it is the product that counts."""
    heads = max(dims["B"] * dims["H"] for dims in measured)
    most = {name: max(dims[name] for dims in measured) for name in ("S_q", "S_kv")}
    return {name: [1, int(NEAR * most.get(name, heads))] for name in DIMS}


def workload_of(item: Judged, label: str, ids: dict[str, str]) -> Row:
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


def rule_of(row: Row) -> Row | None:
    """The rule of a shape and those near it, with its kernel's label; None for the library."""
    times = own_times(row)
    label = min(times, key=lambda name: times[name], default=None)
    if label is None or times[label] > WON * row["times"][FALLBACK]["us"]:
        return None
    dims = row["dims"]
    sizes = {"B * H": dims["B"] * dims["H"], "S_q": dims["S_q"], "S_kv": dims["S_kv"]}
    when = [
        {"value": value, "above": below(size), "at_most": int(size * NEAR)}
        for value, size in sizes.items()
    ]
    ratio = dims["H"] // dims["H_kv"]
    when.append({"value": "H // H_kv", "above": ratio - 1, "at_most": ratio})
    return {"when": when, "use": label, "ratio": times[label] / peer_us(row)}


def below(size: int) -> int:
    """The largest number that is too far below `size`."""
    return int(-(-size // NEAR)) - 1


def exactly(row: Row, ids: dict[str, str]) -> Row:
    """What was measured on a shape comes before what is guessed for its neighbours."""
    rule, dims = rule_of(row), row["dims"]
    return {
        "when": [{"value": name, "above": dims[name] - 1, "at_most": dims[name]} for name in DIMS],
        "use": ids[rule["use"]] if rule else "library",
    }


def single_of(row: Row, ids: dict[str, str]) -> Row:
    times, rule = own_times(row), rule_of(row)
    use = ids[rule["use"]] if rule else "library"
    return {
        "name": row["shape"],
        "dims": row["dims"],
        "weight": 1.0,
        "use": use,
        "times_us": {ids[label]: time for label, time in times.items() if label in ids},
        "best_us": min([peer_us(row), *times.values()]),
        "ratio": rule["ratio"] if rule else 1.0,
        "peers": [name for name in PEERS if name in row["times"]],
    }


if __name__ == "__main__":
    raise SystemExit(main())

"""A set of attention kernels from a table that bench.gpu.runtime_calls measured with --pool.

    python -m bench.gpu.measured_set TABLE.json [--out FOLDER] [--all]

On each shape that may be tuned on (with --all: on every shape), the fastest kernel of the pool
wins where it takes at most 0.97 of the time of PyTorch's default, which would run in its place. The
shape itself has a rule, and so have shapes near by: the same ratio of heads, and B H, S_q and S_kv
within a factor of 1.5 of the measured ones. Other shapes go to the library. The script then tells
what the table would have given on the shapes that it was not made from.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from math import exp, log
from pathlib import Path
from tempfile import TemporaryDirectory

from bench.command_line import script_parser
from bench.gpu.runtime_calls import PEERS
from bench.gpu.runtime_pool import TEMPLATES, pool_points, valid_entry
from bench.gpu.set_files import Built, built, bundle_bytes
from bench.gpu.tuned_set import DIMS, GPU, SETS
from bench.results import Row, read_json
from greenfast.search.cores import usable_cores
from greenfast.search.devices.facts import device
from greenfast.search.kernels.catalogue import REPOSITORY_TEMPLATES, Catalogue
from greenfast.search.toolchain import Toolchain

WON = 0.97  # of the fallback's time, at most
FALLBACK = "torch-default"
NEAR = 1.5
DTYPE = "bf16"


def main() -> int:
    parser = script_parser(__doc__)
    parser.add_argument("table", type=Path, metavar="TABLE.json")
    parser.add_argument("--out", type=Path, default=SETS)
    parser.add_argument("--all", action="store_true", help="make rules from every shape")
    options = parser.parse_args()
    result = read_json(options.table)
    rows = [row for row in result["rows"] if "times" in row]
    used = [row for row in rows if options.all or row["tuned"]]
    content, groups, labels = measured_set(used)
    path = options.out / f"attention-{GPU}.zip"
    path.write_bytes(content)
    others = [row for row in rows if not row["tuned"]]
    report = {
        "file": path.name,
        "bytes": len(content),
        "rules": sum(len(group["rules"]) for group in groups),
        "tuned": outcome([row for row in rows if row["tuned"]], groups, labels),
        "not_tuned": outcome(others, groups, labels),
    }
    print(json.dumps(report))
    return 0


def peer_us(row: Row) -> float:
    return float(min(row["times"][name]["us"] for name in PEERS if name in row["times"]))


def own_times(row: Row) -> dict[str, float]:
    """Of the pool's kernels, by label."""
    return {
        name: item["us"]
        for name, item in row["times"].items()
        if name.partition(" ")[0] in TEMPLATES
    }


def measured_set(rows: Sequence[Row]) -> tuple[bytes, list[Row], dict[str, str]]:
    """The bundle, the groups of its table, and the pool's label of each kernel."""
    catalogue = Catalogue([REPOSITORY_TEMPLATES])
    kernel = catalogue.kernel("attention")
    points = pool_points(kernel)
    kernels: list[Built] = []
    groups: list[Row] = []
    with TemporaryDirectory(prefix="greenfast-set-") as folder:
        toolchain = Toolchain(Path(folder), usable_cores())
        try:
            toolchain.require_right()
            for width, mask in sorted({(row["dims"]["D"], row["mask"]) for row in rows}):
                compiled = {"D": width, "dtype": DTYPE, "mask": mask}
                won = [row for row in rows if (row["dims"]["D"], row["mask"]) == (width, mask)]
                rules = [rule for row in won if (rule := rule_of(row)) is not None]
                labels = list(dict.fromkeys(rule["use"] for rule in rules))
                if not labels:
                    continue
                ids = {label: f"k{len(kernels) + at}" for at, label in enumerate(labels)}
                for label in labels:
                    entry = valid_entry(kernel, points[label], compiled, label, GPU)
                    if entry is None:
                        raise SystemExit(f"{label} is excluded for {compiled}: templates changed")
                    kernels.append(built(catalogue, kernel, entry, device(GPU), toolchain))
                groups.append(group_of(compiled, won, rules, ids))
            versions = dict(toolchain.identity)
        finally:
            toolchain.close()
    if not kernels:
        raise SystemExit("no kernel of the pool was faster than the peers on any shape")
    content = bundle_bytes(
        kernel, kernels, groups, device(GPU), name="measured", toolchain=versions
    )
    labels = {f"k{at}": item.entry.label for at, item in enumerate(kernels)}
    return content, groups, labels


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


def group_of(compiled: Row, rows: Sequence[Row], rules: Sequence[Row], ids: dict[str, str]) -> Row:
    region = {}
    for name in DIMS:
        sizes = [row["dims"][name] for row in rows]
        region[name] = [1, int(max(sizes) * NEAR)]
    ordered = sorted(rules, key=lambda rule: rule["ratio"])
    return {
        "compiled": compiled,
        "region": region,
        "rules": [
            *(exactly(row, ids) for row in rows),
            *({"when": rule["when"], "use": ids[rule["use"]]} for rule in ordered),
            {"when": [], "use": "library"},
        ],
        "outside": "library",
        "workloads": [workload_of(row, ids) for row in rows],
        "regret": {},
    }


def exactly(row: Row, ids: dict[str, str]) -> Row:
    """What was measured on a shape comes before what is guessed for its neighbours."""
    rule, dims = rule_of(row), row["dims"]
    return {
        "when": [{"value": name, "above": dims[name] - 1, "at_most": dims[name]} for name in DIMS],
        "use": ids[rule["use"]] if rule else "library",
    }


def workload_of(row: Row, ids: dict[str, str]) -> Row:
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


def outcome(rows: Sequence[Row], groups: Sequence[Row], labels: dict[str, str]) -> Row:
    """Ratios to the best peer that the table gives on measured shapes."""
    ratios = []
    for row in rows:
        label = used_label(row, groups, labels)
        own = own_times(row)
        time = own.get(label, peer_us(row)) if label else row["times"][FALLBACK]["us"]
        ratios.append((time / peer_us(row), row["shape"]))
    if not ratios:
        return {}
    return {
        "shapes": len(ratios),
        "geometric_mean": exp(sum(log(ratio) for ratio, _ in ratios) / len(ratios)),
        "worst": max(ratios),
        "best": min(ratios),
    }


def used_label(row: Row, groups: Sequence[Row], labels: dict[str, str]) -> str | None:
    """The label of the kernel that the table picks for a measured shape."""
    dims = row["dims"]
    values = {
        **dims,
        "B * H": dims["B"] * dims["H"],
        "H // H_kv": dims["H"] // dims["H_kv"],
    }
    for group in groups:
        if (group["compiled"]["D"], group["compiled"]["mask"]) != (dims["D"], row["mask"]):
            continue
        for rule in group["rules"]:
            if all(
                item["above"] < values[item["value"]] <= item["at_most"] for item in rule["when"]
            ):
                return labels.get(rule["use"])
    return None


if __name__ == "__main__":
    raise SystemExit(main())

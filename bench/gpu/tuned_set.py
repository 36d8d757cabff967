"""Build the tuned sets that ship in greenfast/runtime/sets/.

    python -m bench.gpu.tuned_set --recorded          from the winners in bench/results/h200
    python -m bench.gpu.tuned_set BUNDLE.zip ...      from tuning bundles of one operation

--recorded renders the recorded winners again, requires the very sources that were measured, and
gives each the shapes on which it was measured to be faster than what would run in its place.
Several bundles become one set: their kernels and groups are joined; evidence and templates, which
only the emulator needs, are left out. No GPU is needed; the cubins come from the installed NVRTC or
from the bundles.
"""

from __future__ import annotations

import hashlib
import io
import itertools
import json
import tempfile
import zipfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.command_line import script_parser
from bench.gpu.measured_gpu import GPU_NAMES
from bench.gpu.set_files import Built, Entry, built, bundle_bytes, dispatch, group, sealed
from bench.gpu.set_files import json_bytes as json_bytes_of
from bench.results import ROOT, Row, find_result, read_result, result_names
from greenfast.search.cores import usable_cores
from greenfast.search.devices.facts import device
from greenfast.search.kernels.catalogue import REPOSITORY_TEMPLATES, Catalogue
from greenfast.search.toolchain import Toolchain

SETS = ROOT / "greenfast" / "runtime" / "sets"
GPU = "h200"
LEFT_OUT = ("evidence.json", "environment.json", "template.toml", "template.cu.j2")
DIMS = ("B", "H", "H_kv", "S_q", "S_kv")


def main() -> None:
    parser = script_parser(__doc__)
    parser.add_argument("bundles", type=Path, nargs="*", metavar="BUNDLE.zip")
    parser.add_argument("--recorded", action="store_true")
    parser.add_argument("--out", type=Path, default=SETS, help="the folder to write to")
    options = parser.parse_args()
    if options.recorded == bool(options.bundles):
        parser.error("give either --recorded or bundles")
    options.out.mkdir(parents=True, exist_ok=True)
    sets = joined(options.bundles) if options.bundles else recorded()
    for name, content in sets.items():
        path = options.out / name
        path.write_bytes(content)
        print(f"{path.name}: {len(content)} bytes")


# ---- from recorded winners ----


def recorded() -> dict[str, bytes]:
    catalogue = Catalogue([REPOSITORY_TEMPLATES])
    with tempfile.TemporaryDirectory(prefix="greenfast-set-") as folder:
        toolchain = Toolchain(Path(folder), usable_cores())
        try:
            toolchain.require_correct_code()
            return {
                f"attention-{GPU}.zip": attention_set(catalogue, toolchain),
                **{
                    f"rmsnorm-{gpu}.zip": rmsnorm_set(catalogue, toolchain, gpu)
                    for gpu in GPU_NAMES
                    if find_result(f"{gpu}/rmsnorm")
                },
            }
        finally:
            toolchain.close()


def attention_rows() -> list[Row]:
    """The recorded searches whose winner was faster than every peer, in all of its interval."""
    folder = "h200/attention_searches"
    names = result_names(ROOT / "bench" / "results" / folder)
    rows: list[Row] = [read_result(f"{folder}/{name}")["rows"][0] for name in names]
    return [row for row in rows if row["confirmed"] and row["interval"][1] < 1]


def attention_set(catalogue: Catalogue, toolchain: Toolchain) -> bytes:
    kernel = catalogue.kernel("attention")
    by_group: dict[tuple[Any, ...], list[tuple[Row, Entry]]] = {}
    for row in attention_rows():
        workload = kernel.workload(row["workload"])
        compiled = dict(workload.compile_time(kernel))
        entry = Entry(
            row["winner"]["template"],
            row["winner"]["parameters"],
            compiled,
            row["winner"]["source_digest"],
            row["workload"],
        )
        by_group.setdefault(tuple(compiled.items()), []).append((row, entry))
    kernels: list[Built] = []
    groups = []
    for compiled_items, pairs in sorted(by_group.items(), key=str):
        pairs.sort(key=lambda pair: pair[0]["dims"]["S_kv"])
        first = len(kernels)
        kernels += [built(catalogue, kernel, entry, device(GPU), toolchain) for _, entry in pairs]
        rows = [row for row, _ in pairs]
        ids = [f"k{first + number}" for number in range(len(rows))]
        groups.append(
            group(
                dict(compiled_items),
                {
                    name: (
                        min(row["dims"][name] for row in rows),
                        max(row["dims"][name] for row in rows),
                    )
                    for name in DIMS
                },
                _by_length(rows, ids),
                [_workload(row, use) for row, use in zip(rows, ids, strict=True)],
            )
        )
    versions = dict(toolchain.identity)
    return bundle_bytes(kernel, kernels, groups, device(GPU), name="recorded", toolchain=versions)


def _by_length(rows: Sequence[Row], ids: Sequence[str]) -> list[tuple[str, float | None, str]]:
    """Each winner up to the geometric mean of its length and the next one's.

    The shortest only up to its own: it was tuned to hold all of its keys in one tile.
    """
    lengths = [row["dims"]["S_kv"] for row in rows]
    limits = [
        length if number == 0 else int((length * longer) ** 0.5)
        for number, (length, longer) in enumerate(itertools.pairwise(lengths))
    ]
    return [("max(S_q, S_kv)", limit, use) for limit, use in zip([*limits, None], ids, strict=True)]


def _workload(row: Row, use: str) -> Row:
    return {
        "name": row["workload"],
        "dims": row["dims"],
        "weight": 1.0,
        "use": use,
        "times_us": {use: row["time_median_us"]},
        "best_us": row["time_median_us"],
        "ratio": row["ratio_to_best_peer"],
        "peers": [peer["name"] for peer in row["peers"] if peer["outcome"] == "timed"],
    }


# RMSNorm falls back to PyTorch's two operations, so those are what a kernel has to beat. Under
# torch.compile PyTorch's operations stay, which Inductor fuses.
IN_PLACE = "torch-rms-norm"


def rmsnorm_set(catalogue: Catalogue, toolchain: Toolchain, gpu: str) -> bytes:
    kernel = catalogue.kernel("rmsnorm")
    rows = []
    for row in read_result(f"{gpu}/rmsnorm")["rows"]:
        peers = {peer["name"]: peer for peer in row["peers"] if peer.get("ratio")}
        if IN_PLACE in peers and peers[IN_PLACE]["interval"][1] < 1:
            workload = kernel.workload(row["workload"])
            rows.append((dict(workload.dims), workload, row, peers[IN_PLACE]))
    rows.sort(key=lambda item: item[0]["M"])
    (compiled,) = {workload.compile_time(kernel) for _, workload, _, _ in rows}
    kernels = [
        built(
            catalogue,
            kernel,
            Entry(row["template"], row["parameters"], dict(compiled), "", row["workload"]),
            device(gpu),
            toolchain,
        )
        for _, _, row, _ in rows
    ]
    ids = [f"k{number}" for number in range(len(rows))]
    counts = [int(dims["M"]) for dims, _, _, _ in rows]
    limits = [int((few * more) ** 0.5) for few, more in itertools.pairwise(counts)]
    region = {
        name: (min(int(dims[name]) for dims, *_ in rows), max(int(dims[name]) for dims, *_ in rows))
        for name in ("M", "N")
    }
    table = group(
        dict(compiled),
        region,
        [("M", limit, use) for limit, use in zip([*limits, None], ids, strict=True)],
        [
            {
                "name": row["workload"],
                "dims": dims,
                "weight": 1.0,
                "use": use,
                "times_us": {use: row["time_median_us"]},
                "best_us": row["time_median_us"],
                "ratio": peer["ratio"],
                "peers": [peer["name"]],
            }
            for (dims, _, row, peer), use in zip(rows, ids, strict=True)
        ],
    )
    versions = dict(toolchain.identity)
    return bundle_bytes(kernel, kernels, [table], device(gpu), name="recorded", toolchain=versions)


# ---- from tuning bundles ----


def joined(paths: Sequence[Path]) -> dict[str, bytes]:
    """One set of several bundles of an operation on one device; SystemExit where they differ."""
    parts = [read_part(path.read_bytes(), str(path)) for path in paths]
    first = parts[0].manifest
    model = first["device"]["name"].removeprefix("NVIDIA ").split()[0].lower()
    return {f"{first['kernel']['name']}-{model}.zip": joined_parts(parts)}


@dataclass(frozen=True)
class Part:
    """A bundle to be joined with others: its files, and the kernels and groups that it gives."""

    name: str
    files: Mapping[str, bytes]
    manifest: Row
    kernels: Sequence[Row]
    groups: Sequence[Row]


def read_part(data: bytes, name: str, gives: Callable[[Row], bool] = lambda compiled: True) -> Part:
    """`gives`: whether kernels of these compile-time values are wanted."""
    with zipfile.ZipFile(io.BytesIO(data)) as packed:
        files = {item: packed.read(item) for item in packed.namelist()}
    manifest, table = (json.loads(files[item]) for item in ("manifest.json", "dispatch.json"))
    for item, digest in manifest["files"].items():
        if hashlib.sha256(files[item]).hexdigest() != digest:
            raise SystemExit(f"{name}: {item} does not match the manifest")
    kernels = [row for row in manifest["kernels"] if gives(row["compiled"])]
    groups = [row for row in table["groups"] if gives(row["compiled"])]
    return Part(name, files, manifest, kernels, groups)


def joined_parts(parts: Sequence[Part]) -> bytes:
    files: dict[str, bytes] = {}
    rows: list[Row] = []
    groups: list[Row] = []
    first = parts[0]
    for part in parts:
        if part.manifest["device"] != first.manifest["device"]:
            theirs, ours = (item.manifest["device"] for item in (part, first))
            raise SystemExit(f"{part.name}: tuned on {theirs}, not on {ours}")
        if part.files["kernel.toml"] != first.files["kernel.toml"]:
            raise SystemExit(f"{part.name}: another kernel.toml than that of {first.name}")
        renamed = {row["id"]: f"k{len(rows) + at}" for at, row in enumerate(part.kernels)}
        for row in part.kernels:
            files |= moved(part.files, row, renamed[row["id"]])
            rows.append(renumbered(row, renamed[row["id"]]))
        for item in part.groups:
            if any(item["compiled"] == known["compiled"] for known in groups):
                raise SystemExit(f"{part.name}: a second group for {item['compiled']}")
            groups.append(_with_ids(item, renamed))
        shared = {"kernel.toml": part.files["kernel.toml"]}
        files |= shared | {
            name: data for name, data in part.files.items() if name.endswith("reference.py")
        }
    kernel = first.manifest["kernel"]["name"]
    files["dispatch.json"] = json_bytes_of(dispatch(kernel, groups))
    return sealed(files, {**first.manifest, "kernels": rows, "tuning": "joined"})


def moved(content: Mapping[str, bytes], row: Row, name: str) -> dict[str, bytes]:
    folder = f"kernels/{row['id']}/"
    return {
        f"kernels/{name}/{path.removeprefix(folder)}": data
        for path, data in content.items()
        if path.startswith(folder) and path.removeprefix(folder) not in LEFT_OUT
    }


def renumbered(row: Row, name: str) -> Row:
    cubins = {
        arch: f"kernels/{name}/{path.rpartition('/')[2]}" for arch, path in row["cubins"].items()
    }
    return {**row, "id": name, "cubins": cubins}


def _with_ids(item: Row, renamed: dict[str, str]) -> Row:
    def new(use: str) -> str:
        return renamed.get(use, use)

    return {
        **item,
        "outside": new(item["outside"]),
        "rules": [{**rule, "use": new(rule["use"])} for rule in item["rules"]],
        "workloads": [
            {
                **row,
                "use": new(row["use"]),
                "times_us": {new(name): time for name, time in row.get("times_us", {}).items()},
            }
            for row in item.get("workloads", ())
        ],
    }


if __name__ == "__main__":
    main()

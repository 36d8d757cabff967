"""The winners of hopper_rows beside every peer, in one interleaved run, without a search.

    python -m bench.gpu.long_rows build ROWS.zip [--kept FOLDER] [--gpu h200]   anywhere
    python -m bench.gpu.long_rows measure ROWS.zip OUT.json [--seconds 60]      on a GPU

`build` renders and compiles a kernel for each row of bench.gpu.hopper_rows: the winner that
a search of SEARCHES holds, or the fastest point of one of VARIANTS. Results of the GPU
of --gpu come first; of several, the one counts that took less of the time of PyTorch's best in its
run. A row that is in none of them has its baseline.
`measure` needs greenfast's runtime alone: it times those kernels in CUDA graphs in turns with
PyTorch's backends, FlashAttention-3 and FlashAttention-4, as far as they are there. A ratio is the
median over rounds; its interval holds the middle half.
"""

from __future__ import annotations

import json
import statistics
import time
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from bench.command_line import require_gpu, script_parser
from bench.gpu.graph_times import samples_us
from bench.gpu.hopper_rows import ATTENTION, DECODE, FEW_ROWS
from bench.gpu.measured_gpu import add_gpu
from bench.gpu.runtime_shapes import Shape
from bench.results import Row, find_result, read_result, write_json

DTYPE, GPU = "bf16", "h200"
ROUNDS = 31
OURS = "greenfast"
FASTEST = "fastest_variants"
SEARCHES = ("h200/hopper_rows", "h200/few_rows", "h200/cold_rows")
VARIANTS = (
    "h200/attention_variants",
    f"h200/{FASTEST}",
    "h100/output_variants",
    "h100/rest_variants",
    "h100/spread_variants",
)


def main() -> int:
    parser = script_parser(__doc__)
    parser.add_argument("work", choices=("build", "measure"))
    parser.add_argument("bundle", type=Path, metavar="ROWS.zip")
    parser.add_argument("out", type=Path, nargs="?", metavar="OUT.json")
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--kept", type=Path, help="a folder for compiled kernels")
    add_gpu(parser)
    options = parser.parse_args()
    if options.work == "build":
        options.bundle.write_bytes(built_rows(options.kept, options.gpu))
        return 0
    if options.out is None:
        parser.error("OUT.json is missing")
    require_gpu()
    return measure(options.bundle, options.out, options.seconds)


def planned() -> list[tuple[Shape, str]]:
    """Shape and baseline of each row in DTYPE whose mask every peer has."""
    plans = {}
    for values, baseline in (*ATTENTION, *DECODE, *FEW_ROWS):
        if "dtype=" not in values and "causal_bottom_right" not in values:
            plans.setdefault(values, (row_shape(values), baseline))
    return list(plans.values())


def row_shapes() -> list[Shape]:
    return [shape for shape, _ in planned()]


def row_shape(values: str) -> Shape:
    given = dict(item.split("=") for item in values.split(","))
    mask = given.pop("mask", "none")
    size = {name: int(value) for name, value in given.items()}
    size = {"H_kv": size["H"], "S_kv": size["S_q"], **size}
    return Shape(name=values, mask=mask, tuned=True, **size)


# ---- anywhere ----


def built_rows(kept: Path | None, gpu: str) -> bytes:
    """A bundle of one kernel a row; each is used on exactly its sizes."""
    from bench.gpu.set_files import Built, Entry, built, bundle_bytes
    from greenfast.search.cores import usable_cores
    from greenfast.search.devices.facts import device
    from greenfast.search.kernels.catalogue import REPOSITORY_TEMPLATES, Catalogue
    from greenfast.search.toolchain import Toolchain

    catalogue = Catalogue([REPOSITORY_TEMPLATES])
    kernel = catalogue.kernel("attention")
    stored = chosen_designs(gpu)
    kernels: list[Built] = []
    rules: dict[tuple[int, str], list[Row]] = {}
    with TemporaryDirectory(prefix="greenfast-rows-") as folder:
        toolchain = Toolchain(kept or Path(folder), usable_cores())
        try:
            for shape, baseline in planned():
                chosen = stored.get(f"{shape.name},dtype={DTYPE}")
                template, _, preset = baseline.partition(":")
                if chosen is not None:
                    template, parameters = chosen.template, chosen.parameters
                else:
                    presets = {item.name: item for item in kernel.template(template).presets}
                    parameters = dict(presets[preset].parameters)
                compiled = {"D": shape.D, "dtype": DTYPE, "mask": shape.mask}
                entry = Entry(template, parameters, compiled, "", shape.name)
                use = f"k{len(kernels)}"
                kernels.append(built(catalogue, kernel, entry, device(GPU), toolchain))
                rules.setdefault((shape.D, shape.mask), []).append(row_rule(shape, use))
                print(f"{shape.name}: {chosen.source if chosen else baseline}")
        finally:
            toolchain.close()
    groups = [
        {
            "compiled": {"D": width, "dtype": DTYPE, "mask": mask},
            "region": {},
            "rules": [*items, {"when": [], "use": "library"}],
            "outside": "library",
            "workloads": [],
            "regret": {},
        }
        for (width, mask), items in rules.items()
    ]
    return bundle_bytes(
        kernel, kernels, groups, device(GPU), name="rows", toolchain=dict(toolchain.identity)
    )


@dataclass(frozen=True)
class Chosen:
    """The design chosen for a row, and where it was measured."""

    source: str
    template: str
    parameters: Row
    ratio: float  # of its time to PyTorch's best time in the same run


def chosen_designs(gpu: str) -> dict[str, Chosen]:
    """By workload: the design with the least ratio, of those that `gpu` timed if there is any.

    The fastest of all results, timed in one run, counts before ratios of different runs.
    """
    every = stored_designs()
    every.sort(
        key=lambda item: (
            item[1].source.startswith(f"{gpu}/"),
            item[1].source == f"{gpu}/{FASTEST}",
            -item[1].ratio,
        )
    )
    return dict(every)


def stored_designs() -> list[tuple[str, Chosen]]:
    """The workload and the fastest design of each row of each stored result."""
    every: list[tuple[str, Chosen]] = []
    for name in SEARCHES:
        for row in read_result(name)["rows"]:
            ratios = [peer["ratio"] for peer in row["peers"] if peer["ratio"]]
            if row["kernel"] == "attention" and ratios:
                template, ratio = row["baseline"].partition(":")[0], max(ratios)
                every.append((row["workload"], Chosen(name, template, row["parameters"], ratio)))
    for name in VARIANTS:
        for row in find_result(name).get("rows", ()):
            best = row["points"][0]
            chosen = Chosen(name, "wgmma", best["parameters"], best["us"] / pytorch_us(row))
            every.append((row["workload"], chosen))
    return every


def pytorch_us(row: Row) -> float:
    """Of a row of attention_variants: the time of PyTorch's fastest kernel."""
    return float(min(us for name, us in row["peers"].items() if name.startswith("torch")))


def row_rule(shape: Shape, use: str) -> Row:
    sizes = {name: getattr(shape, name) for name in ("B", "H", "H_kv", "S_q", "S_kv")}
    when = [{"value": name, "above": size - 1, "at_most": size} for name, size in sizes.items()]
    return {"when": when, "use": use}


# ---- on a GPU ----


def measure(bundle: Path, out: Path, seconds: float) -> int:
    import torch

    import greenfast
    from bench.gpu.runtime_calls import environment

    kernels = greenfast.load(bundle)
    began, rows = time.perf_counter(), []
    for shape in row_shapes():
        if time.perf_counter() - began > seconds:
            print("no time is left", flush=True)
            break
        with torch.no_grad():
            rows.append(measured(shape, kernels))
        print(json.dumps({**rows[-1], "samples": None}), flush=True)
        write_json(out, {"environment": environment(), "rows": rows})
    return 0


def measured(shape: Shape, kernels: Any) -> Row:
    from bench.gpu.runtime_calls import inputs, usable_peers

    q, k, v = inputs(shape, DTYPE)
    notes: Row = {}
    others = usable_peers(shape, DTYPE, q, k, v, notes)
    explanation = kernels.explain(q, k, v, mask=shape.mask)
    functions = {OURS: lambda: kernels(q, k, v, mask=shape.mask), **others}
    samples = samples_us(functions, rounds=ROUNDS)
    return {
        "workload": f"{shape.name},dtype={DTYPE}",
        "kernel": explanation.kernel,
        "us": {name: statistics.median(values) for name, values in samples.items()},
        "ratios": {
            name: ratio(samples[OURS], values) for name, values in samples.items() if name != OURS
        },
        "unavailable": notes,
        "samples": {name: [round(us, 3) for us in values] for name, values in samples.items()},
    }


def ratio(ours: list[float], theirs: list[float]) -> list[float]:
    """Median over rounds, and the middle half."""
    ratios = [one / other for one, other in zip(ours, theirs, strict=True)]
    low, middle, high = statistics.quantiles(ratios, n=4)
    return [middle, low, high]


if __name__ == "__main__":
    raise SystemExit(main())

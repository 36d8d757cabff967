"""Points of attention/wgmma around the best designs, beside cuDNN in one process.

    python -m bench.gpu.attention_variants build FOLDER [--kept FOLDER] [--plan long] [--row ROW]
    python -m bench.gpu.attention_variants measure FOLDER OUT.json [--seconds 110]    on a GPU

`build` compiles the products of a few axes for each row of a plan (bench.gpu.attention_plans), or
for the named rows, as bundles in FOLDER. It needs no GPU. The plans are `long` (rows of the
attention table), `medium` (hundreds of tokens, none of them among the sixty shapes), `sums` (row
sums by additions and from P V), `outputs` (how O is rescaled and stored, and the stages), `rests`
(walks that begin with a part of a tile), `spread` (who takes which rows, without a mask), `heads`
(of 80, 96 and 256 elements) and `fastest` (what was fastest in any stored result).

`measure` times them in CUDA graphs in turns with the kernels of PyTorch and FlashAttention, and
compares outputs with cuDNN's. There is no confirmation in fresh processes, and the best of many
points looks faster than it is.
"""

from __future__ import annotations

import json
import statistics
import time
from collections import defaultdict
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from bench.command_line import require_gpu, script_parser
from bench.gpu.attention_head_plans import HEAD_PLANS
from bench.gpu.attention_plans import PLANS, Plan
from bench.gpu.attention_row_plans import ROW_PLANS
from bench.gpu.attention_stored_plan import FASTEST_PLAN
from bench.gpu.graph_times import in_turns_us, repeated_graphs
from bench.gpu.long_rows import DTYPE, GPU, row_rule, row_shape
from bench.results import Row, write_json

EVERY_PLAN = {**PLANS, **ROW_PLANS, **HEAD_PLANS, "fastest": FASTEST_PLAN}
CLOSE = 1.08  # of the fastest point's quick time: these are timed in turns
LARGEST_ERROR = 0.1  # of bf16 outputs around 1
ROUNDS, ROUNDS_LONG, LONG_US = 15, 7, 2000.0
PEERS = ("torch-default", "torch-cudnn", "flash-attention-3", "flash-attention-4")  # if usable


def main() -> int:
    parser = script_parser(__doc__)
    parser.add_argument("work", choices=("build", "measure"))
    parser.add_argument("folder", type=Path, metavar="FOLDER")
    parser.add_argument("out", type=Path, nargs="?", metavar="OUT.json")
    parser.add_argument("--seconds", type=float, default=110.0)
    parser.add_argument("--kept", type=Path, help="a folder for compiled kernels")
    parser.add_argument("--plan", choices=tuple(EVERY_PLAN), default="long")
    parser.add_argument("--row", action="append", help="of the plan; may be repeated")
    options = parser.parse_args()
    if options.work == "build":
        plan = EVERY_PLAN[options.plan]
        if unknown := [row for row in options.row or () if row not in plan]:
            parser.error(f"{unknown[0]} is not in the plan; its rows are {', '.join(plan)}")
        chosen = {row: plan[row] for row in options.row or plan}
        build(options.folder, options.kept or options.folder / "compiled", chosen)
        return 0
    if options.out is None:
        parser.error("OUT.json is missing")
    require_gpu()
    return measure(options.folder, options.out, options.seconds)


# ---- anywhere ----


def build(folder: Path, kept: Path, plan: Plan) -> None:
    from bench.gpu.set_files import Entry, built, bundle_bytes
    from greenfast.search.cores import usable_cores
    from greenfast.search.devices.facts import device
    from greenfast.search.kernels.catalogue import REPOSITORY_TEMPLATES, Catalogue
    from greenfast.search.space.candidate import complete_parameters
    from greenfast.search.space.space import Space
    from greenfast.search.toolchain import Toolchain

    folder.mkdir(parents=True, exist_ok=True)
    catalogue = Catalogue([REPOSITORY_TEMPLATES])
    kernel = catalogue.kernel("attention")
    template, on = kernel.template("wgmma"), device(GPU)
    entries: list[tuple[str, Entry]] = []
    for name, of_row in plan.items():
        shape = row_shape(name)
        compiled = {"D": shape.D, "dtype": DTYPE, "mask": shape.mask}
        items = tuple(sorted(compiled.items()))
        space = Space(template, items, on)
        every = (complete_parameters(template, given, items) for given in of_row())
        entries += [
            (name, Entry(template.name, dict(parameters), compiled, "", name))
            for parameters in dict.fromkeys(every)
            if not space.why_not(parameters)
        ]
    toolchain = Toolchain(kept, usable_cores())
    versions = dict(toolchain.identity)

    def write(number: int) -> Row:
        name, entry = entries[number]
        kernels = [built(catalogue, kernel, entry, on, toolchain)]
        rules = [row_rule(row_shape(name), "k0"), {"when": [], "use": "library"}]
        group = {"compiled": entry.compiled, "region": {}, "rules": rules, "outside": "library"}
        groups = [{**group, "workloads": [], "regret": {}}]
        content = bundle_bytes(kernel, kernels, groups, on, name="point", toolchain=versions)
        (folder / f"{number}.zip").write_bytes(content)
        return {"workload": name, "file": f"{number}.zip", "parameters": dict(entry.parameters)}

    try:
        with ThreadPoolExecutor(usable_cores()) as threads:
            write_json(folder / "index.json", list(threads.map(write, range(len(entries)))))
    finally:
        toolchain.close()
    print(f"{len(entries)} points of {len(plan)} rows")


# ---- on a GPU ----


def measure(folder: Path, out: Path, seconds: float) -> int:
    from bench.gpu.runtime_calls import environment

    by_row: dict[str, list[Row]] = defaultdict(list)
    for point in json.loads((folder / "index.json").read_text()):
        by_row[point["workload"]].append(point)
    began, rows = time.perf_counter(), []
    for name, chosen in by_row.items():
        if time.perf_counter() - began > seconds:
            print("no time is left", flush=True)
            break
        rows.append(measured(folder, name, chosen))
        print(json.dumps({**rows[-1], "points": rows[-1]["points"][:3]}), flush=True)
        write_json(out, {"environment": environment(), "rows": rows})
    return 0


def measured(folder: Path, name: str, chosen: list[Row]) -> Row:
    import torch

    import greenfast
    from bench.gpu.runtime_calls import inputs, usable_peers

    shape = row_shape(name)
    with torch.no_grad():
        q, k, v = inputs(shape, DTYPE)
        usable = usable_peers(shape, DTYPE, q, k, v, {})
        functions = {peer: usable[peer] for peer in PEERS if peer in usable}
        expected = functions["torch-cudnn"]().float()
        wrong = []
        for point in chosen:
            call = _call(greenfast.load(folder / point["file"]), q, k, v, shape.mask)
            if (call().float() - expected).abs().max() > LARGEST_ERROR:
                wrong.append(point["parameters"])
            else:
                functions[point["file"]] = call
        graphs, quick = repeated_graphs(functions)
        fastest = min(us for name, us in quick.items() if name not in PEERS)
        kept = {n: it for n, it in graphs.items() if n in PEERS or quick[n] <= CLOSE * fastest}
        samples = in_turns_us(kept, ROUNDS if fastest < LONG_US else ROUNDS_LONG)
    return row_of(
        name, chosen, quick, {n: statistics.median(it) for n, it in samples.items()}, wrong
    )


def _call(kernels: Any, q: Any, k: Any, v: Any, mask: str) -> Any:
    return lambda: kernels(q, k, v, mask=mask)


def row_of(
    name: str, chosen: list[Row], quick: dict[str, float], us: dict[str, float], wrong: list[Row]
) -> Row:
    timed = [
        {"us": us.get(it["file"]), "quick_us": quick[it["file"]], "parameters": it["parameters"]}
        for it in chosen
        if it["file"] in quick
    ]
    timed.sort(key=lambda it: (it["us"] is None, it["us"] or it["quick_us"]))
    return {
        "workload": f"{name},dtype={DTYPE}",
        "peers": {peer: us[peer] for peer in PEERS if peer in us},
        "points": timed,
        "wrong": wrong,
    }


if __name__ == "__main__":
    raise SystemExit(main())

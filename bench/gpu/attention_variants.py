"""Points of attention/wgmma around the best designs, beside cuDNN in one process.

    python -m bench.gpu.attention_variants build FOLDER [--kept FOLDER] [--plan long] [--row ROW]
    python -m bench.gpu.attention_variants measure FOLDER OUT.json [--seconds 110]    on a GPU

`build` compiles the products of a few axes for each row of a plan, or for the named ones, as
bundles in FOLDER. It needs no GPU. The plans are `long` (rows of the attention table), `medium`
(hundreds of tokens, none of them among the sixty shapes) and `sums` (row sums by additions and from
P V). `measure` times them in CUDA graphs in turns with PyTorch's kernels, and compares outputs
with cuDNN's. There is no confirmation in fresh processes, and the best of many points looks faster
than it is.
"""

from __future__ import annotations

import itertools
import json
import statistics
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from bench.command_line import require_gpu, script_parser
from bench.gpu.graph_times import in_turns_us, repeated_graphs
from bench.gpu.hopper_rows import CAUSAL
from bench.gpu.long_rows import DTYPE, GPU, row_rule, row_shape
from bench.results import Row, write_json

CLOSE = 1.08  # of the fastest point's quick time: these are timed in turns
LARGEST_ERROR = 0.1  # of bf16 outputs around 1
ROUNDS, ROUNDS_LONG, LONG_US = 15, 7, 2000.0
PEERS = ("torch-default", "torch-cudnn")


def points(base: Row, **axes: tuple[Any, ...]) -> Iterator[Row]:
    for values in itertools.product(*axes.values()):
        yield {**base, **dict(zip(axes, values, strict=True))}


STAYS: Row = {"scheduler": "persistent", "q_buffers": 2, "heads_together": 1, "epilogue": "direct"}
GRID: Row = {"scheduler": "grid", "heads_together": 64, "epilogue": "direct"}
ALONE: Row = {**GRID, "heads_together": 1}  # a head's row tiles one after another
MIXED: Row = {**GRID, "heads_together": 32}
ALL: Row = {**MIXED, "scheduler": "persistent_all", "heads_together": 64}
BOTH = (False, True)
PARTED: Row = {"ordered": True, "ordered_part": "half"}
ENCODER: Row = {"masks_apart": True, "lazy_rescale": True, "heads_together": 1}
PAIR: Row = {"consumers": 2, "stages": 2, "blocks_per_sm": 2, "overlap": False, **ENCODER}
ALONE_ON_TWO: Row = {"consumers": 1, "stages": 2, "blocks_per_sm": 2}
Plan = dict[str, Callable[[], list[Row]]]  # the points of each row


def design(consumers: int, tile_n: int, **more: Any) -> Row:
    return {"consumers": consumers, "tile_n": tile_n, "stages": 2, "masks_apart": True, **more}


def small_heads() -> list[Row]:
    three, two = design(3, 128, **STAYS), design(2, 192, **STAYS)
    return [
        *points(three, turns=(True,), ordered=BOTH, lazy_rescale=BOTH, exp_polynomial=(0, 1, 2)),
        *points(three, turns=(False,), ordered=BOTH),
        *points(design(3, 128, **ALONE), turns=(True,), ordered=BOTH),
        *points(two, turns=(True,), ordered=BOTH),
        *points({**three, **PARTED, "turns": True}, lazy_rescale=BOTH),
        *points({**two, **PARTED, "turns": True}, lazy_rescale=BOTH),
        *points({**three, "overlap": False}, lazy_rescale=BOTH),
    ]


def small_heads_causal() -> list[Row]:
    pair = design(2, 80, **GRID) | {"overlap": False, "stages": 3, "blocks_per_sm": 2}
    three = design(3, 128, **GRID)
    ends = ("tensor", "direct")
    return [
        *points(three, turns=(True,), ordered=BOTH, lazy_rescale=BOTH, exp_polynomial=(0, 1)),
        *points(pair, tile_n=(64, 80, 96), lazy_rescale=BOTH, epilogue=ends),
        *points({**three, "overlap": False}, lazy_rescale=BOTH),
        *points({**three, **ALL, "q_buffers": 2}, turns=(True,), ordered=BOTH, lazy_rescale=BOTH),
        *points({**pair, **ALL, "q_buffers": 2}, tile_n=(64, 80), lazy_rescale=BOTH),
        *points(design(2, 64, **GRID), lazy_rescale=BOTH, turns=BOTH),
        *points(design(2, 64, q_buffers=2, **ALL), lazy_rescale=BOTH, turns=BOTH),
    ]


def many_short() -> list[Row]:
    small = {"consumers": 1, "tile_n": 64, "stages": 3, "blocks_per_sm": 3, "lazy_rescale": True}
    alone = {"consumers": 1, "tile_n": 112, "stages": 2, "blocks_per_sm": 3, "loader": "self"}
    schedulers = ("grid", "persistent", "persistent_all")
    return [
        *points({**small, "heads_together": 1}, scheduler=schedulers[:1]),
        *points({**small, "heads_together": 1, "q_buffers": 2}, scheduler=schedulers[1:]),
        *points(alone, scheduler=schedulers, tile_n=(64, 112)),
        *points(design(2, 64, q_buffers=2, blocks_per_sm=2), scheduler=schedulers[1:]),
    ]


def causal_walks() -> list[Row]:
    """Who takes which row tiles, where they differ in length."""
    stays = {"q_buffers": 2, "heads_together": 64, "lazy_rescale": True, "epilogue": "direct"}
    designs = (design(2, 128, turns=True, **stays), design(2, 64, **stays), design(3, 128, **stays))
    return [
        point
        for base in designs
        for point in (
            {name: value for name, value in base.items() if name != "q_buffers"},
            *points(base, scheduler=("persistent", "persistent_all")),
        )
    ]


def large_heads() -> list[Row]:
    stays, alone = design(2, 128, turns=True, **STAYS), design(2, 128, turns=True, **ALONE)
    three = design(3, 128, overlap=False, **ALONE)
    return [
        *points(stays, ordered=BOTH, lazy_rescale=BOTH, exp_polynomial=(0, 1)),
        *points(alone, ordered=BOTH, lazy_rescale=BOTH, tile_n=(128, 160, 176)),
        *points({**stays, "q_buffers": 1}, ordered=BOTH, lazy_rescale=BOTH, tile_n=(160, 176)),
        *points(three, tile_n=(96, 112, 128), lazy_rescale=BOTH, epilogue=("tensor", "direct")),
        *points({**stays, "ordered": True}, ordered_part=("half", "maxima"), lazy_rescale=BOTH),
        *points({**alone, **PARTED}, lazy_rescale=BOTH, tile_n=(128, 160, 176)),
        *points({**stays, **PARTED, "q_buffers": 1}, lazy_rescale=BOTH, tile_n=(160, 176)),
        *points({**stays, "scheduler": "persistent_all"}, ordered=(True,), lazy_rescale=(True,)),
    ]


def large_heads_causal() -> list[Row]:
    mixed = design(2, 128, **MIXED)
    tiles = (64, 96, 128, 160, 176)
    return [
        *points(mixed, turns=(True,), ordered=BOTH, lazy_rescale=BOTH, tile_n=tiles),
        *points(mixed, turns=(False,), ordered=BOTH, lazy_rescale=BOTH, tile_n=(64, 128)),
        *points({**mixed, **PARTED}, turns=BOTH, lazy_rescale=BOTH, tile_n=(128, 160, 176)),
        *points({**mixed, "overlap": False, "consumers": 3}, lazy_rescale=BOTH, tile_n=(96, 128)),
        *points(design(2, 128, q_buffers=2, **ALL), turns=BOTH, ordered=BOTH, tile_n=(64, 128)),
        *points(design(2, 128, **ALL), turns=(True,), lazy_rescale=BOTH, tile_n=(160, 176)),
        *points(design(2, 128, turns=True, **ALL, **PARTED), q_buffers=(1, 2), lazy_rescale=BOTH),
        *points(design(2, 128, turns=True, **ALL, **PARTED), tile_n=(160, 176), lazy_rescale=BOTH),
    ]


def medium_heads() -> list[Row]:
    small = {"consumers": 1, "stages": 2, "blocks_per_sm": 2, **ENCODER}
    pair = {"consumers": 2, "stages": 2, **ENCODER}
    stays = {"scheduler": "persistent_all", "q_buffers": 2, "turns": True}
    three = {**pair, "consumers": 3, "overlap": False}
    tiles = (80, 96, 112, 128)
    return [
        *points(small, tile_n=(64, *tiles[:3]), overlap=BOTH, loader=("producer", "self")),
        *points({**small, "epilogue": "direct"}, tile_n=(80, 96), overlap=BOTH),
        *points({**small, "scheduler": "persistent_all"}, tile_n=(80, 96), overlap=BOTH),
        *points(pair, tile_n=(*tiles, 144, 160), turns=BOTH),
        *points({**pair, **stays}, tile_n=tiles),
        *points(three, tile_n=tiles),
        *points({**three, "epilogue": "direct", "scheduler": "persistent_all"}, tile_n=tiles),
        *points({**pair, "turns": True, **PARTED}, tile_n=(80, 112, 128)),
    ]


def medium_small_heads() -> list[Row]:
    pair = {"consumers": 2, "blocks_per_sm": 2, "overlap": False, **ENCODER}
    small = {"consumers": 1, "blocks_per_sm": 3, **ENCODER}
    stays = {"scheduler": "persistent_all", "stages": 3}
    loaders, ends = ("producer", "self"), ("tensor", "direct")
    return [
        *sums({**pair, "stages": 2}, tile_n=(64, 80, 96, 112, 128), loader=loaders),
        *sums({**pair, "stages": 3}, tile_n=(64, 80), epilogue=ends),
        *sums({**small, "stages": 2}, tile_n=(64, 80, 96), loader=loaders, overlap=BOTH),
        *sums({**small, **stays}, tile_n=(64, 80), overlap=BOTH),
    ]


def sums(base: Row, **axes: tuple[Any, ...]) -> list[Row]:
    return list(points(base, **axes, sum_columns=BOTH))


def sums_long() -> list[Row]:
    three = design(3, 128, **STAYS, turns=True)
    return [
        *sums(three, lazy_rescale=BOTH, exp_polynomial=(0, 1)),
        *sums({**three, "turns": False}),
        {**three, **PARTED},
        *sums(three, tile_n=(112, 144)),
        *sums(design(2, 192, **STAYS, turns=True), tile_n=(176, 192)),
    ]


def sums_medium() -> list[Row]:
    pair = {**PAIR, "loader": "self", "tile_n": 128}
    own = {**PAIR, "loader": "producer"}
    return [
        *sums(pair, masks_apart=BOTH, exp_polynomial=(0, 1)),
        *sums({**pair, "masks_apart": False}, tile_n=(112, 144)),
        *sums({**own, "tile_n": 128, "masks_apart": False}),
        *sums({**own, "tile_n": 80, "masks_apart": True}),
        *sums(design(3, 128, **STAYS, turns=True), lazy_rescale=BOTH),
        *sums({**ALONE_ON_TWO, "tile_n": 128}, lazy_rescale=BOTH),
    ]


def sums_encoder() -> list[Row]:
    pair = {**PAIR, "masks_apart": True}
    alone = {"consumers": 1, "stages": 2, "blocks_per_sm": 3, "loader": "self"}
    alone |= {"masks_apart": True, "lazy_rescale": True}
    return [
        *sums(pair, tile_n=(64, 80, 96, 112, 128, 144), loader=("producer", "self")),
        *sums(alone, tile_n=(96, 112, 128)),
        *points({**pair, "sum_columns": True, "exp_polynomial": 1}, tile_n=(80, 128)),
    ]


def sums_causal() -> list[Row]:
    pair = design(2, 80, **GRID) | {"overlap": False, "stages": 3, "blocks_per_sm": 2}
    pair |= {"lazy_rescale": True}
    three = design(3, 128, **GRID, turns=True)
    alone = {**ALONE_ON_TWO, "tile_n": 128, "masks_apart": True, "heads_together": 16}
    return [
        *sums(pair, tile_n=(64, 80, 96), epilogue=("tensor", "direct")),
        *sums(three, lazy_rescale=BOTH),
        {**three, "sum_columns": True, "exp_polynomial": 1},
        *sums({**three, **ALL, "q_buffers": 2}, lazy_rescale=BOTH),
        *sums({**pair, **ALL, "q_buffers": 2}, tile_n=(64, 80)),
        *sums(alone, lazy_rescale=BOTH),
    ]


def sums_prefill() -> list[Row]:
    small = {"consumers": 1, "stages": 3, "blocks_per_sm": 3, **ENCODER, "heads_together": 64}
    pair = design(2, 80, **GRID) | {"overlap": False, "stages": 3, "blocks_per_sm": 2}
    pair |= {"lazy_rescale": True}
    return [
        {**small, "tile_n": 64, "stages": 4, **PARTED},
        *sums(small, tile_n=(64, 80, 96)),
        *sums({**small, "tile_n": 64, "stages": 4}),
        *sums({**small, "overlap": False}, tile_n=(64, 80, 96)),
        *sums(pair, tile_n=(64, 80)),
        *sums({**pair, **ALL, "q_buffers": 2}, tile_n=(64, 80)),
        *sums({**design(2, 64, **GRID), "lazy_rescale": True}),
    ]


LONG: Plan = {
    "B=4,H=16,S_q=4096,D=64": small_heads,
    "B=1,H=16,S_q=16384,D=64": small_heads,
    "B=4,H=16,S_q=4096,D=64" + CAUSAL: small_heads_causal,
    "B=1,H=16,S_q=16384,D=64" + CAUSAL: small_heads_causal,
    "B=2,H=8,S_q=2048,D=64" + CAUSAL: small_heads_causal,
    "B=4,H=16,S_q=4096,D=128": large_heads,
    "B=1,H=16,S_q=16384,D=128": large_heads,
    "B=4,H=16,S_q=4096,D=128" + CAUSAL: large_heads_causal,
    "B=1,H=16,S_q=16384,D=128" + CAUSAL: large_heads_causal,
    "B=1,H=32,H_kv=8,S_q=1024,D=128" + CAUSAL: large_heads_causal,
    "B=1,H=32,H_kv=8,S_q=2560,D=128" + CAUSAL: large_heads_causal,
    "B=1,H=32,H_kv=8,S_q=1000,D=64" + CAUSAL: small_heads_causal,
    "B=1,H=32,H_kv=8,S_q=2560,D=64" + CAUSAL: small_heads_causal,
    "B=1,H=32,H_kv=8,S_q=1536,D=64" + CAUSAL: causal_walks,
    "B=1,H=32,H_kv=8,S_q=1536,D=128" + CAUSAL: causal_walks,
    "B=1,H=32,H_kv=8,S_q=3072,D=128" + CAUSAL: causal_walks,
    "B=139,H=12,S_q=40,D=64": many_short,
    "B=139,H=12,S_q=64,D=64": many_short,
    "B=33,H=16,S_q=128,D=64": many_short,
    "B=200,H=12,S_q=200,D=64": many_short,
}

MEDIUM: Plan = {
    "B=4,H=16,S_q=600,D=128": medium_heads,
    "B=8,H=12,S_q=500,D=128": medium_heads,
    "B=2,H=16,S_q=900,D=128": medium_heads,
    "B=8,H=16,S_q=600,D=64": medium_small_heads,
    "B=16,H=12,S_q=256,D=64": medium_small_heads,
    "B=32,H=12,S_q=200,D=64": medium_small_heads,
    "B=2,H=16,S_q=1100,D=64": medium_small_heads,
}

SUMS: Plan = {
    "B=2,H=8,S_q=2048,D=64": sums_medium,
    "B=8,H=16,S_q=577,D=64": sums_encoder,
    "B=4,H=16,S_q=4096,D=64": sums_long,
    "B=1,H=16,S_q=16384,D=64": sums_long,
    "B=4,H=16,S_q=4096,D=64" + CAUSAL: sums_causal,
    "B=1,H=16,S_q=16384,D=64" + CAUSAL: sums_causal,
    "B=2,H=8,S_q=2048,D=64" + CAUSAL: sums_causal,
    "B=1,H=32,H_kv=8,S_q=1000,D=64" + CAUSAL: sums_prefill,
    "B=1,H=32,H_kv=8,S_q=2048,D=64" + CAUSAL: sums_prefill,
}

PLANS = {"long": LONG, "medium": MEDIUM, "sums": SUMS}


def main() -> int:
    parser = script_parser(__doc__)
    parser.add_argument("work", choices=("build", "measure"))
    parser.add_argument("folder", type=Path, metavar="FOLDER")
    parser.add_argument("out", type=Path, nargs="?", metavar="OUT.json")
    parser.add_argument("--seconds", type=float, default=110.0)
    parser.add_argument("--kept", type=Path, help="a folder for compiled kernels")
    parser.add_argument("--plan", choices=tuple(PLANS), default="long")
    parser.add_argument("--row", action="append", help="of the plan; may be repeated")
    options = parser.parse_args()
    if options.work == "build":
        plan = PLANS[options.plan]
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

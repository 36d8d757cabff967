"""The tables of docs/hopper.md: searches of the wgmma templates on an H200.

    python -m bench.pages.hopper_page [--save]

tests/unit/test_docs.py compares the page with the results.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path

from bench.gpu.long_rows import DTYPE, OURS, chosen_designs
from bench.gpu.runtime_calls import PEERS
from bench.pages.hopper_limits import limits
from bench.pages.sections import DOCS, filled_page, rows, run_page, source_of, table
from bench.results import Row, find_result
from greenfast.search.devices.facts import device

PAGE = DOCS / "hopper.md"
# Of the best peer's time.
AIMS = {
    "B=2,H=8,S_q=2048,D=64": 0.90,
    "B=2,H=8,S_q=2048,D=64,mask=causal_top_left": 0.95,
    "B=4,H=16,S_q=4096,D=64": 0.98,
    "B=4,H=16,S_q=4096,D=64,mask=causal_top_left": 0.98,
    "B=4,H=16,S_q=4096,D=128": 0.97,
    "B=4,H=16,S_q=4096,D=128,mask=causal_top_left": 0.97,
    "B=1,H=16,S_q=16384,D=128": 0.97,
    "B=1,H=16,S_q=16384,D=128,mask=causal_top_left": 0.97,
    "B=1,H=16,S_q=16384,D=64": 0.98,
    "B=1,H=16,S_q=16384,D=64,mask=causal_top_left": 0.98,
    "B=1,H=32,H_kv=8,S_q=1024,D=128,mask=causal_top_left": 0.95,
    "B=8,H=16,S_q=577,D=64": 0.85,
    "B=32,H=12,S_q=128,D=64": 0.85,
}
LONG, LONG_H100, COUNTERS = "h200/long_rows", "h100/long_rows", "h200/row_counters"
VARIANTS, MEDIUM, SUMS = "h200/attention_variants", "h100/medium_variants", "h100/row_sums"
OUTPUTS, SHARED = "h100/output_variants", "h100/shared_tiles"
RESTS, SPREAD = "h100/rest_variants", "h100/spread_variants"
STALLS = 3  # of each kernel, the longest
EARLIER = " (earlier run)"
UNITS = {
    "special functions": "special",
    "fma": "fma",
    "alu": "alu",
    "issue slots": "issue",
}
COLD = "h200/cold_rows"
RESULT, FP8, APART = "h200/hopper_rows", "h200/fp8_sweep", "candidates_and_twins"
FP8_APART, READS = "h200/fp8_apart", "h200/read_rate"
APART_SUFFIX = ", masks apart"  # of a point's name in fp8_sweep
FEW_ROWS = "h200/few_rows"
SHARED_KEYS = ("consumers", "tile_n", "stages", "blocks_per_sm", "split_kv", "combine")


def attention() -> str:
    return _section("attention")


def few_rows() -> str:
    """Searches of shapes with few row tiles, whose blocks may share keys."""
    measured = [row for row in rows(FEW_ROWS) if "error" not in row]
    lines = []
    for row in measured:
        workload, time_us, flops, *peer, _, _ = _line(row)
        given = row["parameters"]
        design = _parameters({name: given[name] for name in SHARED_KEYS if name in given})
        template = row["baseline"].partition(":")[0]
        lines.append((workload, f"`{template}`", time_us, flops, *peer, design))
    titles = ("workload", "template", "winner, us", "TFLOP/s", "best peer, us", "winner / peer")
    text = table((*titles, "of the winner"), lines)
    if not measured:
        return text
    date = find_result(FEW_ROWS)["environment"]["date"]
    return f"{text}\n\nH200, {date}, L2 hot; {source_of(FEW_ROWS)}."


def beside(result: str = LONG) -> str:
    """The stored winners in one run with every peer."""
    measured = rows(result)
    if not measured:
        return "Not measured yet."
    peers = [name for name in PEERS if any(name in row["us"] for row in measured)]
    lines = []
    for row in measured:
        best = min((name for name in peers if name in row["us"]), key=lambda name: row["us"][name])
        middle, low, high = row["ratios"][best]
        workload = f"`{row['workload'].removesuffix(',dtype=bf16')}`"
        lines.append(
            (
                f"{workload}{EARLIER if 'measured' in row else ''}",
                f"{row['us'][OURS]:.1f}",
                *(f"{row['us'][name]:.1f}" if name in row["us"] else "" for name in peers),
                f"{middle:.3f} [{low:.3f}, {high:.3f}] of {best}",
            )
        )
    environment = find_result(result)["environment"]
    text = table(("workload", "ours, us", *peers, "ours / best peer"), lines)
    return f"{text}\n\n{environment['gpu']}, {environment['date']}, L2 hot; {source_of(result)}."


def cold() -> str:
    """Searches without a preset, and some with presets, beside the fastest stored kernels."""
    known = {row["workload"]: row for row in rows(LONG)}
    lines = []
    for row in rows(COLD):
        peers = {peer["name"]: peer for peer in row["peers"] if peer["ratio"] is not None}
        stored = known[row["workload"]]
        shared = [name for name in PEERS if name in peers and name in stored["ratios"]]
        best = max(shared, key=lambda name: peers[name]["ratio"])
        peer, (middle, _, _) = peers[best], stored["ratios"][best]
        low, high = peer["ratio_low"], peer["ratio_high"]
        lines.append(
            (
                f"`{row['workload'].removesuffix(',dtype=bf16')}`",
                row["start"].partition(":")[0],
                row["date"].partition("-")[2],
                row["trials"],
                f"{row['took_s']:.0f}",
                f"{row['time_median_us']:.1f}",
                f"{peer['ratio']:.3f} [{low:.3f}, {high:.3f}] of {best}",
                f"{middle:.3f}",
                f"{peer['ratio'] / middle - 1:+.1%}",
            )
        )
    titles = ("workload", "start", "on", "trials", "took, s", "winner, us", "winner / best peer")
    return table((*titles, "stored kernel / this peer", "difference"), lines) + _source(COLD)


def behind() -> str:
    """For each row of LONG behind its goal, what the tiles of its kernel allow."""
    designs = chosen_designs("h200")
    lines = []
    for row in rows(LONG):
        workload = row["workload"].removesuffix(f",dtype={DTYPE}")
        ratio = max(middle for middle, _, _ in row["ratios"].values())
        aim = AIMS.get(workload)
        if aim is None or ratio <= aim:
            continue
        allowed = limits(row["workload"], designs[row["workload"]].parameters)
        lines.append(
            (
                f"`{workload}`",
                f"{ratio:.3f}, {aim:.2f}",
                f"{allowed.row_tiles} in {allowed.waves:.2f}",
                f"{allowed.useful:.0%}",
                f"{allowed.products_us:.1f}",
                f"{allowed.exponentials_us:.1f}",
                f"{row['us'][OURS]:.1f}",
            )
        )
    titles = ("workload", "ratio, goal", "row tiles in waves", "useful scores")
    return table((*titles, "products alone, us", "exponentials alone, us", "ours, us"), lines)


def variants(result: str = VARIANTS) -> str:
    """The fastest of a few points a row, without confirmation."""
    lines = []
    for row in rows(result):
        best, fastest = row["points"][0], min(row["peers"].values())
        lines.append(
            (
                f"`{row['workload'].removesuffix(',dtype=bf16')}`",
                len(row["points"]),
                f"{best['us']:.1f}",
                f"{fastest:.1f}",
                f"{best['us'] / fastest:.3f}",
                _variant(best["parameters"]),
            )
        )
    titles = ("workload", "points", "fastest, us", "PyTorch's best, us", "ratio", "design")
    gpu = result.partition("/")[0].upper()
    return f"{table(titles, lines)}\n\n{gpu}, L2 hot; {source_of(result)}."


def outputs() -> str:
    """The fastest point of each row beside FlashAttention-4, without confirmation."""
    lines = []
    for row in rows(OUTPUTS):
        best, peer_us = row["points"][0], row["peers"]["flash-attention-4"]
        stages, epilogue = (best["parameters"][name] for name in ("stages", "epilogue"))
        lines.append(
            (
                f"`{row['workload'].removesuffix(',dtype=bf16')}`",
                len(row["points"]),
                f"{best['us']:.1f}",
                f"{peer_us:.1f}",
                f"{best['us'] / peer_us:.3f}",
                f"{_variant(best['parameters'])}, {stages} stages, {epilogue}",
            )
        )
    titles = ("workload", "points", "fastest, us", "FlashAttention-4, us", "ratio", "design")
    return f"{table(titles, lines)}\n\nH100, L2 hot; {source_of(OUTPUTS)}."


def row_sums() -> str:
    """The fastest point of each row whose row sums are additions, and that with sums from P V."""
    titles = ("additions, us", "from P V, us", "ratio", "design from P V")
    return compared(SUMS, "sum_columns", (False, True), titles)


def shared_tiles() -> str:
    """The fastest point of each row whose blocks load for themselves, and that of clusters."""
    titles = ("alone, us", "in clusters, us", "ratio", "design in clusters")
    return compared(SHARED, "cluster_rows", (1, 2), titles)


def rests() -> str:
    """The fastest point of each row that walks whole tiles, and that which begins with a part."""
    titles = ("whole tiles, us", "a part first, us", "ratio", "design with a part first")
    return compared(RESTS, "short_rest", (False, True), titles)


def spread() -> str:
    """By row and scheduler: the fastest point beside the best peer."""
    lines = []
    for row in rows(SPREAD):
        fastest: dict[str, float] = {}
        for point in row["points"]:
            scheduler, us = point["parameters"]["scheduler"], point["us"] or point["quick_us"]
            fastest[scheduler] = min(us, fastest.get(scheduler, us))
        stays = min(us for name, us in fastest.items() if name in STAY and name != SPREADS)
        peer = min(row["peers"], key=row["peers"].__getitem__)
        times = (fastest["grid"], stays, fastest[SPREADS])
        lines.append(
            (
                f"`{row['workload'].removesuffix(',dtype=bf16')}`",
                *(f"{us:.1f}" for us in times),
                f"{times[2] / min(times[:2]):.3f}",
                f"{row['peers'][peer]:.1f}, {peer}",
            )
        )
    titles = ("workload", "`grid`, us", "stays, us", "`persistent_spread`, us", "ratio")
    return f"{table((*titles, 'best peer, us'), lines)}\n\nH100, L2 hot; {source_of(SPREAD)}."


def compared(result: str, name: str, values: tuple[object, object], titles: Sequence[str]) -> str:
    """By row: the fastest points with each of two values of a parameter."""
    lines = []
    for row in rows(result):
        without, having = (
            min(
                (point for point in row["points"] if point["parameters"][name] == value),
                key=lambda point: (point["us"] is None, point["us"] or point["quick_us"]),
            )
            for value in values
        )
        times = [point["us"] or point["quick_us"] for point in (without, having)]
        lines.append(
            (
                f"`{row['workload'].removesuffix(',dtype=bf16')}`",
                *(f"{us:.1f}" for us in times),
                f"{times[1] / times[0]:.3f}",
                _variant(having["parameters"]),
            )
        )
    return f"{table(('workload', *titles), lines)}\n\nH100, L2 hot; {source_of(result)}."


SPREADS = "persistent_spread"
STAY = {
    "persistent": "persistent",
    "persistent_all": "persistent over all batches",
    SPREADS: "last round shared out",
}
ORDERED = {"all": "ordered", "half": "half ordered", "maxima": "maxima ordered"}


def _variant(parameters: Row) -> str:
    words = [f"{parameters['consumers']} by 64 rows, {parameters['tile_n']} keys"]
    words += ["turns"] if parameters["turns"] else []
    words += [ORDERED[parameters.get("ordered_part", "all")]] if parameters["ordered"] else []
    words += ["lazy_rescale"] if parameters["lazy_rescale"] else []
    words += [] if parameters["overlap"] else ["no overlap"]
    words += [STAY[parameters["scheduler"]]] if parameters["scheduler"] in STAY else []
    return ", ".join(words)


def counters() -> str:
    """What Nsight Compute counted in ours and in FlashAttention's kernels."""
    counted = rows(COUNTERS)
    if not counted:
        return "Not counted yet."
    lines = [
        (
            f"`{row['workload']}`",
            row["name"],
            f"{row['us']:.1f}",
            f"{row['clock_hz'] / 1e6:,.0f}",
            f"{100 * _products_share(row):.0f}",
            *(f"{row[unit]:.0f}" for unit in UNITS.values()),
            ", ".join(f"{name} {row['stalls'][name]:.1f}" for name in list(row["stalls"])[:STALLS]),
        )
        for row in counted
    ]
    units = (f"{name}, %" for name in ("products", *UNITS))
    heads = ("workload", "kernel", "us", "MHz", *units, "longest stalls")
    environment = find_result(COUNTERS)["environment"]
    return (
        f"{table(heads, lines)}\n\n{environment['gpu']}, {environment['date']}, under the profiler;"
        f" {source_of(COUNTERS)}."
    )


def _products_share(row: Row) -> float:
    """The useful products of a launch, of the tensor cores' peak at its clock."""
    facts = device("h200")
    per_cycle = facts.tensor_flop_per_cycle_per_sm("bf16") * facts.multiprocessors
    return _flop("attention", row["workload"]) / (per_cycle * row["clock_hz"] * row["us"] * 1e-6)


def fp8() -> str:
    """The sweep's fastest point of each row: alone, and in turns with PyTorch on bf16 numbers."""
    measured = rows(FP8)
    lines = []
    for row in measured:
        alone, best = row["points"][0], row["finalists"][0]
        lines.append(
            (
                f"`{row['workload']},format={row['format']}`",
                len(row["points"]),
                f"{alone['us']:.1f}",
                f"{alone['tflops']:.0f}",
                f"{best['us']:.1f}",
                f"{best['tflops']:.0f}",
                f"{best['bf16_us']:.1f}",
                _design(best["parameters"]),
            )
        )
    titles = ("workload", "points", "alone, us", "TFLOP/s", "in turns, us", "TFLOP/s", "bf16, us")
    text = table((*titles, "in turns, design"), lines)
    if not measured:
        return text
    date = find_result(FP8)["environment"]["date"]
    wrong = sum(len(row["wrong"]) for row in measured)
    return f"{text}\n\nH200, {date}, L2 hot; {wrong} outputs were wrong; {source_of(FP8)}."


def fp8_apart() -> str:
    """The fastest preset of each row without and with masks apart, in one process."""
    lines = []
    for row in rows(FP8_APART):
        us = {point["point"]: point["us"] for point in row["points"]}
        alone = {name: us[name] for name in us if name.endswith(APART_SUFFIX)}
        together = {name: us[name] for name in us if name not in alone}
        best, other = min(alone, key=alone.__getitem__), min(together, key=together.__getitem__)
        lines.append(
            (
                f"`{row['workload']},format={row['format']}`",
                f"{us[other]:.1f}, `{other}`",
                f"{us[best]:.1f}, `{best.removesuffix(APART_SUFFIX)}`",
                f"{us[best] / us[other]:.3f}",
            )
        )
    titles = ("workload", "masks in the loop, us", "masks apart, us", "ratio")
    return table(titles, lines) + _source(FP8_APART)


def reads() -> str:
    """The fastest bulk copies of each size, L2 hot and cold."""
    best: dict[tuple[int, str], Row] = {}
    for row in rows(READS):
        which = row["bytes"], row["mode"]
        if which not in best or row["us"] < best[which]["us"]:
            best[which] = row
    lines = [
        (f"{size >> 20} MiB, {mode}", f"{row['us']:.1f}", f"{row['tb_s']:.2f}", row["how"])
        for (size, mode), row in best.items()
    ]
    return table(("read", "us", "TB/s", "fastest of nine"), lines) + _source(READS)


def _source(name: str) -> str:
    """The line below a table; empty if the result is missing."""
    result = find_result(name)
    return f"\n\nH200, {result['environment']['date']}; {source_of(name)}." if result else ""


def apart() -> str:
    """Candidates and twins by template, as gates and independent checker judge them."""
    lines = []
    for row in rows(APART):
        if row.get("what") != "summary":
            continue
        verdicts = row["twin_outcomes"]
        lines.append(
            (
                f"`{row['template']}`",
                f"{row['candidates']} of {row['asked']}",
                row["wrong accepted"],
                row["right rejected"],
                row["twins"],
                verdicts.get("rejected by correctness", 0),
                verdicts.get("rejected by safety", 0),
                verdicts.get("equivalent", 0),
                verdicts.get("not seen", 0),
                verdicts.get("missed", 0),
            )
        )
    titles = ("template", "candidates", "wrong accepted", "correct rejected", "wrong twins")
    more = ("by `correctness`", "by `safety`", "equivalent", "not seen", "missed")
    return table((*titles, *more), lines) + f"\n\n{source_of(APART)}."


def pages() -> dict[Path, str]:
    sections = {
        "attention": attention,
        "few_rows": few_rows,
        "beside": beside,
        "beside_h100": partial(beside, LONG_H100),
        "cold": cold,
        "limits": behind,
        "counters": counters,
        "variants": variants,
        "medium": partial(variants, MEDIUM),
        "row_sums": row_sums,
        "outputs": outputs,
        "shared_tiles": shared_tiles,
        "rests": rests,
        "spread": spread,
        "reads": reads,
        "fp8": fp8,
        "fp8_apart": fp8_apart,
        "apart": apart,
    }
    return {PAGE: filled_page(PAGE, "hopper_page", sections)}


def _section(kernel: str) -> str:
    measured = [row for row in rows(RESULT) if row["kernel"] == kernel and "error" not in row]
    titles = ("workload", "winner, us", "TFLOP/s", "best peer, us", "winner / peer", "confirmed")
    text = table((*titles, "winner"), [_line(row) for row in measured])
    if not measured:
        return text
    date = find_result(RESULT)["environment"]["date"]
    return f"{text}\n\nH200, {date}, L2 hot; {source_of(RESULT)}."


def _line(row: Row) -> tuple[str, ...]:
    best = _best_peer(row)
    time_us = row["time_median_us"]
    ratio = (
        f"{best['ratio']:.3f} [{best['ratio_low']:.3f}, {best['ratio_high']:.3f}]"
        if best
        else "no peer was timed"
    )
    return (
        f"`{row['workload'].removesuffix(',dtype=bf16')}`",
        f"{time_us:.1f}",
        f"{_flop(row['kernel'], row['workload']) / time_us / 1e6:.0f}",
        f"{best['time_median_us']:.1f}, {best['name']}" if best else "",
        ratio,
        "yes" if row["confirmed"] else "the baseline stayed the best",
        row["preset"] or _parameters(row["parameters"]),
    )


def _best_peer(row: Row) -> Row | None:
    timed = [peer for peer in row["peers"] if peer["ratio"] is not None]
    return max(timed, key=lambda peer: peer["ratio"]) if timed else None


def _flop(kernel: str, workload: str) -> float:
    """Operations that count; half of the pairs where a square is causal."""
    values = dict(item.split("=") for item in workload.split(","))
    size = {name: int(value) for name, value in values.items() if value.isdigit()}
    if kernel == "gemm":
        return 2.0 * size["M"] * size["N"] * size["K"]
    pairs = size["S_q"] * size.get("S_kv", size["S_q"]) * (0.5 if "mask" in values else 1.0)
    return 4.0 * size["B"] * size["H"] * size["D"] * pairs


def _design(parameters: Row) -> str:
    words = [f"{parameters['consumers']} by 64 rows, {parameters['tile_n']} keys"]
    words += [f"{parameters['stages']} stages"]
    words += ["skip_rescale"] if parameters["skip_rescale"] else []
    words += ["turns"] if parameters["turns"] else []
    words += ["persistent"] if parameters["scheduler"] == "persistent" else []
    words += ["Q in registers"] if parameters["query"] == "registers" else []
    return ", ".join(words)


def _parameters(parameters: Row) -> str:
    return " ".join(f"{name}={value}" for name, value in parameters.items())


if __name__ == "__main__":
    run_page(__doc__, pages)

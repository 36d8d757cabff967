"""Searches on a Hopper GPU: long and short attention and decoding, and layers' products.

    python -m bench.gpu.hopper_rows OUT.json [--seconds 14] [--trials 40] [--only TEXT ...]
                                    [--kernel K] [--baseline TEXT] [--together 3]
                                    [--cold [--against TEMPLATE:PRESET]]

Each row is one `greenfast search` of one workload by values, L2 hot, with confirmation in fresh
processes and the peers that are installed, timed in turns with the winner. Rows that OUT.json holds
are kept; the next run goes on with the others. Searches that run together share the processors;
a lock gives the GPU to one timing at a time.

With --cold, a search knows no preset: it starts without presets, history and champions, and its
baseline is the kernel's own or that of --against, which must be of another template: each
comparison with a slow baseline keeps the GPU long.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path

from bench.command_line import require_gpu, run_greenfast, script_parser
from bench.environment import basic_environment
from bench.results import Row, read_json, write_json

NONE, CAUSAL = "", ",mask=causal_top_left"
LONG, CAUSAL_LONG = "wgmma:fa3_small_heads", "wgmma:ping_pong"
# Workload and baseline. What comes first is measured first.
ATTENTION = (
    ("B=4,H=16,S_q=4096,D=128" + NONE, "wgmma:persistent"),
    ("B=4,H=16,S_q=4096,D=128" + CAUSAL, CAUSAL_LONG),
    ("B=2,H=8,S_q=2048,D=64" + NONE, "wgmma:two_blocks"),
    ("B=2,H=8,S_q=2048,D=64" + CAUSAL, "wgmma:two_blocks"),
    ("B=1,H=32,H_kv=8,S_q=1024,D=128" + CAUSAL, CAUSAL_LONG),
    ("B=4,H=16,S_q=4096,D=64" + NONE, LONG),
    ("B=4,H=16,S_q=4096,D=64" + CAUSAL, LONG),
    ("B=8,H=16,S_q=577,D=64" + NONE, "wgmma:two_blocks"),
    ("B=32,H=12,S_q=128,D=64" + NONE, "wgmma:self_loading"),
    ("B=1,H=16,S_q=16384,D=128" + NONE, "wgmma:fa3"),
    ("B=1,H=16,S_q=16384,D=128" + CAUSAL, "wgmma:fa3"),
    ("B=1,H=16,S_q=16384,D=64" + NONE, LONG),
    ("B=1,H=16,S_q=16384,D=64" + CAUSAL, LONG),
    ("B=2,H=10,S_q=4096,S_kv=77,D=64" + NONE, "wgmma:two_blocks"),
    ("B=1,H=32,H_kv=8,S_q=1000,D=64" + CAUSAL, "wgmma:causal_small_heads"),
    ("B=1,H=32,H_kv=8,S_q=2560,D=64" + CAUSAL, "wgmma:causal_small_heads"),
    ("B=1,H=32,H_kv=8,S_q=2560,D=128" + CAUSAL, "wgmma:prefill"),
)
FASTEST = 8  # designs of each search
# Few query rows, where reading K and V is all of the work.
GROUPED = "H=32,H_kv=8,"
DECODE = (
    (f"B=8,{GROUPED}S_q=1,S_kv=4096,D=128", "decode:group"),
    (f"B=1,{GROUPED}S_q=1,S_kv=4096,D=128", "decode:small_batch"),
    (f"B=32,{GROUPED}S_q=1,S_kv=1024,D=128", "decode:big_batch"),
    ("B=8,H=32,H_kv=1,S_q=1,S_kv=4096,D=128", "decode:one_key_head"),
    (f"B=1,{GROUPED}S_q=1,S_kv=32768,D=128", "decode:long_cache"),
    (f"B=8,{GROUPED}S_q=4,S_kv=4096,D=128,mask=causal_bottom_right", "decode:group"),
    ("B=2,H=10,S_q=64,S_kv=4096,D=64", "decode:few_rows"),
)
# Few row tiles over many keys, so that blocks share the keys of a row tile.
BOTTOM_RIGHT = ",mask=causal_bottom_right"
FEW_ROWS = (
    ("B=1,H=16,S_q=256,S_kv=2048,D=128", "wgmma:few_rows"),
    ("B=1,H=16,S_q=256,S_kv=2048,D=128,dtype=fp16", "wgmma:few_rows"),
    ("B=2,H=10,S_q=64,S_kv=4096,D=64", "wgmma:few_rows_small"),
    ("B=4,H=16,S_q=100,S_kv=1024,D=128", "wgmma:few_rows"),
    ("B=1,H=4,H_kv=1,S_q=2048,D=128" + CAUSAL, "wgmma:few_heads"),
    ("B=1,H=8,H_kv=1,S_q=512,S_kv=8192,D=128" + BOTTOM_RIGHT, "wgmma:few_heads"),
)
GEMM = tuple(
    (f"M={m},N={n},K={k}", f"wgmma:{preset}")
    for m, n, k, preset in (
        (4096, 4096, 4096, "turned_128"),
        (8192, 8192, 8192, "wide_store"),
        (16, 6144, 4096, "tokens_16"),
        (64, 4096, 14336, "tokens_64"),
        (256, 4096, 4096, "square_split"),
        (512, 6144, 4096, "wide_192"),
        (2048, 28672, 4096, "tall"),
        (4616, 3072, 1024, "square"),
        (4616, 1024, 4096, "turned_144"),
        (4096, 768, 768, "wide_192"),
        (3000, 2056, 1032, "tall_192"),
        (1024, 4096, 14336, "wide_alone"),
        (128, 28672, 4096, "wide_224"),
        (2048, 4096, 4096, "wide_alone"),
        (8192, 5120, 5120, "wide"),
        (1000, 10240, 8192, "tall_160"),
        (8192, 1280, 8192, "tall_160"),
        (16384, 1024, 4096, "wide_alone"),
    )
)


# On e4m3 codes with a scale a tensor; one row with a scale a row, and one with sums in float32.
GEMM_FP8 = tuple(
    (f"M={m},N={n},K={k}{more}", f"wgmma:{preset}")
    for m, n, k, more, preset in (
        (4096, 4096, 4096, "", "wide"),
        (8192, 8192, 8192, "", "wide"),
        (512, 6144, 4096, "", "wide_192"),
        (2048, 4096, 4096, "", "wide_alone"),
        (16, 6144, 4096, "", "tokens_16"),
        (64, 4096, 14336, "", "tokens_64"),
        (2048, 28672, 4096, "", "tall"),
        (3000, 2064, 1040, "", "wide_alone"),
        (2048, 4096, 4096, ",row_scales=1", "wide_alone"),
        (4096, 4096, 4096, ",sums=float32", "wide_192"),
    )
)


def main() -> int:
    parser = script_parser(__doc__)
    parser.add_argument("out", type=Path, metavar="OUT.json")
    parser.add_argument("--seconds", default="14")
    parser.add_argument("--trials", default="40")
    parser.add_argument("--kernel", choices=("attention", "gemm", "gemm_fp8"))
    parser.add_argument("--only", nargs="+", default=[""], help="texts that a workload contains")
    parser.add_argument("--baseline", default="", help="text that a baseline contains")
    parser.add_argument(
        "--together", type=int, help="searches at a time; default 1, of gemm and gemm_fp8 3"
    )
    parser.add_argument("--cold", action="store_true", help="search without any preset")
    parser.add_argument("--against", help="the baseline of cold searches [the kernel's own]")
    options = parser.parse_args()
    if options.against and not options.cold:
        parser.error("--against is for --cold; other searches have the baseline of their row")
    require_gpu()
    rows = read_json(options.out)["rows"] if options.out.is_file() else []
    plans = [("attention", *row) for row in (*ATTENTION, *DECODE, *FEW_ROWS)]
    plans += [("gemm", *row) for row in GEMM]
    plans += [("gemm_fp8", *row) for row in GEMM_FP8]
    plans = [(kernel, typed(values), baseline) for kernel, values, baseline in plans]
    done = {(row["kernel"], row["workload"], row["baseline"]) for row in rows}
    left = [
        (kernel, workload, baseline)
        for kernel, workload, baseline in plans
        if options.kernel in (None, kernel)
        and any(text in workload for text in options.only)
        and options.baseline in baseline
        and (kernel, workload, baseline) not in done
    ]
    together = options.together or (1 if options.kernel in (None, "attention") else 3)
    with ThreadPoolExecutor(together) as threads:
        searches = [
            threads.submit(
                searched, *plan, options.trials, options.seconds, beginning(plan, options)
            )
            for plan in left
        ]
        for search in as_completed(searches):
            rows.append(search.result())
            rows.sort(
                key=lambda row: plans.index((row["kernel"], row["workload"], row["baseline"]))
            )
            print(f"{len(rows)}/{len(plans)} {json.dumps(search.result())[:400]}", flush=True)
            environment = {**basic_environment(), "date": time.strftime("%Y-%m-%d", time.gmtime())}
            write_json(options.out, {"environment": environment, "rows": rows})
    return 0


def typed(values: str) -> str:
    return values if "dtype=" in values else f"{values},dtype=bf16"


def beginning(plan: tuple[str, str, str], options: argparse.Namespace) -> list[str]:
    """The options of `greenfast search` for what a search begins with."""
    if not options.cold:
        return ["--baseline", plan[2]]
    return ["--cold", *(("--baseline", options.against) if options.against else ())]


def searched(
    kernel: str, workload: str, baseline: str, trials: str, seconds: str, begin: Sequence[str]
) -> Row:
    began_s = time.monotonic()
    template = baseline.partition(":")[0]
    process = run_greenfast(
        *("search", kernel, "--workload", workload, "--template", template),
        *begin,
        *("--target", "cuda:0", "--mode", "hot", "--trials", trials, "--seconds", seconds),
        *("--ablation-seconds", "0", "--json"),
        check=False,
    )
    try:
        search = json.loads(process.stdout)
    except ValueError:
        named = {"kernel": kernel, "workload": workload, "baseline": baseline}
        return {**named, "error": process.stderr.strip()[-400:]}
    best = search["best"] or {}
    return {
        "kernel": kernel,
        "workload": workload,
        "baseline": baseline,
        "options": " ".join(begin),
        "start": search["start"],
        "trials": search["trials_done"],
        "verdicts": search["counts"]["by_verdict"],
        "reasons": search["counts"]["by_reason"],
        "took_s": round(time.monotonic() - began_s, 1),
        "spent_s": search["spent_s"],  # until the last trial; then the winner is confirmed
        "time_median_us": best.get("time_median_us"),
        "preset": best.get("preset"),
        "parameters": best.get("parameters"),
        "source_digest": best.get("source_digest"),
        "confirmed": bool((search["confirmation"] or {}).get("confirmed")),
        **designs(search["id"]),
        "peers": [peer_row(peer) for peer in search["peers"]],
    }


def designs(search: str) -> Row:
    """The search's fastest designs, for what they have in common, and the seconds of its stages."""
    process = run_greenfast("trials", search, "--sort", "time", "--json", check=False)
    trials = json.loads(process.stdout) if process.returncode == 0 else []
    names = ("verdict", "time_median_us", "preset", "parameters")
    seconds: dict[str, float] = {}
    for trial in trials:
        for stage, value in trial["stage_seconds"].items():
            seconds[stage] = round(seconds.get(stage, 0.0) + value, 1)
    fastest = [{name: trial[name] for name in names} for trial in trials[:FASTEST]]
    return {"fastest": fastest, "stage_seconds": seconds}


def peer_row(peer: Row) -> Row:
    comparison = peer["comparison"] or {}
    winners = [
        timing["time_median_us"]
        for process in comparison.get("processes", [])
        for timing in process["timings"]
    ]
    return {
        "name": peer["name"],
        "version": peer["version"],
        "outcome": peer["outcome"],
        "time_median_us": peer["time_median_us"],
        "winner_medians_us": winners,
        "ratio": comparison.get("ratio"),
        "ratio_low": comparison.get("ratio_low"),
        "ratio_high": comparison.get("ratio_high"),
        "decision": comparison.get("decision"),
    }


if __name__ == "__main__":
    raise SystemExit(main())

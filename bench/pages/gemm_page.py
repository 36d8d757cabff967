"""The tables of docs/gemm.md: products beside cuBLASLt on an H200 and an H100, and the presets.

    python -m bench.pages.gemm_page [--save]

tests/unit/test_gemm_page.py compares the page with the results and the templates.
"""

from __future__ import annotations

import math
from pathlib import Path

from bench.pages.gemm_limits import limits
from bench.pages.sections import DOCS, filled_page, rows, run_page, source_of, table
from bench.results import Row, find_result
from greenfast.search.kernels.catalogue import REPOSITORY_TEMPLATES, Catalogue

PAGE = DOCS / "gemm.md"
CONFIRMED, SWEEP, FIT = "h200/gemm_confirm", "h200/gemm_sweep", "model_wgmma"
FP8_CONFIRMED, FP8_SWEEP = "h200/gemm_fp8_confirm", "h200/gemm_fp8_sweep"
TYPES = {FP8_CONFIRMED: "e4m3", FP8_SWEEP: "e4m3"}  # of A and B, where it is not bf16


def pages() -> dict[Path, str]:
    sections = {
        "confirmed": confirmed,
        "slower": slower,
        "h100_confirmed": lambda: confirmed("h100/gemm_confirm"),
        "sweep": sweep,
        "fit": fit,
        "presets": presets,
        "fp8_presets": lambda: presets("gemm_fp8"),
        "fp8_confirmed": lambda: confirmed(FP8_CONFIRMED),
        "fp8_sweep": lambda: sweep(FP8_SWEEP),
    }
    return {PAGE: filled_page(PAGE, "gemm_page", sections)}


def confirmed(result: str = CONFIRMED) -> str:
    """A line for each row of the aim: the sweep's pick in fresh processes."""
    measured = rows(result)
    lines = [
        (
            f"`{row['workload']}`",
            f"{row['us']:.1f}",
            _tflops(row["workload"], row["us"]),
            f"{row['cublaslt_us']:.1f}",
            f"{row['ratio']:.3f} [{row['ratio_low']:.3f}, {row['ratio_high']:.3f}]",
            row["decision"],
            _tile(row["parameters"]),
        )
        for row in measured
    ]
    titles = ("M, N, K", "ours, us", "TFLOP/s", "cuBLASLt, us", "ours / cuBLASLt", "decision")
    text = table((*titles, "tile"), lines)
    if not lines:
        return text
    return f"{text}\n\n{_summary([row['ratio'] for row in measured], result)}"


def slower() -> str:
    """For each row that cuBLASLt wins, what its tiles allow."""
    lines = []
    for row in rows(CONFIRMED):
        if row["decision"] != "slower":
            continue
        allowed = limits(row["workload"], row["parameters"])
        lines.append(
            (
                f"`{row['workload']}`",
                f"{row['ratio']:.3f}",
                _tile(row["parameters"]),
                f"{allowed.tiles} in {allowed.waves}",
                f"{allowed.fill:.0%}",
                f"{allowed.useful:.0%}",
                f"{allowed.products_us:.1f}",
                f"{row['us']:.1f}",
                f"{row['cublaslt_us']:.1f}",
            )
        )
    titles = ("M, N, K", "ratio", "tile", "tiles in waves", "SMs busy", "useful products")
    more = ("products alone, us", "ours, us", "cuBLASLt, us")
    return table((*titles, *more), lines)


def sweep(result: str = SWEEP) -> str:
    """The best point of each row, timed in turns with cuBLASLt in one process."""
    best = [(row["workload"], row["finalists"][0]) for row in rows(result) if row["finalists"]]
    lines = [
        (
            f"`{name}`",
            f"{point['us']:.1f}",
            _tflops(name, point["us"]),
            f"{point['cublaslt_us']:.1f}",
            f"{point['ratio']:.3f}",
            _tile(point["parameters"]),
        )
        for name, point in best
    ]
    titles = ("M, N, K", "best, us", "TFLOP/s", "cuBLASLt, us", "best / cuBLASLt", "tile")
    text = table(titles, lines)
    if not lines:
        return text
    return f"{text}\n\n{_summary([point['ratio'] for _, point in best], result)}"


def fit() -> str:
    """How well costs fitted to the other sizes predict a size's points."""
    summary, *sizes = rows(FIT) or [None]
    if summary is None:
        return table(("M, N, K",), [])
    lines = [
        (
            f"`{row['workload']}`" if "workload" in row else "all",
            row["points"],
            f"{row['median_error']:.0%}",
            f"{row['error_90']:.0%}",
            f"{row['rank_correlation']:.2f}",
            f"{row['pick_over_best']:.2f}" if "pick_over_best" in row else "",
        )
        for row in (*sizes, summary)
    ]
    titles = ("M, N, K", "points", "median error", "90 % are within", "rank correlation")
    text = table((*titles, "time of its pick / best time"), lines)
    return f"{text}\n\n{source_of(FIT)}; times of {source_of(SWEEP)}."


def _summary(ratios: list[float], result: str) -> str:
    mean = math.exp(sum(map(math.log, ratios)) / len(ratios))
    gpu, dtype = result.partition("/")[0].upper(), TYPES.get(result, "bf16")
    return (
        f"Geometric mean {mean:.3f}, worst {max(ratios):.3f}. "
        f"{gpu}, {_date(result)}, {dtype}, L2 hot; {source_of(result)}."
    )


def presets(kernel: str = "gemm") -> str:
    template = Catalogue([REPOSITORY_TEMPLATES]).kernel(kernel).template("wgmma")
    return table(
        ("preset", "design"), [(f"`{preset.name}`", preset.doc) for preset in template.presets]
    )


def _date(result: str) -> str:
    return str(find_result(result)["environment"]["date"])


def _tflops(workload: str, time_us: float) -> str:
    sizes = [int(item.partition("=")[2]) for item in workload.split(",")]
    return f"{2.0 * math.prod(sizes) / time_us / 1e6:.0f}"


def _tile(parameters: Row) -> str:
    """The numbers of a point that decide its shape."""
    turns = parameters.get("turns", False)
    rows_ = parameters["consumer_rows"] * (1 if turns else parameters["consumers"])
    words = [f"{rows_} by {parameters['tile_n']}"]
    words += ["in turns"] if turns else []
    words += ["turned"] if parameters["swap"] else []
    words += [f"K in {parameters['split_k']}"] if parameters["split_k"] > 1 else []
    cluster = parameters["cluster_rows"], parameters["cluster_columns"]
    words += [f"clusters of {cluster[0]} by {cluster[1]}"] if cluster != (1, 1) else []
    words += ["a short last step"] if parameters.get("short_last") else []
    return ", ".join([*words, f"{parameters['stages']} stages"])


if __name__ == "__main__":
    run_page(__doc__, pages)

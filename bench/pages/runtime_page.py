"""The tables of docs/runtime.md: what calls cost, 60 shapes, and whole models, on an H200 and H100.

python -m bench.pages.runtime_page [--save]
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from math import exp, log
from pathlib import Path

from bench.gpu.drawn_calls import DISTURBED, FALLBACK, ratio, undisturbed
from bench.gpu.estimated_times import HUNDREDTHS
from bench.gpu.linear_calls import best_other
from bench.gpu.measured_gpu import kernel_of, result_of
from bench.gpu.runtime_calls import PEERS
from bench.gpu.tuned_set import DIMS
from bench.pages.sections import DOCS, filled_page, rows, run_page, source_of, table
from bench.results import Row, find_result

PAGE = DOCS / "runtime.md"
GPU, OTHER_GPU = "h200", "h100"
ESTIMATES = f"{GPU}/estimated_times"
OVERHEAD = f"{GPU}/runtime_overhead"


def overhead() -> str:
    lines = [
        (
            row["way"],
            f"{row['host_us']:.1f} [{row['low']:.1f}, {row['high']:.1f}]",
            f"{row['in_graph_us']:.2f}" if "in_graph_us" in row else "",
        )
        for row in rows(OVERHEAD)
    ]
    text = f"{table(('way', 'host, us', 'in a graph, us'), lines)}\n\n{_from(OVERHEAD)}"
    host_us = {row["way"]: row["host_us"] for row in rows(OVERHEAD)}
    above_us = host_us["greenfast.attention"] - host_us["bare launch and torch.empty_like"]
    return (
        f"{text}\n\n`greenfast.attention` costs {above_us:.1f} us more than a bare launch through "
        "ctypes together with\n`torch.empty_like`, which makes its output; the goal is at most "
        "3 us."
    )


def calls(gpu: str = GPU) -> str:
    name = f"{gpu}/runtime_calls"
    row = rows(name)[0]
    return (
        f"Of {row['calls']} random calls (shapes, masks, strides, types, grouped heads), "
        f"{row['kernels']} were served by a kernel and {row['fallbacks']} by PyTorch; "
        f"{row['wrong']} were wrong, and in {row.get('refused_by_torch', row['faults'])} PyTorch's "
        f"own operation refused the inputs ({source_of(name)}).{_ended(row.get('died', 0), name)}"
    )


def _ended(died: int, name: str) -> str:
    """Of calls that PyTorch ended with their process; none was of a kernel."""
    if not died:
        return ""
    assert all(call["kernel"] is None for call in find_result(name)["died"])
    return (
        f" In {died} of the calls that it served, PyTorch read misaligned addresses, which ended "
        "their process:\ntheir rows were not aligned to 16 bytes. The fallback now copies such "
        "tensors."
    )


def shapes(gpu: str = GPU, dtype: str = "bf16") -> str:
    name = result_of("runtime_table", dtype, gpu)
    measured = [row for row in rows(name) if "times" in row]
    today = {row["shape"]: _kernel_today(row, dtype, gpu) for row in measured}
    new = [row["shape"] for row in measured if row["kernel"] is None and today[row["shape"]]]
    timed = [row for row in measured if row["shape"] not in new]
    lines = []
    for family, chosen in _families(timed):
        ratios = [_ratio(row) for row in chosen]
        worst = max(zip(ratios, chosen, strict=True), key=lambda pair: pair[0])
        lines.append(
            (
                family,
                len(chosen),
                sum(row["kernel"] is not None for row in chosen),
                f"{_mean(ratios):.3f}",
                f"{worst[0]:.2f} ({worst[1]['shape']})",
            )
        )
    titles = ("shapes", "number", "by a kernel", "time / best peer, geometric mean", "worst")
    changed = sum(row["kernel"] != today[row["shape"]] for row in timed)
    note = f" For {changed} of them, today's set has another kernel." if changed else ""
    if new:
        note += (
            f" Left out, because a kernel serves them today and none did then: {', '.join(new)}."
        )
    return f"{table(titles, lines)}\n\n{_peers(timed)}{note} {_from(name)}"


def heads(gpu: str = GPU) -> str:
    """Calls with heads of other sizes than 64 and 128."""
    lines = []
    for row in rows(f"{gpu}/head_table"):
        served = [peer for peer in PEERS if peer in row["times"]]
        best = min(served, key=lambda peer: _us(row, peer))
        by = "a kernel" if row["kernel"] else "PyTorch's"
        if row["kernel"] and not _kernel_today(row, "bf16", gpu):
            by = "a kernel; today PyTorch's"
        lines.append(
            (
                row["shape"],
                by,
                f"{_us(row, 'greenfast'):.1f}",
                f"{_us(row, 'greenfast') / _us(row, FALLBACK):.2f}",
                f"{_ratio(row):.2f} ({best})",
            )
        )
    titles = ("shape", "attention by", "us", "time / PyTorch's default", "/ best peer")
    return f"{table(titles, lines)}\n\n{' '.join(_means(gpu))}"


def _means(gpu: str) -> Iterator[str]:
    for dtype in ("bf16", "fp16"):
        name = result_of("head_table", dtype, gpu)
        of_default = [_us(row, "greenfast") / _us(row, FALLBACK) for row in rows(name)]
        of_best = [_ratio(row) for row in rows(name)]
        changed = sum(row["kernel"] != _kernel_today(row, dtype, gpu) for row in rows(name))
        note = f"For {changed} of them, today's set has another kernel. " if changed else ""
        yield (
            f"In {dtype}, the geometric mean is {_mean(of_default):.3f} of the time of PyTorch's "
            f"default (worst {max(of_default):.2f}) and {_mean(of_best):.3f} of the best peer's "
            f"(worst {max(of_best):.2f}). {note}{_from(name)}"
        )


def _kernel_today(row: Row, dtype: str, gpu: str) -> str | None:
    dims = {name: row["dims"][name] for name in (*DIMS, "D")}
    return kernel_of(dims, dtype, row["mask"], gpu)


def estimates() -> str:
    """How close estimated times come to measured ones."""
    lines = [
        (row["dtype"], row["kind"], row["estimates"], *(row[f"p{it}"] for it in HUNDREDTHS))
        for row in rows(ESTIMATES)
        if row["estimates"] >= 30
    ]
    titles = ("type", "shapes", "estimates", *(f"p{it} of estimate / time" for it in HUNDREDTHS))
    return f"{table(titles, lines)}\n\n{source_of(ESTIMATES)}."


def _peers(timed: list[Row]) -> str:
    """How many shapes each peer served, and on how many it was the best."""
    served = Counter(peer for row in timed for peer in PEERS if peer in row["times"])
    best = Counter(
        min((peer for peer in PEERS if peer in row["times"]), key=lambda name: _us(row, name))
        for row in timed
    )
    parts = [f"{peer} {served[peer]} ({best[peer]})" for peer in PEERS if served[peer]]
    said = "Number of shapes that each peer served (and on which it was the fastest): "
    return f"{said}{', '.join(parts)}."


def _us(row: Row, name: str) -> float:
    return float(row["times"][name]["us"])


def drawn(gpu: str = GPU) -> str:
    """The set as called between the sizes that were measured, beside its fallback."""
    name = f"{gpu}/drawn_calls"
    measured = rows(name)
    called = undisturbed([row for row in measured if "other_kernel" not in row])
    if not called:
        return "Not measured yet."
    lines = []
    for dtype in dict.fromkeys(row["dtype"] for row in called):
        chosen = [row for row in called if row["dtype"] == dtype]
        timed = [row for row in chosen if "times" in row]
        ratios = {row["shape"]: ratio(row) for row in timed}
        worst = max(ratios, key=lambda shape: ratios[shape])
        lines.append(
            (
                dtype,
                len(chosen),
                len(timed),
                f"{_mean([*ratios.values()]):.3f}",
                sum(value > 1 for value in ratios.values()),
                sum(value > 1.05 for value in ratios.values()),
                f"{ratios[worst]:.2f} ({worst})",
            )
        )
    titles = ("type", "shapes", "by a kernel", "time / PyTorch's default, geometric mean")
    more = ("slower", "by more than 5 %", "worst")
    changed = [ratio(row) for row in measured if "other_kernel" in row]
    disturbed = len(measured) - len(changed) - len(called)
    said = f"{_left_out(changed)}{_disturbed(disturbed)}"
    return f"{table((*titles, *more), lines)}\n\n{said}{_from(name)}"


def _disturbed(count: int) -> str:
    if not count:
        return ""
    return (
        f"Left out {'is' if count == 1 else 'are'} {count} in which PyTorch took over "
        f"{DISTURBED:.0f} times as long as in the other type: something else ran on the machine. "
    )


def _left_out(ratios: Sequence[float]) -> str:
    """Of calls that ran with another kernel than the set has for them now."""
    if not ratios:
        return ""
    slower = [value for value in ratios if value > 1]
    return (
        f"Left out are {len(ratios)} calls for which the set has another kernel now, or none: they "
        f"took {_mean(ratios):.2f} of PyTorch's time, and {len(slower)} of them were slower, at "
        f"most {max(ratios):.2f} of it. "
    )


def regret(gpu: str = GPU) -> str:
    name = f"{gpu}/rule_regret"
    lines = [
        (
            row["dtype"],
            {"points": "a point left out", "drawn": "a drawn shape"}[row["of"]],
            f"{row['cases']:,}",
            row["above_1"],
            row["above_1.05"],
            f"{row['worst'][-1][0]:.2f} ({row['worst'][-1][1]})",
        )
        for row in rows(name)
    ]
    titles = ("type", "case", "cases", "slower than PyTorch", "by more than 5 %", "worst")
    return f"{table(titles, lines)}\n\n{source_of(name)}."


def models(gpu: str = GPU) -> str:
    name = f"{gpu}/runtime_end_to_end"
    lines = []
    for row in rows(name):
        rate = "images" if "images_per_second" in row else "tokens"
        speeds = row[f"{rate}_per_second"]
        lines.append(
            (
                row["model"],
                "a kernel" if row["kernel"] else "PyTorch's",
                f"{row['graph_us']['torch']:.0f}",
                f"{row['graph_us']['greenfast']:.0f}",
                f"{speeds['torch']:,.0f}",
                f"{speeds['greenfast']:,.0f} {rate}",
                f"{row['difference']:.1e}",
            )
        )
    titles = ("model", "attention by", "torch, us", "greenfast, us", "torch, per s")
    titles = (*titles, "greenfast, per s", "outputs differ by")
    return f"{table(titles, lines)}\n\n{_from(name)}"


def linear(gpu: str = GPU) -> str:
    """greenfast.linear on layers of public models, beside PyTorch's ways to compute them."""
    name = f"{gpu}/linear_calls"
    result = find_result(name)
    lines = [
        (
            row["layer"],
            row["form"],
            row["dtype"],
            f"{_us(row, 'greenfast'):.1f}",
            f"{_us(row, 'greenfast') / _us(row, 'torch'):.3f}",
            f"{_us(row, 'greenfast') / _us(row, best_other(row)):.3f} ({best_other(row)})",
        )
        for row in rows(name)
        if row["kernel"]
    ]
    titles = ("layer", "form", "type", "us", "time / PyTorch's operations", "/ its best way")
    counts, plain, best = (
        result["calls"]["counts"],
        result["summary"]["torch"],
        result["summary"]["best"],
    )
    said = [
        f"{len(lines)} of {len(rows(name))} layers and types are served by a kernel.",
        f"Over all of them, the geometric mean is {plain['geometric_mean']:.3f} of the time of",
        f"PyTorch's operations (worst {plain['worst']:.3f}),",
        f"and {best['geometric_mean']:.3f} of the best of PyTorch's ways, torch.compile among them",
        f"(worst {best['worst']:.3f}). Of {counts['calls']} random calls,",
        f"{counts['kernels']} were served by a kernel and {counts['wrong']} were wrong.",
        _from(name),
    ]
    return f"{table(titles, lines)}\n\n{' '.join(said)}"


def pages() -> dict[Path, str]:
    everywhere: dict[str, Callable[..., str]] = {
        "calls": calls,
        "shapes": shapes,
        "fp16": partial(shapes, dtype="fp16"),
        "models": models,
        "regret": regret,
        "drawn": drawn,
        "heads": heads,
        "linear": linear,
    }
    sections: dict[str, Callable[[], str]] = {
        "overhead": overhead,
        "estimates": estimates,
        **everywhere,
    }
    for name, section in everywhere.items():
        sections[f"{OTHER_GPU}_{name}"] = partial(section, OTHER_GPU)
    return {PAGE: filled_page(PAGE, "runtime_page", sections)}


def _families(timed: list[Row]) -> list[tuple[str, list[Row]]]:
    kinds = dict.fromkeys(row["shape"].split()[0] for row in timed)
    families = [(kind, [row for row in timed if row["shape"].startswith(kind)]) for kind in kinds]
    tuned = [row for row in timed if row["tuned"]]
    others = [row for row in timed if not row["tuned"]]
    return [*families, ("tuned on", tuned), ("not tuned on", others), ("all", timed)]


def _ratio(row: Row) -> float:
    times = row["times"]
    ours: float = times["greenfast"]["us"]
    return ours / min(times[name]["us"] for name in PEERS if name in times)


def _mean(ratios: Sequence[float]) -> float:
    return exp(sum(map(log, ratios)) / len(ratios))


def _from(name: str) -> str:
    environment = find_result(name)["environment"]
    gpu, torch = (environment[key] for key in ("gpu", "torch"))
    dates = " and ".join(environment.get("dates", [environment["date"]]))
    return f"{gpu}, PyTorch {torch}, {dates}; {source_of(name)}."


if __name__ == "__main__":
    run_page(__doc__, pages)

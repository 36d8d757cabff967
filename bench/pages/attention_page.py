"""The tables of docs/attention.md, made from bench/results/ and the templates' own tomls: `python -m bench.pages.attention_page --save`.

What no result backs says "not measured yet"; nothing here computes what a result does not hold.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]

from bench.gpu.attention_searches import WORKLOADS, finished
from bench.pages.h200_page import NOT_YET, Row, result, rows, table
from greenfast.search.kernels.catalogue import REPOSITORY_TEMPLATES, Catalogue

PAGE, RESULTS = ROOT / "docs" / "attention.md", ROOT / "bench" / "results"
BEGIN, END = "<!-- {}: begin (bench/pages/attention_page.py) -->", "<!-- {}: end -->"
SHORT = ("small", "mission", "mission_512")  # aim: 0.8 of the best peer's time
AIM_RATIO, AIM_TFLOPS = 0.8, {64: 320.0, 128: 350.0}
MOST_STALLS = 2


# ---- what there is ----


def templates() -> str:
    kernel = Catalogue([REPOSITORY_TEMPLATES]).kernel("attention")
    lines = []
    for template in kernel.templates:
        supported = dict(template.supports)
        lines.append(
            (
                f"`{template.name}`",
                template.idea,
                ", ".join(map(str, supported.get("D", ()))),
                f"sm_{template.minimum_sm}",
                len(template.parameters),
                repeats(template),
            )
        )
    return table(("template", "idea", "D", "from", "parameters", "same bits every time"), lines)


def repeats(template) -> str:
    if template.deterministic_when is None:
        return "yes" if template.deterministic else "no"
    return f"where `{template.deterministic_when.text}`"


def presets() -> str:
    kernel = Catalogue([REPOSITORY_TEMPLATES]).kernel("attention")
    return table(
        ("preset", "what it is"),
        [
            (f"`{template.name}:{preset.name}`", preset.doc)
            for template in kernel.templates
            for preset in template.presets
        ],
    )


def checked() -> str:
    """Every preset of every kernel, in every group of options, on several seeds."""
    lines = []
    for name in ("presets_emulator", "h200/presets"):
        found, judged = result(name).get("found"), rows(name)
        if found:
            groups = {
                str((one["kernel"], one["template"], one["preset"], one["group"])) for one in judged
            }
            lines.append(
                (
                    f"`{found['target']}`",
                    found["presets"],
                    len(groups),
                    len({one["seed"] for one in judged}),
                    found["checks"],
                    f"**{found['not right']}**",
                    f"`bench/results/{name}.json`",
                )
            )
    return table(
        ("target", "presets", "presets and groups", "seeds", "judged", "not right", "from"), lines
    )


# ---- searches ----


def searches() -> list[Row]:
    """Finished searches in the order of the table."""
    found = {one["workload"]: one for one in finished(RESULTS / "h200")}
    return [found[name] for name in WORKLOADS if name in found]


def tflops(row: Row) -> float:
    dims, rows_, keys = row["dims"], row["dims"]["S_q"], row["dims"]["S_kv"]
    pairs = rows_ * keys if row["mask"] == "none" else rows_ * (rows_ + 1) // 2
    return 4 * dims["B"] * dims["H"] * dims["D"] * pairs / row["time_median_us"] / 1e6


def outcomes() -> str:
    lines = []
    for search in searches():
        ratio = (
            f"{search['ratio_to_best_peer']:.3f} {interval(search['interval'])}"
            if search["best_peer"]
            else "no peer"
        )
        theirs = next(
            (
                peer["time_median_us"]
                for peer in search["peers"]
                if peer["name"] == search["best_peer"]
            ),
            None,
        )
        lines.append(
            (
                search["workload"],
                search["dtype"],
                search["mask"].replace("_", " "),
                search["l2"],
                f"**{search['time_median_us']:.2f}**",
                f"{tflops(search):.0f}",
                f"{search['best_peer']} {theirs:.2f}" if theirs else "",
                ratio,
                aim(search),
                standing(search),
                search["run"]["date"],
            )
        )
    missing = [
        name for name in WORKLOADS if name not in {search["workload"] for search in searches()}
    ]
    more = (
        f"\n\nNot measured yet: {', '.join(f'`{name}`' for name in missing)}."
        if lines and missing
        else ""
    )
    return (
        table(
            (
                "workload",
                "dtype",
                "mask",
                "L2",
                "us",
                "TFLOP/s",
                "best peer, us",
                "our time / its time",
                "aim",
                "confirmed",
                "run",
            ),
            lines,
        )
        + more
    )


def standing(row: Row) -> str:
    return "yes, champion" if row.get("champion") else "yes" if row["confirmed"] else "no"


def aim(row: Row) -> str:
    if row["workload"].split("_causal")[0].removesuffix("_bf16") in SHORT:
        ratio = row["ratio_to_best_peer"]
        return f"{AIM_RATIO:g}: " + (
            "met" if ratio is not None and ratio <= AIM_RATIO else "missed"
        )
    if row["mask"] != "none":
        return ""
    wanted = AIM_TFLOPS[row["dims"]["D"]]
    return f"{wanted:.0f} TFLOP/s: " + ("met" if tflops(row) >= wanted else "missed")


def winners() -> str:
    lines = []
    for search in searches():
        winner = search["winner"]
        values = " ".join(f"{name}={value}" for name, value in winner["parameters"].items())
        lines.append(
            (
                search["workload"],
                f"`{winner['template']}`",
                f"`{values}`",
                f"`{winner['source_digest'][:12]}`",
            )
        )
    again = (
        (
            "\n\n`bench/results/h200/attention_winners.json` holds each of them with the command that takes it through all gates "
            "again."
        )
        if lines
        else ""
    )
    return table(("workload", "template", "parameters", "source"), lines) + again


def runs() -> str:
    lines = []
    for search in searches():
        run, said = search["run"], search["verdicts"]
        baseline = interval(search["ratio_to_baseline_interval"])
        lines.append(
            (
                search["workload"],
                run["trials"],
                f"{run['trials_per_minute']:.0f}",
                ", ".join(
                    f"{count} {name}"
                    for name, count in sorted(said.items(), key=lambda item: -item[1])
                ),
                f"{search['ratio_to_baseline']:.3f} {baseline} of `{search['baseline']}`"
                if search["ratio_to_baseline"]
                else "",
            )
        )
    return table(
        ("workload", "trials", "a minute", "verdicts", "winner against the baseline"), lines
    )


def peers() -> str:
    lines = []
    for row in searches():
        for peer in row["peers"]:
            if peer["outcome"] == "timed":
                lines.append(
                    (
                        row["workload"],
                        peer["name"],
                        peer["version"],
                        f"{peer['time_median_us']:.2f}",
                        f"{peer['ratio']:.3f} {interval(peer['interval'])}",
                        peer["decision"].replace("_", " "),
                    )
                )
    return table(("workload", "peer", "version", "its us", "our time / its time", ""), lines)


def published() -> str:
    ours = {search["workload"]: search["time_median_us"] for search in searches()}
    lines = [
        (
            row["workload"],
            f"{row['flash_attention_4_us']:.2f}",
            f"{row['cudnn_us']:.2f}",
            f"{ours[row['workload']]:.2f}" if row["workload"] in ours else NOT_YET,
        )
        for row in rows("h200/published_peers")
    ]
    return table(
        ("workload", "FlashAttention-4, us", "cuDNN, us", "ours in the searches above, us"), lines
    )


# ---- floors, and where the time goes ----


def floors() -> str:
    lines = []
    for search in searches():
        floor, shape = search.get("floor", {}), search.get("floor", {}).get("shape", {})
        if "load_only_us" in floor:
            lines.append(
                (
                    search["workload"],
                    f"{search['time_median_us']:.2f}",
                    f"{floor['empty_us']:.2f}",
                    f"{floor['load_only_us']:.2f}",
                    f"{search['time_median_us'] / floor['load_only_us']:.2f}",
                    f"{shape['blocks']} blocks of {shape['threads']} threads, {shape['smem_dynamic_bytes']:,} bytes",
                )
            )
    return table(
        (
            "workload",
            "winner, us",
            "empty node, us",
            "load only, us",
            "winner / load only",
            "parallelism",
        ),
        lines,
    )


def where_the_time_goes() -> str:
    lines = []
    for search in searches():
        launches = search.get("profile")
        for launch in launches if isinstance(launches, list) else ():
            stalls = ", ".join(
                f"{name.replace('_', ' ')} {cycles:.2f}"
                for name, cycles in launch["stalls"][:MOST_STALLS]
            )
            lines.append(
                (
                    search["workload"],
                    f"`{launch['entry']}`",
                    *(
                        figure(launch[name])
                        for name in (
                            "tensor_pipe_percent",
                            "issue_slots_percent",
                            "occupancy_percent",
                            "registers",
                            "shared_bank_conflicts",
                        )
                    ),
                    stalls,
                )
            )
    return table(
        (
            "workload",
            "launch",
            "tensor pipe, %",
            "issue slots, %",
            "occupancy, %",
            "registers",
            "bank conflicts",
            "longest waits, cycles an instruction",
        ),
        lines,
    )


# ---- the seeds, and their lessons ----


def seeds() -> str:
    lines = [
        (
            row["name"],
            row["idea"],
            f"{row['us']:g}" if row["us"] else "",
            row.get("right", ""),
            figure(row.get("registers")),
            figure(row.get("smem_kb")),
            f"`{row['now']}`",
        )
        for row in rows("seeds", "kernel")
    ]
    return table(
        ("kernel", "idea", "us on the L4", "right", "registers", "KB shared", "here"), lines
    )


def lessons() -> str:
    measured, counted = rows("h200/attention_lessons"), rows("attention_lessons_emulator")
    lines = []
    for one in rows("seeds", "lesson"):
        first = (f"**{one['lesson']}**", one["hoped"], one["found"])
        for pair in one["pairs"]:
            there = [row for row in measured if row["lesson"] == pair] or [None]
            for row in there:
                lines.append((*first, pair, *_lesson(row, pair, counted)))
                first = ("", "", "")
    return table(
        (
            "lesson",
            "hoped",
            "found on the L4",
            "here",
            "workload",
            "time ratio on the H200",
            "decision",
            "bank conflicts",
            "registers",
        ),
        lines,
    )


def _lesson(row: Row | None, pair: str, counted: list[Row]) -> tuple[str, ...]:
    """workload, ratio, decision, conflicts and registers of a pair; what stands in its way where it was not measured."""
    workload = row["workload"] if row else "mission"
    emulated = next(
        (one for one in counted if (one["lesson"], one["workload"]) == (pair, workload)), None
    )
    known = (
        row
        if row and "base_figures" in row
        else emulated
        if emulated and "base_figures" in emulated
        else None
    )
    registers = _change(known, lambda one: one.get("registers")) if known else ""
    factor = (
        _change(emulated, lambda one: one.get("conflict_factor"))
        if emulated and "base_figures" in emulated
        else ""
    )
    counters = _change(row, _conflicts) if row and "base_figures" in row else ""
    conflicts = "; ".join(
        filter(
            None, (factor and f"factor {factor} (emulator)", counters and f"{counters} (Nsight)")
        )
    )
    if row is None:
        return workload, NOT_YET, "", conflicts, registers
    if "ratio" not in row:
        return workload, row.get("wrong") or row.get("unavailable", ""), "", conflicts, registers
    return (
        workload,
        f"{row['ratio']:.4f} {interval(row['interval'], 4)}",
        row["decision"].replace("_", " "),
        conflicts,
        registers,
    )


def _change(row: Row, of) -> str:
    before, after = of(row["base_figures"]), of(row["changed_figures"])
    return (
        f"{figure(before)} to {figure(after)}" if before is not None and after is not None else ""
    )


def _conflicts(figures: Row) -> float | None:
    launches = figures.get("profile")
    return launches[0]["shared_bank_conflicts"] if isinstance(launches, list) and launches else None


# ---- judged apart ----


def independent() -> str:
    """Every template of every kernel."""
    lines = []
    for kernel in Catalogue([REPOSITORY_TEMPLATES]).kernels():
        found = result(f"h200/independent_check/{kernel.name}").get("found", {})
        for name in (template.name for template in kernel.templates):
            if name not in found:
                lines.append((f"`{kernel.name}`", f"`{name}`", NOT_YET, *[""] * 9))
                continue
            one = found[name]
            plain, twins = one["candidates"], one["twins"]
            lines.append(
                (
                    f"`{kernel.name}`",
                    f"`{name}`",
                    sum(plain.values()),
                    plain.get("both accept", 0),
                    plain.get("both reject", 0),
                    sum(twins.values()) - twins.get("not compiled", 0),
                    twins.get("both reject", 0),
                    twins.get("only the gate rejects", 0),
                    twins.get("only safety rejects", 0),
                    twins.get("both accept", 0),
                    f"**{one['wrong accepted']}**",
                    f"**{one['right rejected']}**",
                )
            )
    return table(
        (
            "kernel",
            "template",
            "candidates",
            "both accept",
            "both reject",
            "wrong twins",
            "both reject",
            "only the gate",
            "only safety",
            "both accept (equivalent, or right by luck)",
            "wrong accepted",
            "right rejected",
        ),
        lines,
    )


def interval(values: list[float | None] | None, digits: int = 3) -> str:
    if not values or None in values:
        return ""
    return f"[{values[0]:.{digits}f}, {values[1]:.{digits}f}]"


def figure(value: Any) -> str:
    return "" if value is None else f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"


SECTIONS = {
    one.__name__: one
    for one in (
        templates,
        presets,
        checked,
        outcomes,
        winners,
        runs,
        peers,
        published,
        floors,
        where_the_time_goes,
        seeds,
        lessons,
        independent,
    )
}


def page() -> str:
    """docs/attention.md as it should be."""
    text = PAGE.read_text()
    for name, section in SECTIONS.items():
        begin, end = BEGIN.format(name), END.format(name)
        before, found, rest = text.partition(begin)
        if not found or end not in rest:
            raise SystemExit(f"{PAGE.name} has no place for {name}: {begin}")
        text = f"{before}{begin}\n{section()}\n{end}{rest.partition(end)[2]}"
    return text


if __name__ == "__main__":
    if "--save" in sys.argv:
        PAGE.write_text(page())
    else:
        print(page())

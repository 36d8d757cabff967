"""docs/h200.md's tables and its plots, made from bench/results/: `python -m bench.pages.h200_page --save` writes them.

What no result backs is left out with the words "not measured yet"; nothing here computes what a result does not hold.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]

from bench.pages.svg import Axis, Series, linear_axis, log_axis, plot
from greenfast.search.targets.emulator.model import BAND

DOCS, RESULTS = ROOT / "docs", ROOT / "bench" / "results"
PAGE = DOCS / "h200.md"
BEGIN, END = "<!-- {}: begin (bench/pages/h200_page.py) -->", "<!-- {}: end -->"
SHORT = ("small", "mission")  # workloads whose trials are no longer than what surrounds them
NOT_YET = "*not measured yet*"
PLACE = re.compile(r"\('([^']+)', (\d+)\)")
Row = dict[str, Any]
# Candidates with a modelled and a measured time: those that the model was fitted to, others, and samples of the recordings.
MODELLED = ("gpu_check", "model_check", "model_recorded")


def result(name: str) -> Row:
    """A result file by its name in bench/results, {} when it is not there."""
    path = RESULTS / f"{name}.json"
    return json.loads(path.read_text()) if path.is_file() else {}


def rows(name: str, what: str | None = None) -> list[Row]:
    found = result(name).get("rows", [])
    return found if what is None else [one for one in found if one.get("what") == what]


def table(titles: Sequence[str], lines: Sequence[Sequence[object]]) -> str:
    if not lines:
        return NOT_YET
    return "\n".join(
        [
            "| " + " | ".join(titles) + " |",
            "|" + "---|" * len(titles),
            *("| " + " | ".join(map(str, line)) + " |" for line in lines),
        ]
    )


# ---- sections: each gives the text between its markers ----


def machine() -> str:
    found = result("h200/gpu_target").get("environment", {})
    named = (
        ("GPU", "gpu"),
        ("driver", "driver"),
        ("CUDA of the driver", "cuda_driver"),
        ("NVRTC", "nvidia-cuda-nvrtc"),
        ("CuPy", "cupy"),
        ("Python", "python"),
        ("host cores", "cores"),
        ("date", "date"),
    )
    return table(("", ""), [(name, found[key]) for name, key in named if key in found])


def ceilings() -> str:
    """Known times and this GPU's ceilings, as measured by the protocol that candidates are timed with."""
    lines = []
    for row in rows("h200/gpu_target", "known time"):
        if row["workload"] == "large":
            what = "copy beyond the L2"
            note = (
                f"{row['tb_per_s']:.2f} TB/s; the peak allows no less than {row['floor_us']:.1f} us"
            )
        elif row["cycles"]:
            what = f"spin of {row['cycles']:,} cycles"
            note = f"{row['cycles'] / row['sm_clock_mhz']:.2f} us at {row['sm_clock_mhz']:.0f} MHz"
        else:
            what, note = "empty kernel in a graph", "the least that a launch costs"
        lines.append((what, f"{row['us']:.2f}", note, row["note"]))
    for row in rows("h200/ceilings", "ceiling"):
        lines.append((row["name"], f"{row['us']:.2f}", row.get("figure", ""), row.get("note", "")))
    return table(("kernel", "us, measured", "", "how"), lines)


def decisions() -> str:
    order = ("faster", "same", "ambiguous", "too_noisy", "slower")
    lines = [
        (
            row["twin"],
            *(row["said"].get(word, 0) for word in order),
            f"{row['median_of_widths']:.2%}",
        )
        for row in rows("h200/gpu_target", "comparisons")
    ]
    words = (word.replace("_", " ") for word in order)
    return table(("a 51 us kernel against its twin", *words, "width of the interval"), lines)


def searches() -> list[Row]:
    """Of the results table of docs/attention.md."""
    return [
        row
        for path in sorted((RESULTS / "h200" / "attention_searches").glob("*.json"))
        for row in rows(f"h200/attention_searches/{path.stem}")
    ]


def throughput() -> str:
    lines = []
    for row in rows("h200/throughput", "search"):
        child = {
            name: value
            for name, value in row.get("gpu_child_seconds", {}).items()
            if ":" not in name
        }
        spent = {**row.get("thread_seconds", {}), **child}
        lines.append(
            (
                f"{len(row['trials'])} trials, mission, tpe",
                f"{row['trials_per_minute']:.0f}",
                f"{row['second_half_trials_per_minute']:.0f}",
                f"{row['seconds']:.1f}",
                ", ".join(f"{name.replace('_', ' ')} {value:.1f}" for name, value in spent.items()),
            )
        )
    found = result("h200/search").get("found")
    if found:
        lines.append(
            (
                f"{found['trials']} trials, {found['workload']}, {found['strategy']}, with safety",
                f"{found['trials_per_minute']:.0f}",
                "",
                f"{found['search_s']:.1f}",
                f"safety {found['safety_thread_s']:.1f} in {found['safety_checks']} checks; then confirmation "
                f"{found['confirmation_s']:.1f} s",
            )
        )
    lines += [
        (
            f"{search['run']['trials']} trials, {search['workload']}, {search['run']['strategy']}, {' and '.join(search['run']['templates'])}, with safety",
            f"{search['run']['trials_per_minute']:.0f}",
            "",
            f"{search['run']['seconds']:.1f}",
            "",
        )
        for search in searches()
        if search["workload"].startswith(SHORT) and search["champion"]
    ]
    hang = "".join(
        f"\n\nA candidate that hangs is rejected {max(row['until_rejected_s']):.2f} s after its launch at the "
        f"latest (deadline {row['deadline_s']:g} s), and the next result is there after another "
        f"{max(row['rejected_to_next_result_s']):.2f} s."
        for row in rows("h200/gpu_target", "hang")
    )
    return (
        table(
            (
                "search",
                "trials a minute",
                "second half",
                "seconds",
                "seconds in each stage, all threads",
            ),
            lines,
        )
        + hang
    )


def confirmation() -> str:
    found = result("h200/confirm").get("found")
    if not found:
        return again()
    blocks, processes = (
        found["difference_holds_0_blocks_as_unit"],
        found["difference_holds_0_process_as_unit"],
    )
    same = found["same_process_difference_holds_0_blocks_as_unit"]
    lines = [
        ("candidates, processes", f"{found['candidates']}, {found['processes']}"),
        (
            "scatter of a ratio within a process (sigma)",
            f"{found['within_a_process_sigma_percent']:.2f} %",
        ),
        ("scatter between processes (sigma)", f"{found['between_processes_sigma_percent']:.2f} %"),
        (
            "largest difference of two processes",
            f"{found['largest_difference_of_two_processes_percent']:.2f} %",
        ),
        (
            "half width of one process's interval, median",
            f"{found['median_half_width_of_blocks_percent']:.2f} %",
        ),
        (
            "two passes of one process agree, blocks as the unit",
            f"{same['held']} of {same['of']} ({same['share']:.1%})",
        ),
        (
            "two processes agree, blocks as the unit",
            f"{blocks['held']} of {blocks['of']} ({blocks['share']:.1%})",
        ),
        (
            "**two processes agree, the process as the unit**",
            f"**{processes['held']} of {processes['of']} ({processes['share']:.1%})**",
        ),
        ("processes for an interval of +-1 %", found["processes_for_an_interval_of_1_percent"]),
        ("processes to find 1 % in 90 of 100", found["processes_to_find_1_percent_in_90_of_100"]),
    ]
    return table(("", "figure"), lines)


def again() -> str:
    """The first study: the best of a search, measured again in fresh processes."""
    found = rows("h200/gpu_target", "again")
    numbers = dict.fromkeys(one["number"] for one in found)
    lines = []
    for number in numbers:
        mine = [one for one in found if one["number"] == number]
        lines.append(
            (
                f"trial {number}",
                f"{mine[0]['first']:.4f}",
                ", ".join(f"{one['ratio']:.4f}" for one in mine),
                f"{max(abs(one['ratio'] / mine[0]['first'] - 1) for one in mine):.2%}",
            )
        )
    return table(("", "ratio in the search", "in fresh processes", "largest difference"), lines)


def emulator() -> str:
    lines = []
    for row in rows("gpu_check", "agreement"):
        lines += [
            ("attention candidates, green on the emulator", f"{row['candidates']}", "gpu_check"),
            ("... of which wrong on the GPU", f"**{row['green_but_wrong_on_gpu']}**", "gpu_check"),
            ("comparisons of outputs on the GPU", f"{row['checks_on_gpu']:,}", "gpu_check"),
        ]
    for row in rows("gpu_conformance", "summary"):
        figure = f"{row['equal']} equal, {row['within bounds']} within PTX's bounds, {row['different']} different"
        lines.append(("primitives compared bit for bit", figure, "gpu_conformance"))
    for row in rows("h200/gpu_target", "album"):
        lines += [
            (f"album on the GPU: entries, {row['date']}", row["entries"], "h200/gpu_target"),
            (
                "... right ones that the GPU rejects",
                len(row["right_but_not_green_here"]),
                "h200/gpu_target",
            ),
            (
                "... wrong ones that only the emulator's checks reject",
                len(row["wrong_but_green_here"]),
                "h200/gpu_target",
            ),
        ]
    for row in rows("h200/emulator_against_gpu", "tally"):
        judged, name = row["drawn"] - row["spills"], "h200/emulator_against_gpu"
        lines += [
            (
                "random candidates judged by both",
                f"{judged} of {row['drawn']} (the others spill)",
                name,
            ),
            ("... right on both", row["right_on_both"], name),
            ("... that only the GPU rejects", f"**{row['only_the_gpu_refuses']}**", name),
            ("... that only the emulator rejects", row["only_the_emulator_refuses"], name),
        ]
    return table(
        ("what", "figure", "from"),
        [(what, figure, f"`bench/results/{name}.json`") for what, figure, name in lines],
    )


def luck() -> str:
    """Wrong kernels of the album whose results are right on the GPU, with what the emulator says of each."""
    said = {
        f"{row['kernel']}-{row['name']}": row
        for row in rows("planted")
        if row.get("kind") and row["verdict"] == "rejected"
    }
    lines = []
    for album in rows("h200/gpu_target", "album"):
        for name in album["wrong_but_green_here"]:
            one = said[name]
            report = (
                PLACE.sub(r"\1:\2", one["finding"]).removesuffix(", against None")
                or one["sentence"].partition(";")[0]
            )
            lines.append(
                (f"`{name}`", f"{one['stage']}: {one['reason']}", report.replace("|", "\\|"))
            )
    return table(("kernel of the album", "the emulator's verdict", "its report"), lines)


def compiler() -> str:
    """One candidate that one release of NVRTC compiles to wrong code."""
    found = rows("h200/compiler_fault", "candidate")
    if not found:
        return NOT_YET
    settings = " ".join(f"{name}={value}" for name, value in found[0]["parameters"].items())
    made = table(
        ("NVRTC", "on the GPU", "what the gate said"),
        [
            (row["nvidia-cuda-nvrtc"], row["outcome"], row["sentence"])
            for row in rows("h200/compiler_fault", "compiled")
        ],
    )
    return (
        f"The candidate: `{found[0]['template']}` on `{found[0]['workload']}`, {settings}; "
        f"the emulator says {found[0]['emulator']}.\n\n{made}"
    )


def modelled() -> str:
    lines = [
        (
            row["template"],
            row.get("workload", "mission"),
            row["candidates"],
            f"{row['spearman']:.2f}",
            f"{row['ratio_p5']:.2f} to {row['ratio_p95']:.2f}",
            name,
        )
        for name in MODELLED
        for row in rows(name, "modelled against measured")
    ]
    if not lines:
        return NOT_YET
    pairs = [
        (
            f"{row['modelled_ratio_from']:g}",
            row.get("workload", "mission"),
            row["pairs"],
            f"{row['share']:.1%}",
            name,
        )
        for name in MODELLED
        for row in rows(name, "pairs ordered wrongly")
    ]
    return "\n\n".join(
        (
            table(
                (
                    "template",
                    "workload",
                    "candidates",
                    "rank correlation",
                    "measured / modelled, 5th to 95th percentile",
                    "from",
                ),
                [(*line[:-1], f"`bench/results/{line[-1]}.json`") for line in lines],
            ),
            table(
                (
                    "modelled apart by a factor from",
                    "workload",
                    "pairs of candidates",
                    "measured the other way round",
                    "from",
                ),
                [(*pair[:-1], f"`bench/results/{pair[-1]}.json`") for pair in pairs],
            ),
            f"The grey lines are equality and the band of {BAND:g} that a modelled time claims.",
            "![Modelled against measured times of attention candidates](h200_modelled.svg)",
        )
    )


def peers() -> str:
    lines = []
    for duel in duels():
        found = duel["comparison"]
        lines.append(
            (
                duel["workload"],
                duel["name"],
                duel["version"],
                f"{duel['time_median_us']:.2f}",
                with_interval(found),
                found["decision"].replace("_", " "),
            )
        )
    if not lines:
        return NOT_YET
    others = dict.fromkeys(
        f"{row['name']} ({row['sentence'].partition(': ')[2]})"
        for row in rows("h200/peers", "peer")
        if not row["comparison"]
    )
    not_timed = f"\n\nNot timed: {'; '.join(others)}." if others else ""
    made = table(("workload", "peer", "version", "its us", "our time / its time", ""), lines)
    return f"{made}{not_timed}\n\n![Our time over the peers' times, with intervals](h200_peers.svg)"


def rmsnorm() -> str:
    """The second kernel's searches beside PyTorch."""
    lines = []
    for row in rows("h200/rmsnorm"):
        against = "; ".join(
            f"{peer['name']} {peer['time_median_us']:.2f}: {peer['ratio']:.3f} [{peer['interval'][0]:.3f}, {peer['interval'][1]:.3f}]"
            for peer in row["peers"]
            if peer["ratio"]
        )
        lines.append(
            (
                row["workload"],
                row["l2"],
                sum(row["counts"]["by_verdict"].values()),
                f"`{row['template']}`",
                f"{row['time_median_us']:.2f}",
                f"{row['ratio_to_baseline']:.3f} [{row['interval'][0]:.3f}, {row['interval'][1]:.3f}] of `{row['baseline']}`",
                "yes" if row["confirmed"] else "no",
                against,
            )
        )
    return table(
        (
            "workload",
            "L2",
            "trials",
            "best",
            "us",
            "against the baseline",
            "confirmed",
            "beside the peers, us: our time / its time",
        ),
        lines,
    )


def with_interval(found: Row) -> str:
    interval = (
        f"{found['ratio_low']:.3f}, {found['ratio_high']:.3f}"
        if bounded(found)
        else "too few blocks for one"
    )
    return f"{found['ratio']:.3f} [{interval}]"


def bounded(found: Row) -> bool:
    return bool(found["ratio_low"]) and found["ratio_high"] is not None


def winners() -> str:
    found = result("h200/search")
    if not found:
        return NOT_YET
    sentence = found["found"]["why"].partition("; ")[2] or found["found"]["why"]
    return f"`{found['found']['workload']}`, {found['found']['trials']} trials: {sentence}." + (
        "\n\n![Times of a search's candidates](h200_search.svg)" if searched() else ""
    )


def verified() -> str:
    lines = [
        (item["name"], item["finding"].replace("_", " "), item["sentence"])
        for row in rows("h200/verify", "verify")
        for item in row["items"]
    ]
    return table(("", "", "what `greenfast verify` said"), lines)


SECTIONS = {
    "machine": machine,
    "ceilings": ceilings,
    "decisions": decisions,
    "throughput": throughput,
    "confirmation": confirmation,
    "emulator": emulator,
    "luck": luck,
    "compiler": compiler,
    "modelled": modelled,
    "peers": peers,
    "rmsnorm": rmsnorm,
    "winners": winners,
    "verified": verified,
}


# ---- plots ----


def modelled_plot() -> str:
    both = [
        row
        for name in MODELLED
        for row in rows(name)
        if {"modelled_us", "measured_us"} <= row.keys()
    ]
    series = [
        Series(
            name,
            tuple(
                (one["modelled_us"], one["measured_us"]) for one in both if one["template"] == name
            ),
        )
        for name in sorted({one["template"] for one in both})
    ]
    return plot(
        "Modelled against measured, attention on an H200",
        log_axis("modelled, us", [one["modelled_us"] for one in both]),
        log_axis("measured, us", [one["measured_us"] for one in both]),
        series,
        guides=((1.0, 1.0), (BAND, 1.0), (1 / BAND, 1.0)),
    )


def duels() -> list[Row]:
    return [row for row in rows("h200/peers", "peer") if row["comparison"]]


def interval(found: Row) -> tuple[float, float]:
    """A point has none where too few blocks left it open."""
    return (
        (found["ratio_low"], found["ratio_high"])
        if bounded(found)
        else (found["ratio"], found["ratio"])
    )


def peers_plot() -> str:
    found = duels()
    workloads = tuple(dict.fromkeys(one["workload"] for one in found))
    names = tuple(dict.fromkeys(one["name"] for one in found))
    series = []
    for number, name in enumerate(names):
        mine = [one for one in found if one["name"] == name]
        shift = (number - (len(names) - 1) / 2) * 0.15
        places = [workloads.index(one["workload"]) + shift for one in mine]
        series.append(
            Series(
                name,
                tuple(zip(places, (one["comparison"]["ratio"] for one in mine))),
                tuple(interval(one["comparison"]) for one in mine),
            )
        )
    x = Axis(
        "workload, bf16",
        -0.5,
        len(workloads) - 0.5,
        tuple(map(float, range(len(workloads)))),
        names=tuple(workload.removesuffix("_bf16") for workload in workloads),
    )
    y = linear_axis(
        "our time / its time, measured",
        0.0,
        max(interval(one["comparison"])[1] for one in found),
        0.25,
    )
    return plot(
        "Winners of the searches: below 1 ours is faster", x, y, series, guides=((1.0, 0.0),)
    )


def searched() -> list[Row]:
    found = result("h200/search")
    return [one for one in found.get("rows") or found.get("trials") or () if one.get("us")]


def search_plot() -> str:
    found = searched()
    series = [
        Series(name, tuple((one["at_s"], one["us"]) for one in found if one["template"] == name))
        for name in sorted({one["template"] for one in found})
    ]
    end = max(one["at_s"] for one in found)
    x = linear_axis("seconds since the search began", 0.0, end, 5.0 if end < 60 else 20.0)
    return plot(
        "Candidates of one search",
        x,
        log_axis("measured, us", [one["us"] for one in found]),
        series,
    )


def pages() -> dict[Path, str]:
    """Every generated file as it should be."""
    text = PAGE.read_text()
    for name, section in SECTIONS.items():
        begin, end = BEGIN.format(name), END.format(name)
        before, found, rest = text.partition(begin)
        if not found:
            raise SystemExit(f"{PAGE.name} has no place for {name}: {begin}")
        text = f"{before}{begin}\n{section()}\n{end}{rest.partition(end)[2]}"
    made = {PAGE: text, DOCS / "h200_modelled.svg": modelled_plot()}
    if duels():
        made[DOCS / "h200_peers.svg"] = peers_plot()
    if searched():
        made[DOCS / "h200_search.svg"] = search_plot()
    return made


if __name__ == "__main__":
    for path, content in pages().items():
        if "--save" in sys.argv:
            path.write_text(content)
        elif path == PAGE:
            print(content)

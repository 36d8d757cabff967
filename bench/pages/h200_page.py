"""The tables and plots of docs/h200.md, made from results.

    python -m bench.pages.h200_page [--save]

A figure that no result holds is left out, or the page has "not measured yet" in its place.
"""

from __future__ import annotations

import re
from pathlib import Path

from bench.pages.h200_plots import modelled_plot, peer_plot, search_plot
from bench.pages.h200_rows import MODELLED, duels, is_bounded, timed_trials
from bench.pages.sections import (
    DOCS,
    NOT_YET,
    conformance_gpu,
    filled_page,
    rows,
    run_page,
    source_of,
    table,
)
from bench.results import RESULTS, Row, find_result, result_names
from greenfast.search.targets.emulator.model import BAND

PAGE = DOCS / "h200.md"
SHORT = ("small", "mission")  # workloads whose trials are no longer than what surrounds them
PLACE = re.compile(r"\('([^']+)', (\d+)\)")
DECISIONS = ("faster", "same", "ambiguous", "too_noisy", "slower")


def machine() -> str:
    environment = find_result("h200/gpu_target").get("environment", {})
    names = (
        ("GPU", "gpu"),
        ("driver", "driver"),
        ("CUDA of the driver", "cuda_driver"),
        ("NVRTC", "nvidia-cuda-nvrtc"),
        ("CuPy", "cupy"),
        ("Python", "python"),
        ("host cores", "cores"),
        ("date", "date"),
    )
    return table(("", ""), [(name, environment[key]) for name, key in names if key in environment])


def ceilings() -> str:
    """Known times and this GPU's ceilings, measured by the protocol that times candidates."""
    lines = []
    for row in rows("h200/gpu_target", "known time"):
        if row["workload"] == "large":
            kernel = "copy beyond the L2"
            note = (
                f"{row['tb_per_s']:.2f} TB/s; the peak allows no less than {row['floor_us']:.1f} us"
            )
        elif row["cycles"]:
            kernel = f"spin of {row['cycles']:,} cycles"
            note = f"{row['cycles'] / row['sm_clock_mhz']:.2f} us at {row['sm_clock_mhz']:.0f} MHz"
        else:
            kernel, note = "empty kernel in a graph", "the least that a launch costs"
        lines.append((kernel, f"{row['us']:.2f}", note, row["note"]))
    for row in rows("h200/ceilings", "ceiling"):
        lines.append((row["name"], f"{row['us']:.2f}", row.get("figure", ""), row.get("note", "")))
    return table(("kernel", "us, measured", "", "how"), lines)


def decisions() -> str:
    lines = [
        (
            row["twin"],
            *(row["said"].get(decision, 0) for decision in DECISIONS),
            f"{row['median_of_widths']:.2%}",
        )
        for row in rows("h200/gpu_target", "comparisons")
    ]
    titles = (decision.replace("_", " ") for decision in DECISIONS)
    return table(("a 51 us kernel against its twin", *titles, "width of the interval"), lines)


def throughput() -> str:
    titles = (
        "search",
        "trials a minute",
        "second half",
        "seconds",
        "seconds in each stage, all threads",
    )
    hangs = "".join(
        "\n\nA candidate that hangs is rejected "
        f"{max(row['until_rejected_s']):.2f} s after its launch at the latest (deadline "
        f"{row['deadline_s']:g} s), and the next result is there after another "
        f"{max(row['rejected_to_next_result_s']):.2f} s."
        for row in rows("h200/gpu_target", "hang")
    )
    return table(titles, [*measured_searches(), *whole_search(), *table_searches()]) + hangs


def measured_searches() -> list[tuple[str, ...]]:
    lines = []
    for row in rows("h200/throughput", "search"):
        child_s = {
            name: seconds
            for name, seconds in row.get("gpu_child_seconds", {}).items()
            if ":" not in name
        }
        stages = {**row.get("thread_seconds", {}), **child_s}
        lines.append(
            (
                f"{len(row['trials'])} trials, mission, tpe",
                f"{row['trials_per_minute']:.0f}",
                f"{row['second_half_trials_per_minute']:.0f}",
                f"{row['seconds']:.1f}",
                ", ".join(f"{name.replace('_', ' ')} {s:.1f}" for name, s in stages.items()),
            )
        )
    return lines


def whole_search() -> list[tuple[str, ...]]:
    summary = find_result("h200/search").get("found")
    if not summary:
        return []
    return [
        (
            (
                f"{summary['trials']} trials, {summary['workload']}, {summary['strategy']}, "
                "with safety"
            ),
            f"{summary['trials_per_minute']:.0f}",
            "",
            f"{summary['search_s']:.1f}",
            (
                f"safety {summary['safety_thread_s']:.1f} in {summary['safety_checks']} checks; "
                f"then confirmation {summary['confirmation_s']:.1f} s"
            ),
        )
    ]


def table_searches() -> list[tuple[str, ...]]:
    """Those of the results table of docs/attention.md on short workloads."""
    lines = []
    folder = "h200/attention_searches"
    for name in result_names(RESULTS / folder):
        for search in rows(f"{folder}/{name}"):
            if not (search["workload"].startswith(SHORT) and search["champion"]):
                continue
            run = search["run"]
            lines.append(
                (
                    (
                        f"{run['trials']} trials, {search['workload']}, {run['strategy']}, "
                        f"{' and '.join(run['templates'])}, with safety"
                    ),
                    f"{run['trials_per_minute']:.0f}",
                    "",
                    f"{run['seconds']:.1f}",
                    "",
                )
            )
    return lines


def confirmation() -> str:
    study = find_result("h200/confirm").get("found")
    if not study:
        return again()
    blocks, processes, same = (
        study[f"{name}_as_unit"]
        for name in (
            "difference_holds_0_blocks",
            "difference_holds_0_process",
            "same_process_difference_holds_0_blocks",
        )
    )
    figures = (
        ("scatter of a ratio within a process (sigma)", "within_a_process_sigma"),
        ("scatter between processes (sigma)", "between_processes_sigma"),
        ("largest difference of two processes", "largest_difference_of_two_processes"),
        ("half width of one process's interval, median", "median_half_width_of_blocks"),
    )
    lines = [
        ("candidates, processes", f"{study['candidates']}, {study['processes']}"),
        *((title, f"{study[f'{name}_percent']:.2f} %") for title, name in figures),
        ("two passes of one process agree, blocks as the unit", held(same)),
        ("two processes agree, blocks as the unit", held(blocks)),
        ("**two processes agree, the process as the unit**", f"**{held(processes)}**"),
        ("processes for an interval of +-1 %", study["processes_for_an_interval_of_1_percent"]),
        ("processes to find 1 % in 90 of 100", study["processes_to_find_1_percent_in_90_of_100"]),
    ]
    return table(("", "figure"), lines)


def held(share: Row) -> str:
    return f"{share['held']} of {share['of']} ({share['share']:.1%})"


def again() -> str:
    """The first study: the best candidates of a search, measured again in fresh processes."""
    study = rows("h200/gpu_target", "again")
    lines = []
    for number in dict.fromkeys(row["number"] for row in study):
        repeats = [row for row in study if row["number"] == number]
        first = repeats[0]["first"]
        lines.append(
            (
                f"trial {number}",
                f"{first:.4f}",
                ", ".join(f"{row['ratio']:.4f}" for row in repeats),
                f"{max(abs(row['ratio'] / first - 1) for row in repeats):.2%}",
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
        figure = (
            f"{row['equal']} equal, {row['within bounds']} within PTX's bounds, "
            f"{row['different']} different"
        )
        gpu = conformance_gpu()
        words = "primitives compared bit for bit" + (f" (on an {gpu})" if gpu != "H200" else "")
        lines.append((words, figure, "gpu_conformance"))
    for row in rows("h200/gpu_target", "album"):
        name = "h200/gpu_target"
        only_emulator = len(row["wrong_but_green_here"])
        lines += [
            (f"album on the GPU: entries, {row['date']}", row["entries"], name),
            ("... correct ones that the GPU rejects", len(row["right_but_not_green_here"]), name),
            ("... wrong ones that only the emulator's checks reject", only_emulator, name),
        ]
    for row in rows("h200/emulator_against_gpu", "tally"):
        judged, name = row["drawn"] - row["spills"], "h200/emulator_against_gpu"
        share = f"{judged} of {row['drawn']} (the others spill)"
        lines += [
            ("random candidates judged by both", share, name),
            ("... correct on both", row["right_on_both"], name),
            ("... that only the GPU rejects", f"**{row['only_the_gpu_refuses']}**", name),
            ("... that only the emulator rejects", row["only_the_emulator_refuses"], name),
        ]
    return table(
        ("what", "figure", "from"),
        [(description, figure, source_of(name)) for description, figure, name in lines],
    )


def luck() -> str:
    """Wrong kernels of the album with correct results on the GPU, and the emulator's reports."""
    judged = {
        f"{row['kernel']}-{row['name']}": row
        for row in rows("planted")
        if row.get("kind") and row["verdict"] == "rejected"
    }
    lines = []
    for album in rows("h200/gpu_target", "album"):
        for name in album["wrong_but_green_here"]:
            row = judged[name]
            report = (
                PLACE.sub(r"\1:\2", row["finding"]).removesuffix(", against None")
                or row["sentence"].partition(";")[0]
            )
            verdict = f"{row['stage']}: {row['reason']}"
            lines.append((f"`{name}`", verdict, report.replace("|", "\\|")))
    return table(("kernel of the album", "the emulator's verdict", "its report"), lines)


def compiler() -> str:
    """The candidate that one release of NVRTC compiles to wrong code."""
    candidates = rows("h200/compiler_fault", "candidate")
    if not candidates:
        return NOT_YET
    (candidate,) = candidates
    settings = " ".join(f"{name}={value}" for name, value in candidate["parameters"].items())
    outcomes = table(
        ("NVRTC", "on the GPU", "report of the gate"),
        [
            (row["nvidia-cuda-nvrtc"], row["outcome"], row["sentence"])
            for row in rows("h200/compiler_fault", "compiled")
        ],
    )
    return (
        f"The candidate: `{candidate['template']}` on `{candidate['workload']}`, {settings}; "
        f"on the emulator: {candidate['emulator']}.\n\n{outcomes}"
    )


def modelled() -> str:
    lines = [
        (
            row["template"],
            row.get("workload", "mission"),
            row["candidates"],
            f"{row['spearman']:.2f}",
            f"{row['ratio_p5']:.2f} to {row['ratio_p95']:.2f}",
            source_of(name),
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
            source_of(name),
        )
        for name in MODELLED
        for row in rows(name, "pairs ordered wrongly")
    ]
    candidate_titles = (
        "template",
        "workload",
        "candidates",
        "rank correlation",
        "measured / modelled, 5th to 95th percentile",
        "from",
    )
    pair_titles = (
        "modelled apart by a factor from",
        "workload",
        "pairs of candidates",
        "measured the other way round",
        "from",
    )
    return "\n\n".join(
        (
            table(candidate_titles, lines),
            table(pair_titles, pairs),
            f"The grey lines are equality and the band of {BAND:g} that a modelled time claims.",
            "![Modelled against measured times of attention candidates](h200_modelled.svg)",
        )
    )


def peers() -> str:
    lines = [
        (
            duel["workload"],
            duel["name"],
            duel["version"],
            f"{duel['time_median_us']:.2f}",
            with_interval(duel["comparison"]),
            duel["comparison"]["decision"].replace("_", " "),
        )
        for duel in duels()
    ]
    if not lines:
        return NOT_YET
    others = dict.fromkeys(
        f"{row['name']} ({row['sentence'].partition(': ')[2]})"
        for row in rows("h200/peers", "peer")
        if not row["comparison"]
    )
    not_timed = f"\n\nNot timed: {'; '.join(others)}." if others else ""
    timed = table(("workload", "peer", "version", "its us", "our time / its time", ""), lines)
    plot = "![Our time over the peers' times, with intervals](h200_peers.svg)"
    return f"{timed}{not_timed}\n\n{plot}"


def with_interval(comparison: Row) -> str:
    interval = (
        f"{comparison['ratio_low']:.3f}, {comparison['ratio_high']:.3f}"
        if is_bounded(comparison)
        else "too few blocks for one"
    )
    return f"{comparison['ratio']:.3f} [{interval}]"


def rmsnorm() -> str:
    """The second kernel's searches beside PyTorch."""
    lines = []
    for row in rows("h200/rmsnorm"):
        beside = "; ".join(
            f"{peer['name']} {peer['time_median_us']:.2f}: {peer['ratio']:.3f} "
            f"[{peer['interval'][0]:.3f}, {peer['interval'][1]:.3f}]"
            for peer in row["peers"]
            if peer["ratio"]
        )
        low, high = row["interval"]
        lines.append(
            (
                row["workload"],
                row["l2"],
                sum(row["counts"]["by_verdict"].values()),
                f"`{row['template']}`",
                f"{row['time_median_us']:.2f}",
                f"{row['ratio_to_baseline']:.3f} [{low:.3f}, {high:.3f}] of `{row['baseline']}`",
                "yes" if row["confirmed"] else "no",
                beside,
            )
        )
    titles = (
        "workload",
        "L2",
        "trials",
        "best",
        "us",
        "against the baseline",
        "confirmed",
        "beside the peers, us: our time / its time",
    )
    return table(titles, lines)


def winners() -> str:
    summary = find_result("h200/search").get("found")
    if not summary:
        return NOT_YET
    sentence = summary["why"].partition("; ")[2] or summary["why"]
    plot = "\n\n![Times of a search's candidates](h200_search.svg)" if timed_trials() else ""
    return f"`{summary['workload']}`, {summary['trials']} trials: {sentence}.{plot}"


def verified() -> str:
    lines = [
        (item["name"], item["finding"].replace("_", " "), item["sentence"])
        for row in rows("h200/verify", "verify")
        for item in row["items"]
    ]
    return table(("", "", "report of `greenfast verify`"), lines)


SECTIONS = {
    section.__name__: section
    for section in (
        machine,
        ceilings,
        decisions,
        throughput,
        confirmation,
        emulator,
        luck,
        compiler,
        modelled,
        peers,
        rmsnorm,
        winners,
        verified,
    )
}


def pages() -> dict[Path, str]:
    """The page and its plots as the results make them."""
    files = {
        PAGE: filled_page(PAGE, "h200_page", SECTIONS),
        DOCS / "h200_modelled.svg": modelled_plot(),
    }
    if duels():
        files[DOCS / "h200_peers.svg"] = peer_plot()
    if timed_trials():
        files[DOCS / "h200_search.svg"] = search_plot()
    return files


if __name__ == "__main__":
    run_page(__doc__, pages)

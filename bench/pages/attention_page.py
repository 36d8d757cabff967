"""The tables of docs/attention.md, made from results and from the templates' tomls.

    python -m bench.pages.attention_page [--save]

A figure that no result holds is left out, or the page has "not measured yet" in its place.
"""

from __future__ import annotations

from pathlib import Path

from bench.gpu.attention_rows import WORKLOADS, finished
from bench.pages import attention_ablations
from bench.pages.attention_lessons import lessons, prototypes
from bench.pages.figures import figure, interval
from bench.pages.sections import DOCS, NOT_YET, filled_page, rows, run_page, source_of, table
from bench.results import RESULTS, Row, find_result, result_file
from greenfast.search.kernels.catalogue import REPOSITORY_TEMPLATES, Catalogue
from greenfast.search.kernels.spec import TemplateSpec

PAGE = DOCS / "attention.md"
SHORT = ("small", "mission", "mission_512")  # goal: 0.8 of the best peer's time
AIM_RATIO, AIM_TFLOPS = 0.8, {64: 320.0, 128: 350.0}
LISTED_STALLS = 2


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


def repeats(template: TemplateSpec) -> str:
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
        summary, judged = find_result(name).get("found"), rows(name)
        if summary:
            groups = {
                str(tuple(row[key] for key in ("kernel", "template", "preset", "group")))
                for row in judged
            }
            lines.append(
                (
                    f"`{summary['target']}`",
                    summary["presets"],
                    len(groups),
                    len({row["seed"] for row in judged}),
                    summary["checks"],
                    f"**{summary['not right']}**",
                    source_of(name),
                )
            )
    return table(
        ("target", "presets", "presets and groups", "random seeds", "runs", "wrong", "result"),
        lines,
    )


# ---- searches ----


def searches() -> list[Row]:
    """Finished searches in the order of the table."""
    by_workload = {search["workload"]: search for search in finished(RESULTS / "h200")}
    return [by_workload[name] for name in WORKLOADS if name in by_workload]


def tflops(search: Row) -> float:
    """The winner's TFLOP/s; of a causal mask only the visible pairs of a row and a key count."""
    dims = search["dims"]
    queries, keys = dims["S_q"], dims["S_kv"]
    pairs = queries * keys if search["mask"] == "none" else queries * (queries + 1) // 2
    return 4 * dims["B"] * dims["H"] * dims["D"] * pairs / search["time_median_us"] / 1e6


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
                confirmed(search),
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
                "goal",
                "confirmed",
                "run",
            ),
            lines,
        )
        + more
    )


def confirmed(row: Row) -> str:
    return "yes, champion" if row.get("champion") else "yes" if row["confirmed"] else "no"


def aim(row: Row) -> str:
    if row["workload"].split("_causal")[0].removesuffix("_bf16") in SHORT:
        ratio = row["ratio_to_best_peer"]
        return f"{AIM_RATIO:g}: " + (
            "met" if ratio is not None and ratio <= AIM_RATIO else "missed"
        )
    if row["mask"] != "none":
        return ""
    aimed = AIM_TFLOPS[row["dims"]["D"]]
    return f"{aimed:.0f} TFLOP/s: " + ("met" if tflops(row) >= aimed else "missed")


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
        f"\n\n`{result_file('h200/attention_winners')}` holds each of them with the command that "
        "takes it through all gates again."
        if lines
        else ""
    )
    return table(("workload", "template", "parameters", "source"), lines) + again


def runs() -> str:
    lines = []
    for search in searches():
        run = search["run"]
        verdicts = sorted(search["verdicts"].items(), key=lambda item: -item[1])
        baseline = interval(search["ratio_to_baseline_interval"])
        lines.append(
            (
                search["workload"],
                run["trials"],
                f"{run['trials_per_minute']:.0f}",
                ", ".join(f"{count} {name}" for name, count in verdicts),
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
                    (
                        f"{shape['blocks']} blocks of {shape['threads']} threads, "
                        f"{shape['smem_dynamic_bytes']:,} bytes"
                    ),
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
                for name, cycles in launch["stalls"][:LISTED_STALLS]
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


# ---- judged apart ----


def independent() -> str:
    """Every template of every kernel."""
    lines = []
    for kernel in Catalogue([REPOSITORY_TEMPLATES]).kernels():
        by_template = find_result(f"h200/independent_check/{kernel.name}").get("found", {})
        for name in (template.name for template in kernel.templates):
            if name not in by_template:
                lines.append((f"`{kernel.name}`", f"`{name}`", NOT_YET, *[""] * 9))
                continue
            summary = by_template[name]
            plain, twins = summary["candidates"], summary["twins"]
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
                    f"**{summary['wrong accepted']}**",
                    f"**{summary['right rejected']}**",
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
            "both accept (equivalent, or correct by chance)",
            "wrong accepted",
            "correct rejected",
        ),
        lines,
    )


SECTIONS = {
    **{
        section.__name__: section
        for section in (
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
        )
    },
    "seeds": prototypes,
    "lessons": lessons,
    **attention_ablations.SECTIONS,
    "independent": independent,
}


def pages() -> dict[Path, str]:
    """The page as the results and the templates make it."""
    return {PAGE: filled_page(PAGE, "attention_page", SECTIONS)}


if __name__ == "__main__":
    run_page(__doc__, pages)

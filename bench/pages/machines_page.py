"""The tables of docs/several-machines.md: what a trial costs, and what that means for a cluster.

    python -m bench.pages.machines_page [--save]

The costs are measured, each on its own machine (the table names the results). The sizes are
computed from them. tests/unit/test_machines_page.py compares the page with the results.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from bench.pages.figures import figure
from bench.pages.sections import DOCS, filled_page, rows, run_page, source_of, table
from bench.results import Row, find_result

PAGE = DOCS / "several-machines.md"
SCRIPT = "machines_page"
DRILL = "ray_drill"
CLUSTERS = (1, 8, 64, 1000)  # GPUs
ALL_TRIALS = 10**8
DAY_S, TERABYTE = 86_400.0, 1e12


@dataclass(frozen=True)
class Cost:
    """What a trial needs of one thing, in seconds; a `single` thing there is once in a search."""

    name: str
    seconds: float
    single: bool
    source: str


def _gpu() -> Cost:
    (row,) = [row for row in rows("h200/two_gpus") if row["search"] == "one"]
    gpu = row["gpus"]["cuda:0"]
    return Cost(
        "GPU, checks and times", gpu["busy_s"] / gpu["trials_timed"], False, "h200/two_gpus"
    )


def _compile() -> Cost:
    (row,) = [row for row in rows("nvrtc") if row["children"] == 1]
    return Cost("core, NVRTC", 1 / row["compiles_per_s_per_child"], False, "nvrtc")


def _check() -> Cost:
    run = find_result("h200/search")["found"]
    seconds = run["safety_thread_s"] / run["trials"]
    return Cost("thread, the emulator's safety check", seconds, False, "h200/search")


def _search() -> Row:
    """The fastest of the searches on one GPU."""
    return max(rows("h200/search_rate"), key=lambda row: float(row["trials_per_minute"]))


def _judging() -> Cost:
    run = _search()
    seconds = run["workers_cpu_s"] / run["trials"]
    return Cost("core of the searching machine, judging", seconds, False, "h200/search_rate")


def _process() -> Cost:
    seconds = _search()["own_cpu_ms"] / 1000
    return Cost("processor time of the searching process", seconds, True, "h200/search_rate")


def _bookkeeping() -> Mapping[str, float]:
    """The bookkeeping costs with `tpe`, of the latest measured version."""
    every = rows("bookkeeping")
    return [row for row in every if row["trials"] == 10_000 and row["strategy"] == "tpe"][-1]


def _store() -> Cost:
    (row,) = rows("store", "begin and record")
    return Cost("SQLite, begin and record", row["mean_ms"] / 1000, True, "store")


def _sent() -> list[Cost]:
    """The cost of sending a trial's tasks; nothing if it was not measured."""
    tasks, empty = rows("machines", "trial"), rows("machines", "empty task")
    if not tasks or not empty:
        return []
    seconds = tasks[0]["tasks"] * empty[0]["searching_process_cpu_ms"] / 1000
    name = "sending tasks, processor time of the searching process"
    return [Cost(name, seconds, True, "machines")]


def _sent_bytes() -> float:
    """Bytes of a trial to and from other machines; 0 if they were not measured."""
    keys = ("parcel_bytes", "new_array_bytes", "reply_bytes")
    return sum(float(row[key]) for row in rows("machines", "trial") for key in keys)


def costs() -> list[Cost]:
    books = _bookkeeping()
    return [
        _gpu(),
        _compile(),
        _check(),
        _judging(),
        _process(),
        Cost("loop, after 10,000 trials", books["loop_ms"] / 1000, True, "bookkeeping"),
        Cost("`tpe`, after 10,000 trials", books["strategy_ms"] / 1000, True, "bookkeeping"),
        *_evolution(),
        _store(),
        *_sent(),
    ]


def _evolution() -> list[Cost]:
    asked = [row for row in rows("search_quality", "strategy") if row["strategy"] == "evolution"]
    return [
        Cost("`evolution`, a proposal", row["ask_ms"] / 1000, True, "search_quality")
        for row in asked
        if "ask_ms" in row
    ]


def costs_table() -> str:
    lines = [(cost.name, _ms(cost.seconds), source_of(cost.source)) for cost in costs()]
    stored = rows("store", "bytes a trial on disk")[0]["bytes"]
    text = table(("cost of a trial", "ms", "result"), lines)
    sent = [
        f"It sends {figure(row['tasks'])} tasks with {figure(row['parcel_bytes'] / 1000)} kB "
        f"and {figure(row['new_array_bytes'] / 1000)} kB of arrays that had not been sent before, "
        f"and receives {figure(row['reply_bytes'] / 1000)} kB ({row['trials']} trials of attention "
        f"`mission` on `{row['target']}`, {source_of('machines')})."
        for row in rows("machines", "trial")
    ]
    own = f"A stored trial takes {stored:,} bytes ({source_of('store')})."
    return "\n\n".join([text, " ".join([own, *sent])])


def limits_table() -> str:
    """What a search has only once, the tightest limit first."""
    gpu_s = _gpu().seconds
    lines = [
        (cost.name, figure(1 / cost.seconds), figure(gpu_s / cost.seconds))
        for cost in sorted(costs(), key=lambda cost: -cost.seconds)
        if cost.single
    ]
    return table(("limit of a search", "trials a second at most", "busy GPUs"), lines)


def sizes_table() -> str:
    gpu_s = _gpu().seconds
    cores_s = _compile().seconds + _check().seconds + _judging().seconds
    slowest_s = max(
        cost.seconds for cost in costs() if cost.single and not cost.name.startswith("`tpe`")
    )
    stored = rows("store", "bytes a trial on disk")[0]["bytes"]
    lines = []
    for gpus in CLUSTERS:
        rate = gpus / gpu_s
        lines.append(
            (
                f"{gpus:,}",
                figure(rate),
                f"{rate * cores_s:,.0f}",
                f"{max(1, -(-rate * slowest_s // 1)):,.0f}",
                figure(rate * stored / 1e6),
                figure(rate * _sent_bytes() / 1e6),
                figure(ALL_TRIALS / rate / DAY_S),
            )
        )
    titles = (
        "GPUs",
        "trials a second",
        "cores for NVRTC, checks and judging",
        "searching processes",
        "MB a second stored",
        "MB a second sent",
        "days for 10^8 trials",
    )
    total = ALL_TRIALS * stored / TERABYTE
    return f"{table(titles, lines)}\n\n10^8 stored trials take {total:.1f} TB."


def _ms(seconds: float) -> str:
    return figure(1000 * seconds)


def drill_table() -> str:
    """Searches in which machines or processes were killed."""
    lines = [
        (
            row["what"],
            row["trials"],
            "yes" if row["numbers_once_and_whole"] else "no",
            row["candidates_twice"],
            row["faulted"],
            "yes" if row["as_on_one_machine"] else "no",
        )
        for row in rows(DRILL)
        if row["what"] != "setting"
    ]
    titles = (
        "killed in mid-search",
        "trials stored",
        "each number once",
        "candidates twice",
        "faults",
        "candidates and verdicts as on one machine",
    )
    text = table(titles, lines)
    return f"{text}\n\n{source_of(DRILL)}." if lines else text


def pages() -> dict[Path, str]:
    sections = {
        "drill": drill_table,
        "costs": costs_table,
        "limits": limits_table,
        "sizes": sizes_table,
    }
    return {PAGE: filled_page(PAGE, SCRIPT, sections)}


if __name__ == "__main__":
    run_page(__doc__, pages)

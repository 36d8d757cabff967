"""The goals of the search engine beside what was measured: tables of docs/search.md."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Mapping
from typing import Any

from bench.pages.figures import figure
from bench.pages.sections import rows, source_of, table
from bench.results import Row, find_result

QUALITY, RATE, TWO = "search_quality", "h200/search_rate", "h200/two_gpus"
AGAIN, BEFORE, NOW, MACHINE = "h200/search_rate_again", "24 November", "29 November", "B"
# The last run of each workload on each kind of machine; several-gpus.md has the earlier ones.
TWO_RESULTS = (
    "h100/two_gpus_haste",
    "h100/four_gpus_haste",
    "h100/two_gpus",
    "h200/four_gpus",
    "h200/two_gpus_again",
)
BOOKS, MODELLED = "bookkeeping", "modelled_times"
# Kernel Tuner's rate was measured on these templates, as far as there are results. The first three
# searches of ours had 75 candidates, so half of their time was the start.
TUNER_RATES = (
    "h200/kernel_tuner_rate",
    "h100/kernel_tuner_rate_mma_16_cores",
    "h100/kernel_tuner_rate_wmma_16_cores",
    "h100/kernel_tuner_rate_mma",
    "h100/kernel_tuner_rate_wmma",
)
OURS, OTHERS = "evolution", "kernel_tuner "
SECOND = "; second goal"
RECORDED = "-h200"  # ending of this repository's recordings
Line = tuple[str, str, str, str, str]


def aims() -> str:
    lines = [*_quality(), *_rates(), *_tuner(), *_idle(), *_books()]
    return table(("goal", "required", "measured", "", "result"), lines)


def _line(name: str, wanted: float, measured: float, source: str, *, least: bool) -> Line:
    """An aim that is at least or at most the wanted figure."""
    met = measured >= wanted if least else measured <= wanted
    word = "met" if met else f"missed: {figure(measured / wanted)} times the goal"
    sign = "at least" if least else "at most"
    return name, f"{sign} {figure(wanted)}", figure(measured), word, source_of(source)


def _middle(row: Row, percent: int) -> float:
    middle = row[f"to_{percent}_percent"][1]
    return math.inf if middle is None else float(middle)


def _quality() -> Iterable[Line]:
    lines = rows(QUALITY, "line")
    ours = [row for row in lines if row["strategy"] == OURS]
    own = [row for row in ours if row["space"].endswith(RECORDED)]
    for percent, first, second in ((5, 20.0, 12.0), (1, 40.0, 25.0)):
        worst = max(_middle(row, percent) for row in own)
        name = (
            f"evaluations to {percent} % of the optimum, cold, the worst of {len(own)} recordings"
        )
        yield _line(name, first, worst, QUALITY, least=False)
        yield _line(f"{name}{SECOND}", second, worst, QUALITY, least=False)
    yield from _modelled([row["space"] for row in own])
    ratios = []
    for row in ours:
        if row in own:
            continue
        theirs = [
            _middle(each, 5)
            for each in lines
            if each["space"] == row["space"] and each["strategy"].startswith(OTHERS)
        ]
        ratios.append(_middle(row, 5) / min(theirs))
    name = (
        f"evaluations to 5 %, relative to Kernel Tuner's best, worst of {len(ratios)} other spaces"
    )
    yield _line(name, 0.7, max(ratios), QUALITY, least=False)
    yield _line(f"{name}{SECOND}", 0.5, max(ratios), QUALITY, least=False)
    scores = {row["strategy"]: row["score"] for row in rows(QUALITY, "strategy")}
    best = max(score for name, score in scores.items() if name.startswith(OTHERS))
    yield _line(
        "score P, relative to Kernel Tuner's best", 1.1, scores[OURS] / best, QUALITY, least=True
    )


def _modelled(spaces: list[str]) -> Iterable[Line]:
    """The second goals again, for searches that hear modelled times."""
    own = [row for row in rows(MODELLED, "line") if row["spaces"][0] in spaces]
    for percent, wanted in ((5, 12.0), (1, 25.0)):
        if worst := [
            row[f"{percent} %"]["with"]["median"] for row in own if len(row["spaces"]) == 1
        ]:
            name = (
                f"evaluations to {percent} % of the optimum, cold, with modelled times, the worst "
                f"of {len(worst)} recordings{SECOND}"
            )
            yield _line(name, wanted, max(worst), MODELLED, least=False)


def _fastest() -> Row:
    return max(rows(RATE), key=lambda row: float(row["trials_per_minute"]))


def _rates() -> Iterable[Line]:
    name = f"trials a minute, one H200, {_cores(RATE)} cores, first search of a process"
    yield _line(name, 1000.0, _fastest()["trials_per_minute"], RATE, least=True)
    yield _line(f"{name}{SECOND}", 1500.0, _fastest()["trials_per_minute"], RATE, least=True)
    again = {
        version: statistics.median(
            row["trials_per_minute"]
            for row in rows(AGAIN)
            if (row["version"], row["machine"]) == (version, MACHINE)
        )
        for version in (BEFORE, NOW)
    }
    name = (
        f"the same by the code of {NOW}, the median of three, on a slower machine, where that of "
        f"{BEFORE} runs {again[BEFORE]:.0f}"
    )
    yield _line(name, 1000.0, again[NOW], AGAIN, least=True)
    for source, run in _two():
        name = f"two GPUs against one, {_cores(source)} cores, {_workload(run)}"
        yield _line(name, 1.8, run["gain"], source, least=True)


def _tuner() -> Iterable[Line]:
    for result in TUNER_RATES:
        if stored := find_result(result):
            theirs, ours = stored["rows"][:2]
            name = (
                f"candidates a minute, relative to Kernel Tuner, template `{stored['template']}`, "
                f"{_cores(result)} cores, {ours['candidates']} candidates of ours ({ours['timed']} "
                f"of them timed), {theirs['candidates']} of Kernel Tuner's ({theirs['timed']})"
            )
            yield _line(name, 10.0, stored["ratio"], result, least=True)


def _idle() -> Iterable[Line]:
    yield _line("idle share of one GPU", 0.2, _largest_idle(_fastest()), RATE, least=False)
    for source, run in _two():
        (row,) = (row for row in run["rows"] if row["search"] == "several")
        name = f"idle share of each of two GPUs, {_cores(source)} cores, {_workload(run)}"
        yield _line(name, 0.2, _largest_idle(row), source, least=False)


def _two() -> Iterable[tuple[str, Row]]:
    """The searches on two GPUs, each with its result's name; `long` is a second workload."""
    for source in TWO_RESULTS:
        result = find_result(source)
        yield source, result
        if "long" in result:
            yield source, result["long"]


def _workload(run: Row) -> str:
    """The workload that the searches of a run had."""
    (name,) = run["plan"]["workloads"]
    return f"`{name}`"


def _largest_idle(row: Row) -> float:
    return max(float(gpu["idle_share"]) for gpu in row["gpus"].values())


def _books() -> Iterable[Line]:
    last = {row["strategy"]: row for row in rows(BOOKS) if row["trials"] == 10_000}
    for strategy, row in last.items():
        name = f"ms of the loop per trial, after 10,000 with `{strategy}`"
        if beside := row.get("tpe_loop_ms"):
            name += f", on a slower machine, where `tpe` takes {figure(beside)}"
        yield _line(name, 5.0, row["loop_ms"], BOOKS, least=False)


def _cores(result: str) -> int:
    return int(find_result(result)["environment"]["cores"])


def _core_seconds(row: Row, result: str) -> Mapping[str, float]:
    """Core seconds of a trial: how many there are, and where they go.

    Each compiling thread waits for a child that works all the time.
    """
    stages: Mapping[str, Any] = row.get("stages", {})
    compiling = stages.get("compile: NVRTC", {}).get("thread_s", 0.0) / row["trials"]
    return {
        "available": 60 * _cores(result) / row["trials_per_minute"],
        "NVRTC": compiling,
        "judging outputs, in workers": row.get("workers_cpu_s", 0.0) / row["trials"],
        "the search process": row["own_cpu_ms"] / 1000,
        "the GPU, in seconds": _gpu_seconds(row),
    }


def _gpu_seconds(row: Row) -> float:
    gpus = row["gpus"].values()
    return float(sum(gpu["busy_s"] for gpu in gpus) / sum(gpu["trials_timed"] for gpu in gpus))


def where_time_goes() -> str:
    """Seconds of a trial on one GPU and on two."""
    fastest = _core_seconds(_fastest(), RATE)
    (several,) = (row for row in rows(TWO) if row["search"] == "several")
    both = _core_seconds(several, TWO)
    lines = [
        (
            name,
            figure(fastest[name]) if fastest[name] else "not counted",
            figure(both[name]) if both[name] else "not counted",
        )
        for name in fastest
    ]
    text = table(
        ("core seconds of a trial", f"one GPU, {_cores(RATE)} cores", f"two, {_cores(TWO)} cores"),
        lines,
    )
    most = 60 / fastest["the GPU, in seconds"]
    bound = f"A GPU that never waits runs at most {figure(most)} timed trials a minute."
    stages = [_tuner_stages(stored) for stored in map(find_result, TUNER_RATES) if stored]
    return "\n\n".join([text, bound, *filter(None, stages)])


def _tuner_stages(stored: Row) -> str:
    """How Kernel Tuner spends its time, if the result holds it."""
    (row,) = (row for row in stored["rows"] if row["tuner"].startswith("Kernel Tuner"))
    if "stages_s" not in row:
        return ""
    parts = ", ".join(f"{stage} {figure(spent)} s" for stage, spent in row["stages_s"].items())
    return (
        f"Kernel Tuner reports for {row['candidates']} candidates of `{stored['template']}`, "
        f"in {figure(row['wall_s'])} s: {parts}."
    )

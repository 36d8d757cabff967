"""The plots of docs/h200.md."""

from __future__ import annotations

from bench.pages.h200_rows import MODELLED, duels, is_bounded, timed_trials
from bench.pages.sections import rows
from bench.pages.svg import Axis, Series, linear_axis, log_axis, plot
from bench.results import Row
from greenfast.search.targets.emulator.model import BAND


def modelled_plot() -> str:
    timed = [
        row
        for name in MODELLED
        for row in rows(name)
        if {"modelled_us", "measured_us"} <= row.keys()
    ]
    return plot(
        "Modelled against measured, attention on an H200",
        log_axis("modelled, us", [row["modelled_us"] for row in timed]),
        log_axis("measured, us", [row["measured_us"] for row in timed]),
        series_by_template(timed, "modelled_us", "measured_us"),
        guides=((1.0, 1.0), (BAND, 1.0), (1 / BAND, 1.0)),
    )


def search_plot() -> str:
    trials = timed_trials()
    end = max(trial["at_s"] for trial in trials)
    return plot(
        "Candidates of one search",
        linear_axis("seconds since the search began", 0.0, end, 5.0 if end < 60 else 20.0),
        log_axis("measured, us", [trial["us"] for trial in trials]),
        series_by_template(trials, "at_s", "us"),
    )


def series_by_template(timed: list[Row], x: str, y: str) -> list[Series]:
    return [
        Series(name, tuple((row[x], row[y]) for row in timed if row["template"] == name))
        for name in sorted({row["template"] for row in timed})
    ]


def peer_plot() -> str:
    """Ratios to each peer by workload; the peers of one workload lie side by side."""
    timed = duels()
    workloads = tuple(dict.fromkeys(duel["workload"] for duel in timed))
    peers = tuple(dict.fromkeys(duel["name"] for duel in timed))
    series = []
    for number, peer in enumerate(peers):
        shift = (number - (len(peers) - 1) / 2) * 0.15
        of_peer = [duel for duel in timed if duel["name"] == peer]
        points = tuple(
            (workloads.index(duel["workload"]) + shift, duel["comparison"]["ratio"])
            for duel in of_peer
        )
        series.append(Series(peer, points, tuple(interval(duel["comparison"]) for duel in of_peer)))
    x = Axis(
        "workload, bf16",
        -0.5,
        len(workloads) - 0.5,
        tuple(map(float, range(len(workloads)))),
        names=tuple(workload.removesuffix("_bf16") for workload in workloads),
    )
    highest = max(interval(duel["comparison"])[1] for duel in timed)
    y = linear_axis("our time / its time, measured", 0.0, highest, 0.25)
    title = "Winners of the searches: below 1 ours is faster"
    return plot(title, x, y, series, guides=((1.0, 0.0),))


def interval(comparison: Row) -> tuple[float, float]:
    """The ratio's interval; the ratio itself where an end is open."""
    if is_bounded(comparison):
        return comparison["ratio_low"], comparison["ratio_high"]
    return comparison["ratio"], comparison["ratio"]

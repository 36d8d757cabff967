"""The tables and plots of docs/search.md: evaluations that strategies need, cold.

    python -m bench.pages.search_page [--save]

tests/unit/test_search_page.py compares the page with the result.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from pathlib import Path

from bench.pages.search_aims import aims, where_time_goes
from bench.pages.sections import DOCS, filled_page, rows, run_page, source_of, table
from bench.pages.svg import Axis, Series, linear_axis, log_axis, plot
from bench.results import Row, find_result

PAGE = DOCS / "search.md"
RESULT, UNSEEN, MODELLED = "search_quality", "search_quality_unseen", "modelled_times"
SCORES, WAYS = DOCS / "search_scores.svg", DOCS / "search_ways.svg"
OURS, OTHERS, PLAIN = "evolution", "kernel_tuner ", "optuna "
MOST_WAYS = 5  # colours of a plot
TITLES = ("space", "strategy", "10 %", "5 %", "1 %", "score P")


def _of(what: str, result: str = RESULT) -> list[Row]:
    return rows(result, what)


def _ranked(result: str = RESULT) -> list[Row]:
    """The strategies, the best mean score first."""
    return sorted(_of("strategy", result), key=lambda row: -row["score"])


def _name(strategy: str) -> str:
    if strategy.startswith(OTHERS):
        return f"Kernel Tuner: {strategy.removeprefix(OTHERS)}"
    return f"plain Optuna: {strategy.removeprefix(PLAIN)}" if PLAIN in strategy else strategy


def strategies(result: str = RESULT) -> str:
    lines = [
        (
            _name(row["strategy"]),
            _interval(row["score"], row["score_interval"]),
            f"{row['ask_ms']:.1f}" if "ask_ms" in row else "",
        )
        for row in _ranked(result)
    ]
    text = table(("strategy", "score P, mean over the spaces", "ms per proposal"), lines)
    return f"{text}\n\n{_setting(result)}" if lines else text


def _setting(result: str) -> str:
    (setting,) = _of("setting", result)
    date = find_result(result)["environment"]["date"]
    version, seeds = setting["kernel_tuner"], setting["seeds"]
    beside = f" Kernel Tuner {version} in its simulation mode." if version else ""
    fewer = [
        f"{row['searches']} of {_name(row['strategy'])}"
        for row in _of("strategy", result)
        if row.get("searches", seeds) < seeds
    ]
    less = f" (but {', '.join(fewer)})" if fewer else ""
    return (
        f"{setting['evaluations']} evaluations, {seeds} searches for each space and "
        f"strategy{less}, {len(setting['spaces'])} spaces, {date}.{beside} {source_of(result)}."
    )


def against(result: str = RESULT) -> str:
    """Evolution beside the strategy of Kernel Tuner that is best on each space."""
    (setting,) = _of("setting", result)
    lines = []
    for space in _spaces(result):
        same = [row for row in _of("line", result) if row["space"] == space]
        ours = next((row for row in same if row["strategy"] == OURS), None)
        others = [row for row in same if row["strategy"].startswith(OTHERS)]
        if ours is None or not others:
            continue
        best = min(others, key=lambda row: _middle(row, 5))
        lines.append(
            (
                space,
                _count(ours, 5),
                _count(ours, 1),
                _best_of_others(best),
                _ratio(_middle(ours, 5), _middle(best, 5), setting["evaluations"]),
            )
        )
    return table(
        ("space", "evolution, 5 %", "evolution, 1 %", "best of Kernel Tuner, 5 %", "ratio"), lines
    )


def _best_of_others(row: Row) -> str:
    if _middle(row, 5) == float("inf"):
        return "none"
    return f"{_count(row, 5)} ({row['strategy'].removeprefix(OTHERS)})"


def _ratio(ours: float, theirs: float, budget: int) -> str:
    """Of two medians; where half of their searches did not get there, it is below ours / budget."""
    if ours == float("inf"):
        return "-"
    if theirs == float("inf"):
        return f"below {ours / budget:.2f}"
    return f"{ours / theirs:.2f}"


def _middle(row: Row, percent: int) -> float:
    middle = row[f"to_{percent}_percent"][1]
    return float("inf") if middle is None else float(middle)


def figures() -> str:
    lines = [
        (
            row["space"],
            _name(row["strategy"]),
            *(_count(row, percent) for percent in (10, 5, 1)),
            _interval(row["score"], row["score_interval"]),
        )
        for space in _spaces()
        for row in sorted(
            (row for row in _of("line") if row["space"] == space),
            key=lambda row: (_middle(row, 5), _middle(row, 10)),
        )
    ]
    return table(TITLES, lines)


def modelled_times() -> str:
    """Evaluations of `evolution` with modelled times and without, by recording and over all."""
    if not rows(MODELLED, "line"):
        return ""
    (setting,) = rows(MODELLED, "setting")
    lines = []
    for row in rows(MODELLED, "line"):
        names, figures = row["spaces"], []
        for goal in (row["5 %"], row["1 %"]):
            figures += [
                *(_median(goal[which]) for which in ("without", "with")),
                _interval(goal["ratio"], goal["interval"]),
            ]
        what = f"all {len(names)}" if len(names) > 1 else f"{names[0]}, {row['points']} points"
        lines.append((what, *figures))
    titles = [
        f"{percent} %, {which}"
        for percent in (5, 1)
        for which in ("without", "with", "with / without")
    ]
    return (
        f"{table(('recording', *titles), lines)}\n\nMedian evaluations of cold searches, and the "
        f"geometric mean of the ratio, with 95 % intervals: {setting['seeds']} searches each, at "
        f"most {setting['evaluations']} evaluations. {source_of(MODELLED)}."
    )


def _median(goal: Row) -> str:
    low, high = goal["interval"]
    return f"{goal['median']:g} [{low:g}, {high:g}]"


def _spaces(result: str = RESULT) -> Iterable[str]:
    return dict.fromkeys(row["space"] for row in _of("line", result))


def _count(row: Row, percent: int) -> str:
    """The median and its interval."""
    name = f"to_{percent}_percent"
    low, high = ("-" if end is None else f"{end}" for end in row[f"{name}_interval"])
    middle = row[name][1]
    return "-" if middle is None else f"{middle} [{low}, {high}]"


def _interval(value: float | None, ends: list[float | None]) -> str:
    if value is None or None in ends:
        return ""
    return f"{value:.2f} [{ends[0]:.2f}, {ends[1]:.2f}]"


def score_plot() -> str:
    ranked = _ranked()
    names = tuple(_name(row["strategy"]).replace(": ", "_").replace(" ", "_") for row in ranked)
    ends = [row["score_interval"] for row in ranked]
    x = Axis(
        "strategy", -0.5, len(ranked) - 0.5, tuple(map(float, range(len(ranked)))), names=names
    )
    series = [
        Series(
            "mean over the spaces, 95 % interval",
            tuple((float(at), row["score"]) for at, row in enumerate(ranked)),
            tuple((low, high) for low, high in ends),
        )
    ]
    low, high = min(end[0] for end in ends), max(end[1] for end in ends)
    return plot(
        "Score P: 0 is random search, 1 the best from the start",
        x,
        linear_axis("score P", min(low, 0.0), max(high, 1.0), 0.25),
        series,
    )


def way_plot() -> str:
    """Evolution, the best of Kernel Tuner, the best of plain Optuna, and random search."""
    ranked = _ranked()
    shown = [OURS, "tpe", "random"]
    for prefix in (OTHERS, PLAIN):
        shown += [row["strategy"] for row in ranked if row["strategy"].startswith(prefix)][:1]
    ways = [row for row in ranked if row["strategy"] in shown][:MOST_WAYS]
    series = [
        Series(
            _name(row["strategy"]).replace("Kernel Tuner: ", "KT ").replace("plain Optuna: ", ""),
            tuple((float(at), middle) for at, middle, _, _ in row["way"]),
            tuple((low, high) for _, _, low, high in row["way"]),
        )
        for row in ways
    ]
    ats = [float(point[0]) for row in ways for point in row["way"]]
    tops = [point[3] for row in ways for point in row["way"]]
    return plot(
        "Best time so far over the best of the space, geometric mean",
        log_axis("evaluations", ats),
        log_axis("times the best", [1.0, *tops]),
        series,
    )


def pages() -> dict[Path, str]:
    sections = {
        "aims": aims,
        "where_time_goes": where_time_goes,
        "modelled_times": modelled_times,
        "strategies": strategies,
        "against": against,
        "unseen_strategies": partial(strategies, UNSEEN),
        "unseen": partial(against, UNSEEN),
        "figures": figures,
    }
    files = {PAGE: filled_page(PAGE, "search_page", sections)}
    if _of("strategy"):
        files |= {SCORES: score_plot(), WAYS: way_plot()}
    return files


if __name__ == "__main__":
    run_page(__doc__, pages)

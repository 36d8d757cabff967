"""The data of the best-so-far chart: chart.js draws it with Plotly, and a table tells its line, too."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from greenfast.db.rows import Point, TrialRow

MOST_POINTS = 1_000  # SVG points that a browser draws each second without delay


def best_so_far(
    search_id: str, trials: Sequence[TrialRow], points: Sequence[Point], baseline: TrialRow | None
) -> dict[str, Any]:
    """Points by template, the steps of the best, the baseline, and the trials that no time stands for."""
    timed = [trial for trial in trials if trial.time_median_us is not None]
    templates: dict[str, dict[str, list[Any]]] = {}
    for one in timed:
        group = templates.setdefault(one.template, {"number": [], "time": [], "verdict": []})
        group["number"].append(one.number)
        group["time"].append(one.time_median_us)
        group["verdict"].append(f"{one.verdict}: {one.reason}" if one.reason else one.verdict)
    untimed = [
        trial for trial in trials if trial.time_median_us is None and trial.verdict is not None
    ]
    reference = baseline if baseline is not None and baseline.time_median_us is not None else None
    return {
        "url": f"/searches/{search_id}/trials/",
        "templates": dict(sorted(templates.items())),
        "best": [[step.number, step.best_us] for step in steps(points)],
        "last_number": max((trial.number for trial in trials), default=0),
        "baseline": reference.time_median_us if reference else None,
        "band": reference.time_band if reference else None,
        "kind": next((one.time_kind for one in timed), None),
        "untimed": [
            [one.number, ": ".join(filter(None, (one.verdict, one.reason)))] for one in untimed
        ],
    }


def steps(points: Sequence[Point]) -> list[Point]:
    """The trials that became the best, in order."""
    found: list[Point] = []
    for point in points:
        if not found or point.best_us < found[-1].best_us:
            found.append(point)
    return found

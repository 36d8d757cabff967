"""The data of the best-so-far chart, which chart.js draws with Plotly."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from greenfast.db.rows import Point, TrialRow

MOST_POINTS = 1_000  # SVG points that a browser draws each second without delay


def best_so_far(
    search_id: str, trials: Sequence[TrialRow], points: Sequence[Point], baseline: TrialRow | None
) -> dict[str, Any]:
    """Points by template, the steps of the best, the baseline, and the trials without a time."""
    timed = [trial for trial in trials if trial.time_median_us is not None]
    templates: dict[str, dict[str, list[Any]]] = {}
    for trial in timed:
        group = templates.setdefault(trial.template, {"number": [], "time": [], "verdict": []})
        group["number"].append(trial.number)
        group["time"].append(trial.time_median_us)
        group["verdict"].append(_verdict(trial))
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
        "kind": next((trial.time_kind for trial in timed), None),
        "untimed": [[trial.number, _verdict(trial)] for trial in untimed],
    }


def steps(points: Sequence[Point]) -> list[Point]:
    """The trials that became the best, in order."""
    improvements: list[Point] = []
    for point in points:
        if not improvements or point.best_us < improvements[-1].best_us:
            improvements.append(point)
    return improvements


def _verdict(trial: TrialRow) -> str:
    return ": ".join(filter(None, (trial.verdict, trial.reason)))

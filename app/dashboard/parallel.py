"""Parallel coordinates of a template's timed trials, as shapes that a page draws in SVG.

An axis a parameter, the most important first, then the time. Lines of slow trials are drawn first,
so that the fast ones lie on top. Plotly's own parallel coordinates need WebGL, and a script.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from greenfast.app.dashboard.words import significant, value
from greenfast.app.views.compare_schemas import TemplateImportancesOut
from greenfast.app.views.values import in_order
from greenfast.db.rows import TrialRow
from greenfast.search.text import shortened
from greenfast.search.verdict import CORRECT

MOST_AXES = 8
MOST_LINES = 250
FEWEST_LINES = 3
LONGEST_LABEL, LONGEST_NAME = 14, 18  # characters
AXIS_GAP, HEIGHT, TOP, BOTTOM, SIDE = 128, 300, 34, 16, 60
SPEEDS = ("fastest", "fast", "slow", "slowest")  # quarters of the trials by time


@dataclass(frozen=True)
class Axis:
    name: str
    label: str
    x: float
    ticks: tuple[tuple[str, float], ...]  # label, y


@dataclass(frozen=True)
class Line:
    number: int
    time_us: float
    speed: str  # of SPEEDS
    points: str  # "x,y x,y ..."


@dataclass(frozen=True)
class Parallel:
    width: int
    height: int
    axes: tuple[Axis, ...]
    lines: tuple[Line, ...]
    left_out: int  # slow trials that are not drawn


def parallel(template: TemplateImportancesOut, trials: Sequence[TrialRow]) -> Parallel | None:
    """The shapes; None for too few trials or nothing that varies."""
    timed = sorted(
        (
            trial
            for trial in trials
            if trial.template == template.template
            and trial.verdict in CORRECT
            and trial.time_median_us
        ),
        key=lambda trial: trial.time_median_us or 0.0,
    )
    shown = timed[:MOST_LINES]
    varied = [
        parameter.name
        for parameter in template.parameters
        if len({_key(trial, parameter.name) for trial in shown}) > 1
    ][:MOST_AXES]
    if len(shown) < FEWEST_LINES or not varied:
        return None
    axes = [_parameter_axis(name, place, shown) for place, name in enumerate(varied)]
    time_axis, low, high = _time_axis(len(varied), shown)
    lines = [
        Line(
            trial.number,
            trial.time_median_us or 0.0,
            SPEEDS[min(3, 4 * rank // len(shown))],
            " ".join(
                f"{x:.0f},{y:.1f}"
                for x, y in [
                    *((axis.x, _y_of(axis, trial)) for axis in axes),
                    (time_axis.x, _time_y(trial.time_median_us or low, low, high)),
                ]
            ),
        )
        for rank, trial in enumerate(shown)
    ]
    width = 2 * SIDE + AXIS_GAP * len(varied)
    return Parallel(
        width, HEIGHT, (*axes, time_axis), tuple(reversed(lines)), len(timed) - len(shown)
    )


def _key(trial: TrialRow, name: str) -> tuple[str, Any]:
    setting = trial.parameters.get(name)
    return type(setting).__name__, setting


def _parameter_axis(name: str, place: int, trials: Sequence[TrialRow]) -> Axis:
    values = in_order(
        list(dict.fromkeys(trial.parameters[name] for trial in trials if name in trial.parameters))
    )
    room = HEIGHT - TOP - BOTTOM
    step = room / max(1, len(values) - 1)
    ticks = tuple(
        (_label(each), TOP + room - index * step if len(values) > 1 else TOP + room / 2)
        for index, each in enumerate(values)
    )
    return Axis(name, shortened(name, LONGEST_NAME), SIDE + AXIS_GAP * place, ticks)


def _label(setting: Any) -> str:
    return shortened(value(setting), LONGEST_LABEL)


def _y_of(axis: Axis, trial: TrialRow) -> float:
    label = _label(trial.parameters.get(axis.name))
    return next((y for text, y in axis.ticks if text == label), axis.ticks[0][1])


def _time_axis(place: int, trials: Sequence[TrialRow]) -> tuple[Axis, float, float]:
    """The fastest at the top."""
    times = [trial.time_median_us for trial in trials if trial.time_median_us]
    low, high = min(times), max(times)
    middle = math.sqrt(low * high)
    ticks = tuple(
        (f"{significant(time_us)} µs", _time_y(time_us, low, high))
        for time_us in dict.fromkeys((low, middle, high))
    )
    return Axis("time", "time", SIDE + AXIS_GAP * place, ticks), low, high


def _time_y(time_us: float, low: float, high: float) -> float:
    if high <= low:
        return TOP + (HEIGHT - TOP - BOTTOM) / 2
    share = math.log(time_us / low) / math.log(high / low)
    return TOP + share * (HEIGHT - TOP - BOTTOM)

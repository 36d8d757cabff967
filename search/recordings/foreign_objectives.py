"""Chooses the measurement of a foreign file to minimise, and turns its values into figures.

A figure is positive, and lower is better. A time is one in microseconds. A rate is inverted. A
score, which may be negative, becomes 1 plus its distance from the best.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

MICROSECONDS = {
    "s": 1e6,
    "sec": 1e6,
    "second": 1e6,
    "seconds": 1e6,
    "ms": 1e3,
    "msec": 1e3,
    "millisecond": 1e3,
    "milliseconds": 1e3,
    "milisecond": 1e3,  # as the benchmark hub's files spell it
    "miliseconds": 1e3,
    "us": 1.0,
    "usec": 1.0,
    "\N{MICRO SIGN}s": 1.0,
    "\N{GREEK SMALL LETTER MU}s": 1.0,
    "microsecond": 1.0,
    "microseconds": 1.0,
    "ns": 1e-3,
    "nsec": 1e-3,
    "nanosecond": 1e-3,
    "nanoseconds": 1e-3,
}
DEFAULT_UNIT = "ms"  # of Kernel Tuner
TIMES = ("time", "runtime", "kernel_time", "time_ms", "gpu_time", "latency")
IN_A_NAME = ("time", "duration", "latency")  # of a time whose unit is elsewhere
# Kernel Tuner's and Optuna's objectives without a unit. They may be zero or negative.
SIGNED = {
    "score": True,
    "fitness": True,
    "cost": False,
    "loss": False,
    "value": False,
}  # is higher better?
RATE_ENDINGS = (
    *("flops", "flop_s", "_per_second", "throughput", "bandwidth"),
    *("flops/w", "flop/j"),
)
LARGEST = 1e20  # Kernel Tuner's older files store the largest floats for failures

# What a result measured: value and unit by name. A value that is no number names a failure.
Figures = dict[str, tuple[Any, str]]


@dataclass(frozen=True)
class Wish:
    """The caller's choice among the measurements of a file."""

    objective: str | None = None  # by default a time, else the file's own objective
    higher_is_better: bool | None = None  # by default so for rates, scores and fitness
    parameters: tuple[str, ...] = ()  # columns of a table; by default all that fit


@dataclass(frozen=True)
class Scale:
    """How the values of the objective become figures."""

    note: str  # in front of the objective's name; empty: as they are
    inverted: bool = False
    best: float | None = None  # of a score

    def figure(self, value: float) -> float:
        if self.best is not None:
            return 1.0 + abs(value - self.best)
        return 1.0 / value if self.inverted else value


def scale_of(name: str, units: Iterable[str], values: Iterable[float], wish: Wish) -> Scale:
    """The scale of the objective, from all its values."""
    rate = any(is_rate(name, unit) for unit in (*units, ""))
    higher = wish.higher_is_better
    higher = SIGNED.get(name.lower(), rate) if higher is None else higher
    known = list(values)
    if known and min(known) <= 0:
        return Scale("1 + distance from the best ", best=max(known) if higher else min(known))
    return Scale("1 / ", inverted=True) if higher else Scale("")


def value_of(name: str, value: object) -> float | None:
    """A value that counts; None for anything else. A time is positive, and so is a rate."""
    number = number_of(value)
    return number if number is None or number > 0 or name.lower() in SIGNED else None


def number_of(value: object) -> float | None:
    """A finite number. A list holds the samples of one configuration: their mean counts."""
    if isinstance(value, list) and value:
        numbers = [number_of(each) for each in value]
        known = [number for number in numbers if number is not None]
        return sum(known) / len(known) if len(known) == len(numbers) else None
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    try:
        number = float(value)
    except OverflowError:
        return None
    return number if math.isfinite(number) and abs(number) < LARGEST else None


def is_rate(objective: str, unit: str) -> bool:
    """Whether more is better: GFLOP/s, GB/s, throughput."""
    name = objective.lower()
    return (
        "/s" in name
        or "/s" in unit.lower()
        or name.endswith(RATE_ENDINGS)
        or name in ("fps", "gops")
    )


def is_time(objective: str, unit: str, file_unit: str) -> bool:
    """Whether the objective is a time. `file_unit` is the unit of the file's times."""
    if objective in TIMES or unit.lower() in MICROSECONDS:
        return objective.lower() not in SIGNED
    named = any(word in objective.lower() for word in IN_A_NAME)
    return not unit and named and file_unit.lower() in MICROSECONDS


def objective_of(
    rows: Collection[Figures], own: tuple[str, ...], wish: Wish
) -> tuple[str, list[str]]:
    """The measurement to minimise, and all that have a value. An empty name: there is none."""
    numbered: dict[str, None] = {}
    for figures in rows:
        for name, (value, _) in figures.items():
            if value_of(name, value) is not None:
                numbered[name] = None
    known = sorted(numbered)
    if wish.objective is not None:
        return wish.objective if wish.objective in numbered else "", known
    wishes: Iterable[str] = (*(name for name in own if name in TIMES), *TIMES, *own)
    if not own:
        is_timed = any(name in figures for figures in rows for name in TIMES)
        wishes = TIMES if is_timed else (*TIMES, *numbered)
    return next((name for name in wishes if name in numbered), ""), known


def values_of(rows: Iterable[Mapping[str, tuple[Any, str]]], objective: str) -> list[float]:
    """The objective's values, without those of failures."""
    values = [value_of(objective, row[objective][0]) for row in rows if objective in row]
    return [value for value in values if value is not None]

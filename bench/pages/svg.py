"""Small SVG plots with axes for pages on GitHub: no script, no font, readable on any background."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from xml.sax.saxutils import escape

WIDTH, HEIGHT = 640, 430
LEFT, RIGHT, TOP, BOTTOM = 64, 16, 50, 62
LINE, CHARACTER = 13, 7  # height of a line of text, width of a character, about
COLOURS = ("#1f6feb", "#d1242f", "#1a7f37", "#8250df", "#9a6700")  # of the series, in order


@dataclass(frozen=True)
class Series:
    """Points (x, y), and intervals (low, high) around y where there are any."""

    name: str
    points: tuple[tuple[float, float], ...]
    intervals: tuple[tuple[float, float], ...] = ()


@dataclass(frozen=True)
class Axis:
    """A range with its ticks. `names`, if there are any, replace the numbers at the ticks."""

    title: str
    low: float
    high: float
    ticks: tuple[float, ...]
    log: bool = False
    names: tuple[str, ...] = ()

    def share(self, value: float) -> float:
        """0 at the low end, 1 at the high end."""
        if self.log:
            return math.log(value / self.low) / math.log(self.high / self.low)
        return (value - self.low) / (self.high - self.low)


def log_axis(title: str, values: Sequence[float]) -> Axis:
    """From a tick below all values to one above, ticks at 1, 2 and 5 of each decade."""
    decades = range(math.floor(math.log10(min(values))) - 1, math.ceil(math.log10(max(values))) + 1)
    ticks = sorted(digit * 10.0**decade for decade in decades for digit in (1, 2, 5))
    low = max(tick for tick in ticks if tick <= min(values))
    high = min(tick for tick in ticks if tick >= max(values) and tick > low)
    return Axis(title, low, high, tuple(tick for tick in ticks if low <= tick <= high), log=True)


def linear_axis(title: str, low: float, high: float, step: float) -> Axis:
    """Ticks at multiples of `step`."""
    first, last = math.floor(low / step), math.ceil(high / step)
    return Axis(
        title,
        first * step,
        last * step,
        tuple(round(number * step, 10) for number in range(first, last + 1)),
    )


def plot(
    title: str,
    x: Axis,
    y: Axis,
    series: Sequence[Series],
    *,
    guides: Sequence[tuple[float, float]] = (),
) -> str:
    """The text of an SVG file. `guides`, drawn in grey, are (factor, power) of factor * x^power."""
    parts = [
        (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" '
            f'width="{WIDTH}" height="{HEIGHT}" '
            'font-family="sans-serif" font-size="12" fill="#1f2328">'
        ),
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="#ffffff"/>',
        f'<text x="{LEFT}" y="20" font-size="14" font-weight="bold">{escape(title)}</text>',
        *_frame(x, y),
        *(_guide(x, y, *guide) for guide in guides),
    ]
    for number, marked in enumerate(series):
        parts += _marks(x, y, marked, COLOURS[number % len(COLOURS)])
    parts += _legend(series)
    return "\n".join([*parts, "</svg>"]) + "\n"


def _x(axis: Axis, value: float) -> float:
    return round(LEFT + axis.share(value) * (WIDTH - LEFT - RIGHT), 1)


def _y(axis: Axis, value: float) -> float:
    return round(HEIGHT - BOTTOM - axis.share(value) * (HEIGHT - TOP - BOTTOM), 1)


def _frame(x: Axis, y: Axis) -> list[str]:
    bottom, right = HEIGHT - BOTTOM, WIDTH - RIGHT
    parts = [
        (
            f'<rect x="{LEFT}" y="{TOP}" width="{right - LEFT}" height="{bottom - TOP}" '
            'fill="none" stroke="#8c959f"/>'
        )
    ]
    room = (right - LEFT) / max(1, len(x.ticks)) / CHARACTER
    for number, tick in enumerate(x.ticks):
        parts.append(
            f'<line x1="{_x(x, tick)}" x2="{_x(x, tick)}" y1="{TOP}" y2="{bottom}" '
            'stroke="#eaeef2"/>'
        )
        for line, text in enumerate(_lines(x.names[number], room) if x.names else [f"{tick:g}"]):
            parts.append(
                f'<text x="{_x(x, tick)}" y="{bottom + 15 + LINE * line}" '
                f'text-anchor="middle">{escape(text)}</text>'
            )
    for tick in y.ticks:
        parts.append(
            f'<line x1="{LEFT}" x2="{right}" y1="{_y(y, tick)}" y2="{_y(y, tick)}" '
            'stroke="#eaeef2"/>'
        )
        parts.append(
            f'<text x="{LEFT - 6}" y="{_y(y, tick) + 4}" text-anchor="end">{tick:g}</text>'
        )
    middle = (TOP + bottom) // 2
    parts.append(
        f'<text x="{(LEFT + right) // 2}" y="{HEIGHT - 5}" '
        f'text-anchor="middle">{escape(x.title)}</text>'
    )
    parts.append(
        f'<text x="16" y="{middle}" text-anchor="middle" '
        f'transform="rotate(-90 16 {middle})">'
        f"{escape(y.title)}</text>"
    )
    return parts


def _lines(name: str, room: float) -> list[str]:
    """A name's words, separated by `_`, on lines of `room` characters."""
    lines: list[str] = []
    for word in name.split("_"):
        if lines and len(lines[-1]) + 1 + len(word) <= room:
            lines[-1] += f" {word}"
        else:
            lines.append(word)
    return lines


def _guide(x: Axis, y: Axis, factor: float, power: float) -> str:
    """The part of a guide that is inside the frame."""
    steps = (
        [x.low * (x.high / x.low) ** (number / 200) for number in range(201)]
        if x.log
        else [x.low + (x.high - x.low) * number / 200 for number in range(201)]
    )
    inside = [
        (step, factor * step**power) for step in steps if y.low <= factor * step**power <= y.high
    ]
    points = " ".join(f"{_x(x, across)},{_y(y, up)}" for across, up in inside)
    return f'<polyline points="{points}" fill="none" stroke="#8c959f" stroke-dasharray="4 3"/>'


def _marks(x: Axis, y: Axis, series: Series, colour: str) -> list[str]:
    parts = []
    for (across, _), (low, high) in zip(series.points, series.intervals, strict=False):
        parts.append(
            f'<line x1="{_x(x, across)}" x2="{_x(x, across)}" y1="{_y(y, low)}" '
            f'y2="{_y(y, high)}" stroke="{colour}" stroke-width="2"/>'
        )
    return parts + [
        f'<circle cx="{_x(x, across)}" cy="{_y(y, up)}" r="3" fill="{colour}" fill-opacity="0.7"/>'
        for across, up in series.points
    ]


def _legend(series: Sequence[Series]) -> list[str]:
    parts, place = [], LEFT + 4
    for number, entry in enumerate(series):
        parts.append(
            f'<circle cx="{place}" cy="36" r="4" fill="{COLOURS[number % len(COLOURS)]}"/>'
        )
        parts.append(f'<text x="{place + 8}" y="40">{escape(entry.name)}</text>')
        place += CHARACTER * len(entry.name) + 24
    return parts

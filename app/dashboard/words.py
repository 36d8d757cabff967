"""How values are written on pages: units, digits, lengths of time."""

from __future__ import annotations

import math
import re
from datetime import UTC, datetime

from greenfast.search.text import visible

NOTHING = "\N{EN DASH}"
_CASE = re.compile(r"\A(\w+) \([^()]*\): ")


def time_us(value: float | None) -> str:
    """Three significant digits in µs; ms from 100 ms on."""
    if value is None:
        return NOTHING
    if value >= 100_000:
        return f"{value / 1000:,.0f} ms"
    return f"{significant(value)} µs"


def significant(value: float, digits: int = 3) -> str:
    """`value` to `digits` significant digits, never in exponent form from 0.001 to a million."""
    if value == 0 or not math.isfinite(value):
        return f"{value:g}"
    places = digits - 1 - math.floor(math.log10(abs(value)))
    return f"{value:,.{max(0, min(places, 6))}f}"


def ratio(value: float | None) -> str:
    """A factor such as 0.62; three digits after the point near 1, where they matter."""
    if value is None:
        return NOTHING
    return f"{value:.3f}" if abs(value - 1) < 0.1 else f"{value:.2f}"


def error(value: float | str | None) -> str:
    """An error's size: 1.2e-4, 0.12, 16; a value that is not finite by its name."""
    if value is None:
        return NOTHING
    if isinstance(value, str):
        return value
    if value == 0:
        return "0"
    if 0.001 <= abs(value) < 100_000:
        return significant(value, 2) if abs(value) < 10 else f"{value:,.0f}"
    mantissa, exponent = f"{value:.1e}".split("e")
    return f"{mantissa}e{int(exponent)}"


def kibibytes(value: int | None) -> str:
    """Memory as people compare it: 36.5 KiB."""
    if value is None:
        return NOTHING
    if value < 1024:
        return f"{value} B" if value else "0"
    return f"{value / 1024:.4g} KiB" if value < 1024 * 1024 else f"{value / 1024**2:.4g} MiB"


def count(value: int | float | None) -> str:
    return NOTHING if value is None else f"{value:,.0f}"


def share(value: float | str | None) -> str:
    """A share as a percentage that never rounds a few wrong elements to 0 %."""
    if value is None:
        return NOTHING
    if isinstance(value, str):
        return value
    if 0 < value < 0.0005:
        return "< 0.1 %"
    return f"{100 * value:.3g} %"


def seconds(value: float | None) -> str:
    """A length of time: 2.4 ms, 1.9 s, 3 min 12 s, 2 h 5 min."""
    if value is None:
        return NOTHING
    if 0 < value < 0.1:
        return f"{significant(1000 * value, 2)} ms"
    if value < 60:
        return f"{significant(value, 2)} s" if value < 10 else f"{value:.0f} s"
    minutes, rest = divmod(round(value), 60)
    if minutes < 60:
        return f"{minutes} min {rest} s" if rest else f"{minutes} min"
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min" if hours < 48 else f"{hours // 24} d {hours % 24} h"


def ago(moment: str | float | None, now: datetime | None = None) -> str:
    """How long ago a moment was; its date when it is old."""
    if moment is None:
        return NOTHING
    then = parse_moment(moment)
    age_s = ((now or datetime.now(UTC)) - then).total_seconds()
    if age_s < 5:
        return "just now"
    if age_s < 60:
        return f"{age_s:.0f} s ago"
    if age_s < 7 * 86400:
        return f"{seconds(age_s // 60 * 60)} ago"
    return f"{then:%Y-%m-%d}"


def moment(text: str | float | None) -> str:
    return NOTHING if text is None else f"{parse_moment(text):%Y-%m-%d %H:%M:%S} UTC"


def parse_moment(text: str | float) -> datetime:
    """An ISO text, or seconds since 1970."""
    if isinstance(text, (int, float)):
        return datetime.fromtimestamp(text, UTC)
    parsed = datetime.fromisoformat(text)
    return parsed if parsed.tzinfo else parsed.replace(tzinfo=UTC)


def first_upper(text: str) -> str:
    """The text with its first letter in upper case, the others unchanged."""
    return text[:1].upper() + text[1:]


def brief(finding: str) -> str:
    """A finding without its case's sizes, inputs and seed, which would fill a table's cell."""
    return _CASE.sub(r"\1: ", finding)


def value(parameter: object) -> str:
    """A parameter's value as it is written on the command line."""
    return str(parameter).lower() if isinstance(parameter, bool) else visible(parameter)

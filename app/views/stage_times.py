"""The seconds of a trial's stages, in words and as the columns of files."""

from __future__ import annotations

from collections.abc import Mapping

from greenfast.search.loop.stage_clock import Wait
from greenfast.search.verdict import Stage

STAGE_TIMES = (*map(str, Stage), *map(str, Wait))
SHOWN_FROM_S = 0.0005  # shorter stages are in JSON and CSV only


def stage_time(seconds: float) -> str:
    """12 ms, 1.24 s, 64.1 s: three digits at most, so that stages can be compared."""
    if seconds < 0.9995:
        return f"{1000 * seconds:.0f} ms"
    return f"{seconds:.3g} s" if seconds < 99.95 else f"{seconds:.0f} s"


def stage_words(seconds: Mapping[str, float] | None) -> str:
    """`compile 12 ms, correctness 1.24 s`; empty if nothing is known."""
    return ", ".join(
        f"{stage} {stage_time(value)}"
        for stage, value in (seconds or {}).items()
        if value >= SHOWN_FROM_S
    )

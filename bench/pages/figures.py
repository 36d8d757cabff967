"""Figures and intervals as tables show them."""

from __future__ import annotations


def interval(ends: list[float | None] | None, digits: int = 3) -> str:
    """`[0.981, 1.002]`; empty if an end is open."""
    if not ends or None in ends:
        return ""
    return f"[{ends[0]:.{digits}f}, {ends[1]:.{digits}f}]"


def figure(value: float | None) -> str:
    """Four significant digits, or whole thousands with commas; empty for None."""
    if value is None:
        return ""
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"

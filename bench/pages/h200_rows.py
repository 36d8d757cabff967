"""Rows of results that both the tables and the plots of docs/h200.md use."""

from __future__ import annotations

from bench.pages.sections import rows
from bench.results import Row

# Candidates with a modelled and a measured time: those that the model was fitted to, others, and
# samples of the recordings.
MODELLED = ("gpu_check", "model_check", "model_recorded")


def duels() -> list[Row]:
    """Winners timed in turns with a peer."""
    return [row for row in rows("h200/peers", "peer") if row["comparison"]]


def is_bounded(comparison: Row) -> bool:
    """Whether the interval has both ends; too few blocks leave one open."""
    return bool(comparison["ratio_low"]) and comparison["ratio_high"] is not None


def timed_trials() -> list[Row]:
    """The trials of the whole search that have a time."""
    return [row for row in rows("h200/search") if row.get("us")]

"""A suite's files counted by label and outcome."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from bench.correctness.suites.cases import BOUNDS, RACE
from bench.correctness.suites.checking import DIFFERENT, FALSE_ALARM, MISSED, RIGHT, STOPPED
from bench.results import Row


def label_of(row: Row) -> str:
    """The column in which suites count a file: a race decides before an index out of bounds."""
    expected = row["expected"]
    return RACE if RACE in expected else BOUNDS if BOUNDS in expected else "clean"


def summary(suite: str, rows: Sequence[Row], wall_s: float) -> Row:
    seconds = sorted(row["cpu_s"] for row in rows)
    outcomes = Counter(row["outcome"] for row in rows)
    return {
        "what": "summary",
        "suite": suite,
        "files": len(rows),
        **{name: outcomes[name] for name in (RIGHT, DIFFERENT, MISSED, FALSE_ALARM, STOPPED)},
        "by_label": {
            label: {
                "files": len(members),
                **Counter(row["outcome"] for row in members),
            }
            for label in (RACE, BOUNDS, "clean")
            if (members := [row for row in rows if label_of(row) == label])
        },
        "median_cpu_s": seconds[len(seconds) // 2],
        "slowest_cpu_s": seconds[-1],
        "wall_s": round(wall_s, 1),
    }

"""The ancestors of a candidate as a table of `greenfast show`."""

from __future__ import annotations

from rich.table import Table

from greenfast.app.cli.output import microseconds, table
from greenfast.app.views.lineage import GenerationOut, LineageOut, ParentOut
from greenfast.search.text import written


def lineage_table(lineage: LineageOut) -> Table:
    """The trial and its ancestors, a row each, by generation."""
    rows = [
        (
            trial.generation,
            trial.number,
            trial.verdict or trial.state,
            microseconds(trial.time_median_us, trial.time_kind, trial.time_mode),
            _origin(trial),
        )
        for trial in lineage.items
    ]
    title = "lineage" if lineage.complete else f"lineage, the nearest {len(lineage.ancestors)}"
    columns = ("generation", "trial", "verdict", "time", "origin, and what changed")
    return table(columns, rows, title=title)


def _origin(trial: GenerationOut) -> str:
    if not trial.parents:
        return f"{trial.origin} {trial.template}:{trial.preset}".removesuffix(":")
    return f"{trial.origin}: " + "; ".join(map(_parent, trial.parents))


def _parent(parent: ParentOut) -> str:
    if parent.number is None:
        return f"candidate {parent.digest[:8]} of another search"
    changed = ", ".join(
        f"{change.name} {written(change.before)} -> {written(change.after)}"
        for change in parent.changed
    )
    return f"{changed or 'nothing differs'} (from trial {parent.number})"

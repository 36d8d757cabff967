"""The columns of the trial list: what each shows, how it sorts, and its value in files."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from rich.text import Text

from greenfast.app.cli.output import microseconds, ratio_in_band, styled, text
from greenfast.app.views.designs import Designs, written
from greenfast.app.views.stage_times import STAGE_TIMES, stage_time
from greenfast.db.rows import TrialRow
from greenfast.search.errors import unknown_name

Value = Any


@dataclass(frozen=True)
class Column:
    """`value`: for sorting and files; `shown`: the cell of a table, if it is another."""

    name: str
    value: Callable[[TrialRow], Value]
    shown: Callable[[TrialRow], Text] | None = None

    def cell(self, trial: TrialRow) -> Text:
        if self.shown is not None:
            return self.shown(trial)
        value = self.value(trial)
        return text(written(value) if value is not None and value != "" else None)


DEFAULT = "number,verdict,time,ratio,design,registers,smem,why"


def known_columns(designs: Designs | None) -> dict[str, Column]:
    """Every column but those of parameters. Without `designs` only the names are of use."""

    def design(trial: TrialRow) -> str:
        assert designs is not None
        return str(designs.of(trial.template, trial.parameters))

    def of(name: str, attribute: str) -> Column:
        return Column(name, lambda trial: getattr(trial, attribute))

    columns = (
        of("number", "number"),
        Column("verdict", lambda t: t.verdict or t.state, lambda t: styled(t.verdict or t.state)),
        of("stage", "stage"),
        of("reason", "reason"),
        Column(
            "why",
            lambda trial: trial.finding if trial.verdict in ("rejected", "faulted") else "",
            _why,
        ),
        of("sentence", "sentence"),
        of("template", "template"),
        of("preset", "preset"),
        Column("design", design),
        Column(
            "time",
            lambda trial: trial.time_median_us,
            lambda trial: text(
                microseconds(trial.time_median_us, trial.time_kind, trial.time_mode)
            ),
        ),
        Column(
            "ratio",
            lambda trial: trial.ratio_to_baseline,
            lambda trial: text(
                ratio_in_band(trial.ratio_to_baseline, trial.time_kind, None)
                if trial.ratio_to_baseline is not None
                else None
            ),
        ),
        of("registers", "registers"),
        of("spills", "spill_bytes"),
        of("smem", "smem_bytes"),
        Column(
            "error",
            lambda trial: trial.max_abs_error,
            lambda trial: text(
                None if trial.max_abs_error is None else f"{trial.max_abs_error:.3g}"
            ),
        ),
        Column(
            "took",
            lambda trial: trial.duration_s,
            lambda trial: text(None if trial.duration_s is None else f"{trial.duration_s:.1f} s"),
        ),
        *map(_of_stage, STAGE_TIMES),
        of("origin", "origin"),
        of("recorded", "recorded_at"),
        of("candidate", "candidate_digest"),
        Column(
            "source",
            lambda trial: trial.source_digest,
            lambda trial: text((trial.source_digest or "")[:16] or None),
        ),
    )
    return {column.name: column for column in columns}


def column_names() -> list[str]:
    """The names of every column but those of parameters."""
    return list(known_columns(None))


def _of_stage(stage: str) -> Column:
    """`compile_s`: the wall seconds of the stage."""

    def seconds(trial: TrialRow) -> float | None:
        return (trial.stage_seconds or {}).get(stage)

    def shown(trial: TrialRow) -> Text:
        value = seconds(trial)
        return text(None if value is None else stage_time(value))

    return Column(f"{stage}_s", seconds, shown)


def _why(trial: TrialRow) -> Text:
    if trial.verdict not in ("rejected", "faulted"):
        return text("")
    return text(f"{trial.stage}: {trial.reason or trial.fault_code}. {trial.finding}")


def columns_named(
    names: Iterable[str], known: dict[str, Column], parameters: Sequence[str]
) -> list[Column]:
    """Columns by name; a parameter's name is one. UsageError `unknown_column` with all names."""
    result = []
    for name in names:
        if name in known:
            result.append(known[name])
        elif name in parameters:
            result.append(_of_parameter(name))
        else:
            raise unknown_name("column", name, [*known, *parameters])
    return result


def _of_parameter(name: str) -> Column:
    return Column(name, lambda trial: trial.parameters.get(name))


def by_meaning(trials: Sequence[TrialRow], column: Column, *, descending: bool) -> list[TrialRow]:
    """Trials in the column's order: numbers by size, then texts; those without a value last."""
    with_value = [trial for trial in trials if column.value(trial) not in (None, "")]
    without = [trial for trial in trials if column.value(trial) in (None, "")]

    def place(trial: TrialRow) -> tuple[int, Any]:
        value = column.value(trial)
        return (0, value) if isinstance(value, (bool, int, float)) else (1, str(value))

    return sorted(with_value, key=place, reverse=descending) + without

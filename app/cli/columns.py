"""The columns of the trial list: what each shows, how it sorts, and its value in files."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from rich.text import Text

from greenfast.app.cli.output import microseconds, ratio_in_band, styled, text
from greenfast.app.views.designs import Designs
from greenfast.app.views.stage_times import STAGE_TIMES, stage_time
from greenfast.search.errors import unknown_name
from greenfast.search.text import written

if TYPE_CHECKING:
    from greenfast.db.rows import TrialRow

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

    columns = (
        _of("number"),
        Column("verdict", lambda t: t.verdict or t.state, lambda t: styled(t.verdict or t.state)),
        _of("stage"),
        _of("reason"),
        Column("why", lambda trial: trial.finding if _has_failed(trial) else "", _why),
        _of("sentence"),
        _of("template"),
        _of("preset"),
        Column("design", design),
        Column("time", lambda trial: trial.time_median_us, _time),
        Column("ratio", lambda trial: trial.ratio_to_baseline, _ratio),
        _of("registers"),
        _of("spills", "spill_bytes"),
        _of("smem", "smem_bytes"),
        _with_form("error", "max_abs_error", "{:.3g}"),
        _with_form("took", "duration_s", "{:.1f} s"),
        *map(_of_stage, STAGE_TIMES),
        _of("origin"),
        _of("recorded", "recorded_at"),
        _of("candidate", "candidate_digest"),
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


def _of(name: str, attribute: str = "") -> Column:
    """The column of a trial's attribute, by default the one of its name."""
    return Column(name, lambda trial: getattr(trial, attribute or name))


def _with_form(name: str, attribute: str, form: str) -> Column:
    """The column of a number, which tables show in a form such as "{:.1f} s"."""

    def value(trial: TrialRow) -> Value:
        return getattr(trial, attribute)

    def shown(trial: TrialRow) -> Text:
        number = value(trial)
        return text(None if number is None else form.format(number))

    return Column(name, value, shown)


def _time(trial: TrialRow) -> Text:
    return text(microseconds(trial.time_median_us, trial.time_kind, trial.time_mode))


def _ratio(trial: TrialRow) -> Text:
    ratio = trial.ratio_to_baseline
    return text(ratio_in_band(ratio, trial.time_kind, None) if ratio is not None else None)


def _has_failed(trial: TrialRow) -> bool:
    return trial.verdict in ("rejected", "faulted")


def _why(trial: TrialRow) -> Text:
    if not _has_failed(trial):
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

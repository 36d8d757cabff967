"""Measured spaces of other tuners: Kernel Tuner's cache, the T4 result format, and older forms.

foreign_text.py unpacks a file; foreign_forms.py and foreign_tables.py turn other forms into T4. A
file is read as configurations with one figure each, or the reason why there is none. What the file
does not say (restrictions, baseline, code) is not made up.
"""

from __future__ import annotations

import json
import math
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from greenfast.search.errors import UsageError
from greenfast.search.recordings.foreign_forms import (
    Converted,
    NotReadable,
    converted_json,
    holds_runs,
    merged_runs,
)
from greenfast.search.recordings.foreign_logs import converted_log
from greenfast.search.recordings.foreign_objectives import (
    DEFAULT_UNIT,
    LARGEST,
    MICROSECONDS,
    Figures,
    Wish,
    is_time,
    objective_of,
    scale_of,
    value_of,
    values_of,
)
from greenfast.search.recordings.foreign_tables import converted_table
from greenfast.search.recordings.foreign_text import bad, text_of
from greenfast.search.text import not_parsed, one_line, shortened
from greenfast.search.verdict import Reason, Stage

T4_VERSIONS = ("1",)  # majors that are read
CACHE_VERSIONS = ("1",)
LONGEST = 120  # characters of a value in a message
FAILURE_ENDINGS = ("Config", "Error", "Exception")  # of texts in the place of a time
# What went wrong, by T4's `invalidity` and by the names that Kernel Tuner stores in caches.
FAILURES = {
    "compile": (Stage.COMPILE, Reason.COMPILE_ERROR),
    "CompilationFailedConfig": (Stage.COMPILE, Reason.COMPILE_ERROR),
    "constraints": (Stage.COMPILE, Reason.OVER_DEVICE_LIMIT),
    "InvalidConfig": (Stage.COMPILE, Reason.OVER_DEVICE_LIMIT),
    "runtime": (Stage.CORRECTNESS, Reason.LAUNCH_ERROR),
    "RuntimeFailedConfig": (Stage.CORRECTNESS, Reason.LAUNCH_ERROR),
    "ErrorConfig": (Stage.CORRECTNESS, Reason.LAUNCH_ERROR),
    "timeout": (Stage.CORRECTNESS, Reason.TIMEOUT),
    "correctness": (Stage.CORRECTNESS, Reason.WRONG_VALUES),
}
# Of T1 files, which say what to tune.
DESCRIPTION_KEYS = frozenset({"ConfigurationSpace", "KernelSpecification"})
CORRECT_BY_NAME = "correct"  # as T4 says it
CORRECT = ("", CORRECT_BY_NAME)
UNKNOWN_FAILURE = (Stage.CORRECTNESS, Reason.LAUNCH_ERROR)

Scalar = int | float | bool | str
OPEN = "\0open"  # marks the content of a cache that has no end


@dataclass(frozen=True)
class ForeignResult:
    """One configuration: its figure, or why it has none."""

    configuration: tuple[Scalar, ...]  # in the order of the space's parameters
    figure: float | None  # lower is better; microseconds where the objective is a time
    failure: str = ""  # as the file names it


@dataclass(frozen=True)
class ForeignSpace:
    """A file as read."""

    form: str  # "T4 1.0.0" | "Kernel Tuner cache 1.0.0"
    kernel: str  # as the file names it; empty: it does not
    device: str
    objective: str
    unit: str  # of the figures in the file
    parameters: tuple[str, ...]
    results: tuple[ForeignResult, ...]
    scale: str = ""  # how the figures were made of the file's values; empty: they are these
    left_out: tuple[str, ...] = ()  # columns of a table that describe its runs


def read_space(path: Path, objective: str | None = None, wish: Wish | None = None) -> ForeignSpace:
    """The space in a file; UsageError with one sentence for any other file."""
    wish = wish or Wish(objective)
    text = text_of(path)
    try:
        table = converted_log(text) or converted_table(text, wish.parameters, wish.objective)
        if table is not None:
            return _converted(path, table, wish)
        if wish.parameters:
            raise bad(path, "--parameters is for tables, and this file is none")
        content = _parsed(path, text)
        if _is_rows(content):
            content = {"results": content}
        if not isinstance(content, dict):
            raise _no_object(path, content)
        other = converted_json(content)
    except NotReadable as error:
        raise bad(path, str(error)) from error
    if other is not None:
        return _converted(path, other, wish)
    if "results" in content:
        return _t4(path, content, wish)
    if "cache" in content:
        return _cache(path, content, wish)
    if DESCRIPTION_KEYS & content.keys():
        raise UsageError(
            f"{path.name} describes a space and holds no results",
            code="not_a_space",
            mend="give the file of results that a tuner wrote for it",
        )
    raise UsageError(
        f"{path.name} is not a space: it holds no configurations with times of a known form",
        code="not_a_space",
        mend="give a T4 result file, a cache of Kernel Tuner or Triton's autotuner, JSON of KTT or "
        "CLTune, a log of AutoTVM, or a table of times, plain or compressed",
    )


def _converted(path: Path, converted: Converted, wish: Wish) -> ForeignSpace:
    space = _t4(path, converted.document, wish, is_converted=True)
    return replace(space, form=converted.form, left_out=converted.left_out)


def _parsed(path: Path, text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError as error:
        closed = _closed(text)
        if closed is not None:
            return closed
        if not text.lstrip().startswith(("{", "[")):
            raise bad(
                path, "it is neither JSON nor a table with commas, semicolons or tabs"
            ) from None
        raise bad(path, f"it is not complete JSON ({not_parsed(error)})") from error
    except RecursionError as error:
        raise bad(path, "its JSON is nested too deeply") from error


def _is_rows(content: object) -> bool:
    """Whether it is T4's list of results alone, without the object around it."""
    return (
        isinstance(content, list)
        and bool(content)
        and all(isinstance(row, dict) and "configuration" in row for row in content)
    )


def _no_object(path: Path, content: object) -> UsageError:
    kind = f"a list of {len(content):,}" if isinstance(content, list) else "a single value"
    return UsageError(
        f"{path.name} cannot be imported: its JSON is {kind}, not an object",
        code="space_damaged",
        mend='T4 is {"results": [{"configuration": {...}, "measurements": [{"name": "time", '
        '"value": 1.5, "unit": "ms"}]}]}, a Kernel Tuner cache {"cache": {...}}',
    )


def _closed(text: str) -> Any:
    """A Kernel Tuner cache that an interrupted run left open; None for anything else.

    Kernel Tuner appends whole lines and adds the last two braces at the end of a run. A file that
    ends within an entry is truncated.
    """
    text = text.rstrip()
    if '"cache"' not in text[:100_000] or not text.endswith(("},", "}")):
        return None
    try:
        return {**json.loads(text.removesuffix(",") + "}\n}"), OPEN: True}
    except (ValueError, TypeError):
        return None


def _require_version(path: Path, form: str, version: object, majors: tuple[str, ...]) -> str:
    """The version as text; an old cache has none."""
    if version is None:
        return "without version"
    text = str(version)
    if text.split(".")[0] not in majors:
        raise UsageError(
            f"{path.name} is {form} version {shortened(one_line(text), 20)}, and this greenfast "
            f"reads version {' and '.join(majors)}",
            code="space_version",
            mend="convert it with the tool that wrote it",
        )
    return text


def _t4(
    path: Path, content: Mapping[str, Any], wish: Wish, *, is_converted: bool = False
) -> ForeignSpace:
    version = _require_version(path, "T4", content.get("schema_version"), T4_VERSIONS)
    rows = content["results"]
    if not isinstance(rows, list) or not rows:
        raise bad(path, "its results are not a list of at least one configuration")
    if holds_runs(content):
        rows = merged_runs(rows)
    metadata = content.get("metadata") if isinstance(content.get("metadata"), dict) else {}
    entries = []
    for number, row in enumerate(rows):
        if not isinstance(row, dict) or not isinstance(row.get("configuration"), dict):
            raise bad(path, f"result {number} has no configuration")
        failure = str(row.get("invalidity") or "")
        if failure == CORRECT_BY_NAME and row.get("correctness") in (0, False):
            raise bad(path, f"result {number} has invalidity {failure!r} and correctness 0")
        entries.append((row["configuration"], _measured(path, number, row), failure))
    own = _names(rows[0].get("objectives"))
    asked = _objective(path, [figures for _, figures, _ in entries], own, wish)
    if not is_converted:  # the values of other forms say more than T4's
        _require_figures(path, asked, entries)
    hardware = _words(metadata, ("device_name", "device", "gpu", "hardware"))
    return _assembled(
        path,
        (
            f"T4 {version}",
            _words(metadata, ("kernel_name", "kernel", "benchmark")),
            hardware,
            str((metadata or {}).get("timeunit") or (metadata or {}).get("time_unit") or ""),
        ),
        asked,
        entries,
        wish,
    )


def _require_figures(
    path: Path, objective: str, entries: Iterable[tuple[dict[str, Any], Figures, str]]
) -> None:
    """What a file calls correct may have no value, and no other than a number that counts."""
    for number, (_, figures, failure) in enumerate(entries):
        value = figures.get(objective, (None, ""))[0]
        if failure == CORRECT_BY_NAME and _is_stated(value) and value_of(objective, value) is None:
            raise _no_figure(path, number, objective, value)


def _no_figure(path: Path, number: int, objective: str, value: object) -> UsageError:
    said = shortened(one_line(str(value)), LONGEST)
    said = f"the text {said!r}" if isinstance(value, str) else f"{said}, and it is called correct"
    return bad(path, f"configuration {number}: {objective} is {said}")


def _measured(path: Path, number: int, row: Mapping[str, Any]) -> Figures:
    measurements = row.get("measurements") or []
    if not isinstance(measurements, list) or not all(
        isinstance(each, dict) and "name" in each for each in measurements
    ):
        raise bad(path, f"the measurements of result {number} are not a list of named values")
    return {
        str(each["name"]): (each.get("value"), str(each.get("unit") or "")) for each in measurements
    }


def _cache(path: Path, content: Mapping[str, Any], wish: Wish) -> ForeignSpace:
    version = _require_version(
        path, "a Kernel Tuner cache of", content.get("schema_version"), CACHE_VERSIONS
    )
    rows, names = content["cache"], content.get("tune_params_keys")
    if not isinstance(names, list) and isinstance(content.get("tune_params"), dict):
        names = list(content["tune_params"])
    if not isinstance(rows, dict) or not rows:
        raise bad(path, "its cache holds no configurations")
    if not isinstance(names, list) or not names:
        raise bad(path, "it does not name its parameters (tune_params_keys)")
    if not all(isinstance(name, str) for name in names) or len(set(names)) < len(names):
        raise bad(path, "its tune_params_keys are not the different names of its parameters")
    entries: list[tuple[dict[str, Any], Figures, str]] = []
    for key, row in rows.items():
        if not isinstance(row, dict) or any(name not in row for name in names):
            raise bad(path, f"the entry {shortened(key, LONGEST)} lacks a parameter")
        _require_known_values(path, key, row, content.get("tune_params"))
        figures = {
            name: (value, "") for name, value in row.items() if name not in names and value != []
        }
        entries.append(({name: row[name] for name in names}, figures, _cache_failure(row)))
    own = _names(content.get("objective"))
    asked = _objective(path, [figures for _, figures, _ in entries], own, wish)
    for number, (_, figures, _) in enumerate(entries):
        value = figures.get(asked, (None, ""))[0]
        if isinstance(value, str) and not value.endswith(FAILURE_ENDINGS):
            raise _no_figure(path, number, asked, value)
    facts = (
        f"{'unfinished ' if OPEN in content else ''}Kernel Tuner cache {version}",
        _words(content, ("kernel_name",)),
        _words(content, ("device_name",)),
        "",
    )
    return _assembled(path, facts, asked, entries, wish)


def _require_known_values(path: Path, key: str, row: Mapping[str, Any], known: object) -> None:
    """A cache lists each parameter's values; texts of numbers count as these numbers."""
    for name, values in known.items() if isinstance(known, dict) else ():
        if not isinstance(values, list) or not values or name not in row:
            continue
        if row[name] not in values and str(row[name]) not in map(str, values):
            raise bad(
                path,
                f"the entry {shortened(key, LONGEST)} has {shortened(name, LONGEST)}="
                f"{shortened(str(row[name]), LONGEST)}, which is none of its tune_params",
            )


def _cache_failure(row: Mapping[str, Any]) -> str:
    error = row.get("__error__")
    if error:
        return str(error)
    return next((value for value in row.values() if _is_failure(value)), "")


def _is_failure(value: object) -> bool:
    return isinstance(value, str) and value in FAILURES and value.endswith("Config")


def _names(value: object) -> tuple[str, ...]:
    if isinstance(value, str):
        return (value,)
    return tuple(map(str, value)) if isinstance(value, list) else ()


def _words(table: object, keys: Iterable[str]) -> str:
    if not isinstance(table, dict):
        return ""
    value = next((table[key] for key in keys if table.get(key)), "")
    if isinstance(value, dict):
        value = next((value[key] for key in ("name", "device_name") if value.get(key)), "")
    return shortened(one_line(value), 100) if isinstance(value, str) else ""


def _objective(path: Path, rows: Collection[Figures], own: tuple[str, ...], wish: Wish) -> str:
    """The measurement to minimise; UsageError when no configuration has it."""
    name, known = objective_of(rows, own, wish)
    if not known:
        raise bad(path, "no configuration has a measured value")
    missing = wish.objective or (own[0] if own else "time")
    if not name and any(missing in figures for figures in rows):
        raise bad(path, f"no configuration has a measured {shortened(one_line(missing), LONGEST)}")
    if not name:
        raise UsageError(
            f"{path.name} measures no {shortened(one_line(missing), LONGEST)}",
            code="unknown_objective",
            mend="it measures " + ", ".join(known),
        )
    return name


def _assembled(
    path: Path,
    facts: tuple[str, str, str, str],
    objective: str,
    entries: list[tuple[dict[str, Any], Figures, str]],
    wish: Wish,
) -> ForeignSpace:
    form, kernel, device, file_unit = facts
    parameters = tuple(entries[0][0])
    if not parameters:
        raise bad(path, "its configurations have no parameters")
    for name in parameters:
        _require_text(path, name)
    units = {figures[objective][1] for _, figures, _ in entries if objective in figures}
    unit = next((each for each in sorted(units) if each), "")
    timed = is_time(objective, unit, file_unit)
    unit = (unit or file_unit or DEFAULT_UNIT) if timed else unit
    factors = {each: _microseconds(path, each or unit) if timed else 1.0 for each in units}
    valid = (figures for _, figures, failure in entries if failure in CORRECT)
    scale = scale_of(objective, units, values_of(valid, objective), wish)
    if not timed and len(units - {""}) > 1:
        raise bad(path, f"its {objective} has several units: {', '.join(sorted(units - {''}))}")
    results: dict[tuple[Any, ...], ForeignResult] = {}
    for number, (configuration, figures, failure) in enumerate(entries):
        if set(configuration) != set(parameters):
            raise bad(path, f"configuration {number} has other parameters than the first")
        values = tuple(_scalar(path, number, name, configuration[name]) for name in parameters)
        if _is_numeral(text := figures.get(objective, (None, ""))[0]):
            raise _no_figure(path, number, objective, text)
        value = value_of(objective, figures.get(objective, (None, ""))[0])
        figure = None
        if value is not None and failure in CORRECT:
            figure = scale.figure(value) * factors[figures[objective][1]]
        result = ForeignResult(
            values, figure, "" if figure is not None else _failure(figures, objective, failure)
        )
        key = tuple((type(value), value) for value in values)
        if results.get(key, result) != result:
            raise bad(path, f"configuration {number} occurs twice, with different results")
        results[key] = result
    if all(result.figure is None for result in results.values()):
        raise bad(path, f"no configuration has a valid {objective}")
    rows = tuple(results.values())
    return ForeignSpace(form, kernel, device, objective, unit, parameters, rows, scale.note)


def _microseconds(path: Path, unit: str) -> float:
    if unit.lower() not in MICROSECONDS:
        raise bad(path, f"{shortened(one_line(unit), 40)} is not a known unit of time")
    return MICROSECONDS[unit.lower()]


def _is_stated(value: object) -> bool:
    """Whether a file gives a value, other than the huge ones that stand for failures."""
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        return not abs(value) >= LARGEST
    return value not in (None, "", [])


def _is_numeral(value: object) -> bool:
    """Whether a text is a number. If so, it is not a failure, and the export is broken."""
    if not isinstance(value, str):
        return False
    try:
        return math.isfinite(float(value))
    except ValueError:
        return False


def _failure(figures: Figures, objective: str, failure: str) -> str:
    value = figures.get(objective, (None, ""))[0]
    if failure not in CORRECT:
        return failure
    return value if isinstance(value, str) and value else "no valid measurement"


def _require_text(path: Path, text: str) -> None:
    """JSON can name NUL and half of a pair of UTF-16, which no source can hold."""
    if "\0" in text:
        raise bad(path, "it holds a name or a value with NUL")
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise bad(path, "it holds a character that is not valid Unicode") from error


def _scalar(path: Path, number: int, name: str, value: object) -> Scalar:
    if isinstance(value, float) and not math.isfinite(value):
        raise bad(path, f"configuration {number}: {name} is {value}")
    if isinstance(value, str) and (not value.isascii() or "\0" in value):
        _require_text(path, value)
    if isinstance(value, (bool, int, float, str)):
        return value
    if value is None or isinstance(value, (list, dict)):
        return json.dumps(value, sort_keys=True)
    raise bad(path, f"configuration {number}: {name} is not a value")

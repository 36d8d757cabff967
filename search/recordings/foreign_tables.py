"""Tables of other tuners, read as T4 documents: a column for each parameter and one for the time.

CSV of KTT, BAT, ATF, Optuna and Ray Tune, tables of CLTune, and JSON records with the same names in
each. A table may hold several runs of a configuration (foreign_forms.py).
"""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Mapping
from typing import Any

from greenfast.search.recordings.foreign_forms import (
    CLTUNE_UNIT,
    Converted,
    NotReadable,
    document_of,
    row_of,
    single,
)
from greenfast.search.recordings.foreign_objectives import is_rate

DELIMITERS = (";", "\t", ",")
# A column of times: its name, and the unit in brackets or after an underscore.
TIME_COLUMN = re.compile(
    r"(?:kernel[ _])?(?:total[ _])?(?:time|runtime|duration|computation duration|latency|objective)"
    r"(?:(?:[ _]+|[ _]*[\[(])"  # `times` holds the samples of `time`
    r"(?P<unit>s|ms|us|ns|seconds|milliseconds|microseconds|nanoseconds)[\])]?)?\Z",
    re.IGNORECASE,
)
COSTS = ("cost", "value")  # columns of ATF and Optuna; of any unit, so they are no times
# A column with a physical unit holds measurements.
UNIT = re.compile(
    r"[\[(](?:s|ms|us|ns|w|mw|j|mj|kj|mhz|ghz|hz|v|mv|°?c|[gmt]b/s|[gt]flops?(?:/s)?)[\])]\Z"
)
STATUS_COLUMNS = ("status", "validity", "invalidity", "valid", "is_valid", "feasible", "state")
CORRECT = ("", "ok", "correct", "valid", "true", "1", "success", "no error", "complete")
INCORRECT = {"false": "invalid", "0": "invalid"}
KERNEL_COLUMNS = ("kernel name", "kernel", "name")
PREFIX = re.compile(
    r"(?:(?:config|configuration|param|parameter|params)[./]|params_)", re.IGNORECASE
)
# Columns that describe a run. Others are parameters, unless --parameters names them.
OF_THE_RUN = frozenset(
    (
        "name",
        "kernel",
        "device",
        "gpu",
        "threads",
        "index",
        "iteration",
        "evaluation",
        "evaluations",
        "run",
        "seed",
        "timestamp",
        "date",
        "error",
        "correctness",
        "power",
        "energy",
        "temperature",
        "speedup",
        "global_size",
        "local_size",
        "maximum_work_group_size",
        "local_memory_size",
        "private_memory_size",
        "constant_memory_size",
        "registers_count",
        "registers",
        "kernel_name",
        "device_name",
        "times",
        "runtimes",
        "compile_time",
        "verification_time",
        "benchmark_time",
        "strategy_time",
        "framework_time",
        "total_time",
        "algorithm_time",
        "arg_time",
        "compilation_time",
    )
)
# Some tuners print these of a configuration, and others tune them.
OF_THE_LAUNCH = ("threads", "global_size", "local_size")
INTEGER = re.compile(r"-?[0-9]{1,18}\Z")
DECIMAL = re.compile(r"-?[0-9]*\.?[0-9]+(?:[eE][-+]?[0-9]+)?\Z")
LFS_POINTER = "version https://git-lfs."


def converted_table(
    text: str, parameters: tuple[str, ...] = (), objective: str | None = None
) -> Converted | None:
    """A table with a heading; None for any other text.

    `objective` names the column of the figures, and `parameters` those of the configuration.
    Without it they are all columns that do not describe the run, or those that begin with
    `config.`
    """
    if text.startswith(LFS_POINTER):
        raise NotReadable("it is the pointer of Git LFS, not the file: run `git lfs pull`")
    heading = text.partition("\n")[0].strip("\r\ufeff")
    if heading.lstrip()[:1] in ("{", "["):
        records = _records(text)
        return None if records is None else _table("JSON records", records, parameters, objective)
    delimiter = next((each for each in DELIMITERS if each in heading), None)
    if delimiter is None or heading.lstrip()[:1] == "<":
        return None
    try:
        lines = [line for line in csv.reader(io.StringIO(text), delimiter=delimiter) if any(line)]
    except csv.Error as error:
        raise NotReadable(f"its table is damaged ({error})") from error
    if not lines:
        raise NotReadable("its table has no titles")
    form = "CLTune table" if delimiter == ";" else "table"
    return _table(form, lines, parameters, objective)


def _records(text: str) -> list[list[str]] | None:
    """The lines of a table that is a JSON list of objects, or an object in each line."""
    is_list = text.lstrip("\ufeff \r\n").startswith("[")
    if not is_list and not text.partition("\n")[2].strip():
        return None  # one object: read as a whole, and only once
    try:
        if is_list:
            records = json.loads(text)
        else:
            records = [json.loads(line) for line in text.splitlines() if line.strip()]
    except (ValueError, RecursionError):
        return None
    if len(records) < 2 or not all(isinstance(record, dict) for record in records):
        return None
    if all(isinstance(record.get("configuration"), dict) for record in records):
        if is_list:
            return None  # T4's results, without the object around them
        records = [
            {f"config.{name}": value for name, value in record.pop("configuration").items()}
            | record
            for record in records
        ]
    titles = list(dict.fromkeys(key for record in records for key in record))
    return [titles, *([_text(record.get(title)) for title in titles] for record in records)]


def _text(value: Any) -> str:
    """A value as a table has it; nothing for null."""
    if value is None:
        return ""
    return value if isinstance(value, str) else json.dumps(value)


def _table(
    form: str, lines: list[list[str]], parameters: tuple[str, ...], asked: str | None
) -> Converted:
    titles = [title.strip() for title in lines[0]]
    time_column = titles.index(asked) if asked in titles else _time_column(titles, lines[1:])
    title = titles[time_column]
    objective = asked if asked == title else "time" if TIME_COLUMN.match(title) else title.lower()
    chosen = _columns(titles, time_column, parameters)
    if not parameters:
        chosen |= _undetermined(titles, lines[1:], chosen)
    unit = _unit(title) if TIME_COLUMN.match(title) else ""
    status_column = next((i for i, t in enumerate(titles) if t.lower() in STATUS_COLUMNS), None)
    kernel_column = next((i for i, t in enumerate(titles) if t.lower() in KERNEL_COLUMNS), None)
    least = 1 + max(time_column, status_column or 0, kernel_column or 0, *chosen.values())
    rows: list[dict[str, Any]] = []
    kernels: dict[str, None] = {}
    for number, line in enumerate(lines[1:], start=2):
        if len(line) < least or any(map(str.strip, line[len(titles) :])):
            raise NotReadable(
                f"line {number} has a length of {len(line)} columns, its heading of {len(titles)}"
            )
        if [each.strip() for each in line] == titles:
            continue  # CLTune repeats its heading
        status = "" if status_column is None else line[status_column].strip().lower()
        configuration = {name: _value(line[column]) for name, column in chosen.items()}
        failure = "correct" if status in CORRECT else INCORRECT.get(status, status)
        time = _time(line[time_column], number)
        rows.append(row_of(configuration, time, unit, failure, objective))
        kernels["" if kernel_column is None else line[kernel_column].strip()] = None
    form = "ATF table" if objective == "cost" else form
    used = {time_column, status_column, kernel_column, *chosen.values()}
    left_out = tuple(title for i, title in enumerate(titles) if title and i not in used)
    document = document_of({"kernel_name": single(kernels, "kernels")}, rows)
    return Converted(form, document, left_out)


def _time_column(titles: list[str], lines: list[list[str]]) -> int:
    """The column of the time, or of a cost if there is none.

    One without any number is none: Optuna's `duration` is a text.
    """
    columns = [number for number, title in enumerate(titles) if TIME_COLUMN.match(title)]
    columns += [number for number, title in enumerate(titles) if title.lower() in COSTS]
    with_numbers = [
        column
        for column in columns
        if any(DECIMAL.match(line[column].strip()) for line in lines if column < len(line))
    ]
    columns = with_numbers or columns
    if not columns:
        raise NotReadable(
            "its table has no column for the time, such as time, time_ms or duration (us)"
        )
    return columns[0]


def _columns(titles: list[str], time_column: int, asked: tuple[str, ...]) -> dict[str, int]:
    """The columns of the parameters, by the parameter's name."""
    if len(set(titles) - {""}) < len([title for title in titles if title]):
        raise NotReadable("two columns of its table have the same name")
    if asked:
        unknown = [name for name in asked if name not in titles]
        if unknown:
            raise NotReadable(f"its table has no column {', '.join(unknown)}")
        return {name: titles.index(name) for name in asked}
    prefixed = {
        title[prefix.end() :]: number
        for number, title in enumerate(titles)
        if (prefix := PREFIX.match(title))
    }
    plain = {
        title: number
        for number, title in enumerate(titles)
        if title and number != time_column and not _describes_the_run(title)
    }
    columns = prefixed or plain
    if not columns:
        raise NotReadable("its table has no column for a parameter")
    return columns


def _undetermined(
    titles: list[str], lines: list[list[str]], chosen: Mapping[str, int]
) -> dict[str, int]:
    """Columns of launch sizes that differ between lines of one configuration: parameters, too."""
    columns = {}
    for column, title in enumerate(titles):
        if title.lower() not in OF_THE_LAUNCH or column in chosen.values():
            continue
        seen: dict[tuple[str, ...], str] = {}
        for line in lines:
            if len(line) == len(titles) and line != titles:
                configuration = tuple(line[each] for each in chosen.values())
                if seen.setdefault(configuration, line[column]) != line[column]:
                    columns[title] = column
                    break
    return columns


def _describes_the_run(title: str) -> bool:
    key = re.sub(r"[^a-z0-9]+", "_", title.lower()).strip("_")
    counter = "." in title and "__" in title  # a hardware counter, as the profiler names it
    measured = UNIT.search(title.lower()) or TIME_COLUMN.match(title) or is_rate(title, "")
    return key in OF_THE_RUN or key in STATUS_COLUMNS or counter or bool(measured)


def _unit(title: str) -> str:
    match = TIME_COLUMN.match(title)
    return (match["unit"] if match else None) or CLTUNE_UNIT


def _time(text: str, number: int) -> float | None:
    """The figure of a line; None if the tuner wrote a word or nothing for a failure."""
    text = text.strip()
    if DECIMAL.match(text):
        return float(text)
    if any(character.isdigit() for character in text):
        point = ": write decimals with a point" if "," in text else ""
        raise NotReadable(f"line {number} has the time {text[:40]!r}{point}")
    return None


def _value(text: str) -> int | float | bool | str:
    text = text.strip()
    if INTEGER.match(text):
        return int(text)
    if DECIMAL.match(text):
        return float(text)
    return {"true": True, "false": False}.get(text.lower(), text)

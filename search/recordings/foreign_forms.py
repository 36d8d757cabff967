"""Results of other tuners that are neither T4 nor a Kernel Tuner cache, read as T4 documents.

KTT's JSON, the JSON and tables of CLTune and CLBlast, and tables with a column for each parameter
and one for the time (KTT's and BAT's CSV). A table may hold several runs of a configuration: the
mean of its times counts, and a configuration that failed once has failed.
"""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

# KTT's word for what became of a configuration, in T4's words.
KTT_STATUS = {
    "Ok": "correct",
    "ComputationFailed": "runtime",
    "ValidationFailed": "correctness",
    "CompilationFailed": "compile",
    "DeviceLimitsExceeded": "constraints",
}
KTT_OBJECTIVES = (["TotalDuration"], "TotalDuration")
CLTUNE_UNIT = "ms"
DEVICE_KEYS = ("device", "device_name", "clblast_device_name")

DELIMITERS = (";", "\t", ",")
# A column of times: its name, and the unit in brackets or after an underscore.
TIME_COLUMN = re.compile(
    r"(?:kernel[ _])?(?:total[ _])?(?:time|runtime|duration|computation duration|latency|objective)"
    r"(?:[ _]*[\[(]?(?P<unit>s|ms|us|ns|seconds|milliseconds|microseconds|nanoseconds)[\])]?)?\Z",
    re.IGNORECASE,
)
STATUS_COLUMNS = ("status", "validity", "invalidity")
CORRECT = ("", "ok", "correct", "valid", "true", "1", "success", "no error")
PREFIXES = ("config.", "configuration.", "param.", "parameter.")
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
        "run",
        "seed",
        "timestamp",
        "date",
        "error",
        "correctness",
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
INTEGER = re.compile(r"-?[0-9]{1,18}\Z")
DECIMAL = re.compile(r"-?[0-9]*\.?[0-9]+(?:[eE][-+]?[0-9]+)?\Z")


class NotReadable(ValueError):
    """The file has the look of a known format, and breaks its rules: one sentence."""


LFS_POINTER = "version https://git-lfs."


@dataclass(frozen=True)
class Converted:
    """A file's content as a T4 document, and the format that it had."""

    form: str
    document: dict[str, Any]


def converted_json(content: Mapping[str, Any]) -> Converted | None:
    """KTT's or CLTune's results; None for anything else."""
    if isinstance(content.get("Results"), list) and isinstance(content.get("Metadata"), dict):
        return _ktt(content["Metadata"], content["Results"])
    rows = content.get("results")
    if isinstance(rows, list) and rows and all(map(_is_cltune, rows)):
        return _cltune(content, rows)
    return None


def _ktt(metadata: Mapping[str, Any], results: list[Any]) -> Converted:
    unit = str(metadata.get("TimeUnit") or "Microseconds")
    rows: list[dict[str, Any]] = []
    kernels: dict[str, None] = {}
    for number, result in enumerate(results):
        if not isinstance(result, dict) or not isinstance(result.get("Configuration"), list):
            raise NotReadable(f"result {number} has no Configuration")
        configuration = {}
        for pair in result["Configuration"]:
            if not isinstance(pair, dict) or "Name" not in pair or "Value" not in pair:
                raise NotReadable(f"the Configuration of result {number} lacks names or values")
            configuration[str(pair["Name"])] = pair["Value"]
        status = str(result.get("Status") or "")
        rows.append(
            _row(configuration, result.get("TotalDuration"), unit, KTT_STATUS.get(status, status))
        )
        kernels[str(result.get("KernelName") or "")] = None
    facts = {"kernel_name": _single(kernels, "kernels"), "device": metadata.get("Device")}
    version = str(metadata.get("KttVersion") or "without version")
    return Converted(f"KTT {version}", _document(facts, rows))


def _is_cltune(row: Any) -> bool:
    return isinstance(row, dict) and isinstance(row.get("parameters"), dict) and "time" in row


def _cltune(content: Mapping[str, Any], results: list[Any]) -> Converted:
    kernels = {str(row.get("kernel") or ""): None for row in results}
    device = next(
        (
            content[key]
            for key in ("device", "device_name", "clblast_device_name")
            if key in content
        ),
        "",
    )
    facts = {"kernel_name": _single(kernels, "kernels"), "device": device}
    rows = [_row(row["parameters"], row["time"], CLTUNE_UNIT, "") for row in results]
    return Converted("CLTune JSON", _document(facts, rows))


def converted_table(text: str, parameters: tuple[str, ...] = ()) -> Converted | None:
    """A table with a heading; None for a text that is none.

    `parameters` names the columns of the configuration. Without it they are all columns that do not
    describe the run, or those that begin with `config.`
    """
    if text.startswith(LFS_POINTER):
        raise NotReadable("it is the pointer of Git LFS, not the file: run `git lfs pull`")
    heading = text.partition("\n")[0].strip("\r\ufeff")
    delimiter = next((each for each in DELIMITERS if each in heading), None)
    if delimiter is None or heading.lstrip()[:1] in "{[<":
        return None
    try:
        lines = [line for line in csv.reader(io.StringIO(text), delimiter=delimiter) if any(line)]
    except csv.Error as error:
        raise NotReadable(f"its table is damaged ({error})") from error
    titles = [title.strip() for title in lines[0]]
    time_column = _time_column(titles)
    chosen = _columns(titles, time_column, parameters)
    unit = _unit(titles[time_column])
    status_column = next((i for i, t in enumerate(titles) if t.lower() in STATUS_COLUMNS), None)
    rows: list[dict[str, Any]] = []
    kernels: dict[str, None] = {}
    for number, line in enumerate(lines[1:], start=2):
        if len(line) < max((time_column, *chosen.values())) + 1:
            raise NotReadable(f"line {number} has {len(line)} of {len(titles)} columns")
        if [each.strip() for each in line] == titles:
            continue  # CLTune repeats its heading
        status = "" if status_column is None else line[status_column].strip()
        configuration = {name: _value(line[column]) for name, column in chosen.items()}
        failure = "correct" if status.lower() in CORRECT else status.lower()
        rows.append(_row(configuration, _time(line[time_column], number), unit, failure))
        kernels[_kernel(titles, line)] = None
    facts = {"kernel_name": _single(kernels, "kernels")}
    return Converted("CLTune table" if delimiter == ";" else "table", _document(facts, rows))


def _time_column(titles: list[str]) -> int:
    columns = [number for number, title in enumerate(titles) if TIME_COLUMN.match(title)]
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
        title.partition(".")[2]: number
        for number, title in enumerate(titles)
        if title.lower().startswith(PREFIXES)
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


def _describes_the_run(title: str) -> bool:
    key = re.sub(r"[^a-z0-9]+", "_", title.lower()).strip("_")
    counter = "." in title and "__" in title  # a hardware counter, as the profiler names it
    return key in OF_THE_RUN or key in STATUS_COLUMNS or counter


def _unit(title: str) -> str:
    match = TIME_COLUMN.match(title)
    return (match["unit"] if match else None) or CLTUNE_UNIT


def _kernel(titles: list[str], line: list[str]) -> str:
    lowered = [title.lower() for title in titles]
    column = next((lowered.index(t) for t in ("kernel name", "kernel", "name") if t in lowered), -1)
    return line[column].strip() if column >= 0 else ""


def _time(text: str, number: int) -> float | None:
    """The figure of a line; None where the tuner wrote a word or nothing for a failure."""
    text = text.strip()
    if DECIMAL.match(text):
        return float(text)
    if any(character.isdigit() for character in text):
        raise NotReadable(f"line {number} has the time {text[:40]!r}")
    return None


def _value(text: str) -> int | float | bool | str:
    text = text.strip()
    if INTEGER.match(text):
        return int(text)
    if DECIMAL.match(text):
        return float(text)
    return {"true": True, "false": False}.get(text.lower(), text)


def _single(names: Mapping[str, Any], what: str) -> str:
    if len(names) > 1:
        raise NotReadable(f"it holds several {what} ({', '.join(list(names)[:4])}): split it")
    return next(iter(names), "")


def _row(configuration: Mapping[str, Any], time: Any, unit: str, failure: str) -> dict[str, Any]:
    return {
        "configuration": dict(configuration),
        "measurements": [{"name": "time", "value": time, "unit": unit}],
        "objectives": ["time"],
        "invalidity": failure or "correct",
    }


def _document(facts: Mapping[str, Any], rows: list[dict[str, Any]]) -> dict[str, Any]:
    return {"metadata": dict(facts), "results": merged_runs(rows)}


def holds_runs(document: Mapping[str, Any]) -> bool:
    """Whether a T4 document lists runs, so that a configuration may come up again.

    KTT measures and profiles in different runs, and lists both.
    """
    metadata, rows = document.get("metadata"), document.get("results")
    if isinstance(metadata, dict) and str(metadata.get("autotuner")).upper() == "KTT":
        return True
    first = rows[0] if isinstance(rows, list) and rows else None
    return isinstance(first, dict) and first.get("objectives") in KTT_OBJECTIVES


def merged_runs(rows: Iterable[Any]) -> list[Any]:
    """The rows with one for each configuration: its times together, or its failure."""
    merged: dict[str, Any] = {}
    for number, row in enumerate(rows):
        key = _key(row) or f"row {number}"
        known = merged.get(key)
        merged[key] = row if known is None else _both(known, row)
    return list(merged.values())


def _key(row: Any) -> str:
    if not isinstance(row, dict) or not isinstance(row.get("configuration"), dict):
        return ""
    return json.dumps(row["configuration"], sort_keys=True)


def _both(one: dict[str, Any], other: dict[str, Any]) -> dict[str, Any]:
    """Two runs of a configuration."""
    if one.get("invalidity") not in (None, "", "correct"):
        return one
    if other.get("invalidity") not in (None, "", "correct"):
        return other
    values: dict[str, list[Any]] = {}
    for measurement in (*_measurements(one), *_measurements(other)):
        value = measurement.get("value")
        values.setdefault(str(measurement.get("name")), []).extend(
            value if isinstance(value, list) else [value]
        )
    units = {str(each.get("name")): each.get("unit") for each in _measurements(one)}
    together = [
        {"name": name, "value": value, "unit": units.get(name, "")}
        for name, value in values.items()
    ]
    return {**one, "measurements": together}


def _measurements(row: Mapping[str, Any]) -> list[dict[str, Any]]:
    measurements = row.get("measurements")
    if not isinstance(measurements, list):
        return []
    return [each for each in measurements if isinstance(each, dict)]

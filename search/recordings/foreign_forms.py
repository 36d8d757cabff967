"""JSON of other tuners that is neither T4 nor a Kernel Tuner cache, read as T4 documents.

KTT's JSON, that of CLTune and CLBlast, and Triton's cache; foreign_logs.py reads logs, and
foreign_tables.py tables. A file may hold several
runs of a configuration: the mean of its times counts, and a configuration that failed once has
failed.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
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
CLTUNE_UNIT = TRITON_UNIT = "ms"
TRITON_SETTINGS = ("num_warps", "num_ctas", "num_stages", "maxnreg")  # beside the kernel's own


class NotReadable(ValueError):
    """The file has the look of a known format, and breaks its rules: one sentence."""


@dataclass(frozen=True)
class Converted:
    """A file's content as a T4 document, and the format that it had."""

    form: str
    document: dict[str, Any]
    left_out: tuple[str, ...] = ()  # columns of a table that describe its runs


def converted_json(content: Mapping[str, Any]) -> Converted | None:
    """KTT's, CLTune's or Triton's results; None for anything else."""
    if isinstance(content.get("Results"), list) and isinstance(content.get("Metadata"), dict):
        return _ktt(content["Metadata"], content["Results"])
    rows = content.get("results")
    if isinstance(rows, list) and rows and all(map(_is_cltune, rows)):
        return _cltune(content, rows)
    if isinstance(content.get("configs_timings"), list):
        return _triton(content["configs_timings"])
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
            row_of(configuration, result.get("TotalDuration"), unit, KTT_STATUS.get(status, status))
        )
        kernels[str(result.get("KernelName") or "")] = None
    facts = {"kernel_name": single(kernels, "kernels"), "device": metadata.get("Device")}
    version = str(metadata.get("KttVersion") or "without version")
    return Converted(f"KTT {version}", document_of(facts, rows))


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
    facts = {"kernel_name": single(kernels, "kernels"), "device": device}
    rows = [row_of(row["parameters"], row["time"], CLTUNE_UNIT, "") for row in results]
    return Converted("CLTune JSON", document_of(facts, rows))


def _triton(pairs: list[Any]) -> Converted:
    """What Triton's autotuner stores: configurations with the median and quantiles of their times.

    A configuration that did not run has infinite ones. A setting that none has is left out.
    """
    rows: list[tuple[dict[str, Any], Any]] = []
    for number, pair in enumerate(pairs):
        if not isinstance(pair, list) or len(pair) != 2 or not isinstance(pair[0], dict):
            raise NotReadable(f"entry {number} of configs_timings is no configuration with times")
        settings, times = pair
        own = settings.get("kwargs")
        others = {name: settings.get(name) for name in TRITON_SETTINGS}
        time = times[0] if isinstance(times, list) and times else times
        rows.append(({**(own if isinstance(own, dict) else {}), **others}, time))
    used = {name for values, _ in rows for name, value in values.items() if value is not None}
    return Converted(
        "Triton autotune cache",
        document_of(
            {},
            [
                row_of(
                    {
                        name: 0 if value is None else value
                        for name, value in values.items()
                        if name in used
                    },
                    time,
                    TRITON_UNIT,
                    "constraints" if time == math.inf else "",
                )
                for values, time in rows
            ],
        ),
    )


def single(names: Mapping[str, Any], what: str) -> str:
    if len(names) > 1:
        raise NotReadable(f"it holds several {what} ({', '.join(list(names)[:4])}): split it")
    return next(iter(names), "")


def row_of(
    configuration: Mapping[str, Any], time: Any, unit: str, failure: str, objective: str = "time"
) -> dict[str, Any]:
    return {
        "configuration": dict(configuration),
        "measurements": [{"name": objective, "value": time, "unit": unit}],
        "objectives": [objective],
        "invalidity": failure or "correct",
    }


def document_of(facts: Mapping[str, Any], rows: list[dict[str, Any]]) -> dict[str, Any]:
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
    runs: dict[str, list[Any]] = {}
    for number, row in enumerate(rows):
        runs.setdefault(_key(row) or f"row {number}", []).append(row)
    return [_together(each) if len(each) > 1 else each[0] for each in runs.values()]


def _key(row: Any) -> str:
    if not isinstance(row, dict) or not isinstance(row.get("configuration"), dict):
        return ""
    return json.dumps(row["configuration"], sort_keys=True)


def _together(runs: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """The runs of a configuration; if any failed, the first failure is the result."""
    for run in runs:
        if run.get("invalidity") not in (None, "", "correct"):
            return run
    values: dict[str, list[Any]] = {}
    for measurement in (each for run in runs for each in _measurements(run)):
        value = measurement.get("value")
        values.setdefault(str(measurement.get("name")), []).extend(
            value if isinstance(value, list) else [value]
        )
    units = {str(each.get("name")): each.get("unit") for each in _measurements(runs[0])}
    together = [
        {"name": name, "value": value, "unit": units.get(name, "")}
        for name, value in values.items()
    ]
    return {**runs[0], "measurements": together}


def _measurements(row: Mapping[str, Any]) -> list[dict[str, Any]]:
    measurements = row.get("measurements")
    if not isinstance(measurements, list):
        return []
    return [each for each in measurements if isinstance(each, dict)]

"""The trials of a search in the formats of other tuners: T4, and Kernel Tuner's cache."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from greenfast.app.cli.export_originals import Originals
from greenfast.app.cli.export_recording import RecordedTrial
from greenfast.db.rows import TrialRow
from greenfast.search.errors import UsageError
from greenfast.search.verdict import Reason, Stage, VerdictName

ExportedRow = TrialRow | RecordedTrial
T4_VERSION = CACHE_VERSION = "1.0.0"
MISSING = "-"  # the value of a parameter that a trial's template does not have
COMPILE_STAGES = (Stage.RENDER, Stage.COMPILE, Stage.PTXAS)
# In a cache; others: RuntimeFailedConfig.
ERRORS = {"compile": "CompilationFailedConfig", "constraints": "InvalidConfig"}


def t4_document(
    rows: Sequence[ExportedRow], originals: Originals | None = None, *, kernel: str, device: str
) -> dict[str, Any]:
    """The trials as T4 results; faulted trials are left out."""
    configurations = _configurations(rows, originals or Originals())
    return {
        "schema_version": T4_VERSION,
        "metadata": {"timeunit": "microseconds", "kernel_name": kernel, "device_name": device},
        "results": [_t4(row, configuration) for row, configuration in configurations],
    }


def cache_document(
    rows: Sequence[ExportedRow], kernel: str, device: str, originals: Originals | None = None
) -> dict[str, Any]:
    """The trials as a Kernel Tuner cache, which its simulation mode reads; times in ms."""
    configurations = _configurations(rows, originals or Originals())
    names = list(configurations[0][1])
    values = {
        name: list(dict.fromkeys(configuration[name] for _, configuration in configurations))
        for name in names
    }
    return {
        "schema_version": CACHE_VERSION,
        "device_name": device,
        "kernel_name": kernel,
        "problem_size": [1],
        "tune_params_keys": names,
        "tune_params": values,
        "objective": "time",
        "cache": {
            ",".join(map(str, configuration.values())): {**configuration, **_cached(row)}
            for row, configuration in configurations
        },
    }


def _configurations(
    rows: Sequence[ExportedRow], originals: Originals
) -> list[tuple[ExportedRow, dict[str, Any]]]:
    """The finished trials, each with a value of every parameter."""
    finished = [row for row in rows if row.verdict not in (None, VerdictName.FAULTED)]
    if not finished:
        raise UsageError(
            "the search has no finished trial to export",
            code="nothing_to_export",
            mend="export it when a trial has ended",
        )
    points = [originals(row.parameters) for row in finished]
    names = list(dict.fromkeys(name for point in points for name in point))
    several = len({row.template for row in finished}) > 1
    return [
        (
            row,
            {
                **({"template": row.template} if several else {}),
                **{name: point.get(name, MISSING) for name in names},
            },
        )
        for row, point in zip(finished, points, strict=True)
    ]


def invalidity_of(row: ExportedRow) -> str:
    """T4's word for what became of a trial."""
    slower = row.verdict == VerdictName.REJECTED and row.stage == Stage.PERFORMANCE
    if row.reason == Reason.IMPLAUSIBLE:  # below the physical bound: no time of a correct kernel
        return "correctness"
    if row.verdict != VerdictName.REJECTED or (slower and row.time_median_us is not None):
        return "correct"
    if row.reason == Reason.OVER_DEVICE_LIMIT:
        return "constraints"
    if row.stage in COMPILE_STAGES:
        return "compile"
    if row.reason == Reason.TIMEOUT:
        return "timeout"
    broke = (Reason.LAUNCH_ERROR, Reason.DEVICE_FAULT, Reason.OUT_OF_MEMORY)
    return "runtime" if row.reason in broke else "correctness"


def time_us_of(row: ExportedRow) -> float | None:
    """The time of a correct trial, also of one that is slower than the baseline."""
    return row.time_median_us if invalidity_of(row) == "correct" else None


def _t4(row: ExportedRow, configuration: dict[str, Any]) -> dict[str, Any]:
    time_us = time_us_of(row)
    invalidity = invalidity_of(row)
    return {
        "timestamp": str(row.recorded_at or ""),
        "configuration": configuration,
        "times": {
            "compilation_time": 0.0,
            "runtimes": [] if time_us is None else [time_us],
            "framework": 0.0,
            "search_algorithm": 0.0,
            "validation": 0.0,
        },
        "invalidity": invalidity,
        "correctness": int(invalidity == "correct"),
        "measurements": [
            {
                "name": "time",
                "value": invalidity if time_us is None else time_us,
                "unit": "microseconds",
            }
        ],
        "objectives": ["time"],
    }


def _cached(row: ExportedRow) -> dict[str, Any]:
    time_us = time_us_of(row)
    if time_us is None:
        error = ERRORS.get(invalidity_of(row), "RuntimeFailedConfig")
        return {"time": error, "times": []}
    time_ms = time_us / 1000
    return {
        "time": time_ms,
        "times": [time_ms],
        "compile_time": 0.0,
        "verification_time": 0.0,
        "benchmark_time": 0.0,
    }

"""Traced calls as workloads files: one for each kernel, with weights by share of time."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from greenfast.app.cli.files import write_output
from greenfast.search.errors import GreenfastError, UsageError
from greenfast.search.kernels.catalogue import Catalogue
from greenfast.search.kernels.spec import KernelSpec
from greenfast.search.kernels.workload_files import ENDINGS
from greenfast.search.kernels.workloads import WorkloadValues


@dataclass(frozen=True)
class TracedWorkload:
    """Calls of one shape that a kernel covers, whatever their strides were."""

    kernel: str
    dims: Mapping[str, int]
    options: Mapping[str, str]
    count: int
    host_s: float
    device_us: float | None
    strides: tuple[str, ...]  # one text for each layout that was seen


@dataclass(frozen=True)
class NotCovered:
    kernel: str
    reason: str
    count: int


@dataclass(frozen=True)
class TraceResult:
    """The traced calls: workloads, heaviest first, and calls that no kernel covers."""

    workloads: tuple[TracedWorkload, ...]
    not_covered: tuple[NotCovered, ...]
    lost: int

    @property
    def kernels(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(row.kernel for row in self.workloads))

    def of(self, kernel: str) -> tuple[TracedWorkload, ...]:
        return tuple(row for row in self.workloads if row.kernel == kernel)

    @property
    def by_time(self) -> bool:
        """Whether weights are shares of the device's time; otherwise they are counts."""
        return all(row.device_us is not None for row in self.workloads)

    def weight(self, row: TracedWorkload) -> float:
        """Per cent of the device's time in this kernel's calls, or the number of calls."""
        if not self.by_time or row.device_us is None:
            return float(row.count)
        total = sum(each.device_us or 0.0 for each in self.of(row.kernel))
        return max(float(f"{100 * row.device_us / total:.4g}"), 1e-6)


def trace_result(calls: Mapping[str, Any], catalogue: Catalogue | None = None) -> TraceResult:
    """The calls of a tracer, checked against the kernels that are there."""
    catalogue = catalogue or Catalogue.from_environment()
    names = catalogue.names()
    kernels = {row["kernel"]: None for row in calls["calls"]}
    specs = {name: catalogue.kernel(name) for name in kernels if name in names}
    covered: dict[tuple[Any, ...], list[Mapping[str, Any]]] = {}
    refused: dict[tuple[str, str], int] = {}
    for row in calls["calls"]:
        reason = row["reason"] or _refusal(specs.get(row["kernel"]), row)
        if reason:
            key = (row["kernel"], reason)
            refused[key] = refused.get(key, 0) + row["count"]
            continue
        values = (*sorted(row["dims"].items()), *sorted(row["options"].items()))
        covered.setdefault((row["kernel"], values), []).append(row)
    workloads = [_joined(rows) for rows in covered.values()]
    workloads.sort(key=lambda row: (-(row.device_us or 0.0), -row.count, str(row.dims)))
    return TraceResult(
        tuple(workloads),
        tuple(
            NotCovered(kernel, reason, count)
            for (kernel, reason), count in sorted(refused.items(), key=lambda item: -item[1])
        ),
        calls["lost"],
    )


def _refusal(kernel: KernelSpec | None, row: Mapping[str, Any]) -> str:
    """Why the kernel does not take these values; empty when it does."""
    if kernel is None:
        return f"there is no kernel {row['kernel']} here"
    try:
        kernel.workload(WorkloadValues((*row["dims"].items(), *row["options"].items())))
    except GreenfastError as error:
        return error.message.removeprefix("the workload by values: ")
    return ""


def _joined(rows: Sequence[Mapping[str, Any]]) -> TracedWorkload:
    times = [row["device_us"] for row in rows]
    layouts = (
        ", ".join(f"{name} {tuple(each)}" for name, each in row["strides"].items()) for row in rows
    )
    return TracedWorkload(
        rows[0]["kernel"],
        rows[0]["dims"],
        rows[0]["options"],
        sum(row["count"] for row in rows),
        sum(row["host_s"] for row in rows),
        None if any(time is None for time in times) else sum(times),
        tuple(layouts),
    )


def write_workloads(
    calls: Mapping[str, Any], path: Path, catalogue: Catalogue | None = None
) -> tuple[TraceResult, tuple[Path, ...]]:
    """Write the workloads of each kernel that was called; returns them and the files.

    With several kernels `mine.toml` becomes `mine.attention.toml` and so on.
    """
    check_ending(path)
    result = trace_result(calls, catalogue)
    several = len(result.kernels) > 1
    paths = []
    for kernel in result.kernels:
        own = path.with_suffix(f".{kernel}{path.suffix}") if several else path
        write_output(own, workloads_text(result, kernel, path.suffix.lower()))
        paths.append(own)
    return result, tuple(paths)


def check_ending(path: Path) -> None:
    if path.suffix.lower() not in ENDINGS:
        raise UsageError(
            f"{path} cannot be written: a file of workloads ends in {', '.join(ENDINGS)}",
            code="bad_workloads_file",
        )


def workloads_text(result: TraceResult, kernel: str, ending: str) -> str:
    """A workloads file (search/kernels/workload_files.py) of one kernel's calls."""
    rows: list[dict[str, Any]] = [
        {
            "name": f"call{number}",
            "weight": result.weight(row),
            "dims": dict(row.dims),
            "options": dict(row.options),
        }
        for number, row in enumerate(result.of(kernel), 1)
    ]
    if ending == ".json":
        seen = [_seen(row) for row in result.of(kernel)]
        return json.dumps({"workloads": rows, "traced": seen}, indent=2) + "\n"
    if ending == ".csv":
        names = [*rows[0]["dims"], *rows[0]["options"]]  # the same for all calls of a kernel
        lines = [",".join(("name", "weight", *names))]
        for row in rows:
            values = {**row["dims"], **row["options"]}
            cells = (row["name"], f"{row['weight']:g}", *(str(values[name]) for name in names))
            lines.append(",".join(cells))
        return "\n".join(lines) + "\n"
    meaning = "per cent of the device's time" if result.by_time else "number of calls"
    text = [f"# Calls of {kernel} that a program made; the weight is the {meaning}.\n"]
    for row, traced in zip(rows, result.of(kernel), strict=True):
        dims = ", ".join(f"{name} = {size}" for name, size in row["dims"].items())
        options = ", ".join(f'{name} = "{value}"' for name, value in row["options"].items())
        text += [
            "\n[[workloads]]",
            f"# {_words(traced)}",
            f'name = "{row["name"]}"',
            f"weight = {row['weight']!r}",
            f"dims = {{ {dims} }}",
            f"options = {{ {options} }}",
        ]
    return "\n".join(text) + "\n"


def _seen(row: TracedWorkload) -> dict[str, Any]:
    return {
        "count": row.count,
        "host_s": row.host_s,
        "device_us": row.device_us,
        "strides": list(row.strides),
    }


def _words(row: TracedWorkload) -> str:
    time = f"{row.device_us:.1f} us on the device" if row.device_us is not None else ""
    host = f"{row.host_s * 1e6:.1f} us on the host"
    calls = f"{row.count} {'call' if row.count == 1 else 'calls'}"
    return f"{calls}, {time or host}; strides {'; or '.join(row.strides)}"

"""The bundle of one candidate (`greenfast bundle`): launch.json, and the kernel's files."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from typing import Any

from greenfast.runtime.archive import MALFORMED, bad_bundle, json_object, toml_table
from greenfast.runtime.operation import (
    Operation,
    checked_name,
    read_operation,
    scalar_argument,
)
from greenfast.runtime.program import LaunchForm, Measured, Program, ScratchForm, TensorMapForm
from greenfast.search.errors import SpecError
from greenfast.search.kernels.expressions import SM_COUNT, Expression, Value, expression

SCHEMA = 1
MOST_LAUNCHES = 64
_ENTRY = re.compile(r"[A-Za-z_]\w{0,199}\Z")
_CUBIN = re.compile(r"kernel\.(sm_\d{2,3}[af]?)\.cubin\Z")


def single_program(files: Mapping[str, bytes]) -> Program:
    """The bundle's kernel; UsageError `bad_bundle` when parts are missing or do not agree."""
    launch = json_object(files, "launch.json")
    if launch.get("schema") != SCHEMA:
        raise bad_bundle(
            f"launch.json has schema {launch.get('schema')!r}; this version reads {SCHEMA}"
        )
    for name in ("kernel.cu", "kernel.toml", "template.toml"):
        if name not in files:
            raise bad_bundle(f"the bundle has no {name}")
    digest = hashlib.sha256(files["kernel.cu"]).hexdigest()
    if digest != launch.get("source_digest"):
        raise bad_bundle("kernel.cu is not the source whose digest launch.json names")
    operation = read_operation(files["kernel.toml"])
    try:
        return _program(files, launch, operation, digest)
    except MALFORMED as error:
        raise bad_bundle(
            f"launch.json of the bundle is incomplete: {type(error).__name__}: {error}"
        ) from None
    except SpecError as error:
        raise bad_bundle(f"an expression of the bundle cannot be computed: {error}") from None


def _program(
    files: Mapping[str, bytes], launch: Mapping[str, Any], operation: Operation, digest: str
) -> Program:
    template = toml_table(files, "template.toml")
    first = launch["workloads"][0]
    stated = {**first["dims"], **first["options"]}
    compiled = {name: stated[name] for name in operation.compiled_names}
    sm_count = int(launch["sm_count"])
    parameters = complete_parameters(template, launch["parameters"])
    values: dict[str, Value] = {**compiled, **parameters, SM_COUNT: sm_count}
    for name, text in template.get("locals", {}).items():
        values[name] = expression(text, f"locals.{name}")(values)
    return Program(
        operation,
        checked_name(launch["template"]),
        digest,
        files["kernel.cu"].decode("utf-8"),
        compiled,
        parameters,
        values,
        launch_forms(launch["launches"]),
        scratch_forms(template, values),
        map_forms(launch, compiled),
        cubins={match.group(1): files[name] for name in files if (match := _CUBIN.match(name))},
        scalars=tuple(
            scalar_argument(row)
            for row in template.get("scalars", ())
            if "when" not in row or expression(row["when"], "when")(values)
        ),
        measured=_measured(files, launch),
        files=files,
        arch=str(launch["arch"]),
    )


def launch_forms(rows: Any) -> tuple[LaunchForm, ...]:
    """The launches in order; ValueError for more than a kernel has."""
    if not 0 < len(rows) <= MOST_LAUNCHES:
        raise ValueError(f"{len(rows)} launches; a kernel has 1 to {MOST_LAUNCHES}")
    return tuple(map(launch_form, rows))


def launch_form(row: Mapping[str, Any]) -> LaunchForm:
    if not _ENTRY.match(row["entry"]):
        raise ValueError(f"the entry {str(row['entry'])[:40]!r}")
    return LaunchForm(
        row["entry"],
        _three(row["grid"]),
        _three(row["block"]),
        expression(row["smem_dynamic_bytes"], "smem_dynamic_bytes"),
        _three(row["cluster"]) if "cluster" in row else (),
    )


def _three(texts: Any) -> tuple[Any, ...]:
    if len(texts) != 3:
        raise ValueError("a launch has three sizes")
    return tuple(expression(text, "launch") for text in texts)


def complete_parameters(
    template: Mapping[str, Any], given: Mapping[str, Value]
) -> dict[str, Value]:
    """Every parameter with its value: the given one, else its default."""
    defaults = {name: row["default"] for name, row in template.get("parameters", {}).items()}
    return {**defaults, **given}


def scratch_forms(
    template: Mapping[str, Any], values: Mapping[str, Value]
) -> tuple[ScratchForm, ...]:
    return tuple(
        ScratchForm(
            checked_name(row["name"]),
            expression(row["bytes"], "bytes"),
            bool(row.get("zero_fill", False)),
        )
        for row in template.get("workspaces", ())
        if "when" not in row or expression(row["when"], "when")(values)
    )


def map_forms(
    launch: Mapping[str, Any], compiled: Mapping[str, Value]
) -> tuple[TensorMapForm, ...]:
    """The entry `tensor_maps` of launch.json, which a kernel without maps lacks."""

    def forms(texts: Any) -> tuple[Expression, ...]:
        return tuple(expression(text, "tensor_maps") for text in texts)

    return tuple(
        TensorMapForm(
            checked_name(row["name"]),
            str(row["tensor"]),
            str(compiled["dtype"]) if row["dtype"] == "dtype" else str(row["dtype"]),
            forms(row["sizes"]),
            tuple(int(axis) for axis in row["axes"]),
            forms(row["strides"]),
            forms(row["box"]),
            expression(row["swizzle_bytes"], "tensor_maps"),
            str(row["fill"]),
            expression(row["l2_promotion_bytes"], "tensor_maps"),
        )
        for row in launch.get("tensor_maps", ())
    )


def _measured(files: Mapping[str, bytes], launch: Mapping[str, Any]) -> tuple[Measured, ...]:
    names = [str(workload["name"]) for workload in launch["workloads"]]
    if "evidence.json" not in files:
        return tuple(map(Measured, names))
    candidate = json_object(files, "evidence.json").get("candidate") or {}
    is_measured = candidate.get("time_kind") == "measured"
    time_us = candidate.get("time_median_us") if is_measured else None
    return tuple(Measured(name, time_us if len(names) == 1 else None) for name in names)

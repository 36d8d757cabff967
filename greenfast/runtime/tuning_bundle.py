"""The bundle of a tuning (docs/bundle.md): several kernels, and the table that picks among them."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from greenfast.runtime.archive import MALFORMED, MANIFEST, bad_bundle, json_object
from greenfast.runtime.kernel_set import LIBRARY, Condition, Group, KernelSet, Rule
from greenfast.runtime.operation import (
    Operation,
    checked_name,
    read_operation,
    scalar_argument,
)
from greenfast.runtime.program import Measured, Program, ScratchForm
from greenfast.runtime.single_bundle import launch_forms, map_forms
from greenfast.search.errors import SpecError
from greenfast.search.kernels.expressions import Expression, expression, require_names

FORMAT, DISPATCH_FORMAT, SCHEMA = "greenfast-tuning", "greenfast-dispatch", 1
OWN = ("scalar", "workspace", "tensor_map")  # a template's own, after the operation's arguments
LARGEST_LIMIT = 2**63  # of a rule; NaN is within no limit
MOST_KERNELS, MOST_GROUPS, MOST_RULES = 512, 256, 1024
_ID = re.compile(r"k\d{1,4}\Z")
_CUBIN = re.compile(r"kernel\.(sm_\d{2,3}[af]?)\.cubin\Z")


def tuned_set(files: Mapping[str, bytes], origin: str, *, has_library: bool) -> KernelSet:
    """The kernels and the table; UsageError `bad_bundle` for a format or part that is not known."""
    manifest, dispatch = json_object(files, MANIFEST), json_object(files, "dispatch.json")
    for part, name, wanted_format in (
        (manifest, MANIFEST, FORMAT),
        (dispatch, "dispatch.json", DISPATCH_FORMAT),
    ):
        if part.get("format") != wanted_format or part.get("schema") != SCHEMA:
            raise bad_bundle(
                f"{name} has format {part.get('format')!r}, schema {part.get('schema')!r}; this "
                f"version reads {wanted_format}, schema {SCHEMA}"
            )
    if dispatch.get("digest") != _digest(dispatch):
        raise bad_bundle("dispatch.json of the bundle does not match its digest")
    if "kernel.toml" not in files:
        raise bad_bundle("the bundle has no kernel.toml")
    operation = read_operation(files["kernel.toml"])
    try:
        programs = _programs(files, operation, manifest["kernels"])
        _require_at_most(MOST_GROUPS, dispatch["groups"], "groups")
        groups = tuple(_group(row, operation, programs) for row in dispatch["groups"])
        device = str(manifest["device"]["name"])
        if manifest["time_kind"] != "measured":
            origin = f"{origin} ({manifest['time_kind']} times)"
    except MALFORMED as error:
        raise bad_bundle(
            f"the bundle is incomplete or contradicts itself: {type(error).__name__}: {error}"
        ) from None
    except SpecError as error:
        raise bad_bundle(f"an expression of the bundle is invalid: {error}") from None
    if not groups:
        raise bad_bundle("dispatch.json of the bundle has no groups")
    return KernelSet(origin, operation, programs, groups, device, has_library)


def _digest(dispatch: Mapping[str, Any]) -> str:
    rest = {name: value for name, value in dispatch.items() if name != "digest"}
    text = json.dumps(rest, sort_keys=True, separators=(",", ":"), ensure_ascii=True)
    return hashlib.sha256(text.encode()).hexdigest()


def _require_at_most(most: int, rows: Any, name: str) -> None:
    if not isinstance(rows, list) or len(rows) > most:
        raise ValueError(f"{name} is a list of at most {most}")


def _programs(
    files: Mapping[str, bytes], operation: Operation, rows: list[Mapping[str, Any]]
) -> dict[str, Program]:
    _require_at_most(MOST_KERNELS, rows, "kernels")
    shared = {
        name: data
        for name, data in files.items()
        if name == "kernel.toml" or name.endswith("reference.py")
    }
    programs: dict[str, Program] = {}
    for row in rows:
        if str(row["id"]) in programs:
            raise ValueError(f"kernel {row['id']} occurs twice")
        programs[str(row["id"])] = _program(files, shared, operation, row)
    return programs


def _cubins(files: Mapping[str, bytes], folder: str, names: Mapping[str, str]) -> dict[str, bytes]:
    """Machine code by architecture, which is part of the file's name in the kernel's folder."""
    for arch, name in names.items():
        stated = _CUBIN.fullmatch(name.removeprefix(folder))
        if not name.startswith(folder) or stated is None or stated.group(1) != arch:
            raise ValueError(f"{name[:80]!r} is not machine code of {folder} for {arch[:20]}")
    return {arch: files[name] for arch, name in names.items()}


def _program(
    files: Mapping[str, bytes],
    shared: Mapping[str, bytes],
    operation: Operation,
    row: Mapping[str, Any],
) -> Program:
    """A kernel of the bundle; `shared` are the files that belong to all of its kernels."""
    if not _ID.match(row["id"]):
        raise ValueError(f"the kernel's id {str(row['id'])[:40]!r}")
    folder = f"kernels/{row['id']}/"
    source, launch = files[folder + "kernel.cu"], json_object(files, folder + "launch.json")
    digest = hashlib.sha256(source).hexdigest()
    if not digest == row["source_digest"] == launch["source_digest"]:
        raise ValueError(f"{folder}kernel.cu is not the source that the manifest names")
    if launch["schema"] != SCHEMA:
        raise ValueError(f"{folder}launch.json has schema {launch['schema']!r}")
    _require_interface(operation, launch["interface"], folder)
    if set(row["compiled"]) != set(operation.compiled_names):
        raise ValueError(f"{folder} is not compiled for all of {operation.compiled_names}")
    return Program(
        operation,
        checked_name(row["template"]),
        digest,
        source.decode("utf-8"),
        row["compiled"],
        launch["parameters"],
        {**launch["constants"], **row["compiled"]},
        launch_forms(launch["entries"]),
        tuple(
            ScratchForm(
                checked_name(item["name"]),
                expression(item["bytes"], "bytes"),
                bool(item.get("zero_fill")),
            )
            for item in launch["interface"]
            if item["kind"] == "workspace"
        ),
        map_forms(launch, row["compiled"]),
        scalars=tuple(
            scalar_argument(item)
            for item in launch["interface"][len(operation.arguments) :]
            if item["kind"] == "scalar"
        ),
        cubins=_cubins(files, folder, row["cubins"]),
        files={
            **shared,
            **{
                name: files[folder + name]
                for name in ("template.toml", "template.cu.j2")
                if folder + name in files
            },
        },
        arch=str(launch["arch"]),
    )


def _require_interface(
    operation: Operation, interface: list[Mapping[str, Any]], folder: str
) -> None:
    """ValueError unless the kernel's parameters are the operation's, then its template's own."""
    count = len(operation.arguments)
    names, own = [item["name"] for item in interface[:count]], interface[count:]
    kinds = [item["kind"] for item in own]
    in_order = [kind for known in OWN for kind in kinds if kind == known]
    if names != [item.name for item in operation.arguments] or kinds != in_order:
        raise ValueError(f"{folder}launch.json has other parameters than kernel.toml")


def _group(row: Mapping[str, Any], operation: Operation, programs: Mapping[str, Program]) -> Group:
    dims = {dim.name for dim in operation.dims}
    region = {name: _range(name, limits) for name, limits in row["region"].items()}
    _require_at_most(MOST_RULES, row["rules"], "rules")
    if not region.keys() <= dims:
        raise ValueError(f"the region has other dims than {', '.join(sorted(dims))}")
    rules = tuple(
        Rule(tuple(_condition(item, dims) for item in rule["when"]), rule["use"])
        for rule in row["rules"]
    )
    for use in (*(rule.use for rule in rules), row["outside"]):
        if use != LIBRARY and dict(programs[use].compiled) != row["compiled"]:
            raise ValueError(f"{use} is not compiled for the group that uses it")
    return Group(
        row["compiled"],
        region,
        rules,
        row["outside"],
        tuple(_measured(item) for item in row.get("workloads", ())),
    )


def _range(name: str, limits: Any) -> tuple[int, int]:
    low, high = limits
    if not (type(low) is type(high) is int and 0 <= low <= high):
        raise ValueError(f"the region has {name} from {low!r} to {high!r}")
    return low, high


def _condition(row: Mapping[str, Any], dims: set[str]) -> Condition:
    text = row["value"]
    value = _rule_value(text) if isinstance(text, str) else expression(text, "dispatch.json")
    require_names(value, dims)
    limits = row["above"], row["at_most"]
    if not all(limit is None or _is_finite(limit) for limit in limits):
        raise ValueError(f"a rule's limits are {str(limits)[:80]}")
    return Condition(value, *limits)


@lru_cache(maxsize=256)  # thousands of rules ask for a few values
def _rule_value(text: str) -> Expression:
    return expression(text, "dispatch.json")


def _is_finite(limit: Any) -> bool:
    return type(limit) in (int, float) and -LARGEST_LIMIT <= limit <= LARGEST_LIMIT


def _measured(row: Mapping[str, Any]) -> Measured:
    times = row.get("times_us", {})
    return Measured(str(row["name"]), times.get(row.get("use")), None, row.get("ratio"))

"""Writes tuning bundles (docs/bundle.md): kernels rendered and compiled here, and their table."""

from __future__ import annotations

import hashlib
import io
import json
import zipfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from bench.gpu.measured_gpu import GPU_NAMES
from bench.results import Row
from greenfast import __version__
from greenfast.app.bundle.download import compiled_arch
from greenfast.search.devices.facts import Device
from greenfast.search.kernels.catalogue import Catalogue
from greenfast.search.kernels.expressions import Value
from greenfast.search.kernels.spec import Argument, KernelSpec, TemplateSpec
from greenfast.search.kernels.tensor_map_spec import TensorMapSpec
from greenfast.search.render import RenderFailed, render
from greenfast.search.space.candidate import complete_parameters
from greenfast.search.space.space import Resolved, Space, resolve
from greenfast.search.toolchain import CompileFailed, Toolchain
from greenfast.search.toolchain.ptxas import EntryFigures

ZIP_TIME = (1980, 1, 1, 0, 0, 0)
COMPILE_OPTIONS = ("--std=c++17",)


@dataclass(frozen=True)
class Entry:
    """A kernel of the set: a point of a template, for compile-time values."""

    template: str
    parameters: Mapping[str, Value]
    compiled: Mapping[str, Value]
    source_digest: str = ""  # of the source that was measured; empty: any
    label: str = ""


@dataclass(frozen=True)
class Built:
    """An entry's files below its folder, and what the manifest and the table need."""

    entry: Entry
    source_digest: str
    files: Mapping[str, bytes]
    cubin: bytes
    arch: str
    figures: tuple[EntryFigures, ...]  # of ptxas


def built(
    catalogue: Catalogue, kernel: KernelSpec, entry: Entry, device: Device, toolchain: Toolchain
) -> Built:
    """Render and compile an entry; SystemExit where it is not what was measured."""
    template = kernel.template(entry.template)
    compiled = tuple(entry.compiled.items())
    parameters = complete_parameters(template, entry.parameters, compiled)
    if why := Space(template, compiled, device).why_not(parameters):
        raise SystemExit(f"{entry.label or entry.template}: {why}")
    point = resolve(template, parameters, compiled, device)
    source = render(kernel, template, point, catalogue.include_dirs)
    if isinstance(source, RenderFailed):
        raise SystemExit(f"{entry.label}: {source.message}")
    if entry.source_digest and source.digest != entry.source_digest:
        raise SystemExit(f"{entry.label}: its template has changed since it was measured")
    arch = compiled_arch(template, device.arch)
    cubin = toolchain.compile(source, arch)
    if isinstance(cubin, CompileFailed):
        raise SystemExit(f"{entry.label}: {cubin.sentence}")
    launch = _launch(kernel, template, entry, point, device, source.digest)
    files = {
        "kernel.cu": source.text.encode(),
        "launch.json": json_bytes(launch),
        "template.toml": template.path.with_suffix("").with_suffix(".toml").read_bytes(),
        "template.cu.j2": template.text.encode(),
    }
    return Built(entry, source.digest, files, cubin.code, arch, cubin.entries)


def _launch(
    kernel: KernelSpec,
    template: TemplateSpec,
    entry: Entry,
    point: Resolved,
    device: Device,
    digest: str,
) -> Row:
    return {
        "schema": 1,
        "kernel": kernel.name,
        "template": template.name,
        "parameters": dict(point.parameters),
        "source_digest": digest,
        "arch": compiled_arch(template, device.arch),
        "sm_count": device.multiprocessors,
        "compiled": dict(entry.compiled),
        "constants": dict(point.values),
        "interface": [
            *(_parameter(argument, entry.compiled) for argument in kernel.arguments),
            *(
                {
                    "name": item.name,
                    "kind": "scalar",
                    "dtype": item.dtype,
                    "value": item.value.text,
                }
                for item in template.own_scalars(point.values)
            ),
            *(
                {
                    "name": item.name,
                    "kind": "workspace",
                    "bytes": item.bytes.text,
                    "zero_fill": item.zero_fill,
                }
                for item in template.scratch(point.values)
            ),
        ],
        "entries": [
            {
                "entry": launch.entry,
                "grid": [size.text for size in launch.grid],
                "block": [int(size(point.values)) for size in launch.block],
                "cluster": [int(size(point.values)) for size in launch.cluster],
                "smem_dynamic_bytes": int(launch.smem_dynamic_bytes(point.values)),
            }
            for launch in template.launched(point.values)
        ],
        **_tensor_maps(template.mapped(point.values)),
        "launches": [],
        "workloads": [],
    }


def _tensor_maps(maps: Sequence[TensorMapSpec]) -> Row:
    """As in the launch.json of a candidate's bundle."""
    rows = [
        {
            "name": item.name,
            "tensor": item.tensor,
            "dtype": item.dtype,
            "sizes": [size.text for size in item.sizes],
            "axes": list(item.axes),
            "strides": [stride.text for stride in item.strides],
            "box": [size.text for size in item.box],
            "swizzle_bytes": item.swizzle_bytes.text,
            "fill": item.fill,
            "l2_promotion_bytes": item.l2_promotion_bytes.text,
        }
        for item in maps
    ]
    return {"tensor_maps": rows} if rows else {}


def _parameter(argument: Argument, compiled: Mapping[str, Value]) -> Row:
    row: Row = {"name": argument.name, "kind": argument.kind, "dtype": argument.dtype}
    if argument.kind != "scalar":
        row["dtype"] = compiled["dtype"] if argument.dtype == "dtype" else argument.dtype
        row["shape"] = list(argument.shape)
        row["contiguous"], row["optional"] = argument.contiguous, argument.optional
    elif argument.stride_of is not None:
        row["stride_of"] = list(argument.stride_of)
    else:
        assert argument.value is not None  # every scalar has a value or a stride
        row["value"] = argument.value.text
    return row


def bundle_bytes(
    kernel: KernelSpec,
    kernels: Sequence[Built],
    groups: Sequence[Row],
    device: Device,
    *,
    name: str,
    toolchain: Mapping[str, str],
) -> bytes:
    """A tuning bundle of measured kernels; `groups` are those of dispatch.json."""
    files: dict[str, bytes] = {
        "kernel.toml": (kernel.folder / "kernel.toml").read_bytes(),
        **{path: text.encode() for path, text in kernel.reference_files.items()},
    }
    rows = []
    for number, item in enumerate(kernels):
        folder, cubin = f"kernels/k{number}/", f"kernels/k{number}/kernel.{item.arch}.cubin"
        files |= {folder + path: data for path, data in item.files.items()}
        files[cubin] = item.cubin
        rows.append(
            {
                "id": f"k{number}",
                "compiled": dict(item.entry.compiled),
                "template": item.entry.template,
                "source_digest": item.source_digest,
                "cubins": {item.arch: cubin},
            }
        )
    files["dispatch.json"] = json_bytes(dispatch(kernel.name, groups))
    manifest = {
        "format": "greenfast-tuning",
        "schema": 1,
        "greenfast": __version__,
        "tuning": name,
        "kernel": {"name": kernel.name, "title": kernel.title},
        "target": "cuda:0",
        "time_kind": "measured",
        "device": {
            "name": GPU_NAMES[device.name],
            "arch": device.arch,
            "sm_count": device.multiprocessors,
        },
        "toolchain": dict(toolchain),
        "compile_options": list(COMPILE_OPTIONS),
        "searches": [],
        "kernels": rows,
    }
    return sealed(files, manifest)


def dispatch(kernel: str, groups: Sequence[Row]) -> Row:
    table = {
        "format": "greenfast-dispatch",
        "schema": 1,
        "kernel": kernel,
        "within_percent": 0.0,
        "time_kind": "measured",
        "method": "recorded",
        "groups": list(groups),
    }
    text = json.dumps(table, sort_keys=True, separators=(",", ":"), ensure_ascii=True)
    return {**table, "digest": hashlib.sha256(text.encode()).hexdigest()}


def sealed(files: Mapping[str, bytes], manifest: Row) -> bytes:
    """The zip file; the manifest lists the checksums of the others."""
    listed = {name: hashlib.sha256(data).hexdigest() for name, data in sorted(files.items())}
    everything = {**files, "manifest.json": json_bytes({**manifest, "files": listed})}
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as packed:
        for name in sorted(everything):
            info = zipfile.ZipInfo(name, ZIP_TIME)
            info.compress_type, info.create_system = zipfile.ZIP_DEFLATED, 3
            info.external_attr = 0o644 << 16
            packed.writestr(info, everything[name])
    return buffer.getvalue()


def json_bytes(value: Any) -> bytes:
    return (json.dumps(value, indent=2, sort_keys=True, allow_nan=False) + "\n").encode()


def group(
    compiled: Mapping[str, Value],
    region: Mapping[str, tuple[int, int]],
    rules: Iterable[tuple[str, float | None, str]],
    workloads: Sequence[Row],
) -> Row:
    """A group whose rules compare one expression with upper limits, the last without one."""
    return {
        "compiled": dict(compiled),
        "region": {name: list(limits) for name, limits in region.items()},
        "rules": [
            {
                "when": []
                if limit is None
                else [{"value": value, "above": None, "at_most": limit}],
                "use": use,
            }
            for value, limit, use in rules
        ],
        "outside": "library",
        "workloads": list(workloads),
        "regret": {},
    }

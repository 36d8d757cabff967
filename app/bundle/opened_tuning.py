"""Reading a tuning bundle: nothing is written, nothing is run, and it has to agree with itself."""

from __future__ import annotations

import hashlib
import re
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from greenfast.app.bundle.opened import (
    PLAIN_NAME,
    STORED,
    OpenedBundle,
    baseline_of,
    contents,
    launch_of,
    names_workloads,
    require_digests,
)
from greenfast.runtime.archive import bad_bundle, json_object, opened_zip
from greenfast.search.dispatch.read import read_table
from greenfast.search.dispatch.table import DispatchTable
from greenfast.search.errors import UsageError

FORMAT, SCHEMA = "greenfast-tuning", 1
MOST_FILES = 4096
MANIFEST = "manifest.json"
NEEDED = (MANIFEST, "dispatch.json", "kernel.toml", "reference.py")
NEEDED_FOR_KERNELS = (
    "kernel.cu",
    "launch.json",
    "template.toml",
    "template.cu.j2",
    "evidence.json",
    "environment.json",
)
MANIFEST_KEYS = {
    "format",
    "schema",
    "greenfast",
    "tuning",
    "kernel",
    "target",
    "time_kind",
    "device",
    "toolchain",
    "compile_options",
    "searches",
    "kernels",
    "files",
}
_NAME = re.compile(r"(?:kernels/k[0-9]{1,4}/|cpp/)?[A-Za-z0-9_][A-Za-z0-9_.-]{0,99}\Z")
_KERNEL_ID = re.compile(r"k[0-9]{1,4}\Z")


@dataclass(frozen=True)
class OpenedTuning:
    """Contents by file name, the manifest, and the dispatch table."""

    files: Mapping[str, bytes]
    manifest: Mapping[str, Any]
    table: DispatchTable

    @property
    def kernels(self) -> tuple[str, ...]:
        return tuple(str(kernel["id"]) for kernel in self.manifest["kernels"])

    def bundle_of(self, kernel_id: str) -> OpenedBundle:
        """A kernel of the tuning as a candidate bundle, for rechecking it."""
        folder = f"kernels/{kernel_id}/"
        files = {name: data for name, data in self.files.items() if "/" not in name}
        files |= {
            name.removeprefix(folder): data
            for name, data in self.files.items()
            if name.startswith(folder)
        }
        evidence, environment = (json_object(files, f"{name}.json") for name in STORED)
        where = Path(folder.rstrip("/"))
        launch = launch_of(where, files, "")
        return OpenedBundle(files, launch, baseline_of(where, files), evidence, environment)


def is_tuning(path: Path) -> bool:
    """Whether the file at `path` is a zip file with the manifest of a tuning bundle."""
    try:
        with zipfile.ZipFile(opened_zip(path, MOST_FILES)) as packed:
            return MANIFEST in packed.namelist()
    except (OSError, UsageError, zipfile.BadZipFile, RuntimeError, NotImplementedError, ValueError):
        return False


def open_tuning(path: Path) -> OpenedTuning:
    """Read `path`.

    UsageError `bad_bundle` for a file that is no tuning bundle, is too large, or does not match its
    manifest; `bad_dispatch` for a table that does not agree with itself.
    """
    files = contents(path, _NAME, MOST_FILES)
    if missing := [name for name in NEEDED if name not in files]:
        raise bad_bundle(f"{path} is not a tuning bundle: it lacks {', '.join(missing)}")
    manifest = json_object(files, MANIFEST)
    if (manifest.get("format"), manifest.get("schema")) != (FORMAT, SCHEMA):
        raise bad_bundle(
            f"{path}: the manifest has format {manifest.get('format')!r} and schema "
            f"{manifest.get('schema')!r}; this version reads {FORMAT} {SCHEMA}"
        )
    if odd := sorted(set(manifest) ^ MANIFEST_KEYS):
        raise bad_bundle(f"{path}: the manifest has or lacks {odd[0]!r}")
    _require_hashes(path, files, manifest["files"])
    if not isinstance(manifest["kernel"], dict) or not PLAIN_NAME.match(
        str(manifest["kernel"].get("name"))
    ):
        raise bad_bundle(f"{path}: the manifest names no kernel")
    compiled = _compiled_of(path, files, manifest)
    table = read_table(json_object(files, "dispatch.json"), compiled)
    stated = (manifest["kernel"]["name"], manifest["time_kind"])
    if (table.kernel, table.time_kind) != stated:
        raise bad_bundle(
            f"{path}: dispatch.json is for {table.kernel} and {table.time_kind} times, and the "
            f"manifest states {stated[0]} and {stated[1]}"
        )
    return OpenedTuning(files, manifest, table)


def _require_hashes(path: Path, files: Mapping[str, bytes], hashes: Any) -> None:
    if not isinstance(hashes, dict):
        raise bad_bundle(f"{path}: the manifest lists no files")
    listed = {name: data for name, data in files.items() if name != MANIFEST}
    require_digests(path, listed, hashes, "the manifest")


def _compiled_of(
    path: Path, files: Mapping[str, bytes], manifest: Mapping[str, Any]
) -> dict[str, dict[str, Any]]:
    """The compile-time values of each kernel, whose files have to fit the manifest."""
    kernels = manifest["kernels"]
    if not isinstance(kernels, list) or not kernels:
        raise bad_bundle(f"{path}: the manifest lists no kernels")
    compiled: dict[str, dict[str, Any]] = {}
    for kernel in kernels:
        name = str(kernel.get("id")) if isinstance(kernel, dict) else ""
        if not _KERNEL_ID.match(name) or name in compiled:
            raise bad_bundle(f"{path}: {name[:40]!r} is not the id of a kernel, or occurs twice")
        folder = f"kernels/{name}/"
        if missing := [name for name in NEEDED_FOR_KERNELS if folder + name not in files]:
            raise bad_bundle(f"{path}: kernel {name} lacks {', '.join(missing)}")
        launch = json_object(files, f"{folder}launch.json")
        _require_launch(path, name, kernel, launch, manifest)
        digest = hashlib.sha256(files[f"{folder}kernel.cu"]).hexdigest()
        if not digest == kernel.get("source_digest") == launch.get("source_digest"):
            raise bad_bundle(f"{path}: {folder}kernel.cu is not the source that the manifest names")
        cubins = kernel.get("cubins")
        if not isinstance(cubins, dict) or any(
            not isinstance(file, str) or file not in files or not file.startswith(folder)
            for file in cubins.values()
        ):
            raise bad_bundle(f"{path}: kernel {name} names a cubin that the bundle lacks")
        compiled[name] = dict(kernel["compiled"])
    return compiled


def _require_launch(
    path: Path,
    name: str,
    kernel: Mapping[str, Any],
    launch: Mapping[str, Any],
    manifest: Mapping[str, Any],
) -> None:
    complete = (
        launch.get("schema") == 1
        and isinstance(kernel.get("compiled"), dict)
        and launch.get("compiled") == kernel["compiled"]
        and launch.get("kernel") == manifest["kernel"]["name"]
        and launch.get("template") == kernel.get("template")
        and bool(PLAIN_NAME.match(str(launch.get("template"))))
        and isinstance(launch.get("parameters"), dict)
        and all(
            isinstance(launch.get(key), list) and launch[key] for key in ("interface", "entries")
        )
        and names_workloads(launch)
    )
    if not complete:
        raise bad_bundle(f"{path}: launch.json of kernel {name} does not fit the manifest")

"""Reading a bundle: nothing is written, nothing is run, and its checksums must match."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from greenfast.runtime.archive import archive_files, bad_bundle, json_object, toml_table
from greenfast.search.kernels.catalogue import load_kernel
from greenfast.search.kernels.reference_text import importable_name
from greenfast.search.kernels.spec import KernelSpec

MOST_FILES = 64
NEEDED = (
    "SHA256SUMS",
    "environment.json",
    "evidence.json",
    "kernel.cu",
    "kernel.toml",
    "launch.json",
    "reference.py",
    "template.cu.j2",
    "template.toml",
)
STORED = ("evidence", "environment")
BASELINE_SOURCE, BASELINE_LAUNCH = "baseline.cu", "baseline_launch.json"
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,99}\Z")
PLAIN_NAME = re.compile(r"[a-z][a-z0-9_]{0,99}\Z")
_SUM = re.compile(r"([0-9a-f]{64})  (\S+)\Z")
_BASELINE_LINE = re.compile(r"^baseline\s*=.*$", re.M)


@dataclass(frozen=True)
class OpenedBundle:
    """Contents by file name, and the parsed JSON files; no baseline: `baseline_launch` is None."""

    files: Mapping[str, bytes]
    launch: Mapping[str, Any]
    baseline_launch: Mapping[str, Any] | None
    evidence: Mapping[str, Any]
    environment: Mapping[str, Any]

    def text(self, name: str) -> str:
        try:
            return self.files[name].decode("utf-8")
        except UnicodeDecodeError:
            raise bad_bundle(f"{name} of the bundle is not UTF-8 text") from None

    @property
    def reference_files(self) -> dict[str, bytes]:
        """reference.py, and the files that it may import (search/kernels/reference_text.py)."""
        names = {"reference.py", *(f"{importable_name(used)}.py" for used in self._uses())}
        return {
            name: data
            for name, data in self.files.items()
            if name in names or name.endswith("reference.py")
        }

    def _uses(self) -> list[str]:
        """The names in reference_uses of kernel.toml."""
        uses = toml_table(self.files, "kernel.toml").get("reference_uses", [])
        return [str(used) for used in uses] if isinstance(uses, list) else []


def open_bundle(path: Path) -> OpenedBundle:
    """Read `path`.

    UsageError `bad_bundle` for a file that is no bundle, is too large, or does not match its sums.
    """
    files = contents(path)
    missing = [name for name in NEEDED if name not in files]
    if missing:
        raise bad_bundle(f"{path} is not a bundle: it lacks {', '.join(missing)}")
    _require_sums(path, files)
    evidence, environment = (json_object(files, f"{name}.json") for name in STORED)
    launch = launch_of(path, files, "")
    return OpenedBundle(files, launch, baseline_of(path, files), evidence, environment)


def baseline_of(path: Path, files: Mapping[str, bytes]) -> Mapping[str, Any] | None:
    """baseline_launch.json, if there is one; UsageError `bad_bundle` as in `launch_of`."""
    if BASELINE_LAUNCH not in files:
        return None
    return launch_of(path, files, "baseline_")


def launch_of(path: Path, files: Mapping[str, bytes], prefix: str) -> Mapping[str, Any]:
    """launch.json with its source, or those of the baseline.

    UsageError `bad_bundle` if names in it could lead to other files, or it is of another source.
    """
    name, source = f"{prefix}launch.json", BASELINE_SOURCE if prefix else "kernel.cu"
    launch = json_object(files, name)
    if (schema := launch.get("schema")) != 1:
        raise bad_bundle(f"{path}: {name} has schema {schema!r}; this version reads schema 1")
    if not _complete(launch):
        raise bad_bundle(f"{path}: {name} lacks a kernel, a template, parameters or workloads")
    if source not in files:
        raise bad_bundle(f"{path}: the bundle lacks {source}")
    if hashlib.sha256(files[source]).hexdigest() != launch.get("source_digest"):
        raise bad_bundle(f"{path}: {source} is not the source whose digest {name} names")
    return launch


def _complete(launch: Mapping[str, Any]) -> bool:
    return (
        all(PLAIN_NAME.match(str(launch.get(key))) for key in ("kernel", "template"))
        and isinstance(launch.get("parameters"), dict)
        and names_workloads(launch)
    )


def names_workloads(launch: Mapping[str, Any]) -> bool:
    """Whether a launch.json lists workloads, each with a name."""
    workloads = launch.get("workloads")
    return (
        isinstance(workloads, list)
        and bool(workloads)
        and all(
            isinstance(workload, dict) and isinstance(workload.get("name"), str)
            for workload in workloads
        )
    )


def contents(
    path: Path, names: re.Pattern[str] = _NAME, most_files: int = MOST_FILES
) -> dict[str, bytes]:
    """Every file, read into memory. Only plain names are allowed, so that none leads elsewhere."""
    return archive_files(path, names.match, most_files)


def _require_sums(path: Path, files: Mapping[str, bytes]) -> None:
    sums: dict[str, str] = {}
    for line in files["SHA256SUMS"].decode("utf-8", "replace").splitlines():
        if not (match := _SUM.match(line)) or match.group(2) in sums:
            raise bad_bundle(f"{path}: SHA256SUMS holds {line[:80]!r}")
        sums[match.group(2)] = match.group(1)
    listed = {name: data for name, data in files.items() if name != "SHA256SUMS"}
    require_digests(path, listed, sums, "SHA256SUMS")


def require_digests(
    path: Path, files: Mapping[str, bytes], digests: Mapping[str, Any], listed_in: str
) -> None:
    """UsageError `bad_bundle` if the digests in `listed_in` do not match these files."""
    if odd := sorted(files.keys() ^ digests.keys()):
        raise bad_bundle(f"{path}: {listed_in} and the files do not match: {', '.join(odd[:5])}")
    changed = [
        name for name in sorted(files) if hashlib.sha256(files[name]).hexdigest() != digests[name]
    ]
    if changed:
        raise bad_bundle(
            f"{path}: {', '.join(changed[:5])} does not match {listed_in}: damaged, or changed "
            "since"
        )


def kernel_of(bundle: OpenedBundle, folder: Path) -> KernelSpec:
    """The kernel as the bundle describes it, with the bundle's templates, in a new subfolder."""
    files = folder / str(bundle.launch["kernel"])
    files.mkdir()
    # The winner's template comes last: where both have one name, it is kept.
    launches = {"baseline_template": bundle.baseline_launch, "template": bundle.launch}
    for name, launch in launches.items():
        if launch is not None:
            for ending in ("toml", "cu.j2"):
                if f"{name}.{ending}" not in bundle.files:
                    raise bad_bundle(f"the bundle lacks {name}.{ending}")
                (files / f"{launch['template']}.{ending}").write_bytes(
                    bundle.files[f"{name}.{ending}"]
                )
    for name, data in bundle.reference_files.items():
        (files / name).write_bytes(data)
    (files / "kernel.toml").write_text(_with_own_baseline(bundle), "utf-8")
    kernel = load_kernel(files)
    if missing := sorted(kernel.reference_files.keys() - bundle.files.keys()):
        raise bad_bundle(f"the bundle lacks {', '.join(missing)}")
    return kernel


def _with_own_baseline(bundle: OpenedBundle) -> str:
    """kernel.toml with a preset of the bundle's template as the baseline.

    The one that it names may be of a template that is not in the bundle.
    """
    presets = toml_table(bundle.files, "template.toml").get("presets")
    if not presets or not isinstance(presets, dict):
        return bundle.text("kernel.toml")
    own = f'baseline = "{bundle.launch["template"]}:{next(iter(presets))}"'
    return _BASELINE_LINE.sub(lambda _: own, bundle.text("kernel.toml"), count=1)

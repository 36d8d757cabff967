"""The CUDA toolkit to compile with: NVRTC and headers by absolute path, from wheels of one release.

The loader would take the first library of that name on LD_LIBRARY_PATH, or one that another package has loaded. Releases
of NVRTC make different code of one source, so the library is looked up among the installed distributions and loaded by path.
"""

from __future__ import annotations

import importlib.metadata
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from greenfast.search.errors import Fault

TOOLKIT_VARIABLE = (
    "GREENFAST_CUDA"  # a folder made by `pip install --target`, instead of the environment's wheels
)
TOOLKIT_WHEELS = "cuda-toolkit[nvrtc,cudart,crt,cccl]==13.5.*"
COMPONENTS = ("nvidia-cuda-nvrtc", "nvidia-cuda-runtime", "nvidia-cuda-crt", "nvidia-cuda-cccl")
ONE_RELEASE = COMPONENTS[:3]  # CCCL has version numbers of its own


@dataclass(frozen=True)
class Layout:
    """How a major version of CUDA is packed: the wheel of each of COMPONENTS, and folders below site-packages/nvidia."""

    wheels: tuple[str, ...]
    library: str
    include: tuple[str, ...]


# Where both are installed, CUDA 13 is taken.
LAYOUTS = (
    Layout(COMPONENTS, "cu13/lib", ("cu13/include", "cu13/include/cccl")),
    Layout(
        (
            "nvidia-cuda-nvrtc-cu12",
            "nvidia-cuda-runtime-cu12",
            "nvidia-cuda-nvcc-cu12",
            "nvidia-cuda-cccl-cu12",
        ),
        "cuda_nvrtc/lib",
        ("cuda_runtime/include", "cuda_nvcc/include", "cuda_cccl/include"),
    ),
)


@dataclass(frozen=True)
class Toolkit:
    """An installed toolkit."""

    versions: tuple[tuple[str, str], ...]  # by component
    libraries: tuple[str, ...]  # absolute paths in loading order: NVRTC opens its builtins by name
    include_dirs: tuple[str, ...]

    @property
    def nvrtc_version(self) -> str:
        return dict(self.versions)[COMPONENTS[0]]


def installed_toolkit(folder: str | None = None) -> Toolkit:
    """The toolkit of this interpreter's environment, or of GREENFAST_CUDA; Fault when it is missing or mixed."""
    folder = folder if folder is not None else os.environ.get(TOOLKIT_VARIABLE) or None
    layout = layout_of(folder)
    wheels = tuple(_required(wheel, folder) for wheel in layout.wheels)
    versions = tuple((component, wheel.version) for component, wheel in zip(COMPONENTS, wheels))
    _require_one_release(versions, folder)
    roots = tuple(
        dict.fromkeys(Path(str(wheel.locate_file("nvidia"))).absolute() for wheel in wheels)
    )
    return Toolkit(versions, _libraries(roots[0] / layout.library), _include_dirs(roots, layout))


def layout_of(folder: str | None = None) -> Layout:
    """The layout whose NVRTC is installed; Fault when none is."""
    for layout in LAYOUTS:
        if _installed(layout.wheels[0], folder) is not None:
            return layout
    raise _missing(f"the package {COMPONENTS[0]} is not installed", folder)


def private_toolkit_advice() -> str:
    """How to use another release than the environment's without touching it."""
    return (
        f"run `pip install --target DIR '{TOOLKIT_WHEELS}'` and set {TOOLKIT_VARIABLE}=DIR; "
        "the packages of this environment stay as they are"
    )


def _installed(wheel: str, folder: str | None) -> importlib.metadata.Distribution | None:
    found: Iterator[importlib.metadata.Distribution] = iter(
        importlib.metadata.distributions(name=wheel, path=[folder])
        if folder
        else importlib.metadata.distributions(name=wheel)
    )
    return next(found, None)


def _required(wheel: str, folder: str | None) -> importlib.metadata.Distribution:
    distribution = _installed(wheel, folder)
    if distribution is None:
        raise _missing(f"the package {wheel} is not installed", folder)
    return distribution


def _missing(what: str, folder: str | None) -> Fault:
    place = f" in {folder} ({TOOLKIT_VARIABLE})" if folder else ""
    return Fault(
        f"{what}{place}, so nothing can be compiled",
        code="toolchain_missing",
        mend=f"pip install {f'--target {folder} ' if folder else ''}'{TOOLKIT_WHEELS}'",
    )


def _require_one_release(versions: tuple[tuple[str, str], ...], folder: str | None) -> None:
    """Headers of one release and a compiler of another are a pair that nobody tested."""
    releases = {
        component: ".".join(version.split(".")[:2])
        for component, version in versions
        if component in ONE_RELEASE
    }
    if len(set(releases.values())) > 1:
        listing = ", ".join(f"{component} {dict(versions)[component]}" for component in releases)
        wanted = releases[COMPONENTS[0]]
        target = f"--target {folder} " if folder else ""
        raise Fault(
            f"the CUDA packages are of different releases: {listing}",
            code="toolchain_mixed",
            mend=f"pip install {target}'cuda-toolkit[nvrtc,cudart,crt,cccl]=={wanted}.*', or keep them: "
            + private_toolkit_advice(),
        )


def _libraries(folder: Path) -> tuple[str, ...]:
    builtins, nvrtc = (
        sorted(folder.glob("libnvrtc-builtins.so.*")),
        sorted(folder.glob("libnvrtc.so.*")),
    )
    if not builtins or not nvrtc:
        raise Fault(
            f"NVRTC's libraries are not in {folder}, where their package says they are",
            code="toolchain_missing",
            mend=f"pip install --force-reinstall '{TOOLKIT_WHEELS}'",
        )
    return str(builtins[-1]), str(nvrtc[-1])


def _include_dirs(roots: tuple[Path, ...], layout: Layout) -> tuple[str, ...]:
    folders = tuple(
        dict.fromkeys(
            root / name for name in layout.include for root in roots if (root / name).is_dir()
        )
    )
    if not any((folder / "cuda_fp16.h").is_file() for folder in folders):
        raise Fault(
            "CUDA's headers are not installed, so nothing can be compiled",
            code="toolchain_missing",
            mend=f"pip install --force-reinstall '{TOOLKIT_WHEELS}'",
        )
    return tuple(map(str, folders))

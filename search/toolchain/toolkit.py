"""The CUDA toolkit to compile with: NVRTC and headers of one release, by absolute path.

By name, the loader would take the first library on LD_LIBRARY_PATH, or one that another package
has loaded. Releases of NVRTC generate different code for one source, so greenfast finds the
library among the installed packages and loads it by its path.
"""

from __future__ import annotations

import importlib.metadata
import os
from dataclasses import dataclass
from pathlib import Path

from greenfast.search.errors import Fault

TOOLKIT_VARIABLE = "GREENFAST_CUDA"  # a folder made by `pip install --target`
RELEASE = "13.5"  # that `greenfast toolkit install` installs
TOOLKIT_WHEELS = f"cuda-toolkit[nvrtc,cudart,crt,cccl]=={RELEASE}.*"
INSTALL_COMMAND = "greenfast toolkit install"
COMPONENTS = ("nvidia-cuda-nvrtc", "nvidia-cuda-runtime", "nvidia-cuda-crt", "nvidia-cuda-cccl")
ONE_RELEASE = COMPONENTS[:3]  # CCCL has version numbers of its own


@dataclass(frozen=True)
class Place:
    """The place of the toolkit's packages, and why it is used."""

    folder: Path | None  # made by `pip install --target`; None: this Python environment
    reason: str


@dataclass(frozen=True)
class Layout:
    """How a major version of CUDA is packaged.

    The wheel of each of COMPONENTS, and the folders below site-packages/nvidia.
    """

    wheels: tuple[str, ...]
    library: str
    include: tuple[str, ...]


# In order of preference.
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
    place: Place

    @property
    def nvrtc_version(self) -> str:
        return dict(self.versions)[COMPONENTS[0]]


def private_folder(data: Path) -> Path:
    """The toolkit that `greenfast toolkit install` puts below the data folder."""
    return data / "cuda" / RELEASE


def toolkit_place(data: Path | None = None) -> Place:
    """GREENFAST_CUDA, else the toolkit of the data folder, else this Python environment."""
    if folder := os.environ.get(TOOLKIT_VARIABLE):
        return Place(Path(folder), f"{TOOLKIT_VARIABLE} names this folder")
    if data is not None and private_folder(data).is_dir():
        return Place(private_folder(data), f"`{INSTALL_COMMAND}` installed it")
    return Place(None, "packages of this Python environment")


def find_toolkit(place: Place | None = None) -> Toolkit:
    """The toolkit at `place` (default: `toolkit_place()`); Fault when it is missing or mixed."""
    place = place or toolkit_place()
    layout = layout_of(place)
    packages = tuple(_required(wheel, place) for wheel in layout.wheels)
    versions = tuple(
        (component, package.version)
        for component, package in zip(COMPONENTS, packages, strict=True)
    )
    _require_one_release(versions, place)
    roots = tuple(
        dict.fromkeys(Path(str(package.locate_file("nvidia"))).absolute() for package in packages)
    )
    return Toolkit(
        versions,
        _libraries(roots[0] / layout.library),
        _include_dirs(roots, layout),
        place,
    )


def layout_of(place: Place) -> Layout:
    """The layout whose NVRTC is installed; Fault when none is."""
    for layout in LAYOUTS:
        if _installed(layout.wheels[0], place) is not None:
            return layout
    raise _missing(COMPONENTS[0], place)


def replacement_advice() -> str:
    """How to use another release without changing the environment's packages."""
    if os.environ.get(TOOLKIT_VARIABLE):
        return f"unset {TOOLKIT_VARIABLE} and run `{INSTALL_COMMAND}`"
    return f"run `{INSTALL_COMMAND}`; it changes no package of this environment"


def _installed(wheel: str, place: Place) -> importlib.metadata.Distribution | None:
    if place.folder is None:
        return next(iter(importlib.metadata.distributions(name=wheel)), None)
    return next(iter(importlib.metadata.distributions(name=wheel, path=[str(place.folder)])), None)


def _required(wheel: str, place: Place) -> importlib.metadata.Distribution:
    package = _installed(wheel, place)
    if package is None:
        raise _missing(wheel, place)
    return package


def _missing(wheel: str, place: Place) -> Fault:
    where = "" if place.folder is None else f" in {place.folder}"
    return Fault(
        f"the package {wheel} is not installed{where}, so nothing can be compiled",
        code="toolchain_missing",
        mend=replacement_advice(),
    )


def _require_one_release(versions: tuple[tuple[str, str], ...], place: Place) -> None:
    """Refuse a compiler with the headers of another release, since such pairs are not tested."""
    releases = {
        component: ".".join(version.split(".")[:2])
        for component, version in versions
        if component in ONE_RELEASE
    }
    if len(set(releases.values())) > 1:
        listing = ", ".join(f"{component} {dict(versions)[component]}" for component in releases)
        target = "" if place.folder is None else f"--target {place.folder} "
        wheels = f"cuda-toolkit[nvrtc,cudart,crt,cccl]=={releases[COMPONENTS[0]]}.*"
        raise Fault(
            f"the CUDA packages are of different releases: {listing}",
            code="toolchain_mixed",
            mend=f"{replacement_advice()}. Or install one release: pip install {target}'{wheels}'",
        )


def _libraries(folder: Path) -> tuple[str, ...]:
    builtins = sorted(folder.glob("libnvrtc-builtins.so.*"))
    nvrtc = sorted(folder.glob("libnvrtc.so.*"))
    if not builtins or not nvrtc:
        raise Fault(
            f"NVRTC's libraries are missing in {folder}, where their package keeps them",
            code="toolchain_missing",
            mend=f"pip install --force-reinstall '{TOOLKIT_WHEELS}', or {replacement_advice()}",
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
            mend=f"pip install --force-reinstall '{TOOLKIT_WHEELS}', or {replacement_advice()}",
        )
    return tuple(map(str, folders))

"""Finding kernels: folders with a kernel.toml, shipped or on GREENFAST_TEMPLATE_PATH."""

from __future__ import annotations

import os
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path

from greenfast.search.errors import GreenfastError, UsageError, unknown_name
from greenfast.search.kernels.freshness import LoadedKernel
from greenfast.search.kernels.kernel_file import load_kernel
from greenfast.search.kernels.spec import KernelSpec
from greenfast.search.shipped import KERNEL_TEMPLATES as REPOSITORY_TEMPLATES

__all__ = ["PATH_VARIABLE", "REPOSITORY_TEMPLATES", "Catalogue", "load_kernel", "require_code"]

PATH_VARIABLE = "GREENFAST_TEMPLATE_PATH"
DATA_VARIABLE, DATA_DEFAULT = "GREENFAST_DATA", "greenfast-data"


def imported_kernels() -> Path:
    """The folder of the kernels that stand for imported spaces."""
    return Path(os.environ.get(DATA_VARIABLE) or DATA_DEFAULT) / "spaces"


def require_code(kernel: KernelSpec) -> None:
    """UsageError for an imported space, which has times and no code."""
    if kernel.folder.parent.resolve() == imported_kernels().resolve():
        raise UsageError(
            f"{kernel.name} is an imported space: there is no code to run",
            code="no_code",
            mend=f"add --target replay:{kernel.name}",
        )


class Catalogue:
    """The available kernels. Each is read when it is first used, so a broken one harms no other."""

    def __init__(self, roots: Sequence[Path], headers: Sequence[Path] | None = None) -> None:
        """`roots`: folders of kernels; in a later one a kernel replaces its namesake.

        `headers`: the only folders for `#include "gf/..."`; by default `include/` of each root,
        then the shipped one.
        """
        self._roots = tuple(roots)
        self._headers = headers
        self._loaded: dict[str, LoadedKernel] = {}

    @classmethod
    def from_environment(cls) -> Catalogue:
        """The shipped kernels, those on GREENFAST_TEMPLATE_PATH, and imported spaces."""
        extra = os.environ.get(PATH_VARIABLE, "")
        imported = imported_kernels()
        return cls(
            [
                *([imported] if imported.is_dir() else []),  # they replace no other kernel
                REPOSITORY_TEMPLATES,
                *(Path(word) for word in extra.split(os.pathsep) if word),
            ]
        )

    @cached_property
    def include_dirs(self) -> tuple[Path, ...]:
        """Folders in which `#include "gf/..."` is looked up, in order."""
        if self._headers is not None:
            return tuple(self._headers)
        folders = (root / "include" for root in (*self._roots, REPOSITORY_TEMPLATES))
        return tuple(dict.fromkeys(folder for folder in folders if folder.is_dir()))

    @property
    def folders(self) -> dict[str, Path]:
        """The folder of each kernel; UsageError when a root does not exist."""
        folders: dict[str, Path] = {}
        for root in self._roots:
            if not root.is_dir():
                raise UsageError(
                    f"the template folder {root} does not exist",
                    code="missing_template_path",
                    mend=f"correct {PATH_VARIABLE}",
                )
            folders |= {
                path.parent.name: path.parent for path in sorted(root.glob("*/kernel.toml"))
            }
        return folders

    def names(self) -> tuple[str, ...]:
        return tuple(sorted(self.folders))

    def kernel(self, name: str) -> KernelSpec:
        """The kernel of that name, read again when its files have changed.

        UsageError when it is unknown, SpecError when its files contradict each other.
        """
        loaded = self._loaded.get(name)
        if loaded is not None and loaded.was_examined():
            return loaded.kernel
        folders = self.folders
        if name not in folders:
            raise unknown_name("kernel", name, folders)
        if loaded is None or not loaded.is_current(folders[name]):
            self._loaded.pop(name, None)
            loaded = self._loaded[name] = LoadedKernel.read(folders[name], load_kernel)
        return loaded.kernel

    def kernels(self) -> tuple[KernelSpec | GreenfastError, ...]:
        """Every kernel in the order of names, or the error that its folder raises."""
        kernels: list[KernelSpec | GreenfastError] = []
        for name in self.names():
            try:
                kernels.append(self.kernel(name))
            except GreenfastError as error:
                kernels.append(error)
        return tuple(kernels)

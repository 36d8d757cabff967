"""Finding kernels: folders with a kernel.toml, shipped or the user's own.

A user's own kernels lie in folders on GREENFAST_TEMPLATE_PATH and in ./kernels. Of namesakes, one
on the path is used before a shipped one, and a shipped one before one in ./kernels: what happens to
lie in the current folder changes nothing that greenfast brings.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path

from greenfast.search.errors import GreenfastError, SpecError, UsageError, unknown_name
from greenfast.search.kernels.author_files import read_author_file
from greenfast.search.kernels.freshness import LoadedKernel
from greenfast.search.kernels.kernel_file import load_kernel
from greenfast.search.kernels.spec import KernelSpec
from greenfast.search.shipped import KERNEL_TEMPLATES as REPOSITORY_TEMPLATES

__all__ = [
    "HERE",
    "PATH_VARIABLE",
    "REPOSITORY_TEMPLATES",
    "Catalogue",
    "load_kernel",
    "require_code",
]

PATH_VARIABLE = "GREENFAST_TEMPLATE_PATH"
HERE = "kernels"  # a folder of own kernels in the current one
DATA_VARIABLE, DATA_DEFAULT = "GREENFAST_DATA", "greenfast-data"


def imported_kernels() -> Path:
    """The folder of the kernels that stand for imported spaces."""
    return Path(os.environ.get(DATA_VARIABLE) or DATA_DEFAULT) / "spaces"


def listed_roots() -> tuple[Path, ...]:
    """The folders on GREENFAST_TEMPLATE_PATH."""
    words = os.environ.get(PATH_VARIABLE, "").split(os.pathsep)
    return tuple(Path(word) for word in words if word)


def here() -> tuple[Path, ...]:
    """./kernels, unless it is on GREENFAST_TEMPLATE_PATH; empty in a folder that was removed."""
    try:
        folder = Path(HERE).absolute()
    except OSError:
        return ()
    is_listed = any(root.resolve() == folder.resolve() for root in listed_roots())
    return () if is_listed else (folder,)


def kernels_below(root: Path) -> dict[str, Path]:
    return {path.parent.name: path.parent for path in sorted(root.glob("*/kernel.toml"))}


def _is_readable(folder: Path) -> bool:
    """Whether this is a folder of texts: headers are read for every kernel."""
    try:
        for path in folder.rglob("*"):
            if path.is_file():
                read_author_file(path, path.name)
    except SpecError:
        return False
    return folder.is_dir()


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

    def __init__(
        self,
        roots: Sequence[Path],
        headers: Sequence[Path] | None = None,
        modest: Sequence[Path] = (),
    ) -> None:
        """`roots`: folders of kernels; in a later one a kernel replaces its namesake.

        `headers`: the only folders for `#include "gf/..."`; by default `include/` of each root,
        then the shipped one.
        `modest`: further folders, which may be missing and replace nothing of the roots.
        """
        self._roots, self._modest = tuple(roots), tuple(modest)
        self._headers = headers
        self._loaded: dict[str, LoadedKernel] = {}

    @classmethod
    def from_environment(cls) -> Catalogue:
        """The shipped kernels, the user's own, and imported spaces."""
        return cls([REPOSITORY_TEMPLATES, *listed_roots()], modest=[imported_kernels(), *here()])

    @cached_property
    def include_dirs(self) -> tuple[Path, ...]:
        """Folders in which `#include "gf/..."` is looked up, in order."""
        if self._headers is not None:
            return tuple(self._headers)
        folders = [root / "include" for root in (*self._roots, REPOSITORY_TEMPLATES)]
        own = (root / "include" for root in self._modest)
        folders += (folder for folder in own if _is_readable(folder / "gf"))
        return tuple(dict.fromkeys(folder for folder in folders if folder.is_dir()))

    @property
    def folders(self) -> dict[str, Path]:
        """The folder of each kernel; UsageError when a root does not exist."""
        folders: dict[str, Path] = {}
        for root in (*self._modest, *self._roots):
            folders |= self._kernels_in(root)
        return folders

    @property
    def own(self) -> dict[Path, dict[str, Path]]:
        """The folder of each of the user's kernels, by root; a namesake may hide some of them."""
        roots = [root for root in self._roots if root != REPOSITORY_TEMPLATES]
        roots += [root for root in self._modest if root != imported_kernels()]
        return {root: self._kernels_in(root) for root in roots}

    def hidden(self) -> dict[Path, Path]:
        """Each folder of the user's that is not used, and its namesake that is."""
        used = self.folders
        return {
            folder: used[name]
            for kernels in self.own.values()
            for name, folder in kernels.items()
            if used[name] != folder
        }

    def _kernels_in(self, root: Path) -> dict[str, Path]:
        if root in self._roots and not root.is_dir():
            raise UsageError(
                f"the template folder {root} does not exist",
                code="missing_template_path",
                mend=f"correct {PATH_VARIABLE}",
            )
        return kernels_below(root)

    def names(self) -> tuple[str, ...]:
        return tuple(sorted(self.folders))

    def kernel(self, name: str) -> KernelSpec:
        """The kernel of that name, read again when its files have changed.

        UsageError when it is unknown, SpecError when its files contradict each other.
        """
        loaded = self._loaded.get(name)
        if loaded is not None and loaded.was_examined():
            return loaded.kernel
        folder = self.folder(name)
        if loaded is None or not loaded.is_current(folder):
            self._loaded.pop(name, None)
            loaded = self._loaded[name] = LoadedKernel.read(folder, load_kernel)
        return loaded.kernel

    def folder(self, name: str) -> Path:
        """The folder of the kernel of that name; UsageError when it is unknown."""
        folders = self.folders
        if name not in folders:
            unknown = unknown_name("kernel", name, folders)
            unknown.mend += f"; your own are found in ./{HERE} and on {PATH_VARIABLE}"
            raise unknown
        return folders[name]

    def kernels(self) -> tuple[KernelSpec | GreenfastError, ...]:
        """Every kernel in the order of names, or the error that its folder raises."""
        kernels: list[KernelSpec | GreenfastError] = []
        for name in self.names():
            try:
                kernels.append(self.kernel(name))
            except GreenfastError as error:
                kernels.append(error)
        return tuple(kernels)

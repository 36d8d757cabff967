"""The files that a search ran with, for rendering, checking, bundling and verifying later.

They are laid out like a template root (`attention/kernel.toml`, `include/gf/mma.cuh`), so that a
frozen kernel loads like any other. The texts of other references that it imports are beside its
own, as in a bundle.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from greenfast.search.digest import digest, text_digest
from greenfast.search.errors import Fault, UsageError
from greenfast.search.kernels.author_files import read_author_file
from greenfast.search.kernels.catalogue import Catalogue
from greenfast.search.kernels.held_folders import hold
from greenfast.search.kernels.reference_text import importable_name
from greenfast.search.kernels.spec import KernelSpec

KERNEL_FILES = ("*.toml", "*.py", "*.cu.j2", "*/*.cu.j2")
HEADERS = "gf"
INCLUDE = "include"


@dataclass(frozen=True)
class KernelFiles:
    """(path below a template root, text) of each file, in the order of the paths."""

    files: tuple[tuple[str, str], ...]

    @cached_property
    def manifest(self) -> tuple[tuple[str, str], ...]:
        """(path, SHA-256) of each file."""
        return tuple((path, text_digest(text)) for path, text in self.files)

    @cached_property
    def digest(self) -> str:
        return digest(self.manifest)

    def parts(self) -> tuple[KernelFiles, KernelFiles]:
        """The kernel's folder, and the headers, which kernels share."""
        headers = tuple(file for file in self.files if file[0].startswith(f"{INCLUDE}/"))
        kernel = tuple(file for file in self.files if file not in headers)
        return KernelFiles(kernel), KernelFiles(headers)


def kernel_files(kernel: KernelSpec, include_dirs: Sequence[Path]) -> KernelFiles:
    """The current files of a kernel.

    Raises UsageError when its reference.py changed after `kernel` was loaded.
    """
    name, folder = kernel.folder.name, kernel.folder
    paths = {
        f"{name}/{path.relative_to(folder)}": path
        for pattern in KERNEL_FILES
        for path in folder.glob(pattern)
    }
    for template in kernel.templates:
        paths |= template.files  # some are parts of other kernels
    texts = {shown: read_author_file(path, shown) for shown, path in paths.items()}
    texts |= {f"{name}/{importable_name(other)}.py": text for other, text in kernel.reference_uses}
    if texts.get(f"{name}/reference.py") != kernel.reference_text:
        raise UsageError(
            f"{name}/reference.py changed while it was read",
            code="kernel_changed",
            mend="submit the search again",
        )
    texts |= header_texts(include_dirs)
    return KernelFiles(tuple(sorted(texts.items())))


def header_texts(include_dirs: Sequence[Path]) -> dict[str, str]:
    """The `gf/` headers by path. Like rendering, it prefers earlier folders."""
    texts: dict[str, str] = {}
    for folder in include_dirs:
        for path in (folder / HEADERS).rglob("*"):
            name = f"{INCLUDE}/{path.relative_to(folder)}"
            if path.is_file() and name not in texts:
                texts[name] = read_author_file(path, str(path.relative_to(folder)))
    return texts


def frozen_catalogue(
    files: KernelFiles, cache: Path, on_written: Callable[[int], None] = lambda size_bytes: None
) -> Catalogue:
    """A catalogue of the frozen kernel alone; its files are written below `cache`.

    This process holds the files (held_folders.py), so that no other removes them from the cache.

    Its reference.py runs like any other: it comes from greenfast's database, which is as trusted as
    the data folder. Files in the cache are compared with `files` each time and rewritten when they
    differ. Raises Fault when they cannot be written.
    """
    kernel, headers = (_written(part, cache, on_written) for part in files.parts())
    return Catalogue([kernel], [headers / INCLUDE])


def _written(files: KernelFiles, cache: Path, on_written: Callable[[int], None]) -> Path:
    folder = cache / "kernels" / files.digest[:32]
    if hold(folder) and _holds(folder, files):
        return folder
    _write(folder, files)
    hold(folder)
    on_written(sum(len(text.encode()) for _, text in files.files))
    return folder


def _holds(folder: Path, files: KernelFiles) -> bool:
    try:
        present = {str(path.relative_to(folder)) for path in _files_below(folder)}
        return present == {path for path, _ in files.files} and all(
            (folder / path).read_text("utf-8") == text for path, text in files.files
        )
    except (OSError, UnicodeDecodeError):
        return False


def _files_below(folder: Path) -> Iterator[Path]:
    return (
        path for path in folder.rglob("*") if path.is_file() and path.parent.name != "__pycache__"
    )


def _write(folder: Path, files: KernelFiles) -> None:
    """Write all files or none; another process may write the same ones at the same time."""
    try:
        folder.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        fresh = Path(tempfile.mkdtemp(prefix=".fresh-", dir=folder.parent))
        try:
            _fill(fresh, files)
            _publish(fresh, folder, files)
        finally:  # a full disk is tried again and again: nothing may be left of each attempt
            shutil.rmtree(fresh, ignore_errors=True)
    except OSError as error:
        raise Fault(
            "the files that the search ran with cannot be written below "
            f"{folder.parent}: {error.strerror}",
            code="disk_full",
            mend="free some space, or check the permissions of the data folder",
        ) from error


def _fill(fresh: Path, files: KernelFiles) -> None:
    for path, text in files.files:
        place = (fresh / path).resolve()
        if not place.is_relative_to(fresh.resolve()):
            raise Fault(
                f"the stored file {path!r} lies outside its kernel", code="record_unreadable"
            )
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(text, "utf-8", newline="")


def _publish(fresh: Path, folder: Path, files: KernelFiles) -> None:
    """Give the folder its name. Files that another process has just written stay: it reads them."""
    if folder.exists() and not _holds(folder, files):
        shutil.rmtree(folder, ignore_errors=True)
    try:
        os.rename(fresh, folder)
    except OSError:
        if not _holds(folder, files):
            raise

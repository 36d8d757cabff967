"""New folders and files of authors, written whole or not at all."""

from __future__ import annotations

import os
import re
import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path

from greenfast.search.errors import UsageError
from greenfast.search.kernels.catalogue import (
    HERE,
    PATH_VARIABLE,
    REPOSITORY_TEMPLATES,
    Catalogue,
    listed_roots,
)
from greenfast.search.kernels.forms import OWN_SCHEMAS, SCHEMA_FOLDER
from greenfast.search.text import shortened, visible

SCAFFOLD = Path(__file__).parent / "scaffold"
_NAME = re.compile(r"[a-z][a-z0-9_]{0,47}\Z")
_RESERVED = frozenset({"include", "kernel", "reference", "gf", "greenfast"})


def checked_new_name(name: str, kind: str) -> str:
    """The name, if a new kernel or template may have it; else UsageError."""
    if not _NAME.match(name) or name in _RESERVED:
        raise UsageError(
            f"a {kind} cannot be called {shortened(visible(repr(name)), 60)}",
            code="bad_name",
            mend="names are small letters, digits and _, begin with a letter, and have at most "
            f"48 characters; {', '.join(sorted(_RESERVED))} have a meaning already",
        )
    return name


def checked_kernel_name(name: str) -> str:
    """The name, if a new kernel may have it: none of greenfast's own, which it would hide."""
    checked_new_name(name, "kernel")
    if (REPOSITORY_TEMPLATES / name).is_dir():
        raise UsageError(
            f"{name} is a kernel of greenfast; one of yours with this name would hide it",
            code="name_taken",
            mend="choose another name",
        )
    return name


def target_root(given: Path | None) -> Path:
    """The folder for new kernels: the given one, the first on the template path, or ./kernels."""
    if given is not None:
        return given
    return next(iter(listed_roots()), Path(HERE))


def write_kernel(root: Path, name: str, files: Mapping[str, str]) -> Path:
    """Write the files of a new kernel and return its folder; UsageError when it exists.

    They are written beside their place and renamed, so that no one sees half of them.
    """
    folder = root / name
    if os.path.lexists(folder):
        raise UsageError(
            f"{shown(folder)} already exists", code="name_taken", mend="choose another name"
        )
    try:
        root.mkdir(parents=True, exist_ok=True)
        fresh = Path(tempfile.mkdtemp(prefix=".new-", dir=root))
        try:
            for file, text in files.items():
                (fresh / file).write_text(text, "utf-8", newline="")
            write_schemas(fresh)
            fresh.chmod(0o755)
            if os.path.lexists(folder):  # made meanwhile: an empty folder would be replaced
                raise FileExistsError(17, "it was created meanwhile")
            os.rename(fresh, folder)
        finally:
            shutil.rmtree(fresh, ignore_errors=True)
    except OSError as error:
        raise _unwritable(folder, error) from error
    return folder


def add_files(folder: Path, files: Mapping[str, str]) -> None:
    """Add new files to a kernel's folder, all or none; UsageError when one exists."""
    for file in files:
        if os.path.lexists(folder / file):
            raise UsageError(
                f"{shown(folder / file)} already exists",
                code="name_taken",
                mend="choose another name",
            )
    linked: list[Path] = []
    fresh = None
    try:
        fresh = Path(tempfile.mkdtemp(prefix=".new-", dir=folder))
        for file, text in files.items():
            (fresh / file).write_text(text, "utf-8", newline="")
        for file in files:
            os.link(fresh / file, folder / file)  # unlike a rename, it replaces nothing
            linked.append(folder / file)
        write_schemas(folder)
    except OSError as error:
        for path in linked:
            path.unlink(missing_ok=True)
        raise _unwritable(folder, error) from error
    finally:
        if fresh is not None:
            shutil.rmtree(fresh, ignore_errors=True)


def write_schemas(folder: Path) -> None:
    """Copy the schemas for editors into a kernel's folder, where its files name them."""
    own = folder / OWN_SCHEMAS
    own.mkdir(exist_ok=True)
    for path in sorted(SCHEMA_FOLDER.glob("*.schema.json")):
        with tempfile.NamedTemporaryFile(dir=own, prefix=".new-", delete=False) as fresh:
            fresh.write(path.read_bytes())
        os.chmod(fresh.name, 0o644)
        os.replace(fresh.name, own / path.name)


def own_kernel_folder(name: str, root: Path | None) -> Path:
    """The folder of the author's kernel `name`; UsageError for a shipped or unknown kernel."""
    if root is not None and (root / name / "kernel.toml").is_file():
        return root / name
    folder = Catalogue.from_environment().folder(name)
    if folder.resolve().is_relative_to(REPOSITORY_TEMPLATES.resolve()):
        raise UsageError(
            f"{name} is a shipped kernel, whose folder greenfast does not change",
            code="shipped_kernel",
            mend=f"copy {folder} to a folder on {PATH_VARIABLE} first",
        )
    return folder


def path_advice(root: Path) -> str:
    """The command that makes kernels below `root` known; empty when they are."""
    if any(known.resolve() == root.resolve() for known in Catalogue.from_environment().own):
        return ""
    return f"export {PATH_VARIABLE}={root.resolve()}"


def shown(path: Path) -> str:
    return shortened(visible(path), 120)


def _unwritable(folder: Path, error: OSError) -> UsageError:
    return UsageError(
        f"{shown(folder)} cannot be written: {error.strerror or error}",
        code="unwritable_output",
        mend="choose another folder with --in",
    )

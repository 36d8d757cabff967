"""A bundle's files, read into memory: sizes are bounded, and every file matches its checksum."""

from __future__ import annotations

import hashlib
import io
import json
import os
import re
import stat
import tomllib
import zipfile
import zlib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from greenfast.runtime.zip_layout import layout_fault
from greenfast.search.errors import UsageError
from greenfast.search.text import not_parsed, one_line, shortened

MOST_FILES = 4096
LARGEST_FILE_BYTES = 32 * 2**20
LARGEST_BUNDLE_BYTES = 128 * 2**20
DIRECTORY_ENTRY = b"PK\x01\x02"  # the begin of an entry of a zip file's directory
METHODS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)  # others take memory as a file states
DEEPEST_NAME = 4
LONGEST_SENTENCE = 400
SUMS = "SHA256SUMS"  # of a candidate bundle
MANIFEST = "manifest.json"  # of a tuning bundle
_PART = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.=-]{0,99}\Z")
_SUM = re.compile(r"([0-9a-f]{64})  (\S+)\Z")


def read_archive(path: Path) -> dict[str, bytes]:
    """Every file of the bundle at `path`; UsageError `bad_bundle` when it is damaged or hostile."""
    files = archive_files(path, _plain, MOST_FILES)
    _require_sums(path, files)
    return files


def json_object(files: Mapping[str, bytes], name: str) -> dict[str, Any]:
    """The JSON object in file `name`; UsageError when it is missing or something else."""
    try:
        value = json.loads(files[name])
    except KeyError:
        raise bad_bundle(f"the bundle has no {name}") from None
    except (ValueError, RecursionError):
        value = None
    if not isinstance(value, dict):
        raise bad_bundle(f"{name} of the bundle is not a JSON object")
    return value


def toml_table(files: Mapping[str, bytes], name: str) -> dict[str, Any]:
    """The tables in file `name`, which the bundle has; UsageError when it is no TOML."""
    try:
        return tomllib.loads(files[name].decode("utf-8"))
    except (ValueError, RecursionError) as error:
        raise bad_bundle(f"{name} of the bundle is not TOML: {not_parsed(error)}") from None


# What reading a file of another shape than expected raises.
MALFORMED = (KeyError, TypeError, ValueError, AttributeError, IndexError, OverflowError)


def bad_bundle(sentence: str) -> UsageError:
    """The error; what a sentence quotes of a bundle is bounded and harmless for a terminal."""
    return UsageError(
        shortened(one_line(sentence), LONGEST_SENTENCE),
        code="bad_bundle",
        mend="make or download the bundle again",
    )


def archive_files(
    path: Path, is_allowed: Callable[[str], object], most_files: int
) -> dict[str, bytes]:
    """The files of a zip file, read into memory; UsageError `missing_bundle`, `bad_bundle`.

    No file may have a name that `is_allowed` denies, or another's. Names that differ in case only
    are one file where others unpack them.
    """
    try:
        opened = opened_zip(path, most_files)
        with zipfile.ZipFile(opened) as packed:
            if fault := layout_fault(opened.getvalue(), packed.infolist()):
                raise bad_bundle(f"{path}: as a zip file it is ambiguous: {fault}")
            return _files(path, packed, is_allowed, most_files)
    except FileNotFoundError:
        raise UsageError(f"{one_line(path)} does not exist", code="missing_bundle") from None
    except (
        OSError,
        zipfile.BadZipFile,
        zlib.error,
        EOFError,
        RuntimeError,
        NotImplementedError,
        ValueError,
    ) as error:
        raise bad_bundle(f"{path} cannot be read as a zip file: {error}") from None


def opened_zip(path: Path, most_files: int) -> io.BytesIO:
    """A plain file, whole and in memory; OSError where it cannot be read, UsageError `bad_bundle`.

    Python reads the directory of a zip file before anyone can look at its length.
    """
    if not stat.S_ISREG(os.stat(path).st_mode):  # a pipe or a device may never end
        raise bad_bundle(f"{path} is not a plain file")
    with open(path, "rb") as file:
        data = file.read(LARGEST_BUNDLE_BYTES + 1)
    if len(data) > LARGEST_BUNDLE_BYTES:
        raise bad_bundle(f"{path} is too large: it exceeds {LARGEST_BUNDLE_BYTES >> 20} MiB")
    if (entries := data.count(DIRECTORY_ENTRY)) > most_files:
        raise bad_bundle(f"{path} holds {entries} files; a bundle has at most {most_files}")
    return io.BytesIO(data)


def _files(
    path: Path, packed: zipfile.ZipFile, is_allowed: Callable[[str], object], most_files: int
) -> dict[str, bytes]:
    held = packed.infolist()
    if len(held) > most_files:
        raise bad_bundle(f"{path} holds {len(held)} files; a bundle has at most {most_files}")
    entries = [entry for entry in held if not entry.is_dir()]
    files: dict[str, bytes] = {}
    taken: set[str] = set()
    total = 0
    for entry in entries:
        if not is_allowed(entry.filename):
            raise bad_bundle(f"{path} holds a file named {entry.filename[:80]!r}")
        if entry.filename.lower() in taken:
            raise bad_bundle(f"{path} holds two files named {entry.filename[:80]!r}")
        taken.add(entry.filename.lower())
        if entry.compress_type not in METHODS:
            raise bad_bundle(f"{path}: {entry.filename} is packed by another method than deflate")
        # Sizes in the directory are claims, so the bytes that are read are counted.
        most = min(LARGEST_FILE_BYTES, LARGEST_BUNDLE_BYTES - total)
        with packed.open(entry) as opened:
            data = opened.read(most + 1)
        if len(data) > most:
            raise bad_bundle(
                f"{path} is too large: {entry.filename} exceeds {LARGEST_FILE_BYTES >> 20} MiB "
                f"a file or {LARGEST_BUNDLE_BYTES >> 20} MiB in all"
            )
        files[entry.filename] = data
        total += len(data)
    return files


def _plain(name: str) -> bool:
    """Whether a name leads nowhere else: plain words, joined by single slashes."""
    parts = name.split("/")
    return len(parts) <= DEEPEST_NAME and all(_PART.match(part) for part in parts)


def _require_sums(path: Path, files: Mapping[str, bytes]) -> None:
    where, sums = _listed_sums(path, files)
    listed = files.keys() - {where}
    if odd := sorted(listed ^ sums.keys()):
        raise bad_bundle(f"{path}: {where} and the files do not match: {', '.join(odd[:5])}")
    changed = [
        name for name in sorted(listed) if hashlib.sha256(files[name]).hexdigest() != sums[name]
    ]
    if changed:
        raise bad_bundle(
            f"{path}: {', '.join(changed[:5])} does not match {where}: damaged, or changed since"
        )


def _listed_sums(path: Path, files: Mapping[str, bytes]) -> tuple[str, dict[str, str]]:
    """The file that lists checksums, and its entries."""
    if MANIFEST in files:
        listed = json_object(files, MANIFEST).get("files")
        if not isinstance(listed, dict):
            raise bad_bundle(f"{path}: {MANIFEST} lists no files")
        return MANIFEST, listed
    if SUMS not in files:
        raise bad_bundle(f"{path} is not a bundle: it has neither {MANIFEST} nor {SUMS}")
    sums: dict[str, str] = {}
    for line in files[SUMS].decode("utf-8", "replace").splitlines():
        match = _SUM.match(line)
        if not match or match.group(2) in sums:
            raise bad_bundle(f"{path}: {SUMS} holds {line[:80]!r}")
        sums[match.group(2)] = match.group(1)
    return SUMS, sums

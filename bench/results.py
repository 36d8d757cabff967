"""The result files of bench/results/: read and written by name, large ones compressed.

A name is a path below the folder without its ending: `h200/confirm` is
bench/results/h200/confirm.json or, where that would be larger than 100 kB,
bench/results/h200/confirm.json.gz.
"""

from __future__ import annotations

import gzip
import io
import json
import math
import os
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
RESULTS = ROOT / "bench" / "results"
LARGEST_PLAIN_BYTES = 100_000
PLAIN, COMPRESSED = ".json", ".json.gz"

Row = dict[str, Any]


def read_result(name: str, folder: Path = RESULTS) -> Row:
    """The stored value; FileNotFoundError where there is no such result."""
    return read_json(result_path(name, folder))


def find_result(name: str, folder: Path = RESULTS) -> Row:
    """The stored value, or an empty one where there is no such result."""
    try:
        return read_result(name, folder)
    except FileNotFoundError:
        return {}


def write_result(name: str, value: Row, folder: Path = RESULTS) -> Path:
    """Replace the result atomically and return its file. Equal values give equal bytes."""
    compressed = len(_text(value, PLAIN)) > LARGEST_PLAIN_BYTES
    endings = (COMPRESSED, PLAIN) if compressed else (PLAIN, COMPRESSED)
    path, other = (folder / f"{name}{ending}" for ending in endings)
    write_json(path, value)
    other.unlink(missing_ok=True)
    return path


def result_path(name: str, folder: Path = RESULTS) -> Path:
    """The file that holds a result; if there is none, the path of a plain file."""
    compressed = folder / f"{name}{COMPRESSED}"
    return compressed if compressed.is_file() else folder / f"{name}{PLAIN}"


def result_file(name: str) -> str:
    """A published result as documentation refers to it: `bench/results/model_check.json.gz`."""
    return result_path(name).relative_to(ROOT).as_posix()


def result_names(folder: Path = RESULTS) -> list[str]:
    """The names of all results in a folder and below it, sorted."""
    paths = (path for ending in (PLAIN, COMPRESSED) for path in folder.rglob(f"*{ending}"))
    return sorted(path.relative_to(folder).as_posix().partition(".json")[0] for path in paths)


def read_json(path: Path) -> Any:
    """The value in a file, which is decompressed if its name ends in .gz."""
    data = path.read_bytes()
    return json.loads(gzip.decompress(data) if path.suffix == ".gz" else data)


def write_json(path: Path, value: Any) -> None:
    """Replace a file atomically; it is compressed if its name ends in .gz."""
    text = _text(value, COMPRESSED if path.suffix == ".gz" else PLAIN)
    path.parent.mkdir(parents=True, exist_ok=True)
    beside = path.with_name(f".{path.name}.{os.getpid()}")
    beside.write_bytes(_compressed(text) if path.suffix == ".gz" else text)
    beside.replace(path)


def finite(value: Any, digits: int | None = None) -> Any:
    """The value with null for infinities and NaN, and floats rounded to `digits` digits."""
    if isinstance(value, dict):
        return {name: finite(item, digits) for name, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [finite(item, digits) for item in value]
    if not isinstance(value, float):
        return value
    if not math.isfinite(value):
        return None
    return float(f"{value:.{digits}g}") if digits else value


def _text(value: Any, ending: str) -> bytes:
    """JSON that ends in a newline: indented where people read the file, else compact."""
    indent = 1 if ending == PLAIN else None
    return (json.dumps(value, indent=indent, allow_nan=False) + "\n").encode()


def _compressed(data: bytes) -> bytes:
    """gzip without a time or a name, so that equal data give equal bytes."""
    buffer = io.BytesIO()
    with gzip.GzipFile(fileobj=buffer, mode="wb", filename="", compresslevel=9, mtime=0) as file:
        file.write(data)
    return buffer.getvalue()

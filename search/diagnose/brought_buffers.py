"""The buffers of a user's launches: types, sizes and initial contents."""

from __future__ import annotations

import io
import math
import re
from pathlib import Path

import ml_dtypes
import numpy as np

from greenfast.search.errors import SpecError
from greenfast.search.kernels.plain_file import read_plain_file
from greenfast.search.kernels.tables import Table
from greenfast.search.oracle.problem import Tensor, poison_of
from greenfast.search.oracle.storage import DTYPES
from greenfast.search.text import one_line, shortened

BUFFER_DTYPES = {
    **DTYPES,
    **{
        name: np.dtype(name)
        for name in ("float64", "int8", "uint8", "int16", "uint16", "uint32", "uint64")
    },
    "e4m3": np.dtype(ml_dtypes.float8_e4m3fn),
    "e5m2": np.dtype(ml_dtypes.float8_e5m2),
}
DTYPE_NAMES = {dtype: name for name, dtype in BUFFER_DTYPES.items()}
FILLS = ("random", "zeros", "ones", "iota", "poison")
MOST_BYTES = 1 << 30
NPY = b"\x93NUMPY"
LARGEST_FILE_BYTES = 8 * MOST_BYTES  # of one element a byte, each saved as float64
# What numpy raises for the heads of other files: a head is a literal of Python.
UNREADABLE = (OSError, ValueError, TypeError, MemoryError, RecursionError, SyntaxError)
_RANGE = re.compile(r"range\(\s*(-?[\d.e+]+)\s*,\s*(-?[\d.e+]+)\s*\)\Z")
_IDENTIFIER = re.compile(r"[A-Za-z_]\w{0,200}\Z")


def read_buffer(table: Table, folder: Path, random: np.random.Generator) -> Tensor:
    """A row of [[buffers]]."""
    name = table.get("name", str)
    if not _IDENTIFIER.match(name):
        raise SpecError(
            f"{table.where}: the name {name!r}; names are letters, digits and _", code="bad_spec"
        )
    role = table.one_of("role", ("input", "output", "workspace"))
    dtype = BUFFER_DTYPES[table.one_of("dtype", tuple(BUFFER_DTYPES))]
    shape = _shape(table)
    fill = table.get("fill", (str, int, float), "random" if role == "input" else "poison")
    file = table.get("file", str, "")
    table.finish()
    if math.prod(shape) * dtype.itemsize > MOST_BYTES:
        raise SpecError(f"{table.where}: more than {MOST_BYTES >> 30} GiB", code="bad_spec")
    values = (
        array_from_file(folder / file, shape, dtype, table.where)
        if file
        else filled_array(fill, shape, dtype, random, table.where)
    )
    return contiguous_tensor(name, role, dtype, shape, values)


def contiguous_tensor(
    name: str, role: str, dtype: np.dtype, shape: tuple[int, ...], values: np.ndarray | None
) -> Tensor:
    """A tensor in C order with these values; poisoned without values."""
    image = (
        np.full(math.prod(shape) * dtype.itemsize, poison_of(dtype), np.uint8)
        if values is None
        else np.ascontiguousarray(values).reshape(-1).view(np.uint8).copy()
    )
    image.flags.writeable = False
    strides = tuple(math.prod(shape[axis + 1 :]) for axis in range(len(shape)))
    return Tensor(name, role, dtype, shape, strides, image, filled=values is not None)


def _shape(table: Table) -> tuple[int, ...]:
    elements, shape = table.get("elements", int, None), table.get("shape", list, None)
    if (elements is None) == (shape is None):
        raise SpecError(f"{table.where}: give either elements or shape", code="bad_spec")
    sizes = (elements,) if shape is None else tuple(shape)
    if not sizes or not all(type(size) is int and size >= 0 for size in sizes):
        raise SpecError(
            f"{table.where}: sizes are whole numbers from 0, not {list(sizes)}", code="bad_spec"
        )
    return sizes


def filled_array(
    fill: str | int | float,
    shape: tuple[int, ...],
    dtype: np.dtype,
    random: np.random.Generator,
    where: str,
) -> np.ndarray | None:
    """The initial contents; None: poison, which counts as never written."""
    match fill:
        case "poison":
            return None
        case "zeros" | "ones":
            return np.full(shape, int(fill == "ones"), dtype)
        case "iota":
            return np.arange(math.prod(shape)).reshape(shape).astype(dtype)
        case str() if (ends := _RANGE.match(fill)) is not None:
            return _between(float(ends[1]), float(ends[2]), shape, dtype, random, where)
        case "random":
            whole = dtype.kind in "iu"
            return (random.integers(0, 100, shape) if whole else random.normal(size=shape)).astype(
                dtype
            )
        case str():
            raise SpecError(
                f"{where}: fill = {fill!r}; it may be {', '.join(FILLS)} or a number, "
                "or range(first, end)",
                code="bad_spec",
            )
    return np.full(shape, fill).astype(dtype)


def _between(
    low: float,
    high: float,
    shape: tuple[int, ...],
    dtype: np.dtype,
    random: np.random.Generator,
    where: str,
) -> np.ndarray:
    """Random values from `low` on and below `high`; whole ones for integers."""
    if not low < high:
        raise SpecError(f"{where}: range({low:g}, {high:g}) is empty", code="bad_spec")
    if dtype.kind in "iu":
        return random.integers(int(low), int(high), shape).astype(dtype)
    return random.uniform(low, high, shape).astype(dtype)


def array_from_file(path: Path, shape: tuple[int, ...], dtype: np.dtype, where: str) -> np.ndarray:
    """The values of an .npy file, which may be anybody's; SpecError for another one."""
    try:
        data = read_plain_file(path, LARGEST_FILE_BYTES)
        if not data.startswith(NPY):  # numpy.load reads other formats, too
            raise ValueError("it is another file")
        values: np.ndarray = np.load(io.BytesIO(data), allow_pickle=False)
        if values.dtype.kind not in "biuf":
            raise ValueError(f"it holds values of the type {values.dtype.name[:40]}")
    except UNREADABLE as error:
        why = one_line(getattr(error, "strerror", None) or error or type(error).__name__)
        raise SpecError(
            f"{where}: {path.name} cannot be read as .npy: {shortened(why, 200)}",
            code="unreadable",
        ) from error
    if values.size != math.prod(shape):
        raise SpecError(
            f"{where}: {path.name} holds {values.size} elements, not {math.prod(shape)}",
            code="bad_spec",
        )
    return values.reshape(shape).astype(dtype)

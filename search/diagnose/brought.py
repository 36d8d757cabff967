"""launch.toml: buffers, launches and expected outputs of a user's kernel, beside its .cu file.

[[buffers]]
name = "x"
role = "input"                       # "input" | "output" | "workspace"
dtype = "float32"
elements = 1024                      # or shape = [32, 32]
fill = "random"                      # "zeros" | "ones" | "iota" | "poison" | a number
# file = "x.npy"                     # instead of fill

[[tensor_maps]]                      # an argument gf::TensorMap; all axes innermost first
name = "x_map"
tensor = "x"                         # a buffer
sizes = [32, 32]                     # elements; default: the buffer's shape
strides = [32]                       # elements, of the axes after the first; default: dense
box = [32, 8]
swizzle_bytes = 128                  # 0 | 32 | 64 | 128
fill = "zero"                        # "nan"
l2_promotion_bytes = 0               # 64 | 128 | 256

[[launches]]
entry = "reduce"
grid = [4, 1, 1]
block = 256
smem_dynamic_bytes = 1024
cluster = [2, 1, 1]                  # for clusters without __cluster_dims__
arguments = ["x_map", "y", { int32 = 1024 }, { float32 = 2.5 }]

[[expect]]
output = "y"
file = "y.npy"
absolute_tolerance = 1e-5
relative_tolerance = 1e-3

Before the tables, `arch_specific = true` compiles the kernel for sm_90a, which wgmma needs.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np

from greenfast.search.devices.clusters import (
    ALONE,
    PORTABLE_BLOCKS,
    Shape,
    declared_clusters,
    misfit,
    shape_text,
)
from greenfast.search.devices.tensor_map import TensorMap
from greenfast.search.diagnose.brought_maps import read_tensor_map
from greenfast.search.diagnose.brought_values import packed_value, read_data
from greenfast.search.diagnose.restricted_parameters import (
    parameters_in,
    with_read_only_parameters,
)
from greenfast.search.errors import SpecError
from greenfast.search.kernels.tables import Table
from greenfast.search.kernels.template_text import Line
from greenfast.search.loop.limits import LARGEST_BLOCK, LARGEST_GRID
from greenfast.search.oracle.cases import Case
from greenfast.search.oracle.problem import POISON, LaunchPlan, Packed, Problem, Scalar, Tensor
from greenfast.search.oracle.storage import DTYPES
from greenfast.search.render import RenderedSource, assemble
from greenfast.search.rendering import LARGEST_SOURCE_CHARACTERS

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
SCALARS = {"int32": int, "uint32": int, "int64": int, "float32": float, "float64": float}
MOST_BYTES = 1 << 30
_LOCAL_INCLUDE = re.compile(r'\s*#\s*include\s+"([^"]+)"\s*$')
_RANGE = re.compile(r"range\(\s*(-?[\d.e+]+)\s*,\s*(-?[\d.e+]+)\s*\)\Z")
_ENTRY = re.compile(r"[A-Za-z_][\w:]{0,200}\s*(?:<.*>)?\s*(?:\(.+\))?\s*\Z")  # foo<float, 4>
_IDENTIFIER = re.compile(r"[A-Za-z_]\w{0,200}\Z")


@dataclass(frozen=True, eq=False)
class ExpectedOutput:
    """The expected values of an output: |got - value| <= absolute + relative * |value|."""

    output: str
    value: np.ndarray
    absolute: float
    relative: float


@dataclass(frozen=True, eq=False)
class BroughtKernel:
    """A user's kernel, ready for a target; `files` maps names in reports to paths."""

    source: RenderedSource
    problem: Problem
    expected: tuple[ExpectedOutput, ...]
    files: dict[str, Path]


def read_brought(
    cuda_file: Path, launch_file: Path, include_dirs: tuple[Path, ...], seed: int
) -> BroughtKernel:
    """Read both files; SpecError that names the file, the fault and the correct form."""
    launch = read_launch_file(launch_file, seed)
    problem = launch.problem
    files: dict[str, Path] = {}
    body = _lines_with_includes(cuda_file, files)
    entries = [launch.entry for launch in problem.launches]
    for entry in entries:
        if not any(re.search(rf"\b{entry}\s*\(", text) for text, _ in body):
            raise SpecError(
                f"{launch_file.name}: the entry {entry!r} is not in {cuda_file.name}",
                code="unknown_entry",
                mend="an entry is the name of a __global__ function",
            )
    source = assemble(body, entries, include_dirs, arch_specific=launch.arch_specific)
    problem = with_declared_clusters(problem, source, launch_file.name)
    problem = with_read_only_parameters(problem, parameters_in(source.text, entries))
    return BroughtKernel(source, problem, launch.expected, files)


def with_declared_clusters(problem: Problem, source: RenderedSource, where: str) -> Problem:
    """Launch in the declared clusters; SpecError where the launch file contradicts the text."""
    declared, launches = dict(declared_clusters(source.text, source.entries)), []
    for launch in problem.launches:
        cluster = declared.get(launch.entry, launch.cluster)
        launches.append(launched_in(cluster, launch, launch.entry, where))
    return replace(problem, launches=tuple(launches))


def launched_in(cluster: Shape, launch: LaunchPlan, entry: str, where: str) -> LaunchPlan:
    """The launch in clusters of this shape, which the text of `entry` declares.

    SpecError where the launch names another shape, or its grid is no multiple of it.
    """
    if launch.cluster not in (ALONE, cluster):
        raise SpecError(
            f"{where}: {entry} is launched in clusters of {shape_text(launch.cluster)}, and its "
            f"text declares {shape_text(cluster)}",
            code="bad_cluster",
        )
    if sentence := misfit(cluster, launch.grid):
        raise SpecError(f"{where}: {entry}: {sentence}", code="bad_cluster")
    return replace(launch, cluster=cluster)


@dataclass(frozen=True, eq=False)
class LaunchFile:
    """The launches with their memory."""

    problem: Problem
    expected: tuple[ExpectedOutput, ...]
    arch_specific: bool  # compiled for `sm_90a` instead of `sm_90`
    defines: tuple[str, ...] = ()  # NAME or NAME=VALUE, as for -D
    data: Mapping[str, str] = field(default_factory=dict)  # of device variables: C++ initialisers


def read_launch(path: Path, seed: int) -> tuple[Problem, tuple[ExpectedOutput, ...]]:
    """The launches with their memory, and the expected outputs."""
    launch = read_launch_file(path, seed)
    return launch.problem, launch.expected


def read_launch_file(path: Path, seed: int) -> LaunchFile:
    """The whole file; random fills follow from `seed`."""
    table = Table.read(path, path.name)
    tensors: dict[str, Tensor] = {}
    for number, row in enumerate(table.tables("buffers")):
        tensor = _buffer(row, path.parent, np.random.default_rng((seed, number)))
        if tensor.name in tensors:
            raise SpecError(f"{row.where}: a second buffer {tensor.name!r}", code="bad_spec")
        tensors[tensor.name] = tensor
    if sum(tensor.image.nbytes for tensor in tensors.values()) > MOST_BYTES:
        raise SpecError(
            f"{path.name}: more than {MOST_BYTES >> 30} GiB of buffers", code="bad_spec"
        )
    maps = _tensor_maps(table, tensors)
    arch_specific = table.get("arch_specific", bool, False)
    defines = tuple(map(str, table.get("defines", list, [])))
    data = read_data(table, seed)
    launches = tuple(_launch(row, {**tensors, **maps}) for row in table.tables("launches"))
    if not launches:
        raise SpecError(f"{path.name}: there is no [[launches]]", code="bad_spec")
    expected = tuple(_expected(row, path.parent, tensors) for row in table.tables("expect"))
    table.finish()
    case = Case("launch", (), (), "", "contiguous", seed, ())
    problem = Problem(
        case, tuple(tensors.values()), (), launches[0].arguments or (), launches, 0.0, 0.0
    )
    return LaunchFile(problem, expected, arch_specific, defines, data)


def _tensor_maps(table: Table, tensors: Mapping[str, Tensor]) -> dict[str, TensorMap]:
    maps: dict[str, TensorMap] = {}
    for row in table.tables("tensor_maps"):
        tensor_map = read_tensor_map(row, tensors, DTYPE_NAMES)
        if tensor_map.name in {*tensors, *maps}:
            raise SpecError(
                f"{row.where}: a second buffer or map {tensor_map.name!r}", code="bad_spec"
            )
        maps[tensor_map.name] = tensor_map
    return maps


def shown_name(path: Path) -> str:
    """A file's name in reports: relative to the working directory if inside it, else its name."""
    try:
        name = path.resolve().relative_to(Path.cwd()).as_posix()
    except ValueError:
        name = path.name
    return re.sub(r'["\\\s]', "_", name)  # it is written into #line markers


def _buffer(table: Table, folder: Path, random: np.random.Generator) -> Tensor:
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
        np.full(math.prod(shape) * dtype.itemsize, POISON, np.uint8)
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
    try:
        values: np.ndarray = np.load(path, allow_pickle=False)
    except (OSError, ValueError) as error:
        raise SpecError(
            f"{where}: {path.name} cannot be read as .npy: {error}", code="unreadable"
        ) from error
    if values.size != math.prod(shape):
        raise SpecError(
            f"{where}: {path.name} holds {values.size} elements, not {math.prod(shape)}",
            code="bad_spec",
        )
    return values.reshape(shape).astype(dtype)


def _launch(table: Table, named: Mapping[str, Tensor | TensorMap]) -> LaunchPlan:
    entry = table.get("entry", str)
    if not _ENTRY.match(entry):
        raise SpecError(
            f"{table.where}: entry = {entry!r} is no name of a function", code="bad_spec"
        )
    launch = LaunchPlan(
        entry,
        _three(table, "grid"),
        _three(table, "block"),
        table.get("smem_dynamic_bytes", int, 0),
        tuple(_argument(argument, named, table.where) for argument in table.get("arguments", list)),
        _three(table, "cluster", 1),
    )
    table.finish()
    check_launch(launch, table.where)
    return launch


def check_launch(launch: LaunchPlan, where: str) -> None:
    """SpecError for a launch that no device runs."""
    if sentence := misfit(launch.cluster, launch.grid):
        raise SpecError(f"{where}: {sentence}", code="bad_cluster")
    if math.prod(launch.cluster) > PORTABLE_BLOCKS:
        raise SpecError(
            f"{where}: a cluster of {shape_text(launch.cluster)} blocks; "
            f"{PORTABLE_BLOCKS} are the most that every device runs",
            code="bad_cluster",
        )
    for what, sizes, largest in (
        ("grid", launch.grid, LARGEST_GRID),
        ("block", launch.block, LARGEST_BLOCK),
    ):
        if any(size > most for size, most in zip(sizes, largest, strict=True)):
            raise SpecError(
                f"{where}: {what} = {shape_text(sizes)}; CUDA allows at most {shape_text(largest)}",
                code="bad_launch",
            )
    if math.prod(launch.block) > 1024 or launch.smem_dynamic_bytes < 0:
        raise SpecError(
            f"{where}: a block of {math.prod(launch.block)} threads with "
            f"{launch.smem_dynamic_bytes} bytes of dynamic shared memory; "
            "at most 1024 threads, and 0 bytes or more",
            code="bad_spec",
        )


def _three(table: Table, key: str, *default: int) -> tuple[int, int, int]:
    given = table.get(key, (int, list), *default)
    sizes = [given] if isinstance(given, int) else list(given)
    if not 1 <= len(sizes) <= 3 or not all(
        type(size) is int and 1 <= size < 2**31 for size in sizes
    ):
        raise SpecError(
            f"{table.where}: {key} is one to three whole numbers from 1, not {given!r}",
            code="bad_spec",
        )
    x, y, z = (*sizes, 1, 1)[:3]
    return x, y, z


def _argument(
    given: Any, named: Mapping[str, Tensor | TensorMap], where: str
) -> Tensor | TensorMap | Scalar | Packed | None:
    if isinstance(given, str):
        if given not in named:
            raise SpecError(
                f"{where}: an argument names the buffer {given!r}",
                code="bad_spec",
                mend="known: " + (", ".join(named) or "none"),
            )
        return named[given]
    if given == {"null": True}:
        return None
    if isinstance(given, dict) and len(given) == 1:
        ((ctype, value),) = given.items()
        kinds = (int,) if SCALARS.get(ctype) is int else (int, float)
        if (
            ctype in SCALARS
            and isinstance(value, kinds)
            and not isinstance(value, bool)
            and _fits(ctype, value)
        ):
            return Scalar(ctype, SCALARS[ctype](value))
    if (
        isinstance(given, dict)
        and len(given) == 1
        and (packed := packed_value(given, tuple(named))) is not None
    ):
        return packed
    raise SpecError(
        f"{where}: the argument {given!r}; an argument is a buffer's name, {{ null = true }}, "
        "or one of " + ", ".join(f"{{ {name} = ... }}" for name in SCALARS),
        code="bad_spec",
    )


def _fits(ctype: str, value: int | float) -> bool:
    limits = {
        "int32": (-(2**31), 2**31 - 1),
        "uint32": (0, 2**32 - 1),
        "int64": (-(2**63), 2**63 - 1),
    }.get(ctype)
    return limits is None or limits[0] <= value <= limits[1]


def _expected(table: Table, folder: Path, tensors: dict[str, Tensor]) -> ExpectedOutput:
    output = table.get("output", str)
    if output not in tensors or tensors[output].role != "output":
        raise SpecError(f"{table.where}: {output!r} is no buffer of role output", code="bad_spec")
    tensor = tensors[output]
    file = table.get("file", str)
    absolute = float(table.get("absolute_tolerance", (int, float), 0.0))
    relative = float(table.get("relative_tolerance", (int, float), 0.0))
    table.finish()
    value = array_from_file(folder / file, tensor.shape, np.dtype(np.float64), table.where)
    return ExpectedOutput(output, value, absolute, relative)


def _is_beside(name: str) -> bool:
    """Whether an include may name a file beside the user's; others are left to the compiler."""
    return not name.startswith(("gf/", "/")) and ".." not in name.split("/")


def _lines_with_includes(path: Path, files: dict[str, Path]) -> list[tuple[str, Line]]:
    """The file's lines, with each local `#include "..."` replaced once by that file's lines."""
    shown = shown_name(path)
    try:
        text = path.read_text("utf-8")
    except FileNotFoundError as error:
        raise SpecError(f"{path} does not exist", code="missing_file") from error
    except (OSError, UnicodeDecodeError) as error:
        raise SpecError(f"{path} cannot be read as text", code="unreadable") from error
    if len(text) > LARGEST_SOURCE_CHARACTERS:
        raise SpecError(
            f"{shown} is longer than {LARGEST_SOURCE_CHARACTERS} characters", code="bad_spec"
        )
    files[shown] = path
    body: list[tuple[str, Line]] = []
    for number, line in enumerate(text.splitlines(), 1):
        include = _LOCAL_INCLUDE.match(line)
        beside = (
            path.parent / include.group(1) if include and _is_beside(include.group(1)) else None
        )
        if beside is None or not beside.is_file():
            body.append((line, Line(shown, number)))
        elif beside.resolve() not in {file.resolve() for file in files.values()}:
            body += _lines_with_includes(beside, files)
    return [line for line in body if "#pragma once" not in line[0]]

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

import numpy as np

from greenfast.search.devices.clusters import (
    ALONE,
    PORTABLE_BLOCKS,
    Shape,
    misfit,
    shape_text,
)
from greenfast.search.devices.tensor_map import TensorMap
from greenfast.search.diagnose.brought_buffers import (
    DTYPE_NAMES,
    MOST_BYTES,
    array_from_file,
    read_buffer,
)
from greenfast.search.diagnose.brought_maps import read_tensor_map
from greenfast.search.diagnose.brought_values import packed_value, read_data
from greenfast.search.errors import SpecError
from greenfast.search.kernels.tables import Table
from greenfast.search.loop.limits import LARGEST_BLOCK, LARGEST_GRID
from greenfast.search.oracle.cases import Case
from greenfast.search.oracle.problem import LaunchPlan, Packed, Problem, Scalar, Tensor

SCALARS = {"int32": int, "uint32": int, "int64": int, "float32": float, "float64": float}
LONGEST_ENTRY = 4000  # characters
ENTRY = re.compile(  # foo<float, 4>; no two parts take the same spaces, which would take hours
    rf"(?!.{{{LONGEST_ENTRY}}})[A-Za-z_][\w:]{{0,200}}\s*(?:<.*>\s*)?(?:\(.+\)\s*)?\Z"
)


@dataclass(frozen=True, eq=False)
class ExpectedOutput:
    """The expected values of an output: |got - value| <= absolute + relative * |value|."""

    output: str
    value: np.ndarray
    absolute: float
    relative: float


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
        tensor = read_buffer(row, path.parent, np.random.default_rng((seed, number)))
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


def _launch(table: Table, named: Mapping[str, Tensor | TensorMap]) -> LaunchPlan:
    entry = table.get("entry", str)
    if not ENTRY.match(entry):
        raise SpecError(
            f"{table.where}: entry = {entry!r} is not a valid function name", code="bad_spec"
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
            f"{table.where}: {key} must be one to three whole numbers above 0, not {given!r}",
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
        and (packed := packed_value(given, named)) is not None
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
        raise SpecError(
            f"{table.where}: {output!r} is not a buffer of role output", code="bad_spec"
        )
    tensor = tensors[output]
    file = table.get("file", str)
    absolute = float(table.get("absolute_tolerance", (int, float), 0.0))
    relative = float(table.get("relative_tolerance", (int, float), 0.0))
    table.finish()
    value = array_from_file(folder / file, tensor.shape, np.dtype(np.float64), table.where)
    return ExpectedOutput(output, value, absolute, relative)


def launched_in(cluster: Shape, launch: LaunchPlan, entry: str, where: str) -> LaunchPlan:
    """The launch in clusters of this shape, which the text of `entry` declares.

    SpecError if the launch names another shape, or its grid is no multiple of it.
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

"""The options of `greenfast import` with their help."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

CudaFile = Annotated[
    Path,
    typer.Argument(
        metavar="FILE.cu", help="The plain kernel, or a Kernel Tuner script (.py, .ipynb)."
    ),
]
Name = Annotated[
    str | None,
    typer.Option("--name", metavar="NAME", help="The new kernel. [default: the file's name]"),
]
Tune = Annotated[
    list[str] | None,
    typer.Option(
        "--tune",
        metavar="NAME=V,V",
        help="A #define or a constant (const int tile = 32;) and its values; repeated.",
    ),
]
TuneFile = Annotated[
    Path | None,
    typer.Option(
        "--tune-file",
        metavar="FILE.py",
        help="A script or notebook as for Kernel Tuner: tune_params, restrictions, and the grid of "
        "its tune_kernel call. It is parsed, never run.",
    ),
]
Restrict = Annotated[
    list[str] | None,
    typer.Option(
        "--restrict", metavar="EXPR", help="A constraint on the parameters; may be repeated."
    ),
]
GivenArguments = Annotated[
    list[str] | None,
    typer.Option(
        "--arg",
        metavar="SPEC",
        help="A parameter of the entry: x:float32[n]:input, y:float32[2*n,64]:output, "
        "z:float32[n]=zeros:inout (read and written; its first values), n:int32=4096, or scratch "
        "memory, s:float32[ceil_div(n, block_size_x)]:workspace (=zeros:workspace if a launch must "
        "find zeros in it); one for each. Values: random, zeros, ones, iota, range(0, n), "
        "offsets(0, n) (whole numbers that rise from 0 to n), or a number.",
    ),
]
Grid = Annotated[
    list[str] | None,
    typer.Option(
        "--grid",
        metavar="EXPR",
        help="Blocks along x, y, z; up to three times. [default: the tune file's]",
    ),
]
Block = Annotated[
    list[str] | None,
    typer.Option(
        "--block",
        metavar="EXPR",
        help="Threads along x, y, z; up to three times. [default: block_size_x, _y and _z]",
    ),
]
SharedMemory = Annotated[
    str | None,
    typer.Option(
        "--smem",
        metavar="EXPR",
        help="Bytes of dynamic shared memory. [default: the tune file's smem_args, else 0]",
    ),
]
Multiple = Annotated[
    list[str] | None,
    typer.Option(
        "--multiple",
        metavar="NAME=STEP",
        help="A size of which the kernel takes multiples of STEP only, such as n=64; may be "
        "repeated. Checks then have such sizes. [default: 1, any size]",
    ),
]
EntryName = Annotated[
    str | None,
    typer.Option(
        "--entry",
        metavar="NAME",
        help="The __global__ function, among several; of a C++ template an instance, such as "
        "'k<float, block_size_x>', whose arguments may be parameters.",
    ),
]
Tolerance = Annotated[
    float | None,
    typer.Option(
        "--tolerance",
        metavar="T",
        help="The largest difference from the plain kernel's output: T (|value| + their root mean "
        "square) and a rounding of its type; of a tensor that is read and written, by the values' "
        "changes. [default: 0 for whole numbers, 1e-4 for others]",
    ),
]

"""Launch and verify one candidate through CuPy in a process of its own, as Kernel Tuner does.

    python -m bench.gpu.kernel_tuner_alone POINT.pickle source|cubin

Kernel Tuner launches all candidates in one process. A candidate that ends the GPU's context takes
every later one along, and a wrong result ends the search. `bench.gpu.kernel_tuner_rate` therefore
launches each alone first. `source` gives CuPy the text with Kernel Tuner's options; `cubin` gives
it what greenfast's compiler makes of the same text, which tells a fault of the compiling from one
of the launch. Prints one line of JSON: an empty `error` if Kernel Tuner would take the result.
"""

from __future__ import annotations

import base64
import ctypes
import json
import pickle
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from bench.command_line import script_parser
from greenfast.search.devices.facts import device
from greenfast.search.oracle.problem import GivenArgument, Problem, Scalar, Tensor
from greenfast.search.text import one_line
from greenfast.search.toolchain.nvrtc_child import compile_request
from greenfast.search.toolchain.toolkit import find_toolkit

LONGEST_ERROR = 300  # characters
LOG_BYTES = 4000


@dataclass(frozen=True, eq=False)
class Point:
    """One candidate as Kernel Tuner takes it."""

    name: str
    text: str
    problem: Problem
    answer: np.ndarray  # of the output
    atol: float

    @property
    def threads(self) -> int:
        return self.problem.launches[0].block[0]


def argument(given: GivenArgument) -> Any:
    """A tensor in its own shape, a scalar of its own type; an absent output is a null pointer."""
    if isinstance(given, Tensor):
        return np.ascontiguousarray(given.view(given.image))
    if isinstance(given, Scalar):
        return np.dtype(given.dtype).type(given.value)
    return np.uint64(0)


def one_compiler() -> tuple[str, ...]:
    """Load greenfast's NVRTC, which CuPy then finds by its name; the options for its headers.

    Releases of NVRTC differ, and headers of one may not fit another.
    """
    toolkit = find_toolkit()
    for library in toolkit.libraries:
        ctypes.CDLL(library, mode=ctypes.RTLD_GLOBAL)
    return ("-std=c++17", *(f"-I{folder}" for folder in toolkit.include_dirs))


def launched(point: Point, module: Any) -> str:
    """One launch, verified as Kernel Tuner does; raises the driver's errors."""
    import cupy

    launch = point.problem.launches[0]
    arguments = [argument(each) for each in point.problem.arguments]
    given = [cupy.array(each) if isinstance(each, np.ndarray) else each for each in arguments]
    function = module.get_function(launch.entry)
    function(launch.grid, launch.block, tuple(given), shared_mem=launch.smem_dynamic_bytes)
    cupy.cuda.Device().synchronize()
    outputs = [
        cupy.asnumpy(array)
        for array, tensor in zip(given, point.problem.arguments, strict=True)
        if isinstance(tensor, Tensor) and tensor.role != "input"
    ]
    is_right = all(np.allclose(point.answer, each, atol=point.atol) for each in outputs)
    return "" if is_right else "wrong values"


def module_of(point: Point, options: Sequence[str], way: str) -> Any:
    import cupy

    entry = point.problem.launches[0].entry
    if way == "source":
        return cupy.RawModule(code=point.text, options=tuple(options), name_expressions=[entry])
    request = {
        "source": point.text,
        "name": "point.cu",
        "arch": device("h200").arch,
        "log_bytes": LOG_BYTES,
    }
    reply = compile_request(find_toolkit().include_dirs, request)
    if not reply["cubin"]:
        raise RuntimeError(reply["log"])
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(base64.b64decode(reply["cubin"]))
        file.flush()
        module = cupy.RawModule(path=file.name)
        module.compile()  # loads it, before the file is gone
    return module


def main() -> None:
    parser = script_parser(__doc__)
    parser.add_argument("point", type=Path, metavar="POINT.pickle")
    parser.add_argument("way", choices=["source", "cubin"])
    options = parser.parse_args()
    point: Point = pickle.loads(options.point.read_bytes())
    error = ""
    try:
        error = launched(point, module_of(point, one_compiler(), options.way))
    except Exception as raised:
        error = f"{type(raised).__name__}: {one_line(str(raised))}"[:LONGEST_ERROR]
    print(json.dumps({"error": error}))
    sys.stdout.flush()


if __name__ == "__main__":
    main()

"""The standard headers of a plain CUDA file, which a device's compiler does not have.

nvcc finds the headers of a host, and NVRTC does not. Names that device code takes from them are
built in (printf, assert, sqrtf), or stand in CUDA's own headers, or are a few limits.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from greenfast.search.errors import UsageError
from greenfast.search.targets.emulator.word_set import word_set
from greenfast.search.toolchain.includes import STANDARD_HEADERS, is_allowed

PlacedLine = tuple[str, str]  # a line, and `FILE:LINE` of the file that it is from
HOST_CODE = re.compile(
    r"(?<!operator)<<\s*<(?!<)|\bint\s+main\s*\(|\bcuda(?:Malloc|Memcpy|Free)\w*\s*\("
)
_INCLUDE = re.compile(r"\s*#\s*include\s*<([\w./+-]+)>")
_OF_CUDA = {
    "stdint.h": "cuda/std/cstdint",
    **{
        name: f"cuda/std/{name}"
        for name in (
            "cstdint", "cstddef", "limits", "type_traits", "utility", "array", "tuple",
            "functional",
        )
    },
}  # fmt: skip
_FLOAT_LIMITS = {
    "FLT_MAX": "3.402823466e+38F",
    "FLT_MIN": "1.175494351e-38F",
    "FLT_EPSILON": "1.192092896e-07F",
    "DBL_MAX": "1.7976931348623158e+308",
    "DBL_MIN": "2.2250738585072014e-308",
    "DBL_EPSILON": "2.2204460492503131e-16",
}
INTEGER_LIMITS = {
    "INT_MAX": "2147483647",
    "INT_MIN": "(-2147483647 - 1)",
    "UINT_MAX": "4294967295U",
}
_LIMITS = {
    "float.h": _FLOAT_LIMITS,
    "cfloat": _FLOAT_LIMITS,
    "limits.h": INTEGER_LIMITS,
    "climits": INTEGER_LIMITS,
}
# Device code needs these headers, so a missing one is an error.
_OF_DEVICES = re.compile(r"cu(?!blas|dnn|fft|solver|sparse|tensor)|thrust/|nvcomp|nvshmem")
# NVRTC refuses CUB's header of all, which also has its host code.
_ALL_OF_CUB = re.compile(r"\s*#\s*include\s*<cub/cub\.cuh>")
_OF_CUB = {
    "BlockExchange": "block/block_exchange",
    "BlockLoad": "block/block_load",
    "BlockRadixSort": "block/block_radix_sort",
    "BlockReduce": "block/block_reduce",
    "BlockScan": "block/block_scan",
    "BlockStore": "block/block_store",
    "WarpReduce": "warp/warp_reduce",
    "WarpScan": "warp/warp_scan",
}
_HOST_ONLY = word_set("""
    iostream fstream sstream iomanip vector string map set list deque queue unordered_map thread
    mutex future cublas_v2.h cufft.h curand.h nvToolsExt.h sys/time.h unistd.h cuda.h
    cuda_profiler_api.h nvtx3/nvToolsExt.h
""")


def device_lines(line: str) -> list[str]:
    """The line, with an include that only a host has replaced by what a device needs of it."""
    include = _INCLUDE.match(line)
    if include is None:
        return [line]
    header = include[1]
    known = header in STANDARD_HEADERS | _HOST_ONLY
    if not known and (is_allowed(header) or _OF_DEVICES.match(header)):
        return [line]
    note = f"// {line.strip()}  (a host's header)"
    if header in _OF_CUDA:
        return [f"#include <{_OF_CUDA[header]}>  {note}"]
    return [note, *(_define(name, value) for name, value in _LIMITS.get(header, {}).items())]


def cub_in_parts(lines: Sequence[PlacedLine]) -> list[PlacedLine]:
    """The lines with the headers of the collectives that they use in place of `<cub/cub.cuh>`."""
    text = "\n".join(line for line, _ in lines)
    headers = [f"#include <cub/{_OF_CUB[name]}.cuh>" for name in _OF_CUB if name in text]
    return [
        (each, place)
        for line, place in lines
        for each in (headers if headers and _ALL_OF_CUB.match(line) else [line])
    ]


def _define(name: str, value: str) -> str:
    return f"#ifndef {name}\n#define {name} {value}\n#endif"


def refuse_host_code(bare: str, places: Sequence[str]) -> None:
    """UsageError for a program around the kernel; `bare` is the text without comments.

    `places` are `FILE:LINE` of its lines.
    """
    match = HOST_CODE.search(bare)
    if match is not None and match[0].startswith("<<"):
        place = places[bare.count("\n", 0, match.start())]
        raise UsageError(
            f"{place}: a kernel is launched here, but a template holds neither dynamic parallelism "
            "nor host code",
            code="bad_source",
            mend="import the launched kernel by itself, or write several [[launches]] in the "
            "template's file",
        )
    if match is not None:
        place = places[bare.count("\n", 0, match.start())]
        raise UsageError(
            f"{place}: this is host code, but a template can hold only device code",
            code="bad_source",
            mend="leave the kernel and what it calls in the file, or put it inside "
            "#ifndef __CUDACC_RTC__ ... #endif",
        )

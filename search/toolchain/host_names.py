"""Replacements for host headers and their names, which NVRTC does not have.

nvcc includes the host's headers; NVRTC has CUDA's own, libcu++ (<cuda/std/...>) and the device
functions.
"""

from __future__ import annotations

import re

_HEADER = re.compile(r'cannot open source file "(?P<header>[\w./+-]+)"')
_NAME = re.compile(r'identifier "(?P<name>\w+)" is undefined')
_OF_STD = re.compile(r'namespace "std" has no member "(?P<name>\w+)"')
_WITHOUT = "NVRTC has its functions without a header"
_LIBRARIES = ("curand", "cublas", "cufft", "cusparse", "cusolver", "nvshmem", "thrust/")
_LIBRARY = "only CUDA's own device headers are there; write out what the kernel uses of this one"
_LIMITS = "write cuda::std::numeric_limits of <cuda/std/limits>"
_HEADERS = {
    "math.h": _WITHOUT,
    "cmath": _WITHOUT,
    "stdio.h": _WITHOUT,
    "cstdio": _WITHOUT,
    "assert.h": _WITHOUT,
    "cassert": _WITHOUT,
    "stdint.h": "include <cuda/std/cstdint>",
    "cstdint": "include <cuda/std/cstdint>",
    "float.h": _LIMITS,
    "cfloat": _LIMITS,
    "limits.h": _LIMITS,
    "climits": _LIMITS,
    "limits": _LIMITS,
    "algorithm": "min and max need no header",
    "type_traits": "include <cuda/std/type_traits>",
    "stdlib.h": f"{_WITHOUT}; <cuda.h> includes it, and is for host code",
}
_NAMES = {
    "INFINITY": "include <math_constants.h> and write CUDART_INF_F",
    "NAN": "include <math_constants.h> and write CUDART_NAN_F",
    "M_PI": "include <math_constants.h> and write CUDART_PI",
    "FLT_MAX": _LIMITS,
    "FLT_MIN": _LIMITS,
    "FLT_EPSILON": _LIMITS,
    "INT_MAX": _LIMITS,
    "INT_MIN": _LIMITS,
    **{
        f"{sign}int{bits}_t": "include <cuda/std/cstdint>"
        for sign in ("", "u")
        for bits in (8, 16, 32, 64)
    },
    "uint": "write unsigned int",
    "ushort": "write unsigned short",
    "ulong": "write unsigned long",
}


def mend_of(message: str) -> str:
    """The remedy for a compiler's message about a host header or name; empty for others."""
    if match := _HEADER.search(message):
        return _HEADERS.get(
            match["header"], _LIBRARY if match["header"].startswith(_LIBRARIES) else ""
        )
    if match := _OF_STD.search(message):
        return (
            f"write {match['name']}, which needs no header"
            if match["name"] in ("min", "max", "abs")
            else f"write cuda::std::{match['name']}, of a header in <cuda/std/...>"
        )
    match = _NAME.search(message)
    return _NAMES.get(match["name"], "") if match else ""

"""Expressions of CUDA C++ with the value that the device gives, computed by one kernel for all."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from emulator_harness import Kernel, prepared, values

# An expression, and its value: a whole number, or a float by its type.
Case = tuple[str, "int | float"]

_TEXT = """
%s
__device__ unsigned long long bits(float x) { return __float_as_uint(x); }
__device__ unsigned long long bits(double x) { return (unsigned long long)__double_as_longlong(x); }
__device__ unsigned long long bits(bool x) { return x; }
__device__ unsigned long long bits(int x) { return (unsigned)x; }
__device__ unsigned long long bits(unsigned x) { return x; }
__device__ unsigned long long bits(long long x) { return (unsigned long long)x; }
__device__ unsigned long long bits(unsigned long x) { return x; }
__device__ unsigned long long bits(unsigned long long x) { return x; }
__device__ unsigned long long bits(short x) { return (unsigned short)x; }
__device__ unsigned long long bits(unsigned short x) { return x; }
__device__ unsigned long long bits(signed char x) { return (unsigned char)x; }
__device__ unsigned long long bits(unsigned char x) { return x; }
%s
// `zero` is 0, and no compiler knows it.
extern "C" __global__ void k(const int* zeros, unsigned long long* out) {
    const int zero = zeros[0];
    (void)zero;
%s
}
"""


def computed(
    cache: Path, cases: Sequence[Case], *, headers: str = "", helpers: str = ""
) -> dict[str, int]:
    """The bits of each expression's value, from a build without hooks."""
    lines = [f"    out[{index}] = bits({text});" for index, (text, _) in enumerate(cases)]
    kernel = Kernel(prepared(cache), _TEXT % (headers, helpers, "\n".join(lines)))
    out = np.zeros(len(cases), np.uint64)
    result = kernel({"zeros": np.zeros(1, np.int32)}, {"out": out}, block=1)
    return dict(
        zip(
            (text for text, _ in cases),
            map(int, values(result, "out", np.uint64)),
            strict=True,
        )
    )


def f32(value: float) -> int:
    """The bits of a float32."""
    return int(struct.unpack("<I", struct.pack("<f", np.float32(value)))[0])


def f64(value: float) -> int:
    return int(struct.unpack("<Q", struct.pack("<d", value))[0])


def mismatches(cache: Path, cases: Sequence[Case], **texts: str) -> list[str]:
    """One sentence for each expression with another value."""
    found = computed(cache, cases, **texts)
    return [
        f"{text} is {found[text]:#x}, not {want:#x}" for text, want in cases if found[text] != want
    ]

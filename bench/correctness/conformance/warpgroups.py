"""Products of a warpgroup: every N, both sources of A, swizzles and transposes, all types.

Operands are small integers, so that every order of summation gives the same sum. They lie in
global memory row by row; the kernel puts them into shared memory as the copy engine would.
"""

from __future__ import annotations

from collections.abc import Iterator

import ml_dtypes
import numpy as np

from bench.correctness.conformance.case import Case, blank

COLUMNS = tuple(range(8, 257, 8))
ROWS, MOST_COLUMNS = 64, 256
TYPES = {
    "__half": np.dtype(np.float16),
    "__nv_bfloat16": np.dtype(ml_dtypes.bfloat16),
    "__nv_fp8_e4m3": np.dtype(ml_dtypes.float8_e4m3fn),
    "__nv_fp8_e5m2": np.dtype(ml_dtypes.float8_e5m2),
}

PRODUCTS = """
#include "gf/tensor_copy.cuh"
#include "gf/shared.cuh"
#include "gf/wgmma.cuh"
%(shapes)s
using Element = %(element)s;
constexpr int swizzle = %(swizzle)d, bytes = sizeof(Element), chunk = 16 / bytes;
constexpr int depth = (swizzle ? swizzle : 32) / bytes;    // of K
// Where the 16 bytes `c` of row `r` of a K-major tile lie: rows of `swizzle` bytes, or 8 by 16
// bytes at a time.
__device__ __forceinline__ int place(int r, int c) {
    if (swizzle == 0) return r / 8 * 256 + c * 128 + r %% 8 * 16;
    return r * swizzle + (c ^ r * swizzle / 128 %% (swizzle / 16)) * 16;
}
// Of a tile whose rows run along K and hold 64 elements of 16 bits: 128 bytes, swizzled.
__device__ __forceinline__ int turned_place(int k, int x, int most) {
    return x / 64 * (depth * 128) + k * 128 + (x %% 64 / 8 ^ k %% 8) * 16;
}
template <int N>
__device__ void product(unsigned char* left, unsigned char* right, const Element* a,
                        const Element* b, float* d) {
    const int thread = threadIdx.x;
    __syncthreads();
    for (int i = thread; i < 64 * depth; i += 128) {
        const int r = i / depth, k = i %% depth;
        const int at = %(turned_a)s ? turned_place(k, r, 64) + r %% 8 * bytes
                                    : place(r, k / chunk) + k %% chunk * bytes;
        *reinterpret_cast<Element*>(left + at) = a[i];
    }
    for (int i = thread; i < N * depth; i += 128) {
        const int r = i / depth, k = i %% depth;
        const int at = %(turned_b)s ? turned_place(k, r, N) + r %% 8 * bytes
                                    : place(r, k / chunk) + k %% chunk * bytes;
        *reinterpret_cast<Element*>(right + at) = b[i];
    }
    gf::proxy_fence_shared();
    __syncthreads();
    float sums[N / 2];
    for (int i = 0; i < N / 2; ++i) sums[i] = 1.0f;
    // A tile of rows along K has the next 64 of M or N behind `depth` rows; without a swizzle
    // chunks of K are 128 bytes apart.
    const unsigned leading_a = %(turned_a)s ? depth * 128 : 128;
    const unsigned leading_b = %(turned_b)s ? depth * 128 : 128;
    const unsigned stride_a = %(turned_a)s ? 1024 : swizzle ? 8 * swizzle : 256;
    const unsigned stride_b = %(turned_b)s ? 1024 : swizzle ? 8 * swizzle : 256;
    const auto left_matrix = gf::matrix_descriptor<swizzle>(left, leading_a, stride_a);
    const auto right_matrix = gf::matrix_descriptor<swizzle>(right, leading_b, stride_b);
    (void)left_matrix;
    gf::wgmma_fence();
    for (int step = 0; step < depth * bytes / 32; ++step) {
        const int k = step * 32 / bytes;
        const auto next = right_matrix + (%(turned_b)s ? k * 128 : 32 * step) / 16;
%(issue)s
    }
    gf::wgmma_commit();
    gf::wgmma_wait<0>();
    const int row = 16 * (thread / 32) + thread %% 32 / 4;
    for (int j = 0; j < N / 8; ++j)
        for (int e = 0; e < 4; ++e)
            d[(row + e / 2 * 8) * N + 8 * j + thread %% 4 * 2 + e %% 2] = sums[4 * j + e];
}
extern "C" __global__ void __launch_bounds__(128)
k(const Element* a, const Element* b, %(outputs)s) {
    alignas(1024) __shared__ unsigned char left[64 * 128];
    alignas(1024) __shared__ unsigned char right[256 * 128];
%(calls)s
}
"""
FROM_SHARED = """        gf::wgmma<Element, N%(flags)s>(
            sums, left_matrix + (%(turned_a)s ? k * 128 : 32 * step) / 16, next, true);"""
FROM_REGISTERS = """        unsigned registers[4];
        for (int r = 0; r < 4; ++r) {
            const int row = 16 * (thread / 32) + thread %% 32 / 4 + r %% 2 * 8;
            const int first = k + (r / 2 * 16 + thread %% 4 * 4) / bytes;
            registers[r] = *reinterpret_cast<const unsigned*>(a + row * depth + first);
        }
        gf::wgmma_fence();
        gf::wgmma<Element, N%(flags)s>(sums, registers, next, true);"""


def warpgroup_products() -> Iterator[Case]:
    # The two 16-bit types share out the N, and so do the two 8-bit ones: compiling them takes long.
    for number, element in enumerate(TYPES):
        for source in ("shared", "registers"):
            yield _case(f"wgmma {element} from {source}", element, source, COLUMNS[number % 2 :: 2])
        for swizzle in (0, 32, 64):
            name = f"wgmma {element} with a swizzle of {swizzle} bytes"
            yield _case(name, element, "shared", (8, 64, 256), swizzle)
    for element in ("__half", "__nv_bfloat16"):
        for turned_a, turned_b in ((True, False), (False, True), (True, True)):
            sides = " and ".join(side for side, on in (("A", turned_a), ("B", turned_b)) if on)
            name = f"wgmma {element} with {sides} turned"
            yield _case(name, element, "shared", (64, 128, 256), 128, (turned_a, turned_b))
        name = f"wgmma {element} from registers with B turned"
        yield _case(name, element, "registers", (64, 192), 128, (False, True))


def _case(
    name: str,
    element: str,
    source: str,
    columns: tuple[int, ...],
    swizzle: int = 128,
    turned: tuple[bool, bool] = (False, False),
) -> Case:
    storage = TYPES[element]
    depth = (swizzle or 32) // storage.itemsize
    rng = np.random.default_rng(7)
    a, b = (rng.integers(-3, 4, (rows, depth)).astype(storage) for rows in (ROWS, MOST_COLUMNS))
    sides = [str(side).lower() for side in turned]
    own = sides if source == "shared" else sides[1:]
    flags = "".join(f", {side}" for side in own) if storage.itemsize == 2 else ""
    issue = (FROM_SHARED if source == "shared" else FROM_REGISTERS) % {
        "flags": flags,
        "turned_a": sides[0],
    }
    text = PRODUCTS % {
        "shapes": "\n".join(f"GF_WGMMA_SHAPE({element}, {n});" for n in columns),
        "element": element,
        "swizzle": swizzle,
        "turned_a": sides[0],
        "turned_b": sides[1],
        "issue": issue,
        "outputs": ", ".join(f"float* d{n}" for n in columns),
        "calls": "\n".join(f"    product<{n}>(left, right, a, b, d{n});" for n in columns),
    }
    outputs = {f"d{n}": blank(np.float32, ROWS, n) for n in columns}
    return Case(
        name,
        text,
        {"a": a, "b": b},
        outputs,
        block=(128, 1, 1),
        architecture=90,
        arch_specific=True,
    )


def expected(case: Case) -> dict[str, np.ndarray]:
    """1 + A B^T, which every sum is exactly."""
    a, b = (case.inputs[name].astype(np.float32) for name in ("a", "b"))
    return {name: 1.0 + a @ b[: value.shape[1]].T for name, value in case.outputs.items()}

"""Products of a warpgroup: every N, both sources of A, swizzles and transposes, all types.

Operands are small integers, so that every order of summation gives the same sum. They lie in
global memory row by row; the kernel puts them into shared memory as the copy engine would.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass

import ml_dtypes
import numpy as np

from bench.correctness.conformance.case import Case, blank

COLUMNS = tuple(range(8, 257, 8))
ROWS, MOST_COLUMNS, MOST_DEPTH_BYTES = 64, 256, 128
SWIZZLES = (0, 32, 64, 128)
TYPES = {
    "__half": np.dtype(np.float16),
    "__nv_bfloat16": np.dtype(ml_dtypes.bfloat16),
    "__nv_fp8_e4m3": np.dtype(ml_dtypes.float8_e4m3fn),
    "__nv_fp8_e5m2": np.dtype(ml_dtypes.float8_e5m2),
}


@dataclass(frozen=True)
class Product:
    """One product of a case. A matrix is turned where M or N runs along its rows."""

    columns: int
    swizzle_a: int = 128  # bytes
    swizzle_b: int = 128
    turned_a: bool = False
    turned_b: bool = False
    from_registers: bool = False  # A
    adds: bool = True  # to an accumulator of ones; otherwise the first step replaces it

    @property
    def depth_bytes(self) -> int:
        """Of K: as much as a row of each matrix in shared memory that runs along K."""
        rows = [self.swizzle_b] * (not self.turned_b)
        rows += [self.swizzle_a] * (not self.turned_a and not self.from_registers)
        return min((row or MOST_DEPTH_BYTES // 2 for row in rows), default=MOST_DEPTH_BYTES // 2)

    def call(self, output: str) -> str:
        flags = (self.turned_a, self.turned_b, self.from_registers, self.adds)
        values = (self.columns, self.depth_bytes, self.swizzle_a, self.swizzle_b, *map(int, flags))
        return f"    product<{', '.join(map(str, values))}>(left, right, a, b, {output});"


PRODUCTS = """
#include "gf/tensor_copy.cuh"
#include "gf/shared.cuh"
#include "gf/wgmma.cuh"
%(shapes)s
using Element = %(element)s;
constexpr int bytes = sizeof(Element), pitch = %(pitch)d;  // of a row in global memory

// A matrix in shared memory, whose rows run along K; turned, along M or N. With a swizzle a row has
// `swizzle` bytes, and wider matrices have several pieces. Without one, 8 rows of 16 bytes lie
// together.
template <int swizzle, bool turned, int depth>
struct Layout {
    static constexpr int pattern = 8 * swizzle, group = 128;
    static constexpr unsigned leading = swizzle ? (turned ? depth * swizzle : 16) : 128;
    static constexpr int chunks = turned ? depth / 8 : depth * bytes / 16;
    static constexpr unsigned stride = swizzle ? pattern : chunks * group;
    // Bytes from the start to element k of row or column x.
    static __device__ __forceinline__ int place(int x, int k) {
        const int line = turned ? k : x, along = (turned ? x : k) * bytes;
        if constexpr (swizzle == 0) {
            const int of_lines = turned ? int(leading) : int(stride);
            const int of_chunks = turned ? int(stride) : int(leading);
            return line / 8 * of_lines + line %% 8 * 16 + along / 16 * of_chunks + along %% 16;
        } else {
            const int piece = turned ? along / swizzle : 0;
            const int at = piece * int(leading) + line * swizzle + along - piece * swizzle;
            return at ^ (at >> 7 & (swizzle / 16 - 1)) << 4;
        }
    }
    // From one step of 32 bytes of K to the next.
    static constexpr int step = turned ? (swizzle ? 32 / bytes * swizzle : 2 * group)
                                       : (swizzle ? 32 : 2 * group);
};
template <class Where>
__device__ void put(unsigned char* matrix, const Element* source, int lines, int depth) {
    for (int i = threadIdx.x; i < lines * depth; i += 128)
        *reinterpret_cast<Element*>(matrix + Where::place(i / depth, i %% depth)) =
            source[i / depth * pitch + i %% depth];
}
template <int N, int depth_bytes, int swizzle_a, int swizzle_b, bool turned_a, bool turned_b,
          bool from_registers, bool adds>
__device__ void product(unsigned char* left, unsigned char* right, const Element* a,
                        const Element* b, float* d) {
    constexpr int depth = depth_bytes / bytes;
    using A = Layout<swizzle_a, turned_a, depth>;
    using B = Layout<swizzle_b, turned_b, depth>;
    const int thread = threadIdx.x, row = 16 * (thread / 32) + thread %% 32 / 4;
    __syncthreads();
    if (!from_registers) put<A>(left, a, 64, depth);
    put<B>(right, b, N, depth);
    gf::proxy_fence_shared();
    __syncthreads();
    float sums[N / 2];
    for (int i = 0; i < N / 2; ++i) sums[i] = 1.0f;
    const auto left_matrix = gf::matrix_descriptor<swizzle_a>(left, A::leading, A::stride);
    const auto right_matrix = gf::matrix_descriptor<swizzle_b>(right, B::leading, B::stride);
    gf::wgmma_fence();
    for (int step = 0; step < depth_bytes / 32; ++step) {
        const auto next = right_matrix + step * B::step / 16;
        if constexpr (from_registers) {
            unsigned registers[4];
            for (int r = 0; r < 4; ++r) {
                const int k = (32 * step + r / 2 * 16 + thread %% 4 * 4) / bytes;
                const Element* first = a + (row + r %% 2 * 8) * pitch + k;
                registers[r] = *reinterpret_cast<const unsigned*>(first);
            }
            gf::wgmma_fence();
            gf::wgmma<Element, N, turned_b>(sums, registers, next, adds || step > 0);
        } else {
            gf::wgmma<Element, N, turned_a, turned_b>(sums, left_matrix + step * A::step / 16, next,
                                                      adds || step > 0);
        }
    }
    gf::wgmma_commit();
    gf::wgmma_wait<0>();
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

# Groups that are under way beside each other: each is waited for while the next one runs.
GROUPS = """
#include "gf/tensor_copy.cuh"
#include "gf/wgmma.cuh"
GF_WGMMA_SHAPE(__half, 64);
extern "C" __global__ void __launch_bounds__(256) k(const __half* a, const __half* b, float* d) {
    alignas(1024) __shared__ unsigned char left[2][64 * 128];
    alignas(1024) __shared__ unsigned char right[64 * 128];
    const int thread = threadIdx.x % 128, group = threadIdx.x / 128;
    for (int i = thread; i < 64 * 64; i += 128) {
        const int at = i / 64 * 128 + ((i % 64 / 8) ^ i / 64 % 8) * 16 + i % 8 * 2;
        *reinterpret_cast<__half*>(left[group] + at) = a[group * 4096 + i];
        if (group == 0) *reinterpret_cast<__half*>(right + at) = b[i];
    }
    gf::proxy_fence_shared();
    __syncthreads();
    const auto left_matrix = gf::matrix_descriptor<128>(left[group], 16, 1024);
    const auto right_matrix = gf::matrix_descriptor<128>(right, 16, 1024);
    float sums[4][32];
    gf::wgmma_fence();
#pragma unroll
    for (int step = 0; step < 4; ++step) {
        gf::wgmma<__half, 64>(sums[step], left_matrix + 2 * step, right_matrix + 2 * step, false);
        gf::wgmma_commit();
    }
    const auto out = [&](int step) {
        const int row = 16 * (thread / 32) + thread % 32 / 4;
        float* target = d + (group * 4 + step) * 4096;
        for (int i = 0; i < 32; ++i) {
            const int column = i / 4 * 8 + thread % 4 * 2 + i % 2;
            target[(row + i / 2 % 2 * 8) * 64 + column] = sums[step][i];
        }
    };
    gf::wgmma_wait<3>();
    out(0);
    gf::wgmma_wait<2>();
    out(1);
    gf::wgmma_wait<0>();
    out(2);
    out(3);
}
"""


def warpgroup_products() -> Iterator[Case]:
    for element in TYPES:
        for source in ("shared", "registers"):
            for part in (0, 1):  # of the N: compiling them all in one takes long
                name = f"wgmma {element} from {source}, N from {COLUMNS[part]} in steps of 16"
                yield _case(name, element, _every_n(source == "registers", part))
        yield _case(f"wgmma {element} with all swizzles", element, _swizzles())
        yield _case(f"wgmma {element} from registers with all swizzles", element, _registers())
    for element in ("__half", "__nv_bfloat16"):
        for turned_a, turned_b in ((True, False), (False, True), (True, True)):
            sides = " and ".join(side for side, on in (("A", turned_a), ("B", turned_b)) if on)
            name = f"wgmma {element} with {sides} turned"
            yield _case(name, element, _turned(turned_a, turned_b))
        name = f"wgmma {element} from registers with B turned"
        yield _case(name, element, _registers(turned_b=True))
    yield groups()


def _every_n(from_registers: bool, part: int) -> list[Product]:
    return [
        Product(n, from_registers=from_registers, adds=number % 2 == 0)
        for number, n in enumerate(COLUMNS[part::2])
    ]


def _swizzles() -> list[Product]:
    """Every pair of swizzles, with a small N; and equal ones with the least and the largest N."""
    pairs = [Product(24, a, b) for a, b in itertools.product(SWIZZLES, repeat=2)]
    return pairs + [Product(n, each, each) for each in SWIZZLES[:3] for n in (8, 64, 256)]


def _registers(turned_b: bool = False) -> list[Product]:
    return [
        Product(n, swizzle_b=each, turned_b=turned_b, from_registers=True)
        for each in SWIZZLES
        for n in (8, 72, 192, 256)
    ]


def _turned(turned_a: bool, turned_b: bool) -> list[Product]:
    """N of whole and of broken pieces."""
    of_a = (Product(24, a, b, turned_a, turned_b) for a, b in itertools.product(SWIZZLES, repeat=2))
    return [
        *of_a,
        *(
            Product(n, each, each, turned_a, turned_b)
            for each in SWIZZLES
            for n in (8, 64, 200, 256)
        ),
    ]


def _case(name: str, element: str, products: list[Product]) -> Case:
    storage = TYPES[element]
    pitch = MOST_DEPTH_BYTES // storage.itemsize
    rng = np.random.default_rng(7)
    a, b = (rng.integers(-3, 4, (rows, pitch)).astype(storage) for rows in (ROWS, MOST_COLUMNS))
    outputs = {f"d{number}": each for number, each in enumerate(products)}
    widths = sorted({each.columns for each in products})
    text = PRODUCTS % {
        "shapes": "\n".join(f"GF_WGMMA_SHAPE({element}, {n});" for n in widths),
        "element": element,
        "pitch": pitch,
        "outputs": ", ".join(f"float* {output}" for output in outputs),
        "calls": "\n".join(each.call(output) for output, each in outputs.items()),
    }
    return Case(
        name,
        text,
        {"a": a, "b": b},
        {output: blank(np.float32, ROWS, each.columns) for output, each in outputs.items()},
        block=(128, 1, 1),
        architecture=90,
        arch_specific=True,
        expected={output: _sums(a, b, each) for output, each in outputs.items()},
    )


def _sums(a: np.ndarray, b: np.ndarray, product: Product) -> np.ndarray:
    """A B^T, and 1 where the accumulator is kept: every sum is exact."""
    depth = product.depth_bytes // a.itemsize
    left, right = (each[:, :depth].astype(np.float32) for each in (a, b))
    return np.float32(product.adds) + left @ right[: product.columns].T


def groups() -> Case:
    rng = np.random.default_rng(8)
    a = rng.integers(-3, 4, (2, 64, 64)).astype(np.float16)
    b = rng.integers(-3, 4, (64, 64)).astype(np.float16)
    steps = [slice(16 * step, 16 * step + 16) for step in range(4)]
    products = [
        [part[:, k].astype(np.float32) @ b[:, k].astype(np.float32).T for k in steps] for part in a
    ]
    return Case(
        "wgmma groups of two warpgroups",
        GROUPS,
        {"a": a, "b": b},
        {"d": blank(np.float32, 2, 4, 64, 64)},
        block=(256, 1, 1),
        architecture=90,
        arch_specific=True,
        expected={"d": np.array(products)},
    )

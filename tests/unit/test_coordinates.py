"""threadIdx and its kin: a text must not tell the emulator's from a GPU's by their types."""

from __future__ import annotations

import numpy as np
import pytest
from emulator_harness import Kernel, prepared, values

from greenfast.search.digest import text_digest
from greenfast.search.kernels.template_text import Line
from greenfast.search.render import RenderedSource
from greenfast.search.targets.emulator.flags import FLAVOURS
from greenfast.search.toolchain import Cubin

# What NVRTC accepts: true statements about the names' types.
CLAIMS = r"""
template <class A, class B> struct same { static constexpr bool value = false; };
template <class A> struct same<A, A> { static constexpr bool value = true; };
template <class T> struct kind;
template <class T> struct kind<T&> { static constexpr int value = 1; };
template <class T> struct kind<const T&> { static constexpr int value = 2; };
template <class T> struct kind<T&&> { static constexpr int value = 3; };
template <class T> __device__ int kind_of(T&&) { return kind<T&&>::value; }
#define IS(expression, ...) \
    static_assert(same<decltype(expression), __VA_ARGS__>::value, #expression);
IS(threadIdx, const uint3)
IS((threadIdx), const uint3&)
IS(blockIdx, const uint3)
IS(blockDim, const dim3)
IS((gridDim), const dim3&)
IS(warpSize, const int)
IS((warpSize), const int&)
IS(threadIdx.x, unsigned)
IS((threadIdx.y), const unsigned&)
IS((gridDim.z), const unsigned&)
IS(true ? threadIdx.x : blockDim.x, const unsigned&)
IS(threadIdx.x + 1, unsigned)
static_assert(noexcept(threadIdx.x + blockDim.x), "");
#ifdef threadIdx
#error "a macro"
#endif
"""
KERNEL = (
    CLAIMS
    + r"""
struct Pair { const uint3& thread; const unsigned& width; };
extern "C" __global__ void k(const float* a, float* c) {
    const unsigned& x = threadIdx.x;
    auto&& block = blockIdx;
    const Pair pair{threadIdx, blockDim.x};
    auto [first, second, third] = threadIdx;
    __syncthreads();  // another thread has run meanwhile
    const int at = block.x * pair.width + x;
    c[at] = 1000 * kind_of(threadIdx.x) + 100 * kind_of(blockDim) + 10 * kind_of(threadIdx.x + 1)
        + kind_of(warpSize);
    if (pair.thread.x != first || second || third || warpSize != 32 || gridDim.x != 3) c[at] = 0;
}
"""
)


@pytest.fixture(scope="module")
def emulator(artifacts):
    return prepared(artifacts)


def test_nvrtc_agrees(toolchain):
    lines = tuple(Line("kernel.cu", number) for number in range(1, KERNEL.count("\n") + 1))
    source = RenderedSource(KERNEL, text_digest(KERNEL), lines, KERNEL, ("k",), False)
    compiled = toolchain.compile(source, "sm_90")
    assert isinstance(compiled, Cubin), compiled.log


@pytest.mark.parametrize("flavour", FLAVOURS)
def test_references_to_coordinates_are_the_threads_own(emulator, flavour):
    result = Kernel(emulator, KERNEL, flavour=flavour)(
        {"a": np.zeros(1, np.float32)},
        {"c": np.zeros(192, np.float32)},
        grid=3,
        block=64,
        check=flavour == "checked",
    )
    assert not result.faults, result.faults
    assert set(values(result, "c")) == {2232.0}

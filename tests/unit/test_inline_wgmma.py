"""wgmma in inline PTX as CUTLASS writes it: every type, and numbers from template parameters."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
from emulator_harness import Kernel, only_right, prepared
from slow_cases import quick_first

from greenfast.search.errors import Fault

COLUMNS = 24
TEXT = """
template <int negate_a, int negate_b, int turn>
__device__ void product(unsigned long long a, unsigned long long b, %(word)s (&d)[%(words)d],
                        int accumulates) {
    asm volatile("{ .reg .pred p; setp.ne.b32 p, %%%(last)d, 0;\\n"
        "wgmma.mma_async.sync.aligned.m64n24k%(depth)d%(saturation)s.%(kinds)s {%(registers)s}, "
        "%%%(a)d, %%%(b)d, p%(numbers)s; }"
        : %(outputs)s : "l"(a), "l"(b), "r"(accumulates)%(inputs)s);
}
__device__ unsigned long long described(const void* matrix) {
    return (unsigned long long)(__cvta_generic_to_shared(matrix) >> 4) | 8ull << 16 | 16ull << 32;
}
extern "C" __global__ void __launch_bounds__(128) k(
        const uint4* a, const uint4* b, const %(word)s* before, %(word)s* c, int accumulates) {
    __shared__ alignas(128) uint4 of_a[128], of_b[48];
    const int t = threadIdx.x;
    of_a[t / 16 * 16 + t %% 2 * 8 + t / 2 %% 8] = a[t];
    if (t < 48) of_b[t / 16 * 16 + t %% 2 * 8 + t / 2 %% 8] = b[t];
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
    __syncthreads();
    %(word)s d[%(words)d];
    for (int i = 0; i < %(words)d; i++) d[i] = before[t * %(words)d + i];
    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
    product<%(negations)s, 0>(described(of_a), described(of_b), d, accumulates);
    asm volatile("wgmma.commit_group.sync.aligned; wgmma.wait_group.sync.aligned 0;" ::: "memory");
    for (int i = 0; i < %(words)d; i++) c[t * %(words)d + i] = d[i];
}
"""
TYPES = {
    "f16": np.float16,
    "bf16": ml_dtypes.bfloat16,
    "tf32": np.float32,
    "e4m3": ml_dtypes.float8_e4m3fn,
    "e5m2": ml_dtypes.float8_e5m2,
    "s8": np.int8,
    "u8": np.uint8,
    "f32": np.float32,
    "s32": np.int32,
}


def text(of_d: str, of_a: str, of_b: str, negations: tuple[int, int], saturates: bool) -> str:
    words = COLUMNS // (4 if of_d == "f16" else 2)
    letter, word = ("f", "float") if of_d == "f32" else ("r", "unsigned")
    numbers = 0 if of_d == "s32" else 4 if of_a in ("f16", "bf16") else 2
    names = ("negate_a", "negate_b", "turn", "turn")[:numbers]
    return TEXT % {
        "word": word,
        "words": words,
        "a": words,
        "b": words + 1,
        "last": words + 2,
        "depth": 32 // np.dtype(TYPES[of_a]).itemsize,
        "saturation": ".satfinite" if saturates else "",
        "kinds": f"{of_d}.{of_a}.{of_b}",
        "registers": ", ".join(f"%{i}" for i in range(words)),
        "outputs": ", ".join(f'"+{letter}"(d[{i}])' for i in range(words)),
        "numbers": "".join(f", %{words + 3 + i}" for i in range(numbers)),
        "inputs": "".join(f', "n"(int({name}))' for name in names),
        "negations": f"{negations[0]}, {negations[1]}",
    }


def in_registers(matrix: np.ndarray) -> np.ndarray:
    """[64, COLUMNS] as the threads of a warpgroup hold it."""
    numbers = np.arange(COLUMNS // 2)
    thread = np.arange(128)[:, None]
    row = thread // 32 * 16 + thread % 32 // 4 + 8 * (numbers // 2 % 2)
    return matrix[row, numbers // 4 * 8 + thread % 4 * 2 + numbers % 2]


def drawn(kind: str, shape: tuple[int, int], rng: np.random.Generator) -> np.ndarray:
    dtype = np.dtype(TYPES[kind])
    if dtype.kind in "iu":
        return rng.integers(*((-128, 128) if kind == "s8" else (0, 256)), shape).astype(dtype)
    return rng.normal(size=shape).astype(dtype)


def exact(values: np.ndarray, kind: str) -> np.ndarray:
    if kind == "tf32":
        values = (values.view(np.uint32) & 0xFFFFE000).view(np.float32)
    return values.astype(np.float64)


@pytest.mark.parametrize(
    ("of_d", "of_a", "of_b", "negations", "accumulates", "saturates"),
    quick_first(
        [
            ("f32", "bf16", "bf16", (1, 1), True, False),
            ("f32", "f16", "f16", (-1, 1), True, False),
            ("f32", "f16", "f16", (-1, -1), False, False),
            ("f16", "f16", "f16", (1, -1), True, False),
            ("f32", "tf32", "tf32", (1, -1), True, False),
            ("f32", "e4m3", "e5m2", (1, 1), True, False),
            ("f16", "e5m2", "e5m2", (1, 1), False, False),
            ("s32", "s8", "s8", (1, 1), False, False),
            ("s32", "u8", "s8", (1, 1), True, False),
            ("s32", "u8", "u8", (1, 1), True, True),
        ],
        4,
    ),
)
def test_a_product_of_a_warpgroup(artifacts, of_d, of_a, of_b, negations, accumulates, saturates):
    rng = np.random.default_rng(3)
    depth = 32 // np.dtype(TYPES[of_a]).itemsize
    a, b = drawn(of_a, (64, depth), rng), drawn(of_b, (COLUMNS, depth), rng)
    before = rng.integers(-9, 9, (64, COLUMNS)).astype(TYPES[of_d])
    if of_d == "s32":
        before[0] = 2**31 - 5
    kernel = Kernel(
        prepared(artifacts), text(of_d, of_a, of_b, negations, saturates), flavour="checked"
    )
    job = kernel.job(
        {"a": a, "b": b, "before": in_registers(before)},
        {"c": in_registers(np.zeros_like(before))},
        (int(accumulates),),
        block=128,
        check=True,
        order="seeded:1",
    )
    (result,) = kernel.run(job)
    only_right((result,))
    want = exact(a, of_a) @ exact(b, of_b).T * np.prod(negations) + accumulates * before
    if of_d == "s32":
        low, high = -(2**31), 2**31 - 1
        want = np.clip(want, low, high) if saturates else (want - low) % 2**32 + low
    got = result.outputs["c"].view(TYPES[of_d]).reshape(128, -1).astype(np.float64)
    bound = {"s32": 0, "f32": 1e-5, "f16": 2e-3}[of_d]
    np.testing.assert_allclose(got, in_registers(want), rtol=bound, atol=bound)


def test_a_base_offset_is_no_fault_of_the_candidate(artifacts):
    """PTX allows it, and the emulator does not have it: nothing is wrong with the text."""
    source = text("f32", "f16", "f16", (1, 1), False).replace(
        "| 16ull << 32", "| 16ull << 32 | 1ull << 49 | 1ull << 62"
    )
    words = COLUMNS // 2
    inputs = {
        "a": np.zeros(128 * 8, np.float16),
        "b": np.zeros(48 * 8, np.float16),
        "before": np.zeros(128 * words, np.float32),
    }
    with pytest.raises(Fault, match="has the base offset 1; the emulator has only") as raised:
        Kernel(prepared(artifacts), source)(
            inputs, {"c": np.zeros(128 * words, np.float32)}, 0, block=128
        )
    assert raised.value.code == "emulator_unsupported"

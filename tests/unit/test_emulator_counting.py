"""Compiling candidates for the emulator, its counters, and the two forms of the device headers."""

from __future__ import annotations

import re
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from emulator_harness import ADD, MMA_GEMM, TEMPLATE_INCLUDE, Kernel, prepared, values, wmma_gemm
from slow_cases import quick_first

from greenfast.search.targets.emulator.build import ModuleFailed
from greenfast.search.targets.emulator.native_build import INCLUDE

ONES = np.ones(32, np.float32)


@pytest.fixture(scope="session")
def emulator(artifacts):
    return prepared(artifacts)


def test_a_run_whose_launches_all_have_empty_grids_writes_nothing(emulator):
    kernel = Kernel(emulator, ADD, flavour="counted")
    job = kernel.job({"a": ONES, "b": ONES}, {"c": ONES}, (32,), count=True)
    (result,) = kernel.run(replace(job, launches=()))
    assert np.isnan(values(result, "c")).all()  # the poison of an output
    assert result.counters.blocks_total == 0


def test_a_compile_error_points_at_the_templates_line(emulator):
    failed = emulator.build_module(
        '#line 40 "attention/wmma.cu.j2"\nextern "C" __global__ void k(float* y) { y = z; }\n',
        ("k",),
        flavour="plain",
        deadline_s=60,
    )
    assert isinstance(failed, ModuleFailed) and failed.reason == "compile"
    assert "attention/wmma.cu.j2:40" in failed.log


def test_unknown_device_functions_and_inline_ptx_do_not_compile(emulator):
    for body, reason in (
        (
            "extern void nobody(); " + 'extern "C" __global__ void k() { nobody(); }',
            "compile",
        ),
        (
            'extern "C" __global__ void k() { asm volatile("frob.b32 1;"); }',
            "refused",
        ),
    ):
        failed = emulator.build_module(body, ("k",), flavour="plain", deadline_s=60)
        assert isinstance(failed, ModuleFailed) and failed.reason == reason


def test_a_compile_that_does_not_end_is_killed(emulator):
    bomb = (
        "template <int n, long m> struct T {\n"
        "    static constexpr int v = T<n - 1, m * 2>::v | T<n - 1, m * 2 + 1>::v;\n"
        "};\n"
        "template <long m> struct T<0, m> { static constexpr int v = 1; };\n"
        'extern "C" __global__ void k(int* y) { *y = T<24, 1>::v; }\n'
    )
    failed = emulator.build_module(bomb, ("k",), flavour="plain", deadline_s=1.5)
    assert isinstance(failed, ModuleFailed) and failed.reason in ("timeout", "memory")


COLUMNS = """
extern "C" __global__ void k(float* y) {
    __shared__ float tile[32 * %d];
    const int lane = threadIdx.x;
    for (int i = 0; i < 32; i++) tile[i * %d + lane] = i;
    __syncthreads();
    float sum = 0;
    for (int i = 0; i < 32; i++)
        sum += tile[lane * %d + i];
    y[lane] = sum;
}
"""


@pytest.mark.parametrize("pitch, factor", [(32, 32), (33, 1)])
def test_bank_conflicts_of_a_column_walk_are_counted_per_line(emulator, pitch, factor):
    kernel = Kernel(emulator, COLUMNS % (pitch, pitch, pitch), flavour="counted")
    result = kernel({}, {"y": np.zeros(32, np.float32)}, count=True)
    np.testing.assert_array_equal(values(result, "y"), 32 * np.arange(32))
    (line,) = [line for line in result.counters.per_line if line.kind == "shared_read"]
    assert (line.file, line.line, line.count) == ("test.cu", 9, 32)
    assert (line.wavefronts, line.wavefronts_ideal) == (32 * factor, 32)
    assert result.counters.barriers == 1


def test_wide_shared_accesses_are_phased(emulator):
    kernel = Kernel(
        emulator,
        """
extern "C" __global__ void k(float* y, int stride) {
    __shared__ float4 tile[256];
    tile[threadIdx.x * stride] = make_float4(1, 2, 3, 4);
    __syncthreads();
    y[threadIdx.x] = tile[threadIdx.x * stride].w;
}""",
        flavour="counted",
    )
    for stride, factor in ((1, 1), (2, 2), (8, 8)):
        counters = kernel({}, {"y": np.zeros(32, np.float32)}, stride, count=True).counters
        (store,) = [line for line in counters.per_line if line.kind == "shared_write"]
        assert (store.wavefronts, store.wavefronts_ideal) == (4 * factor, 4), stride


@pytest.mark.parametrize("element, additions", quick_first([("float", 64), ("int", 0)], 1))
@pytest.mark.parametrize(
    "place, turns",
    quick_first(
        [("lane * 2", 2), ("0", 32), ("lane", 1), ("lane * 8 % 256", 8), ("lane / 4", 4)], 2
    ),
)
def test_lanes_that_add_floats_to_one_bank_or_one_element_take_turns(
    emulator, element, additions, place, turns
):
    kernel = Kernel(
        emulator,
        f"""
extern "C" __global__ void k(float* y) {{
    __shared__ {element} sums[256];
    const int lane = threadIdx.x % 32;
    for (int i = threadIdx.x; i < 256; i += 64) sums[i] = 0;
    __syncthreads();
    for (int i = 0; i < 32; i++) atomicAdd(sums + {place}, {element}(1));
    __syncthreads();
    y[threadIdx.x] = sums[threadIdx.x];
}}""",
        flavour="counted",
    )
    counters = kernel({}, {"y": np.zeros(64, np.float32)}, count=True, block=64).counters
    assert counters.atomics == 2 * 32 * 32 and counters.shared_float_additions == additions
    assert counters.float_addition_turns == (turns if additions else 1)


@pytest.mark.parametrize("stride, sectors", [(1, 4), (8, 32), (2, 8)])
def test_global_sectors_show_coalescing(emulator, stride, sectors):
    kernel = Kernel(
        emulator,
        """
extern "C" __global__ void k(const float* x, float* y, int stride) {
    y[threadIdx.x] = x[threadIdx.x * stride];
}
""",
        flavour="counted",
    )
    counters = kernel(
        {"x": np.zeros(256, np.float32)}, {"y": np.zeros(32, np.float32)}, stride, count=True
    ).counters
    (load,) = [line for line in counters.per_line if line.kind == "global_read"]
    assert (load.count, load.sectors, load.sectors_ideal, load.total_bytes) == (1, sectors, 4, 128)
    assert (counters.global_load_bytes, counters.global_store_bytes) == (128, 128)


def test_counted_events_of_a_tensor_core_kernel(emulator):
    kernel = Kernel(emulator, wmma_gemm("__half", 16, 16, True, True), flavour="counted")
    a, b = np.zeros((32, 48), np.float16), np.zeros((48, 64), np.float16)
    counters = kernel(
        {"a": a, "b": b}, {"c": np.zeros((32, 64), np.float32)}, 48, 64, grid=2, count=True
    ).counters
    flop = {name: flop for name, flop in counters.mma_flop if flop}
    assert flop == {"f16_f32": 2 * 32 * 48 * 64}
    assert counters.global_store_bytes == 32 * 64 * 4


def test_a_sample_of_blocks_is_counted_and_says_so(emulator):
    kernel = Kernel(emulator, ADD, flavour="counted")
    x = np.zeros(6400, np.float32)
    result = kernel(
        {"a": x, "b": x + 1}, {"c": x}, 6400, grid=100, block=64, count=True, sample=(0, 7, 99)
    )
    counters = result.counters
    assert (counters.blocks_executed, counters.blocks_total) == (3, 100)
    assert counters.global_store_bytes == 3 * 64 * 4
    written = values(result, "c").reshape(100, 64) == 1
    assert written.all(axis=1).nonzero()[0].tolist() == [0, 7, 99] and written.sum() == 3 * 64


def test_special_functions_are_counted_per_lane(emulator):
    kernel = Kernel(
        emulator,
        """
extern "C" __global__ void k(float* y) {
    y[threadIdx.x] = exp2f(y[threadIdx.x]) + __expf(1.5f) + rsqrtf(2.0f);
}
""",
        flavour="counted",
    )
    assert (
        kernel(
            {}, {"y": np.zeros(40, np.float32)}, block=40, count=True
        ).counters.special_function_ops
        == 120
    )


def test_device_and_emulated_headers_declare_the_same_primitives():
    emulated = sorted((INCLUDE / "gf").glob("*.cuh"))
    assert emulated
    for header in emulated:
        device = TEMPLATE_INCLUDE / "gf" / header.name
        assert _primitives(device) == _primitives(header), header.name


def _primitives(header: Path) -> set[str]:
    text = header.read_text()
    text = re.sub(r"static __device__ __forceinline__", "", text)  # members of a helper
    functions = re.findall(r"__forceinline__\s+[\w:<>\s&*]*?\b(\w+)(?:<\w+>)?\(", text)
    macros = set(re.findall(r"#define\s+(GF_\w+)", text))
    # The device's text of wgmma is put together by further macros.
    return set(functions) | {name for name in macros if not re.match("GF_WGMMA_(?!SHAPE)", name)}


@pytest.mark.parametrize(
    "architecture",
    ["sm_80", *(pytest.param(name, marks=pytest.mark.slow) for name in ("sm_89", "sm_90"))],
)
def test_device_headers_compile_with_nvcc(tmp_path, architecture):
    nvcc = shutil.which("nvcc")
    if nvcc is None:
        pytest.skip("nvcc is not on the PATH")
    source = tmp_path / "headers.cu"
    source.write_text(
        MMA_GEMM % "__half"
        + '#include "gf/async_copy.cuh"\n#include "gf/reduce.cuh"\n#include "gf/dtype.cuh"\n'
    )
    subprocess.run(
        [
            nvcc,
            f"-arch={architecture}",
            "-cubin",
            f"-I{TEMPLATE_INCLUDE}",
            "-o",
            tmp_path / "out",
            source,
        ],
        check=True,
    )

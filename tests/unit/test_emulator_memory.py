"""Checked runs watch memory that is no buffer: the module's objects, inputs, gaps, stacks."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from emulator_harness import Kernel, only_right, prepared, raw
from slow_cases import quick_every, quick_first

from greenfast.search.targets.emulator.execute import Buffer, Launch, PointerArgument, Run
from greenfast.search.targets.emulator.object_gaps import GAP_BYTES, with_gaps

HEAD = (
    "__noinline__ __device__ void put(float* place, float value) { *place = value; }\n"
    'extern "C" __global__ void k(const float* a, float* c) { const int t = threadIdx.x;\n'
)
FORGED = "using namespace gf_emulator;\n"


@pytest.fixture(scope="session")
def emulator(artifacts):
    return prepared(artifacts)


def jobs(kernel, count=1, check=True, **options):
    """`count` runs of a kernel with 64 floats each as input and output; inputs differ."""
    return [
        kernel.job(
            {"a": np.arange(1, 65, dtype=np.float32) + 100 * number},
            {"c": np.zeros(64, np.float32)},
            check=check,
            block=64,
            name=str(number),
            **options,
        )
        for number in range(count)
    ]


def checked(emulator, text, **options):
    kernel = Kernel(emulator, text, flavour="checked", is_examined=not calls_the_runtime(text))
    return kernel.run(*jobs(kernel, **options), deadline_s=5.0)


def calls_the_runtime(text):
    """A candidate may not, and is refused before: here the runtime has to hold by itself."""
    return "gf_emulator_" in text or "asm" in text


def kinds(results):
    return {finding.kind for result in results for finding in result.findings} | {
        fault.kind for result in results for fault in result.faults
    }


DEFECTS = {
    # name: (before the kernel, its body, kind, a part of the sentence)
    "threads race": ("__device__ float d[64];", "d[t] = a[t]; c[t] = d[63 - t];", "race", "'d'"),
    "a static object": (
        "static __device__ float d[64];",
        "d[t] = a[t]; c[t] = d[63 - t];",
        "race",
        "'d'",
    ),
    "a function's own": (
        "",
        "static __device__ float d[64]; d[t] = a[t]; c[t] = d[63 - t];",
        "race",
        "'k::d'",
    ),
    "constant memory": (
        "__constant__ float d[64] = {1};",
        "put(d + t, 1.0f); c[t] = d[t];",
        "device_fault",
        "which is constant memory",
    ),
    "a constant atomic": (
        "__device__ const int d[4] = {1, 2, 3, 4};",
        "atomicAdd((int*)d + (t & 3), 1); c[t] = d[t & 3];",
        "device_fault",
        "constant memory",
    ),
    "past the end": (
        "__device__ float d[64]; __device__ float e[64];",
        "put(d + t, 1); put(e + t, 1); put((a[0] > 7 ? e : d) + 64, 2); c[t] = d[t] + e[t];",
        "out_of_bounds",
        "0 bytes past the end of 'd'",
    ),
    "past the other's end": (
        "__device__ float d[64]; __device__ float e[64];",
        "put(d + t, 1); put(e + t, 1); put((a[0] < 7 ? e : d) + 64, 2); c[t] = d[t] + e[t];",
        "out_of_bounds",
        "0 bytes past the end of 'e'",
    ),
    "a walk": (
        "__device__ float d[64]; __device__ float e[64];",
        (
            "if (t == 0) { float* p = d; "
            "for (int i = 0; i < 64 + int(a[0]); ++i) *p++ = a[i & 63]; }\n"
            "__syncthreads(); e[t] = c[t] = d[t];"
        ),
        "out_of_bounds",
        "0 bytes past the end of 'd'",
    ),
    "before a table": (
        "__device__ const float d[4] = {1, 2, 3, 4};",
        "const float* p = a[0] > 7 ? a : d; c[t] = p[-1 - (t & 1)] + d[t & 3];",
        "out_of_bounds",
        "bytes before the start of 'd'",
    ),
    "the library's own": (
        "__device__ float d[4];",
        (
            "put(d + 3, 1); char* p = (char*)d; float sum = 0;\n"
            "for (long i = 0; i < 4096; i += 8) sum += float(*(long*)(p - i)); c[t] = sum;"
        ),
        "out_of_bounds",
        "",
    ),
    "kept from call to call": (
        "__device__ int have; __device__ float kept[64];",
        "if (!have) kept[t] = 2 * a[t];\n__syncthreads(); if (t == 0) have = 1; c[t] = kept[t];",
        "carried_state",
        "the next call will find another value",
    ),
    "an input restored": (
        "",
        "volatile float* p = (float*)a + t; const float v = *p; *p = 3; *p = v; c[t] = v;",
        "input_changed",
        "thread 0 writes 4 bytes of 'a' at +0 (test.cu:4), which is an input",
    ),
    "an input's atomic": (
        "",
        "atomicAdd((float*)a + t, 0.0f); c[t] = a[t];",
        "input_changed",
        "updates atomically 4 bytes of 'a'",
    ),
    "another's stack": (
        "",
        (
            "__shared__ float* p; float own[4] = {a[t], 1, 2, 3}; if (t == 0) p = own;\n"
            "__syncthreads(); const float v = p[t & 3]; __syncthreads(); c[t] = v + own[t & 3];"
        ),
        "out_of_bounds",
        "local memory of thread 0 are read by thread",
    ),
    "a dead frame": (
        "",
        (
            "float own[4] = {a[t], 1, 2, 3}; float* p = own; p -= 4096 * int(a[0]);\n"
            'asm volatile("" : "+r"(p)); put(p, 1.0f); c[t] = own[t & 3];'
        ),
        "out_of_bounds",
        "outside its live variables",
    ),
    "an own array in a function": (
        "__noinline__ __device__ float at(float* p, int i) { return p[i]; }",
        "float own[4] = {a[t], 1, 2, 3}; c[t] = at(own, int(a[3])) + at(own, t & 3);",
        "out_of_bounds",
        "the thread's own object",
    ),
    "an atomic on an own variable": (
        "",
        "int own = 0; atomicAdd(&own, 1); c[t] = own;",
        "device_fault",
        "local memory",
    ),
    "memcpy of an input": (
        "",
        "if (t == 0) memcpy((float*)a, c, size_t(a[3])); c[t] = a[t];",
        "input_changed",
        "'a'",
    ),
    "memcpy past a buffer": (
        "",
        "if (t == 0) memcpy(c, a, size_t(a[63]) * 4 + 4);",
        "out_of_bounds",
        "past the end of 'a'",
    ),
    "memcpy of nearly everything": (
        "",
        "if (t == 0) memcpy(c, a, size_t(a[3]) + (1ul << 32)); c[t] = 1;",
        "out_of_bounds",
        "",
    ),
    "memset of a constant size": (
        "",
        "if (t == 0) memset((char*)a + 4, 0, 12); c[t] = a[t];",
        "input_changed",
        "",
    ),
    "modff into constant memory": (
        "__constant__ float d[4] = {1};",
        "modff(a[t], (float*)&d[t & 3]); c[t] = d[t & 3];",
        "device_fault",
        "",
    ),
    "modff into shared memory": (
        "",
        "__shared__ float s[64]; modff(a[t], s + t); c[t] = s[63 - t];",
        "race",
        "",
    ),
    "an address that wraps": ("", "c[t] = *(float*)(~0ul - 3);", "out_of_bounds", "far from every"),
    "an atomic on any address": (
        "",
        "atomicAdd((int*)0x7ffff7000000, 1); c[t] = 1;",
        "out_of_bounds",
        "far from every buffer",
    ),
    "a copy over shared memory's edge": (
        '#include "gf/async_copy.cuh"',
        (
            "__shared__ __align__(16) float s[66];\n"
            "if (t == 0) { gf_emulator_async_copy(s + 64, a, 16, 16);\n"
            "gf_emulator_async_copy_commit(); gf_emulator_async_copy_wait(0); }\nc[t] = 1;"
        ),
        "out_of_bounds",
        "static shared memory",
    ),
    "a copy of no size": (
        '#include "gf/async_copy.cuh"',
        "__shared__ float s[64]; gf_emulator_async_copy(s, a, int(a[0]) - 1, 0); c[t] = 1;",
        "device_fault",
        "it has 4, 8 or 16",
    ),
    "an operand in an input": (
        FORGED,
        (
            "gf_emulator_wmma_load((void*)a, c, 8, 8, TileShape::m8n32k16, TileUse::accumulator,\n"
            "Element::float32, false); c[t] = 1;"
        ),
        "input_changed",
        "",
    ),
    "an atomic's result in an input": (
        FORGED,
        (
            "int one = 1; gf_emulator_atomic(c, &one, &one, (void*)a, AtomicOperation::add,\n"
            "AtomicType::int32);"
        ),
        "input_changed",
        "",
    ),
    "a product in an input": (
        "#include <mma.h>\n" + FORGED,
        (
            "float x[8] = {}; __half h[16] = {}; gf_emulator_matrix_multiply((void*)a, h, h, x,\n"
            "TileShape::m16n16k16, Element::float16, Element::float16, Element::float32,\n"
            "Collective::wmma); c[t] = 1;"
        ),
        "input_changed",
        "",
    ),
    "ldmatrix into an input": (
        FORGED,
        (
            "__shared__ __align__(16) unsigned short s[256]; "
            "s[t] = s[t + 64] = t; __syncthreads();\n"
            "gf_emulator_ldmatrix((unsigned*)a, s + t % 8 * 8, 1, false); c[t] = 1;"
        ),
        "input_changed",
        "",
    ),
}


@pytest.mark.parametrize("name", quick_every(DEFECTS, 2))
def test_a_checked_run_sees(emulator, name):
    before, body, kind, phrase = DEFECTS[name]
    results = checked(emulator, f"{before}\n{HEAD}{body}\n}}")
    assert kind in kinds(results), results[0]
    sentences = [item.sentence for item in (*results[0].findings, *results[0].faults)]
    assert any(phrase in sentence for sentence in sentences), sentences


RIGHT = {
    "tables": (
        (
            "__device__ float d[4] = {1, 2, 3, 4}; __constant__ float e[4] = {1, 2, 3, 4};\n"
            "static const float f[4] = {1, 2, 3, 4}; constexpr float g[4] = {1, 2, 3, 4};\n"
            "static __constant__ const int h[3] = {1, 2, 3};\n"
            'namespace n { __constant__ char w[] = "abcd"; '
            '__device__ const char* const p = "xyz"; }'
        ),
        (
            'static const float l[4] = {4, 3, 2, 1}; const char* s = "hello world";\n'
            "const int i = int(a[t]) & 3;\n"
            "c[t] = d[i] + e[i] + f[i] + g[i] + l[i] + s[i] + h[i % 3] + n::w[i] + n::p[i];"
        ),
        {},
    ),
    "scratch memory of the module": (
        "__device__ float d[128];",
        (
            "d[blockIdx.x * 64 + t] = a[t]; __syncthreads();\n"
            "const float v = d[blockIdx.x * 64 + 63 - t]; if (blockIdx.x == 0) c[t] = v;"
        ),
        {"grid": 2},
    ),
    "a ticket that wraps": (
        "__device__ unsigned ticket; __device__ float part[2];",
        (
            "__shared__ bool last;\nif (t == 0) { "
            "part[blockIdx.x] = a[blockIdx.x]; __threadfence();\n"
            "last = atomicInc(&ticket, 1) == 1; }\n__syncthreads();\n"
            "if (last) { __threadfence(); c[t] = part[0] + part[1]; }"
        ),
        {"grid": 2},
    ),
    "a ticket that counts on": (
        "__device__ unsigned ticket; __device__ float part[2];",
        (
            "__shared__ bool last;\nif (t == 0) { "
            "part[blockIdx.x] = a[blockIdx.x]; __threadfence();\n"
            "last = atomicAdd(&ticket, 1) % 2 == 1; }\n__syncthreads();\n"
            "if (last) { __threadfence(); c[t] = part[0] + part[1]; __syncthreads();\n"
            "if (t < 2) part[t] = 0; }"
        ),
        {"grid": 2},
    ),
    "counters that are set back": (
        "__device__ int count[64];",
        (
            "atomicAdd(&count[t], 2); __syncthreads(); c[t] = count[63 - t]; __syncthreads();\n"
            "count[t] = 0;"
        ),
        {},
    ),
    "own arrays": (
        "__noinline__ __device__ void f(float* p, int n) { for (int i = 0; i < n; i++) p[i] = i; }",
        (
            "float own[8]; f(own, 8); float s = 0; "
            "for (float* p = own; p < own + 8; ++p) s += *p;\n"
            "struct { float x[4]; float y; } pair = {}; f(pair.x, 4); c[t] = s + pair.x[t & 3];"
        ),
        {},
    ),
    "copies": (
        (
            "#include <cuda/std/cstring>\nusing cuda::std::memmove, cuda::std::memcmp;\n"
            "struct P { float x[25]; }; __device__ P from[2], to;"
        ),
        (
            "float own[64]; memcpy(own, a, size_t(a[63] > 0) * 256); __shared__ float s[64];\n"
            "if (t == 0) { memcpy(s, own, sizeof s); memmove(s + 1, s, 0); to = from[1]; }\n"
            "memset(own, 0, size_t(a[0])); __syncthreads(); float whole; modff(a[t], &whole);\n"
            "c[t] = s[63 - t] + whole + memcmp(own, own, 256);"
        ),
        {},
    ),
    "an array by another function": (
        (
            "struct Sum { float v[4]; __device__ void add(float x, int i) { v[i] += x; } };\n"
            "template <class F> __device__ void each(F f) { for (int i = 0; i < 4; ++i) f(i); }"
        ),
        (
            "Sum sum = {}; each([&](int i) { sum.add(a[(t + i) & 63], i); });\n"
            "float (&v)[4] = sum.v; c[t] = v[t & 3];"
        ),
        {},
    ),
}


@pytest.mark.parametrize("name", quick_first(RIGHT, 4))
def test_a_checked_run_finds_nothing_in(emulator, name):
    before, body, options = RIGHT[name]
    only_right(checked(emulator, f"{before}\n{HEAD}{body}\n}}", count=2, **options))


CACHE = (
    "__device__ int have; __device__ float kept[64];\n"
    + HEAD
    + "if (!have) kept[t] = 2 * a[t];\n__syncthreads(); if (t == 0) have = 1; c[t] = kept[t];\n}"
)


def test_a_module_keeps_its_values_from_call_to_call_as_on_a_gpu(emulator):
    kernel = Kernel(emulator, CACHE)
    first, second = kernel.run(*jobs(kernel, 2, check=False), deadline_s=5.0)
    assert first.outputs["c"].view(np.float32)[0] == 2
    assert second.outputs["c"].view(np.float32)[0] == 2, "the first call's answer"


def test_each_checked_run_begins_with_the_modules_first_values(emulator):
    text = (
        "__device__ float zero[3]; __device__ float one = 1; __device__ float large[1 << 20];\n"
        + HEAD
        + "if (t == 0) { c[0] = zero[1];\nc[1] = one;\nc[2] = large[1 << 19];\n"
        "zero[1] = one = large[1 << 19] = 7; }\n}"
    )
    kernel = Kernel(emulator, text, flavour="checked")
    for result in kernel.run(*jobs(kernel, 2), deadline_s=5.0):
        assert list(result.outputs["c"].view(np.float32)[:3]) == [0, 1, 0]
        assert {finding.memory for finding in result.findings} == {
            "device:zero",
            "device:one",
            "device:large",
        }


@pytest.mark.parametrize("flavour", ["plain", "checked"])
def test_an_own_array_without_a_value_has_a_bad_one(emulator, flavour):
    text = HEAD + "float sums[4]; sums[t & 3] += a[t]; c[t] = sums[t & 3];\n}"
    kernel = Kernel(emulator, text, flavour=flavour)
    (result,) = kernel.run(*jobs(kernel, check=False), deadline_s=5.0)
    assert (
        not emulator.compiler.poison_flags or (result.outputs["c"].view(np.float32) < -1e38).all()
    )


@pytest.mark.parametrize(
    ("body", "kind"),
    quick_first(
        [
            ("c[t] = a[t / 4 * 8 + t % 4];", ""),
            ("*(float4*)(c + t * 4) = *(float4*)(a + t / 2 * 8);", ""),
            ("c[t] = a[t];", "out_of_bounds"),
            ("*(float2*)(c + t * 2) = *(float2*)(a + t / 4 * 8 + 3);", "misaligned"),
            ("*(float4*)(c + t * 4) = *(float4*)(a + t / 2 * 8 + 4);", "out_of_bounds"),
            ("memcpy(c + t * 4, a, 36); ", "out_of_bounds"),
            ("((float*)a)[5] = 1; c[t] = 1;", "out_of_bounds"),
        ],
        3,
    ),
)
def test_a_gap_between_rows_belongs_to_nobody(emulator, body, kind):
    """Rows of 4 floats, 8 apart."""
    kernel = Kernel(emulator, f"{HEAD}{body}\n}}", flavour="checked")
    values = np.arange(256, dtype=np.float32)
    owned = np.repeat(np.arange(256) % 8 < 4, 4)
    buffers = (
        Buffer("a", "input", raw(values), owned=owned),
        Buffer("c", "output", raw(np.zeros(256, np.float32))),
    )
    run = Run(
        "gaps",
        (Launch("k", (1, 1, 1), (16, 1, 1)),),
        buffers,
        (PointerArgument("a"), PointerArgument("c")),
        check=True,
    )
    results = kernel.run(run, deadline_s=5.0)
    found = kinds(results) - {"race"}
    assert kind in found if kind else not found, results[0].findings


def test_gaps_are_put_around_objects_and_not_into_shared_memory():
    assembly = [
        '\t.section\t.tbss,"awT",@nobits\n',
        "\t.align 4\n",
        "\t.type\ts, @object\n",
        "\t.size\ts, 4\n",
        "s:\n",
        "\t.zero\t4\n",
        "\t.data\n",
        "\t.align 128\n",
        "\t.type\td, @object\n",
        "\t.size\td, 4\n",
        "d:\n",
        "\t.long\t1\n",
        "\t.local\te\n",
        "\t.comm\te,256,32\n",
        "\t.type\t.Ldata0, @object\n",
        ".Ldata0:\n",
        "\t.long\t1\n",
    ]
    spaced = "".join(with_gaps(assembly))
    assert "s:\n\t.zero\t4\n\t.data" in spaced
    assert f"\t.zero\t128\nd:\n\t.long\t1\n\t.zero\t{GAP_BYTES}\n" in spaced
    assert f"\t.comm\te,{256 + GAP_BYTES},32\n\t.size\te, 256\n" in spaced
    assert spaced.endswith(".Ldata0:\n\t.long\t1\n")


def test_a_buffer_is_aligned_as_promised_and_no_more(emulator):
    kernel = Kernel(emulator, HEAD + "c[0] = (unsigned long long)c % 512; }", flavour="checked")
    run = kernel.job({"a": np.ones(4, np.float32)}, {}, check=True)
    for bytes_ in (4, 16, 128, 256):
        output = Buffer("c", "output", raw(np.zeros(5, np.float32)), alignment=bytes_)
        arguments = (PointerArgument("a"), PointerArgument("c"))
        one = replace(run, buffers=(*run.buffers, output), arguments=arguments)
        (result,) = kernel.run(one)
        rest = int(result.outputs["c"].view(np.float32)[0])
        assert rest % bytes_ == 0 and (bytes_ == 256 or rest % (2 * bytes_))

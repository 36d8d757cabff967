"""Inline PTX on the emulator: the primitives' device forms against their emulated forms, each
instruction at its edges, and refusals."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from device_values import f32, f64, mismatches
from emulator_harness import Kernel, kinds, prepared, values

from bench.correctness.conformance import cases
from bench.correctness.gpu_conformance import emulated, flattened
from greenfast.search.targets.emulator.build import ModuleFailed
from greenfast.search.targets.emulator.ptx_statement import AsmOperand, AsmStatement, translated
from greenfast.search.targets.emulator.runs import Buffer, PointerArgument

CASES = {case.name: case for case in cases() if "asm" in flattened(case.source) and not case.fails}
# What the others do not cover.
OFTEN = ("ldmatrix", "mma m16n8k32 e4m3 e5m2", "cp.async with zero fill", "approximations")


@pytest.fixture(scope="module")
def emulator(artifacts):
    return prepared(artifacts)


@pytest.mark.parametrize(
    "name",
    [name if name in OFTEN else pytest.param(name, marks=pytest.mark.slow) for name in CASES],
)
def test_the_device_form_of_a_primitive_computes_what_its_emulated_form_does(emulator, name):
    case = CASES[name]
    want = emulated(emulator, case)
    found = emulated(emulator, replace(case, source=flattened(case.source)), flavour="checked")
    for output in want:
        assert want[output].tobytes() == found[output].tobytes(), output


HELPERS = r"""
template <int number> __device__ int twice(int x) {  // the number is part of the label's name
    int y = x;
    asm volatile("{ .reg .pred p;\nL_%2: add.s32 %0, %0, 1; setp.lt.s32 p, %0, %1;\n"
                 "@p bra L_%2;\n}" : "+r"(y) : "r"(2 * x), "n"(number));
    return y;
}
#define ONE(name, type, letter, text, source)                                                  \
    __device__ type name(source a) {                                                           \
        type d;                                                                                \
        asm(text " %0, %1;" : "=" letter(d) : letter(a));                                      \
        return d;                                                                              \
    }
#define TWO(name, text)                                                                        \
    __device__ unsigned name(unsigned a, unsigned b) {                                         \
        unsigned d;                                                                            \
        asm(text " %0, %1, %2;" : "=r"(d) : "r"(a), "r"(b));                                   \
        return d;                                                                              \
    }
#define THREE(name, text)                                                                      \
    __device__ unsigned name(unsigned a, unsigned b, unsigned c) {                             \
        unsigned d;                                                                            \
        asm(text " %0, %1, %2, %3;" : "=r"(d) : "r"(a), "r"(b), "r"(c));                       \
        return d;                                                                              \
    }
TWO(shl, "shl.b32")
TWO(shr, "shr.u32")
TWO(sar, "shr.s32")
TWO(add_sat, "add.sat.s32")
TWO(mul_hi, "mul.hi.u32")
TWO(div_s, "div.s32")
TWO(min_s, "min.s32")
TWO(and_b, "and.b32")
THREE(mad, "mad.lo.u32")
THREE(bfe_u, "bfe.u32")
THREE(bfe_s, "bfe.s32")
THREE(prmt, "prmt.b32")
THREE(shf_l, "shf.l.clamp.b32")
THREE(shf_w, "shf.l.wrap.b32")
THREE(dp4a, "dp4a.u32.u32")
THREE(sad, "sad.u32")
ONE(popc, unsigned, "r", "popc.b32", unsigned)
ONE(clz, unsigned, "r", "clz.b32", unsigned)
ONE(bfind, unsigned, "r", "bfind.u32", unsigned)
ONE(bfind_s, unsigned, "r", "bfind.s32", unsigned)
ONE(bfind_amount, unsigned, "r", "bfind.shiftamt.u32", unsigned)
ONE(brev, unsigned, "r", "brev.b32", unsigned)
ONE(ex2, float, "f", "ex2.approx.f32", float)
ONE(neg, float, "f", "neg.f32", float)
ONE(absolute, float, "f", "abs.f32", float)
__device__ unsigned lop3(unsigned a, unsigned b, unsigned c) {
    unsigned d;
    asm("lop3.b32 %0, %1, %2, %3, 0xE8;" : "=r"(d) : "r"(a), "r"(b), "r"(c));  // the majority
    return d;
}
template <int table>
__device__ unsigned lop3_of(unsigned a, unsigned b, unsigned c) {
    unsigned d;
    asm("lop3.b32 %0, %1, %2, %3, %4;" : "=r"(d) : "r"(a), "r"(b), "r"(c), "n"(table));
    return d;
}
__device__ unsigned of_operators(unsigned a, unsigned b) {
    unsigned d;
    asm("add.u32 %0, %1, %2;" : "=r"(d) : "r"(a >> 4 | b << 1), "r"(unsigned(a >= b && a != 7)));
    return d;
}
__device__ unsigned bfi(unsigned f, unsigned a, unsigned at, unsigned n) {
    unsigned d;
    asm("bfi.b32 %0, %1, %2, %3, %4;" : "=r"(d) : "r"(f), "r"(a), "r"(at), "r"(n));
    return d;
}
__device__ unsigned long long wide(unsigned a, unsigned b, unsigned long long c) {
    unsigned long long d;
    asm("mad.wide.u32 %0, %1, %2, %3;" : "=l"(d) : "r"(a), "r"(b), "l"(c));
    return d;
}
__device__ int to_s32(float x) {
    int d;
    asm("cvt.rzi.s32.f32 %0, %1;" : "=r"(d) : "f"(x));
    return d;
}
__device__ int to_s8(int x) {
    int d;
    asm("cvt.sat.s8.s32 %0, %1;" : "=r"(d) : "r"(x));
    return d;
}
__device__ float up(double x) {
    float d;
    asm("cvt.rp.f32.f64 %0, %1;" : "=f"(d) : "d"(x));
    return d;
}
__device__ float fma_down(float a, float b, float c) {
    float d;
    asm("fma.rm.f32 %0, %1, %2, %3;" : "=f"(d) : "f"(a), "f"(b), "f"(c));
    return d;
}
__device__ unsigned packed(float a, float b) {
    unsigned d;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(d) : "f"(a), "f"(b));
    return d;
}
__device__ unsigned halves(unsigned a, unsigned b) {
    unsigned d;
    asm("{ .reg .b16 l, h, m, n;\n\t mov.b32 {l, h}, %1; mov.b32 {m, n}, %2; mov.b32 %0, {h, m}; }"
        : "=r"(d) : "r"(a), "r"(b));
    return d;
}
__device__ int chosen(int a, int b) {
    int d;
    asm volatile("{\n .reg .pred p, q;\n setp.lt.s32 p|q, %1, %2;\n"
                 " @p mov.b32 %0, 7;\n @q mov.b32 %0, -1;\n @!p add.s32 %0, %0, 100;\n}"
                 : "=r"(d) : "r"(a), "r"(b));
    return d;
}
__device__ int steps(unsigned x) {           // of Collatz' sequence
    int n;
    asm volatile("{ .reg .pred odd, done; .reg .b32 v, bit; mov.u32 v, %1; mov.u32 %0, 0;\n"
                 "AGAIN: setp.eq.u32 done, v, 1; @done bra DONE;\n"
                 "and.b32 bit, v, 1; setp.ne.u32 odd, bit, 0;\n"
                 "@odd mad.lo.u32 v, v, 3, 1; @!odd shr.u32 v, v, 1;\n"
                 "add.s32 %0, %0, 1; bra.uni AGAIN;\nDONE: }" : "=r"(n) : "r"(x));
    return n;
}
__device__ float constants() {
    float d;
    asm("{ .reg .f32 a; mov.f32 a, 0f40490FDB; mul.f32 %0, a, 0f40000000; }" : "=f"(d));
    return d;
}
__device__ unsigned is_nan(float x) {
    unsigned d;
    asm("{ .reg .pred p; setp.nan.f32 p, %1, %1; selp.u32 %0, 1, 0, p; }" : "=r"(d) : "f"(x));
    return d;
}
__device__ unsigned exchanged(unsigned a) {  // through memory, by vectors and pieces
    __shared__ alignas(16) unsigned memory[8];
    const unsigned at = (unsigned)__cvta_generic_to_shared(memory);
    unsigned x, y;
    unsigned short low;
    asm volatile("st.shared.v4.u32 [%0], {%1, %2, %1, %2};" ::"r"(at), "r"(a), "r"(a + 1));
    asm volatile("ld.shared.v2.u32 {%0, %1}, [%2+4];" : "=r"(x), "=r"(y) : "r"(at + 4));
    asm volatile("ld.shared.u16 %0, [%1];" : "=h"(low) : "r"(at));
    asm volatile("red.shared.add.u32 [%0], 5;" ::"r"(at) : "memory");
    asm volatile("atom.shared.cas.b32 %0, [%1], %2, %3;" : "=r"(y) : "r"(at), "r"(a + 5), "r"(9u));
    return memory[0] * 1000000 + x % 1000 * 1000 + low % 10 * 100 + (y == a + 5);
}
"""
CASES_OF_VALUES = [
    ("shl(1u, 31)", 1 << 31),
    ("shl(1u, 32)", 0),
    ("shl(1u, 1000000)", 0),
    ("shr(~0u, 32)", 0),
    ("sar(0x80000000u, 40)", 0xFFFFFFFF),
    ("add_sat(0x7fffffffu, 1u)", 0x7FFFFFFF),
    ("add_sat(0x80000000u, ~0u)", 0x80000000),
    ("mul_hi(~0u, ~0u)", 0xFFFFFFFE),
    ("div_s(~6u, 2u)", 0xFFFFFFFD),
    ("min_s(~0u, 1u)", 0xFFFFFFFF),
    ("and_b(0xf0u, 0x3cu)", 0x30),
    ("mad(3u, 5u, ~0u)", 14),
    ("bfe_u(0x12345678u, 8, 8)", 0x56),
    ("bfe_s(0x0000f600u, 8, 8)", 0xFFFFFFF6),
    ("bfe_s(0x80000000u, 28, 8)", 0xFFFFFFF8),
    ("bfe_u(0x12345678u, 8, 0)", 0),
    ("bfe_u(0x12345678u, 40, 8)", 0),
    ("bfi(0xffu, 0u, 28, 8)", 0xF0000000),
    ("bfi(0x5u, 0xffffffffu, 4, 4)", 0xFFFFFF5F),
    ("prmt(0x33221100u, 0x77665544u, 0x4567)", 0x44556677),
    ("shf_l(0x80000001u, 7u, 40)", 0x80000001),
    ("shf_w(0x80000001u, 7u, 33)", 0xF),
    ("dp4a(0x01020304u, 0x01010101u, 5u)", 15),
    ("sad(3u, 8u, 1u)", 6),
    ("popc(0xff00ff00u)", 16),
    ("clz(0u)", 32),
    ("bfind(0u)", 0xFFFFFFFF),
    ("bfind(0x00010000u)", 16),
    ("bfind_s(0xfffffff0u)", 3),
    ("bfind_amount(0x00010000u)", 15),
    ("brev(1u)", 1 << 31),
    ("ex2(-2.0f)", f32(0.25)),
    ("neg(0.0f)", f32(-0.0)),
    ("absolute(-0.0f)", 0),
    ("lop3(0xccu, 0xaau, 0xf0u)", 0xE8),
    ("lop3_of<0x96>(0xccu, 0xaau, 0xf0u)", 0xCC ^ 0xAA ^ 0xF0),
    ("of_operators(0x70u, 3u)", (7 | 6) + 1),
    ("wide(~0u, ~0u, 1ull)", (2**32 - 1) ** 2 + 1),
    ("to_s32(3e9f)", 0x7FFFFFFF),
    ("to_s32(__int_as_float(0x7fc00000))", 0),
    ("to_s8(-300)", 0xFFFFFF80),
    ("up(1.1)", f32(1.1) + (float(np.float32(1.1)) < 1.1)),
    ("fma_down(1.0f, 1.0f, 1e-20f)", f32(1.0)),
    ("packed(1.0f, 2.0f)", 0x3F804000),
    ("halves(0x11112222u, 0x33334444u)", 0x44441111),
    ("chosen(1, 2)", 7),
    ("chosen(2, 1)", 99),
    ("steps(27u)", 111),
    ("constants()", f32(2 * np.float32(np.pi))),
    ("is_nan(__int_as_float(0x7fc00000))", 1),
    ("exchanged(41u)", 9 * 1000000 + 41 * 1000 + 1 * 100 + 1),
    ("twice<7>(5)", 10),
    ("double(fma_down(0.1f, 0.1f, 0.0f))", 0),
]


def test_a_number_of_the_statement_keeps_its_labels_apart():
    template = "{ WAIT_%=: mov.u32 %0, 1; bra WAIT_%=; }"
    statement = AsmStatement(template, (AsmOperand("=r", "x"),), ())
    first, second = (translated(statement, number) for number in (3, 70))
    assert first.count("WAIT_3:") == 1 and "goto" in first and "%" not in first
    assert second.count("WAIT_70:") == 1


def test_instructions_compute_what_ptx_says(artifacts):
    product = float(np.float32(0.1)) ** 2  # exact in double
    below = np.float32(product)
    if float(below) > product:
        below = np.nextafter(below, np.float32(0))
    cases_of_values = [*CASES_OF_VALUES[:-1], (CASES_OF_VALUES[-1][0], f64(float(below)))]
    assert mismatches(artifacts, cases_of_values, helpers=HELPERS) == []


FLAGS = """
__device__ int ready_flag;
extern "C" __global__ void k(const int* which, int* out) {
    int* data = out;
    int* flag = out + 64;
    const int kind = which[0], warp = threadIdx.x / 32;
    int seen = 0;
    if (blockIdx.x == 0 && threadIdx.x == 0) {
        data[0] = 42;
#define AT ::"l"(flag) : "memory"
        if (kind == 0) asm volatile("st.release.gpu.global.s32 [%0], 1;" AT);
        if (kind == 1) asm volatile("st.relaxed.gpu.global.s32 [%0], 1;" AT);
        if (kind == 2) asm volatile("red.release.gpu.global.add.s32 [%0], 1;" AT);
        if (kind == 3) asm volatile("red.release.cta.global.add.s32 [%0], 1;" AT);
        if (kind == 4)
            asm volatile("fence.acq_rel.gpu; st.relaxed.gpu.global.s32 [%0], 1;" AT);
    }
    if (blockIdx.x == 1 && threadIdx.x == 0) {
        do {
            asm volatile("ld.acquire.gpu.global.s32 %0, [%1];" : "=r"(seen) : "l"(flag));
        } while (!seen);
        out[1] = data[0];
    }
}
"""


def test_flags_order_by_their_release_and_scope(emulator):
    kernel = Kernel(emulator, FLAGS, flavour="checked")
    zeros = np.zeros(128, np.int32)
    for kind in range(5):
        jobs = [
            kernel.job(
                {"which": np.array([kind], np.int32)},
                {},
                grid=2,
                check=True,
                order=order,
                name=order,
            )
            for order in ("forward", "reverse")
        ]
        jobs = [with_zeroed(job, "out", zeros) for job in jobs]
        for result in kernel.run(*jobs):
            found = {finding.kind for finding in result.findings} | set(kinds(result))
            assert ("race" in found) == (kind in (1, 3)), (kind, result.name, found)
            assert found <= {"race"}
            if kind == 0:
                assert values(result, "out", np.int32)[1] == 42


def with_zeroed(job, name, zeros):
    buffer = Buffer(name, "output", zeros.view(np.uint8), "zero")
    return replace(
        job,
        buffers=(*job.buffers, buffer),
        arguments=(*job.arguments, PointerArgument(name)),
    )


@pytest.mark.parametrize(
    "statement, words",
    [
        ('asm("frob.u32 %0, 1;" : "=r"(x));', "`frob.u32`"),
        ('asm("mma.sync.aligned.m16n8k4.row.col.f32.f16.f16.f32 %0;" : "=r"(x));', "mma.sync"),
        ('asm("mov.u32 %0, %9;" : "=r"(x));', "`%9`"),
        ('asm("mov.u32 %0, %%total_smem_size;" : "=r"(x));', "register `%total_smem_size`"),
        ('asm("movl $1, %0" : "=r"(x));', "`movl`"),
        ('asm(".byte 0x90");', "`.byte`"),
        ('asm goto("bra %l0;" :::: out); out:', "`asm` has no template"),
        ('asm("mov.u32 %0, 1;" : "=r"(__builtin_ia32_rdtsc()));', "__builtin_ia32_rdtsc"),
        ('asm("mov.u32 %0, 1;" : "=r"(x) : "r"(({ asm("nop"); 1; })));', "not an expression"),
        ('asm("{ mov.u32 %0, 1;" : "=r"(x));', "brace"),
        ('asm("mov.u32 %0, %1;" : "=r"(x) : "m"(x));', "constraint `m`"),
        (
            'asm("wgmma.mma_async.sync.aligned.m64n12k16.f32.f16.f16 {%0}, 0, 0, 0;" :: "r"(x));',
            "12 columns",
        ),
        (
            'asm("tensormap.replace.tile.rank.global.b1024.b32 [%0], 1;" :: "l"(out));',
            "`greenfast docs emulator` lists the instructions",
        ),
        # Taken as a release, it would hide a race.
        ('asm("mbarrier.arrive.relaxed.cta.shared::cta.b64 _, [%0];" :: "r"(x));', "a release"),
    ],
)
def test_other_assembly_is_refused_by_name(emulator, statement, words):
    text = (
        f'extern "C" __global__ void k(int* out) {{\nunsigned x = 0;\n{statement}\nout[0] = x;\n}}'
    )
    failed = emulator.build_module(
        f'#line 1 "test.cu"\n{text}', ("k",), flavour="plain", deadline_s=60
    )
    assert isinstance(failed, ModuleFailed)
    assert words in failed.log and "test.cu" in failed.log, failed.log

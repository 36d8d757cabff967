"""Architecture-specific compiles, and the assembler's remarks on products and register budgets."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

from greenfast.search.devices.facts import device
from greenfast.search.kernels.catalogue import REPOSITORY_TEMPLATES
from greenfast.search.kernels.template_text import Line
from greenfast.search.render import assemble
from greenfast.search.toolchain import CompileFailed, Cubin
from greenfast.search.toolchain.ptxas import parse_notes

INCLUDE = Path(REPOSITORY_TEMPLATES) / "include"
# The accumulator changes between a product and its wait; setmaxnreg without launch bounds.
SERIALISED = """
#include "gf/wgmma.cuh"
GF_WGMMA_SHAPE(__half, 64);
extern "C" __global__ void __launch_bounds__(128) k(float* out, int n) {
    extern __shared__ __align__(1024) unsigned char smem[];
    float acc[32] = {};
    unsigned long long a = gf::matrix_descriptor<128>(smem, 16, 1024);
    for (int i = 0; i < n; ++i) {
        gf::wgmma_fence();
        gf::wgmma<__half, 64>(acc, a, a, true);
        gf::wgmma_commit();
        acc[0] += 1.0f;
        gf::wgmma_wait<0>();
    }
    for (int i = 0; i < 32; ++i) out[threadIdx.x * 32 + i] = acc[i];
}
"""
IGNORED = """
extern "C" __global__ void k(float* out, int n) {
    asm volatile("setmaxnreg.dec.sync.aligned.u32 24;");
    out[threadIdx.x] = n;
}
"""


def compiled(toolchain, text: str, arch_specific: bool = True):
    body = [(line, Line("k.cu", number)) for number, line in enumerate(text.splitlines(), 1)]
    source = assemble(body, ["k"], (INCLUDE,), arch_specific=arch_specific)
    arch = device("h200").compiled_arch(specific=source.arch_specific)
    return toolchain.compile(source, arch)


def test_specific_code_compiles_for_the_specific_architecture_only(toolchain):
    cubin = compiled(toolchain, IGNORED)
    assert isinstance(cubin, Cubin) and cubin.arch == "sm_90a"
    plain = compiled(toolchain, IGNORED, arch_specific=False)
    assert isinstance(plain, CompileFailed) and "setmaxnreg" in plain.log


def test_remarks_of_the_assembler_have_names(toolchain):
    notes = parse_notes(compiled(toolchain, SERIALISED).log)
    assert {(note.name, note.entry) for note in notes} >= {
        ("wgmma_serialised", "k"),
        ("wgmma_wait_injected", "k"),
    }
    (ignored,) = parse_notes(compiled(toolchain, IGNORED).log)
    assert (ignored.name, ignored.code, ignored.count) == ("setmaxnreg_ignored", "C7508", 1)


def test_a_remark_is_counted_once_for_each_function_and_without_lines_of_ptx():
    line = (
        "ptxas info    : (C7517) wgmma.wait_group is injected in around line {} by compiler to "
        "allow use of registers defined by GMMA in function 'k'\n"
    )
    arrive = "ptxas info    : (C7519) warpgroup.arrive is injected in around line 7 in function 'b'"
    notes = parse_notes(line.format(12) + line.format(345) + arrive)
    assert [asdict(note) for note in notes] == [
        {
            "name": "wgmma_wait_injected",
            "code": "C7517",
            "entry": "k",
            "sentence": "wgmma.wait_group is injected by compiler to allow use of registers "
            "defined by GMMA in function 'k'",
            "count": 2,
        },
        {
            "name": "wgmma_arrive_injected",
            "code": "C7519",
            "entry": "b",
            "sentence": "warpgroup.arrive is injected in function 'b'",
            "count": 1,
        },
    ]
    assert parse_notes("ptxas info    : (C7602) Insufficient registers") == ()

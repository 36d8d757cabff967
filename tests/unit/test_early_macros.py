"""A macro before a header may not make it another one on a GPU than here."""

from __future__ import annotations

import pytest

from greenfast.search.kernels.catalogue import REPOSITORY_TEMPLATES
from greenfast.search.targets.emulator.early_macros import refused_macro

INCLUDE_DIRS = (REPOSITORY_TEMPLATES / "include",)
GF, CUDA = '#include "gf/async_copy.cuh"\n', "#include <cuda_fp16.h>\n"


@pytest.mark.parametrize(
    ("text", "macro"),
    [
        ("#define asm(...) ((void)0)\n" + GF, "asm"),
        ("  # \\\n define __asm__(...)\n" + GF, "__asm__"),
        ("#define /* */ volatile\n" + CUDA, "volatile"),
        ("#define async_copy_wait never\n" + GF + "#undef async_copy_wait\n", "async_copy_wait"),
        ("#undef __CUDA_ARCH__\n#define __CUDA_ARCH__ 500\n" + CUDA, "__CUDA_ARCH__"),
        ("#define __syncwarp(...)\n" + CUDA, "__syncwarp"),
        ("#define __hmma_m16n16k16_ld_b __hmma_m16n16k16_ld_a\n" + CUDA, "__hmma_m16n16k16_ld_b"),
        ("#define _CG_QUALIFIER\n" + CUDA, "_CG_QUALIFIER"),
        ("#define shfl_xor shfl\n#include <cooperative_groups.h>\n", "shfl_xor"),
        ("%:define if(x) while (x)\n" + CUDA + GF, "if"),
        ("#define push 1\n#pragma pack(push)\n", "push"),
    ],
)
def test_a_macro_that_changes_a_later_header_is_refused_with_its_line(text, macro):
    refused = refused_macro(f'#line 7 "mine.cu"\n{text}', "kernel.cu", INCLUDE_DIRS)
    assert refused is not None
    assert refused.sentence.startswith("mine.cu:7: " if "\\" not in text else "mine.cu:")
    assert f"the macro {macro} changes" in refused.sentence


HIDDEN = "#define asm(...)\n"


@pytest.mark.parametrize(
    "text",
    [
        f'#define aR\nauto z = aR"(";\n{HIDDEN}auto y = ")";\n',
        f"int z = 1'0 + '/*';\n{HIDDEN}// */\n",
        f"/* *\\\n/\n{HIDDEN}/* */\n",
        f'auto z = u8R"x( )x" "/*";\n{HIDDEN}// */\n',
        f'auto z = R""(" /*)"";\n{HIDDEN}// */\n',
        f"#if 0\n' /*\n#endif\n{HIDDEN}#if 0\n */\n#endif\n",
        f'#if 0\n\' R"(\n#endif\n{HIDDEN}#if 0\n )"\n#endif\n',
        f'auto z = R"(\\\n)";\n{HIDDEN}',
        f'#if 0\nR"(\n#endif\n{HIDDEN}',
    ],
)
def test_a_macro_is_found_behind_what_only_looks_like_a_comment_or_a_string(text):
    assert refused_macro(text + GF, "kernel.cu", INCLUDE_DIRS) is not None


@pytest.mark.parametrize(
    "text",
    [
        f'auto z = R"(\n{HIDDEN})";\n' + GF,
        f'auto z = R",(\n{HIDDEN}/*),";\n' + GF,
        f"/* it's\n{HIDDEN}*/ int a = 1'000; // don't\n" + GF,
        f"// a \\\n{HIDDEN}" + GF,
        "#error don't\n" + GF,
        "#define LONG(a) \\\n    f(a, \\\n      '\"', L'\"')\n" + GF,
        CUDA + GF + "#define asm(...)\n#define __syncwarp(...)\n",
        "#ifndef __MINE_H__\n#define __MINE_H__\n" + CUDA + GF,
        "#define __CUDA_NO_HALF_OPERATORS__\n" + CUDA,
        "#define WARP_SIZE 32\n#define THREADS 128\n#define CEIL_DIV(a, b) ((a + b - 1) / b)\n"
        + CUDA
        + GF,
        "#define my_bytes 4\n#define N 7\n" + CUDA,
        "#define inline\n#include <cstdint>\n",
        "// #define asm\n" + GF,
    ],
)
def test_other_macros_are_the_authors_business(text):
    assert refused_macro(text, "kernel.cu", INCLUDE_DIRS) is None

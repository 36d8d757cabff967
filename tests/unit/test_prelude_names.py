"""The prelude declares functions as NVRTC does: the same names, overloads and types of results.

A text could otherwise ask what a call means, and compute something else on a GPU than here.
"""

from __future__ import annotations

import re
from itertools import product

import numpy as np
import pytest
from emulator_harness import Kernel, prepared, values

from greenfast.search.digest import text_digest
from greenfast.search.kernels.template_text import Line
from greenfast.search.render import RenderedSource
from greenfast.search.targets.emulator.build import ModuleFailed
from greenfast.search.targets.emulator.source_rules import BUILTINS
from greenfast.search.toolchain import Cubin

CODES = """
template <class T> struct Code { static constexpr int v = 1; };
template <> struct Code<bool> { static constexpr int v = 2; };
template <> struct Code<int> { static constexpr int v = 3; };
template <> struct Code<long> { static constexpr int v = 4; };
template <> struct Code<long long> { static constexpr int v = 5; };
template <> struct Code<float> { static constexpr int v = 6; };
template <> struct Code<double> { static constexpr int v = 7; };
template <class T> __device__ T&& of();
"""
# 0: no such call. 100 more: the call is a constant expression.
ASKS = """
template <class... A> __device__ constexpr auto type_of_{0}(int)
    -> decltype({0}(of<A>()...), 0) {{ return Code<decltype({0}(of<A>()...))>::v; }}
template <class... A> __device__ constexpr int type_of_{0}(long) {{ return 0; }}
template <class A, class B, long long = (long long){0}(A(1), B(1)) * 0>
__device__ constexpr int folded_{0}(int) {{ return 100; }}
template <class A, class B> __device__ constexpr int folded_{0}(long) {{ return 0; }}
"""
ASKED = """acos atan2 cbrt copysign exp10 fabs fdim fdivide floor fma fmax fmin fmod hypot ilogb
    isfinite isinf isnan ldexp llround log2 lrint max min nextafter pow remainder rint rsqrt signbit
    sin sqrt
    sqrtf tgamma trunc abs __syncthreads_count atoi strtol qsort fadd isgreater div memcmp
    __acosf __half2float __float2bfloat16 make_half2""".split()  # noqa: SIM905
TYPES = ("float", "double", "int", "unsigned long")
ARGUMENTS = (
    [(a,) for a in TYPES] + list(product(TYPES, TYPES)) + [("float", "int*"), ("float",) * 3]
)
HEAD = 'extern "C" __global__ void k(float* c) {\n'


@pytest.fixture(scope="module")
def emulator(artifacts):
    return prepared(artifacts)


def compiled(toolchain, text: str) -> Cubin:
    lines = tuple(Line("asked.cu", number) for number in range(1, text.count("\n") + 1))
    source = RenderedSource(text, text_digest(text), lines, text, (), False)
    cubin = toolchain.compile(source, "sm_90")
    assert isinstance(cubin, Cubin), cubin.log
    return cubin


def test_calls_have_nvrtcs_types(emulator, toolchain):
    texts = [
        f"type_of_{name}<{', '.join(types)}>(0) + "
        + (f"folded_{name}<{', '.join(types)}>(0)" if types in product(TYPES, TYPES) else "0")
        for name in ASKED
        for types in ARGUMENTS
    ]
    head = CODES + "".join(map(ASKS.format, ASKED))
    table = f'{head}extern "C" __constant__ int asked[] = {{{", ".join(texts)}}};\n'
    source = f"{table}{HEAD}c[0] = asked[threadIdx.x];\n}}\n"
    cubin = compiled(toolchain, source)
    table = re.search(r"asked\[\d+\] = \{(.*?)\}", cubin.ptx, re.DOTALL)
    data = np.array([int(each) for each in table[1].split(",")], np.uint8)
    wanted = np.zeros(len(texts) * 4, np.uint8)
    wanted[: len(data)] = data
    kernel = Kernel(
        emulator, head + HEAD + "".join(f"c[{i}] = {text};" for i, text in enumerate(texts)) + "}\n"
    )
    answers = values(kernel({}, {"c": np.zeros(len(texts), np.float32)}, block=1), "c").astype(int)
    differ = {
        text: (int(a), int(b))
        for text, a, b in zip(texts, wanted.view(np.int32), answers, strict=True)
        if a != b
    }
    assert not differ
    assert set(answers.tolist()) >= {0, 3, 5, 6, 7}, "the question is asked in the right way"


def test_nvrtc_has_every_builtin_that_a_text_may_use(toolchain):
    calls = {
        "add_overflow": "1, 2, &n", "sub_overflow": "1, 2, &n", "mul_overflow": "1, 2, &n",
        "addressof": "n", "assume": "true", "assume_aligned": "c, 4", "bit_cast": "int, 1.0f",
        "copysign": "1.0, 2.0", "copysignf": "1.0f, 2.0f", "expect": "1, 1", "offsetof": "uint3, y",
        "isfinite": "c[0]", "isinf": "c[0]", "isnan": "c[0]",
        "is_constant_evaluated": "", "unreachable": "",
    }  # fmt: skip
    assert {f"__builtin_{name}" for name in calls} == set(BUILTINS)
    lines = "".join(f"__builtin_{name}({text});\n" for name, text in calls.items())
    source = f"{HEAD}int n;\n{lines}}}\n"
    assert compiled(toolchain, source).ptx


@pytest.mark.parametrize(
    ("text", "body"),
    [
        ("__device__ int atoi(...) { return 7; }\n", 'c[0] = atoi("1");'),
        ("__device__ int memmove(...) { return 7; }\n", "c[0] = memmove(c, c, 4);"),
        ("__device__ float hypotl(float x) { return x; }\n", "c[0] = hypotl(7.0f);"),
        ("struct half { float x; };\n", "half h{7}; c[0] = h.x;"),
        ("struct S { int div; };\n", "int random = 3; S s{4}; c[0] = random + s.div;"),
        ("#include <cuda_fp16.h>\n", "c[0] = __half2float(__float2half(7.0f));"),
        ("#include <cuda/std/cstring>\n", "float x = 7; cuda::std::memmove(c, &x, 4);"),
        ("", "float s, z; sincos(0.0f, &s, &z); c[0] = 6 + z; sincospi(0.0f, &s, &z); c[0] += s;"),
    ],
)  # fmt: skip
def test_a_name_that_nvrtc_lacks_is_the_texts_own(emulator, text, body):
    kernel = Kernel(emulator, f"{text}{HEAD}{body}\n}}\n")
    assert values(kernel({}, {"c": np.zeros(8, np.float32)}, block=1), "c")[0] == 7


@pytest.mark.parametrize(
    "used", ["using namespace ::std;", "namespace s = std; namespace t = ::s; using namespace t;"]
)
def test_namespace_std_is_not_used_by_another_name(emulator, used):
    """NVRTC's holds nothing that a call would find."""
    text = f"{used}\n{HEAD}c[0] = 1;\n}}\n"
    failed = emulator.build_module(text, ("k",), flavour="plain", deadline_s=60)
    assert isinstance(failed, ModuleFailed) and "namespace std is not open" in failed.log
    right = "namespace s = cuda::std; using namespace s; using namespace cuda::std;"
    Kernel(emulator, f"#include <cuda/std/utility>\n{right}\n{HEAD}c[0] = 1;\n}}\n")


@pytest.mark.parametrize(
    ("call", "name"),
    [("atoi(nullptr)", "atoi"), ("__half2float(0)", "__half2float"), ("sqrt(2)", "sqrt")],
)
def test_the_compilers_message_has_the_name_of_the_text(emulator, call, name):
    failed = emulator.build_module(
        f"{HEAD}c[0] = {call};\n}}\n", ("k",), flavour="plain", deadline_s=60
    )
    assert isinstance(failed, ModuleFailed) and name in failed.log and "gf_own" not in failed.log


def test_a_program_for_nvcc_has_the_overloads_for_integers(emulator):
    text = "#include <cmath>\n" + HEAD + "c[0] = sqrt(4) + fmax(1, 2.0f) + isnan(1) + sin(0);\n}\n"
    assert values(Kernel(emulator, text)({}, {"c": np.zeros(8, np.float32)}, block=1), "c")[0] == 4

"""A candidate's text cannot switch a check off, run before its kernel or see the emulator."""

from __future__ import annotations

import re
import time

import numpy as np
import pytest
from emulator_harness import Kernel, prepared, values

from greenfast.search.targets.emulator.build import ModuleFailed
from greenfast.search.targets.emulator.source_rewriting import Refused
from greenfast.search.targets.emulator.source_text import device_text
from greenfast.search.targets.emulator.source_tokens import line_directive
from greenfast.search.toolchain.includes import refused_include


@pytest.fixture(scope="module")
def emulator(artifacts):
    return prepared(artifacts)


def examined(emulator, text: str):
    return emulator.examined(f'#line 1 "test.cu"\n{text}\n', arch="sm_90", deadline_s=20)


KERNEL = 'extern "C" __global__ void k(float* out) { %s }'

GAP = "\n" * 12  # a preprocessor writes a line marker for it
UNWATCHED = '__attribute__((no_sanitize("thread")))'
OPERAND = 'unsigned x; asm("mov.u32 %%0, %%1;" : "=r"(x) : "r"([=]() %s { return 1u; }()));'

REFUSED = {
    # checks switched off
    "gnu attribute": '__attribute__((no_sanitize("thread"))) __device__ void f();',
    "one of several attributes": "__attribute__((aligned(4), __no_sanitize_thread__)) int f();",
    "standard attribute": '[[gnu::no_sanitize("thread")]] __device__ void f();',
    "standard attribute with using": "[[using gnu: noinline, optimize(0)]] __device__ void f();",
    "standard attribute in digraphs": "<:<:gnu::no_sanitize_thread:>:> __device__ void f();",
    "attribute from pasted tokens": (
        '#define P(a, b) a##b\n__attribute__((P(no_sani, tize)("thread"))) void f();'
    ),
    "attribute over lines": "__attribute__((\\\n  no_\\\nsanitize_thread)) void f();",
    "optimize attribute": '__attribute__((optimize("O0"))) __device__ void f();',
    "target attribute": '__attribute__((target("sse2"))) __device__ void f();',
    "optimize pragma": '#pragma GCC optimize("no-sanitize")\n',
    "pragma as an operator": '_Pragma("GCC optimize(0)")\n',
    "pragma from a macro": "#define P(x) _Pragma(#x)\nP(GCC push_options)\n",
    "omp pragma": "#pragma omp declare simd\n",
    "attribute in an operand of assembly": KERNEL % OPERAND % UNWATCHED,
    "standard attribute in an operand": KERNEL % OPERAND % '[[gnu::no_sanitize("thread")]]',
    "pragma in an operand": KERNEL
    % 'asm("" :: "r"([] { _Pragma("GCC optimize(0)") return 1; }()));',
    "attribute in an attribute": (
        f"__attribute__((aligned([]() {UNWATCHED} {{ return 16; }}()))) __device__ int z;"
    ),
    "attribute in one that another keeps": (
        f"__attribute__((always_inline, nonnull([]() {UNWATCHED} {{ return 1; }}()))) void f(int*);"
    ),
    "attribute in dynamic shared memory": (
        KERNEL % 'extern __shared__ float s[] [[gnu::section("x")]];'
    ),
    "pragma in dynamic shared memory": (
        KERNEL % 'extern __shared__ _Pragma("GCC optimize(0)") float s[];'
    ),
    "attribute over many lines": f'[{GAP}[gnu::no_sanitize("thread")]] __device__ void f();',
    "attribute around a pragma": "[\n#pragma unroll\n[gnu::optimize(0)]] __device__ void f();",
    "attribute around a pragma operator": '[_Pragma("unroll")[gnu::optimize(0)]] void f();',
    "attribute around another": "[__attribute__((unused))[gnu::optimize(0)]] void f();",
    "attribute around an include": "[\n#include <mma.h>\n[gnu::optimize(0)]] void f();",
    # the compiler's hooks and the runtime's calls
    "a call that the linker wraps": 'extern "C" void __wrap_sincosf(float, float*, float*) {}',
    "a call behind the wrapped one": 'extern "C" void __real_sincosf(float, float*, float*);',
    "the address of shared memory": 'extern "C" void* __tls_get_addr(void*) { return 0; }',
    "a header of the emulator alone": '#pragma gf_emulator_header "gf/named_barrier.cuh"\n',
    "the same in continued lines": '#pragma gf_emul\\\nator_header "gf/elect.cuh"\n',
    "own hook": 'extern "C" void __tsan_read4(void*) {}',
    "own hook, pasted": '#define P(a, b) a##b\nextern "C" void P(__ts, an_read4)(void*) {}',
    "own check handler": 'extern "C" void __ubsan_handle_out_of_bounds_abort(void*, long) {}',
    "a call of the runtime": KERNEL % "gf_emulator_yield();",
    "an entry of the runtime": 'extern "C" void gf_entry_k(void**) {}',
    "a macro of the stand-in headers": "GF_EMULATOR_ENTRY(k)",
    "a namespace of the stand-in headers": KERNEL % "gf_emulator::flushed(1.0f);",
    # host code
    "assembly": KERNEL % 'asm volatile("nop");',
    "assembly at the top": '__asm__(".incbin \\"/etc/hostname\\"");',
    "assembly, pasted": "#define P(a, b) a##b\n" + KERNEL % 'P(a, sm)("nop");',
    "assembly in continued lines": KERNEL % 'as\\\nm("nop");',
    "assembly behind a quote in a raw string's delimiter": (
        KERNEL % 'auto q = R""(" )""; asm("syscall"); q = R""( ")"";'
    ),
    "a macro of the host behind a literal": 'extern "C"__REDIRECT(int f, (int), system);',
    "a macro of the stand-in headers behind a literal": 'extern "C"GF_EMULATOR_ALIAS(k)',
    "a name in assembly": 'int a __asm__("environ");',
    "constructor attribute": "__attribute__((constructor)) void f() {}",
    "constructor attribute with underscores": "__attribute__((__constructor__(101))) void f() {}",
    "section attribute": '__attribute__((section(".init_array"))) void (*p)() = 0;',
    "alias": '__attribute__((alias("g"))) void f();',
    "indirect function": '__attribute__((ifunc("g"))) void f();',
    "weak import": "__attribute__((weak)) extern int environ;",
    "visibility": '__attribute__((visibility("default"))) void f() {}',
    "cleanup": KERNEL % "__attribute__((cleanup(f))) int a;",
    "vector extension": "typedef float V __attribute__((vector_size(64)));",
    "thread-local memory": "thread_local int a;",
    "thread-local memory of gcc": "__thread int a;",
    "computed goto": KERNEL % "l: void* p = &&l; goto *p;",
    "return address": KERNEL % "out[0] = (long)__builtin_return_address(0);",
    "frame address": KERNEL % "out[0] = (long)__builtin_frame_address(0);",
    "unwatched atomics": KERNEL % "__atomic_store_n((int*)out, 1, 0);",
    "older unwatched atomics": KERNEL % "__sync_fetch_and_add((int*)out, 1);",
    "unwatched builtins": KERNEL % '__builtin_strcpy((char*)out, "abc");',
    "unwatched functions of C": KERNEL % 'strcpy((char*)out, "abc");',
    "unwatched copies of C++": KERNEL % "std::copy(out, out + 64, out + 64);",
    "an alloca": KERNEL % "out[0] = *(float*)__builtin_alloca(64);",
    "the processor's vectors": KERNEL % "_mm256_storeu_ps(out, _mm256_setzero_ps());",
    "a vector type": "__m256 value;",
    "long double": KERNEL % "out[0] = sizeof(long double);",
    "double long": "double long value;",
    "complex": KERNEL % "_Complex float z = *(_Complex float*)out;",
    "dlsym": 'extern "C" void* dlsym(void*, const char*);',
    "a class of std, specialised": "template <> struct std::is_same<int, float> {};",
    "a variable of std, specialised": (
        "template <> inline constexpr bool std::is_same_v<unsigned, float> = true;"
    ),
    "a class of std by an alias": "namespace s = ::std;\ntemplate <> class s::is_signed<int> {};",
    "an algorithm's inside": KERNEL % "std::__copy_move_a<false>(out, out + 1, out);",
    "namespace std": "namespace std { template <class T> void swap(T&, T&); }",
    "namespace std over many lines": f"namespace{GAP}std {{ int a; }}",
    "namespace std with an attribute": "namespace [[deprecated]] std { int a; }",
    "namespace std in cuda": "namespace cuda::std { inline int abs(float) { return 0; } }",
    "a class of std, specialised in part": "template <class T> class std::remove_cv<T**> {};",
    "a variable of std, specialised in part": (
        "template <class T> constexpr bool ::std::is_same_v<T*, int> = true;"
    ),
    "a class of std by an alias's alias": (
        "namespace r = std;\nnamespace s = r;\ntemplate <> struct s::is_same<int, float> {};"
    ),
    "a template too long to be read": f"template <int N = {'+ 1 ' * 1100}> int a;",
    "long double over many lines": KERNEL % f"long{GAP}double x;",
    "a coordinate over many lines": KERNEL % f"dim3{GAP}blockDim;",
    "a coordinate behind a pragma": KERNEL % "dim3\n#pragma unroll\nblockDim;",
    "computed goto over an attribute": KERNEL % "l: void* p = &&l; goto [[likely]] *p;",
    "deep nesting": "(" * 300,
    "a quote without end": "int a;\n'\nint b;",
    # the emulator told from a GPU
    "the host's compiler": KERNEL % "out[0] = __GNUC__;",
    "the sanitizer": KERNEL % "out[0] = __SANITIZE_THREAD__;",
    "the processor": KERNEL % "out[0] = __x86_64__;",
    "a feature's question": "#if __has_builtin(__builtin_ia32_pause)\nint host;\n#endif",
    "an attribute's question": "#if __has_cpp_attribute(gnu::no_sanitize)\nint host;\n#endif",
    "an attribute's question, pasted": (
        "#define P(a, b) a##b\n#if P(__has_, builtin)(__builtin_ia32_pause)\nint host;\n#endif"
    ),
    "a file's question": '#if __has_include("/usr/bin/g++")\nint host;\n#endif',
    "a pasted file's question beside an honest one": (
        "#define P(a, b) a##b\n#if __has_include(<mma.h>) && P(__has_, builtin)(x)\n#endif"
    ),
    "a counter that NVRTC lacks": KERNEL % "out[0] = __COUNTER__;",
    "the name of the text": KERNEL % "out[0] = __BASE_FILE__[0];",
    "how the compiler spells a function": KERNEL % "out[0] = sizeof(__PRETTY_FUNCTION__);",
    # directives behind the preprocessor's back
    "a directive from a macro": "#define H #\nH define hidden asm\n",
    "a directive of digraphs": "#define H %:\nH pragma GCC optimize(0)\n",
    "a precompiled header": '#pragma GCC pch_preprocess "/tmp/other.gch"\n',
    "a pragma operator with a file": r'_Pragma("GCC dependency \"/etc/passwd\"")',
    "a header of the emulator": '#include "gf_emulator/abi.h"\n',
    "a header that is not there, by a pragma": '#pragma gf_emulator_header "/etc/passwd"\n',
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_way_around_the_checks_is_refused_with_its_line(emulator, name):
    answer = examined(emulator, f"// first line\n{REFUSED[name]}")
    assert not isinstance(answer, str), name
    sentence = answer.sentence if isinstance(answer, Refused) else answer.log
    assert re.search(r"test\.cu[:(]([2-6]|1[4-7])\b", sentence), (name, sentence)
    assert "/tmp" not in sentence.replace("/tmp/other.gch", ""), sentence


@pytest.mark.parametrize(
    ("name", "undefined"),
    [
        (name, True)
        for name in (
            "__GNUC__",
            "__clang__",
            "__linux__",
            "linux",
            "__x86_64__",
            "__OPTIMIZE__",
            "__SANITIZE_THREAD__",
            "GF_EMULATOR_CHECKED",
            "threadIdx",
            "printf",
            "__expf",
            "fminf",
            "alignas",
            "memcpy",
            "__has_feature",
            "__GLIBC__",
            "__FLT_MAX__",
        )
    ]
    + [
        (name, False)
        for name in (
            "__CUDACC__",
            "__CUDACC_RTC__",
            "__CUDA_ARCH__",
            "__shared__",
            "__launch_bounds__",
            "assert",
            "__EDG__",
            "CUDART_VERSION",
        )
    ],
)
def test_directives_see_the_device_and_not_the_host(emulator, name, undefined):
    text = examined(emulator, f"#ifdef {name}\nint is_defined;\n#else\nint is_undefined;\n#endif")
    assert isinstance(text, str)
    assert ("is_undefined" in text) is undefined


@pytest.mark.parametrize(("arch", "expected"), [("sm_80", 800), ("sm_90", 900), ("sm_89", 890)])
def test_the_architecture_is_the_targets(emulator, arch, expected):
    text = emulator.examined("int arch = __CUDA_ARCH__;\n", arch=arch, deadline_s=20)
    assert f"int arch = {expected};" in text


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("int a;\n#line 7\n", 2),
        ('#line 7 "other.cu"\n', 1),
        ('\n# 7 "other.cu" 3\n', 2),
        ("%: line 7\n", 1),
        ("#li\\\nne 7\n", 1),
        ("# /* a\n comment */ line 7\n", 1),
        ("/* a\n comment */ # line 7\n", 1),
        ('#\\\n 7 "x"\n', 1),
        ('const char* a = "// no comment";\n#line 7\n', 2),
        ("char quote = '\"';\n#line 7\nchar other = '\"';\n", 2),
        ('const char* raw = R"x(\n)" /* )x";\n#line 7\n//*/\n', 3),
        ("#error don't /*\n#line 7\n// */\n", 1),
        ('auto a = R"(\\\n)";\n', 1),
    ],
)
def test_a_text_cannot_claim_other_lines(text, line):
    directive = line_directive(text)
    assert directive is not None and directive[0] == line


@pytest.mark.parametrize(
    "text",
    [
        "// # 1 of the list\n/* #line\n#1 */\nint a = 1'000'000; // don't\n",
        'const char* a = "\\n#line 7";\n',
        'const char* a = R"(\n#line 7\n)";\n',
        "#define LINE(line) line\n#pragma unroll 4\n#if 1\n#endif\n",
        "int a = \\\n    2;\n",
    ],
)
def test_other_texts_claim_none(text):
    assert line_directive(text) is None


RIGHT = r"""
#include <cuda_fp16.h>
#include <cuda_bf16.h>
#include <cuda_runtime.h>
#include <cooperative_groups.h>
#if defined(__has_include) && __has_include(<mma.h>)
#include <mma.h>
#endif
#include <cstdint>
#include "gf/dtype.cuh"
#include "gf/reduce.cuh"
#include "gf/shared.cuh"
#pragma once
#pragma nv_diag_suppress 177
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wunused-variable"
#ifndef __CUDACC__
#error "this is CUDA"
#endif
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 700
#define HAS_TENSOR_CORES 1
#else
#define HAS_TENSOR_CORES 0
#endif
#ifdef __GNUC__
#define ASSUME(x) asm("" :: "r"(x))
#else
#define ASSUME(x) __builtin_assume(x)
#endif
#define CEIL_DIV(a, b) (((a) + (b) - 1) / (b))
#define CONCAT_(a, b) a##b
#define CONCAT(a, b) CONCAT_(a, b)
#define UNROLL _Pragma("unroll")
#define FORCE_INLINE __device__ __forceinline__
namespace cg = cooperative_groups;
namespace detail {
template <class T, int n>
struct alignas(sizeof(T) * n) Pack { T values[n]; };
union __align__(16) Bits { float4 f; uint32_t u[4]; struct { uint16_t low, high; } half[4]; };
#pragma pack(push, 1)
struct Header { char kind; int length; };
#pragma pack(pop)
struct __attribute__((packed)) Tight { char kind; int length; };
static_assert(sizeof(Header) == 5 && sizeof(Tight) == 5, "packed");
enum class Kind : uint8_t { add, multiply };
}
constexpr int threads = 64;
constexpr __device__ float table[4] = {1.0f, 2.0f, 3.0f, 4.0f};
__device__ __noinline__ float twice(float x) { return 2.0f * x; }
static __device__ __attribute__((always_inline)) inline float thrice(float x) { return 3.0f * x; }
[[nodiscard]] __host__ __device__ constexpr int square(int x) { return x * x; }
[[maybe_unused]] static __device__ float unused_value() { return 0.0f; }
typedef float (*Function)(float);
struct Shape {
    __device__ virtual float area(float x) const { return x; }
};
struct Square final : Shape {
    __device__ float area(float x) const override { return x * x; }
};
template <class F, class... Values>
FORCE_INLINE auto apply(F&& f, Values... values) -> decltype(f(values...)) { return f(values...); }
template <int n>
FORCE_INLINE float unrolled(const float* __restrict__ x) {
    float sum = 0.0f;
    UNROLL
    for (int i = 0; i < n; ++i) sum += x[i];
    #pragma unroll 2
    for (int i = 0; i < n; ++i) sum += 0.0f;
    return sum;
}
FORCE_INLINE float warp_sum(float value) {
    for (int offset = 16; offset > 0; offset >>= 1)
        value += __shfl_xor_sync(0xffffffffu, value, offset);
    return value;
}
extern "C" __global__ void __launch_bounds__(threads, 2)
k(const float* __restrict__ x, float* __restrict__ out, const int n) {
    GF_DYNAMIC_SHARED(float, scratch);
    __shared__ alignas(16) float tile[threads];
    __shared__ __align__(16) detail::Pack<float, 4> packs[4];
    const int i = blockIdx.x * blockDim.x + threadIdx.x, CONCAT(lane, _id) = threadIdx.x % warpSize;
    tile[threadIdx.x] = i < n ? x[i] : 0.0f;
    scratch[threadIdx.x] = tile[threadIdx.x];
    if (threadIdx.x < 4) packs[threadIdx.x] = {{1.0f, 2.0f, 3.0f, 4.0f}};
    auto block = cg::this_thread_block();
    block.sync();
    detail::Bits bits;
    bits.f = *reinterpret_cast<const float4*>(&tile[0]);
    float as_float;
    uint32_t raw = bits.u[1];
    memcpy(&as_float, &raw, sizeof as_float);
    const bool is_odd = threadIdx.x & 1;
    Function function = is_odd ? twice : thrice;
    Shape plain;
    Square squared;
    const Shape* shape = is_odd ? &plain : &squared;
    float local[8] = {};
    for (int j = 0; j < 8; ++j) local[j] = table[j & 3];
    auto scaled = [=](float value) mutable { return value * local[1]; };
    float result = apply(scaled, tile[threadIdx.x]) + function(1.0f) + shape->area(3.0f);
    if constexpr (HAS_TENSOR_CORES) result += square(2);
    switch (static_cast<detail::Kind>(threadIdx.x % 2)) {
        case detail::Kind::add: result += as_float; [[fallthrough]];
        default: result += packs[1].values[2];
    }
    __half2 pair = __floats2half2_rn(result, 1.0f);
    result = __low2float(pair) + unrolled<4>(local) + warp_sum(1.0f) + scratch[63 - threadIdx.x];
    ASSUME(n > 0);
    assert(n > 0);
    if (result < 0.0f) printf("%f\n", result);
    volatile float* watched = out;
    if (__builtin_expect(i < n, 1)) watched[i] = fmaxf(result, -INFINITY) + __popc(lane_id);
}
"""


@pytest.mark.parametrize("flavour", ["plain", "counted", "checked"])
def test_what_cuda_code_is_made_of_is_not_refused(emulator, flavour):
    kernel = Kernel(emulator, RIGHT, flavour=flavour)
    x = np.arange(64, dtype=np.float32)
    result = kernel(
        {"x": x},
        {"out": np.zeros(64, np.float32)},
        64,
        block=64,
        smem=256,
        check=flavour == "checked",
    )
    got = values(result, "out")
    odd = np.arange(64) % 2 == 1
    before = 2 * x + np.where(odd, 2 + 3, 3 + 9) + 4 + np.where(odd, 0, x[1]) + 3
    lanes = np.array([bin(i % 32).count("1") for i in range(64)])
    want = before.astype(np.float16).astype(np.float32) + 10 + 32 + x[::-1] + lanes
    np.testing.assert_array_equal(got, want)
    assert not result.findings


def test_the_lines_of_a_finding_are_the_texts_own(emulator):
    text = (
        "#define TWO_LINES(a, \\\n    b) a b\n"
        "__attribute__((\n    unused))\n"
        "static __device__ int nothing(\n    int a);\n"
        'extern "C" __global__ void __launch_bounds__(\n    64) k(float* out) {\n'
        "    __shared__ float tile[64];\n"
        "    tile[threadIdx.x] = 1.0f;\n"
        "    out[threadIdx.x] = tile[63 - threadIdx.x];\n}\n"
    )
    kernel = Kernel(emulator, text, flavour="checked")
    result = kernel({}, {"out": np.zeros(64, np.float32)}, block=64, check=True)
    races = [finding for finding in result.findings if finding.kind == "race"]
    assert races
    assert {races[0].where, races[0].other_where} == {("test.cu", 10), ("test.cu", 11)}


@pytest.mark.parametrize(
    ("text", "left"),
    [
        ('a[[likely]]sm("syscall");', 'a sm("syscall");'),
        ("__attri[[likely]]bute__((constructor)) void f();", "__attri bute__("),
        ('int x = 8 /_Pragma("unroll")*p;', "8 / *p;"),
        ("x = y +__attribute__((unused))+ z;", "+ + z;"),
    ],
)
def test_what_is_left_out_joins_no_tokens(emulator, text, left):
    assert left in re.sub(r"\s+", " ", examined(emulator, text))


def test_the_compiler_itself_refuses_words_that_the_reader_of_tokens_would_miss(emulator):
    missed = examined(emulator, KERNEL % "") + 'void f() { asm("nop"); }\n'
    built = emulator.build_module(missed, ("k",), flavour="plain", deadline_s=60, is_examined=False)
    assert isinstance(built, ModuleFailed)
    assert re.search("poisoned .asm", built.log) and not re.search("poisoned .n", built.log)


@pytest.mark.parametrize(
    "text",
    [
        "template <class T> struct A : ::std::true_type {};\ntemplate <> struct A<int> {};",
        "template <class T> std::enable_if_t<std::is_same_v<T, int>, int> f(T x) { return x; }",
        "template <int N = (3 > 2), bool B = N <= 1 << 2> constexpr int of_v = N;",
        "template <template <class> class F, class... T> struct A { long __device__ f(double); };",
        "namespace a::b { inline namespace c { int x; } }\nnamespace d = a::b;",
        "void f(int s) { if (s)\n#pragma unroll\nwhile (s) s++; else\n#pragma unroll\nwhile (s); }",
        f'extern "C"{GAP}__global__{GAP}void k({GAP}) {{{GAP}asm({GAP}"bar.sync 0;"{GAP}); }}',
    ],
)
def test_what_lies_between_tokens_does_not_matter_in_right_texts(emulator, text):
    assert isinstance(examined(emulator, text), str)


@pytest.mark.parametrize(
    "piece", ["extern ", "template < ", "threadIdx, ", '"\\', 'R"a( ', ".1", "'"]
)
def test_a_text_of_one_piece_is_read_in_a_time_that_grows_with_its_length(piece):
    """Reading it again for each piece would take most of an hour."""
    begin = time.process_time()
    text = "int a = f(" + piece * 30_000
    device_text(text, (), ())
    refused_include(text, "kernel.cu")
    assert time.process_time() - begin < 30

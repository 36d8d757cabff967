"""`greenfast import`: constants that are tuned, names of host headers, forms of declarations."""

from __future__ import annotations

from pathlib import Path

import pytest
from test_import_kernel import run  # noqa: F401

from greenfast.app.cli.import_constants import constants_as_defines
from greenfast.app.cli.import_headers import device_lines
from greenfast.app.cli.import_host_functions import without_host_functions
from greenfast.app.cli.import_host_names import with_host_names
from greenfast.app.cli.import_instance import instantiated
from greenfast.app.cli.import_source import CudaText
from greenfast.search.errors import UsageError
from greenfast.search.kernels.kernel_file import load_kernel


def of(text):
    return CudaText(text, tuple(f"k.cu:{n}" for n, _ in enumerate(text.split("\n"), 1)))


@pytest.mark.parametrize(
    ("text", "define"),
    [
        ("static const int T = 32;", "#define T 32"),
        ("a;\n  constexpr unsigned T{32u}; // threads\nb;", "a;\n  #define T 32 // threads\nb;"),
        ("int const T = 8;\r", "#define T 8\r"),
        ("inline constexpr bool T = true;", "#define T true"),
        ("const int i = x * T; const bool b = x * T == 4;", None),
        ("template <int T = 3> void k(); enum { U = T };", None),
    ],
)
def test_a_constant_becomes_a_define_in_its_line(text, define):
    assert constants_as_defines(of(text), ["T"]).text == (define or text)


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("a;\nconstexpr int S = 1, T = 2;", "k.cu:2: T is a constant here"),
        ("enum Sizes : int { S, T = 3 };", "k.cu:1: T is an enumerator here"),
        ("constexpr int T = 4 * S;", "#define T 32"),
    ],
)
def test_a_constant_that_no_parameter_can_replace_is_refused(text, sentence):
    with pytest.raises(UsageError) as refused:
        constants_as_defines(of(text), ["T"])
    assert sentence in str(refused.value)


def test_std_becomes_that_of_cuda_where_its_headers_are_included():
    text = "#include <cuda/std/limits>\nauto x = std::numeric_limits<T>::max() + std::exp(1.f);"
    changed = with_host_names(of(text)).text
    assert changed.endswith("auto x = cuda::std::numeric_limits<T>::max() + exp(1.f);")
    assert with_host_names(of(changed)).text == changed


@pytest.mark.parametrize("header", ["torch/extension.h", "pybind11/stl.h", "iostream"])
def test_a_header_that_no_device_has_becomes_a_comment(header):
    (line,) = device_lines(f"# include <{header}>")
    assert line.startswith("//") and header in line
    for line in ("#include <cub/cub.cuh>", "#include <cutlass/cutlass.h>"):  # the second is told
        assert device_lines(line) == [line]


def test_names_that_nvcc_finds_by_itself_are_declared_behind_the_includes():
    text = (
        "#include <mma.h>\nuint k(std::int8_t* x) { return std::min(2, 3) / M_PI; }\n"
        "#define ulong int\nulong u;"
    )
    changed = with_host_names(of(text))
    first, second, third = changed.text.split("\n")[:3]
    assert (first, second) == ("#include <mma.h>", "#include <cuda/std/cstdint>")
    assert third == "typedef unsigned int uint;" and "ulong ulong" not in changed.text
    assert "\n#define M_PI 3.14" in changed.text and "k(int8_t* x) { return min(2" in changed.text
    lines = changed.text.split("\n")
    assert len(lines) == len(changed.places)
    assert changed.places[next(n for n, each in enumerate(lines) if "uint k" in each)] == "k.cu:2"


HOST = """using namespace std;
#define CHECK(call) { if (call) exit(1); }
#define DEVICES __device__ inline
struct Timer { void start() { cudaEventCreate(0); } };
struct Two { float a, b; };
DEVICES float twice(float x) { return 2 * x; }
static const float table[] = {1, 2};
namespace util { template <typename T> bool same(const T* a) { return *a == '{'; } }
template bool util::same<char>(const char*);
__global__ void k(float* x) { if (x) { *x = twice(*x); } }
extern "C" void run(float* x) { k<<<1, 32>>>(x); }
int main(int argc, char** argv) {
    puts("}"); CHECK(cudaMalloc(0, 4)); return 0;
}
"""


def test_host_functions_leave_the_text_and_its_lines_stay():
    source, names = without_host_functions(of(HOST))
    assert names == ("Timer", "same", "run", "main")
    lines = source.text.split("\n")
    assert len(lines) == len(HOST.split("\n")) and lines[0] == "// using namespace std;"
    kept = HOST.split("\n")
    kept[3], kept[7] = "", "namespace util {  }"
    kept[8] = " " * len(kept[8])
    assert lines[1:10] == kept[1:10] and not any(lines[10:])
    assert without_host_functions(of("void f() {}")) == (of("void f() {}"), ())


def test_instances_and_declarations_of_a_template_leave_the_text():
    kernel = "template <typename T>\n__global__ void k(T* x) { *x = 1; }"
    around = (
        "template <typename T> __global__ void k(T*);",
        "template __global__ void\nk<int>(int*);",
    )
    source, entry, _ = instantiated(of(f"{around[0]}\n{kernel}\n{around[1]}"), "k<int>", "k.cu", ())
    assert entry == "k_entry" and source.text.count("__global__") == 1
    assert len(source.text.split("\n")) == len(source.places)


def test_sizes_may_have_commas_in_brackets_and_the_constant_is_the_default(run):  # noqa: F811
    Path("k.cu").write_text("""#include <mma.h>
using namespace nvcuda::wmma;
static const int threads = 64;
__global__ void k(const float* x, float* y, int n) {
    if (threadIdx.x == 0 && 4 * blockIdx.x < n) y[blockIdx.x] = x[4 * blockIdx.x];
}
""")
    given = ("--tune", "threads=32,64", "--grid", "ceil_div(n, 4)", "--block", "threads",
             "--arg", "x:float32[n]", "--arg", "n:int32=100")  # fmt: skip
    code, _, error = run("import", "k.cu", *given, "--arg", "y:float32[ceil_div(n, threads)]:out")
    assert code == 2 and "a size cannot depend on a tuned parameter" in error
    code, _, error = run("import", "k.cu", *given, "--arg", "y:float32[1, ceil_div(n, 4)]:out")
    assert code == 0, error
    kernel = load_kernel(Path("kernels/k"))
    assert dict(kernel.templates[0].preset("defaults").parameters) == {"threads": 64}
    assert kernel.pointer_bytes == 32  # as wmma needs


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("--block", "N // 2"), "uses the unknown name 'N' (known: per_thread"),
        (("--block", "32", "--smem", "8 << per_thread"), "1 << n is written 2**n"),
    ],
)
def test_a_launch_that_no_call_can_have_is_told(run, arguments, sentence):  # noqa: F811
    code, _, error = run("import", "saxpy.cu", "--tune", "per_thread=1,2", "--grid", "n",
                         "--arg", "x:float32[n]", "--arg", "y:float32[n]:out",
                         "--arg", "n:int32=100", "--arg", "a:float32=1", *arguments)  # fmt: skip
    assert code == 2 and sentence in error

"""The host's part of a CUDA text: kernels that write their launches down, and calls of them."""

# ruff: noqa: E501 - texts and what becomes of them, beside each other

from __future__ import annotations

import pytest

from greenfast.search.diagnose.host_names import entry_of
from greenfast.search.diagnose.host_text import host_program
from greenfast.search.errors import UsageError


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("k<<<1, 2>>>(x);", "(::gf_recorder::configure(1, 2), k(x));"),
        ("k<<<g, b, 4 * (n >> 1), s>>>(x, y);", "(::gf_recorder::configure(g, b, 4 * (n >> 1), s), k(x, y));"),
        ("ns::k<float, 4> <<<g, b>>> (x);", "(::gf_recorder::configure(g, b), ns::k<float, 4> (x));"),
        ("friend A& operator<< <T>(A&, T);", "friend A& operator<< <T>(A&, T);"),
        ("out << ':' << e;", "out << ':' << e;"),
        ("k <4><< <g, b >> >(x);", "(::gf_recorder::configure(g, b ), k <4>(x));"),
        ("k<A<B<int>>><<<1, 1>>>(f(a, g(b)));", "(::gf_recorder::configure(1, 1), k<A<B<int>>>(f(a, g(b))));"),
        ("this->k_<<<1, 1>>>();", "(::gf_recorder::configure(1, 1), this->k_());"),
        ("a.table[i + 1]<<<1, 1>>>(x);", "(::gf_recorder::configure(1, 1), a.table[i + 1](x));"),
        ("return ::ns::k<f(1)>[0]<<<1, 1>>>();", "return (::gf_recorder::configure(1, 1), ::ns::k<f(1)>[0]());"),
        ("(*table[i])<<<1, 1>>>(x);", "(::gf_recorder::configure(1, 1), (*table[i])(x));"),
        ('puts("k<<<1, 2>>>(x)");', 'puts("k<<<1, 2>>>(x)");'),
        ("vector<vector<vector<int>>> v; int c = '<';", "vector<vector<vector<int>>> v; int c = '<';"),
    ],
)  # fmt: skip
def test_a_launch_is_a_call_with_its_configuration(text, expected):
    assert host_program(text) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("__global__ void k(float* x, int n) { x[n] = 1; }", 'void k(float* x, int n) { ::gf_recorder::launch(__PRETTY_FUNCTION__, 0, "x, n", x, n); }'),
        ("__global__ __launch_bounds__(256, 2) void k() { __syncthreads(); }", 'void k() { ::gf_recorder::launch(__PRETTY_FUNCTION__, 0, ""); }'),
        ("void __global__ k(const int) {}", 'void k(const int gf_parameter_0) { ::gf_recorder::launch(__PRETTY_FUNCTION__, 0, "gf_parameter_0", gf_parameter_0); }'),
        ("__global__ void k(const __grid_constant__ P p, float (*m)[4]) {}", 'void k(const P p, float (*m)[4]) { ::gf_recorder::launch(__PRETTY_FUNCTION__, 0, "p, m", p, m); }'),
        ("template <class... T> __global__ void k(T... values) {}", 'template <class... T> void k(T... values) { ::gf_recorder::launch(__PRETTY_FUNCTION__, 1, "values", values...); }'),
        ("template <class T> __global__ void k(T x); template <> __global__ void k(int x) {}", 'template <class T> void k(T x); template <> void k(int x) { ::gf_recorder::launch(__PRETTY_FUNCTION__, 1, "x", x); }'),
        ("template <class T> __global__ void k(T x); template <> __global__ void k<A<int>>(A<int> x) {}", 'template <class T> void k(T x); template <> void k<A<int>>(A<int> x) { ::gf_recorder::launch(__PRETTY_FUNCTION__, 1, "x", x); }'),
        ("__global__ void k(float*, int n = f(1, 2));", "void k(float*, int n = f(1, 2));"),
    ],
)  # fmt: skip
def test_a_kernel_writes_its_launch_down(text, expected):
    assert host_program(text).split() == expected.split()


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("static __device__ __forceinline__ float f(float x) { return __ldg(&x); }", "static __forceinline__ float f(float x) ;"),
        ("__device__ float f(float x);", "float f(float x);"),
        ("template <> __device__ void f<half, 2>(P<half, 2>* p) { go(); }", "template <> void f<half, 2>(P<half, 2>* p) ;"),
        ("__host__ __device__ int g(int x) { return x; }", "int g(int x) { return x; }"),
        ("constexpr __device__ int h() { return 4; }", "constexpr int h() { return 4; }"),
        ("__constant__ float c[2] = {1, 2};", "float c[2] = {1, 2};"),
        ("__device__ int count = f();", "int count = f();"),
        ("struct S { __device__ S(int n) : a(n), b{n} { go(); } __device__ bool operator()(int i) const { return i; } int a, b; };", "struct S { S(int n) ; bool operator()(int i) const ; int a, b; };"),
        ("struct S { __device__ S& operator=(const S& s) { return *this; } };", "struct S { S& operator=(const S& s) ; };"),
        ("auto l = [=] __device__ (int i) { return i; };", "auto l = [=] (int i) { return i; };"),
    ],
)  # fmt: skip
def test_code_for_the_device_alone_loses_its_bodies(text, expected):
    assert host_program(text).split() == expected.split()


def test_a_launch_that_cannot_be_read_is_refused_with_its_line():
    with pytest.raises(UsageError, match="the launch in line 3 cannot be read"):
        host_program("int a;\nint b;\n+<<<1, 2>>>(x);")
    with pytest.raises(UsageError, match=r"the launch in a\.cu:12 cannot be read"):
        host_program('# 1 "b.cuh" 1\nint a;\n# 11 "a.cu" 2\nint b;\n+<<<1, 2>>>(x);')


@pytest.mark.parametrize(
    ("function", "entry"),
    [
        ("void k(const float*, int)", "k"),
        ("void k(size_t) [with size_t = long unsigned int]", "k"),
        ("void k(T, size_t) [with T = int; size_t = long unsigned int]", "k<int>"),
        ("void ns::k(T*) [with T = float]", "ns::k<float>"),
        ("void k(T, U) [with T = std::pair<int, float>; U = A<2>; int n = 4]", "k<std::pair<int, float>, A<2>, 4>"),
        ("void {anonymous}::apply(F, float*) [with F = Twice]", "apply<Twice>"),
        ("void k(T ...) [with T = {int, float}]", "k<int, float>"),
    ],
)  # fmt: skip
def test_the_entry_follows_from_the_compiler_s_name_of_the_function(function, entry):
    count = 0 if entry == "k" else 3 if "A<2>" in entry else 1
    assert entry_of(function, count) == entry

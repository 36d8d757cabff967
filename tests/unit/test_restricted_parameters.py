"""Which parameters the compiler may read by the read-only path."""

from __future__ import annotations

import pytest

from greenfast.search.diagnose.restricted_parameters import parameters_in, promises_no_write


@pytest.mark.parametrize(
    "parameter, promises",
    [
        ("const float* __restrict__ x", True),
        ("float const *__restrict x", True),
        ("const float4 * const __restrict__ x", True),
        ("const T*__restrict__ x", True),
        ("float* __restrict__ x", False),
        ("float* const __restrict__ x", False),
        ("const float* x", False),
        ("const int n", False),
        ("constant* __restrict__ x", False),
    ],
)
def test_only_const_and_restrict_promise_that_nobody_writes(parameter, promises):
    assert promises_no_write(parameter) is promises


def test_parameters_of_a_text_are_those_of_the_definition():
    text = """
    // k(const int* __restrict__ comment) {
    extern "C" __global__ void k(int* y);
    extern "C" __global__ void k(const int* __restrict__ x, /* and */ int* y)
    { helper(x, y); }
    """
    listed = parameters_in(text, ["k", "absent"])
    assert [each.strip() for each in listed["k"]] == ["const int* __restrict__ x", "int* y"]
    assert set(listed) == {"k"}

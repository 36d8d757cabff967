"""Checked runs report reads of what nobody wrote, and accesses beyond an object with its owner."""

from __future__ import annotations

import pytest
from checked_runs import HEAD, SHARED, checked, lines
from emulator_harness import only_right, prepared


@pytest.fixture(scope="session")
def emulator(artifacts):
    return prepared(artifacts)


def test_reads_of_what_nobody_wrote(emulator):
    text = SHARED + "if (t != 5) s[t] = a[t];\n__syncthreads();\nc[t] = s[t];\n}"
    for result in checked(emulator, text, block=64):
        (finding,) = result.findings
        assert (finding.kind, finding.where, finding.offset_bytes, finding.count) == (
            "uninitialised",
            ("test.cu", 6),
            20,
            1,
        )
        assert finding.thread == (5, 0, 0) and finding.other_where is None


def test_an_output_is_not_read_before_it_is_written(emulator):
    for result in checked(emulator, HEAD + "c[threadIdx.x] += a[threadIdx.x];\n}"):
        (finding,) = result.findings
        assert (finding.kind, finding.where, finding.memory, finding.count) == (
            "uninitialised",
            ("test.cu", 2),
            "global:c",
            32,
        )


DYNAMIC = (
    '#include "gf/shared.cuh"\n'
    + HEAD
    + "GF_DYNAMIC_SHARED(float, s);\nconst int t = threadIdx.x;\n"
)


def test_shared_memory_ends_exactly_where_the_launch_says(emulator):
    text = DYNAMIC + "s[t] = a[t];\nc[t] = s[t];\n}"
    only_right(checked(emulator, text, smem=128))
    for result in checked(emulator, text, smem=124):
        finding = result.findings[0]
        assert (finding.kind, finding.where, finding.offset_bytes) == (
            "out_of_bounds",
            ("test.cu", 5),
            124,
        )
        assert "0 bytes past the end of the 124 bytes of dynamic shared memory" in finding.sentence


def test_static_shared_memory_has_an_end_too(emulator):
    by_index, by_pointer = "s[t + int(a[39])]", "*(s + t + int(a[39]))"
    for reading, phrase in (
        (by_index, "of an array of type 'float [64]'"),
        (by_pointer, "past the end of the 256 bytes of static shared memory"),
    ):
        text = SHARED + f"s[t] = a[t];\n__syncthreads();\nc[t] = {reading};\n}}"
        for result in checked(emulator, text, block=64):
            outside = [finding for finding in result.findings if finding.kind == "out_of_bounds"]
            assert [finding.where for finding in outside] == [("test.cu", 6)], result.findings
            assert phrase in outside[0].sentence


def test_a_threads_own_array_has_an_end_too(emulator):
    text = (
        HEAD
        + "float own[4] = {};\nown[3 + int(a[39])] = a[threadIdx.x];\nc[threadIdx.x] = own[3];\n}"
    )
    for result in checked(emulator, text):
        finding = result.findings[0]
        assert (finding.kind, finding.where) == ("out_of_bounds", ("test.cu", 3))
        assert "of an array of type 'float [4]'" in finding.sentence


@pytest.mark.parametrize(("end", "alarm"), [(4, False), (5, True)])
def test_a_class_element_past_a_threads_own_array_is_seen_where_it_is_assigned(
    emulator, end, alarm
):
    """Assignment takes an address, so the check of indices allows one element past the end."""
    text = (
        "#include <cuda_fp16.h>\n" + HEAD + "struct { __half element[4]; } own;\n"
        f"for (int e = 0; e < {end} + int(a[0]) - 1; ++e)\n"
        "    own.element[e] = __float2half_rn(a[e]);\n"
        "c[threadIdx.x] = __half2float(own.element[threadIdx.x % 4]);\n}"
    )
    for result in checked(emulator, text):
        assert lines(result, "out_of_bounds") == ({(5,)} if alarm else set()), result.findings


@pytest.mark.parametrize(
    "index, owner",
    [("t + 1", "0 bytes past the end of 'a'"), ("t - 1", "4 bytes before the start of 'a'")],
)
def test_a_read_beside_a_buffer_names_it_and_the_distance(emulator, index, owner):
    text = HEAD + f"const int t = threadIdx.x;\nc[t] = a[{index}];\n}}"
    for result in checked(emulator, text, block=64):
        finding = result.findings[0]
        assert (finding.kind, finding.where, finding.memory) == (
            "out_of_bounds",
            ("test.cu", 3),
            "global:a",
        )
        assert owner in finding.sentence

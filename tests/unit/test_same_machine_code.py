"""Whether two texts have the same machine code, and what is renewed when they have."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from bench.correctness.machine_code import difference
from bench.correctness.renew_digests import NotProved, Proof, renewed_recording, renewed_text
from greenfast.search.kernels.template_text import Line
from greenfast.search.render import RenderedSource, assemble

KERNEL = """\
{helper}
extern "C" __global__ void k(float* y, float x)
{{
    {comment}
    y[threadIdx.x] = {value};
}}
"""
OLD, NEW, OTHER = "a" * 64, "b" * 64, "c" * 64


def source(**parts: str) -> RenderedSource:
    defaults = {"helper": "", "comment": "", "value": "x * 2.0f"}
    text = KERNEL.format(**{**defaults, **parts})
    body = [(line, Line("k.cu", number)) for number, line in enumerate(text.split("\n"), 1)]
    return assemble(body, ("k",), ())


@pytest.fixture(scope="module")
def cubin(toolchain):
    return lambda **parts: toolchain.compile(source(**parts), "sm_90")


def test_comments_and_helpers_leave_the_machine_code_as_it_was(cubin):
    helper = "__device__ __forceinline__ float twice(float x) { return x * 2.0f; }"
    before = cubin()
    for parts in (
        {"comment": "// twice x"},
        {"helper": helper, "value": "twice(x)"},
        {"helper": "using Number = float;"},
    ):
        assert difference(before, cubin(**parts)) == "", parts


@pytest.mark.parametrize(
    ("parts", "section"),
    [
        ({"value": "x * 3.0f"}, ".text.k"),
        ({"helper": "__constant__ float table[2] = {1.0f, 2.0f};", "value": "table[threadIdx.x]"},
         ".nv.constant3"),
        ({"comment": "__shared__ float kept[64]; kept[threadIdx.x] = x; __syncthreads();",
          "value": "kept[63 - threadIdx.x]"}, "figures of k"),
    ],
)  # fmt: skip
def test_other_arithmetic_constants_and_shared_memory_are_differences(cubin, parts, section):
    assert section in difference(cubin(), cubin(**parts)).split(", ")


def test_an_equal_text_with_another_constant_is_a_difference(cubin):
    table = "__constant__ float table[2] = {1.0f, %s};"
    one, other = (
        cubin(helper=table % number, value="table[threadIdx.x]") for number in ("2.0f", "3.0f")
    )
    assert difference(one, other) == ".nv.constant3"


def compared(**changes: object) -> dict[str, object]:
    row = {"name": "k/t", "before": OLD, "after": NEW, "verdict": "same image"}
    return {
        "rows": [{**row, **changes}],
        "templates": ["k/t"],
        "toolchain": {"nvidia-cuda-nvrtc": "13.5.37"},
    }


def recording(*digests: str, compiler: str = "13.5.37") -> str:
    heading = {"kernel": "k", "environment": [["nvidia-cuda-nvrtc", compiler]], "text": OLD}
    rows = [[number, "t", [1], value, None] for number, value in enumerate(digests)]
    lines = [heading, *rows, {"end": True, "rows": len(rows)}]
    return "".join(json.dumps(line, separators=(",", ":")) + "\n" for line in lines)


def test_the_rows_of_a_recording_are_renewed_and_its_heading_stays():
    proof = Proof.of(compared())
    renewed = renewed_recording(recording(OLD, OLD), proof)
    assert renewed == recording(NEW, NEW)
    assert renewed_recording(renewed, proof) == renewed, "again"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (recording(OLD, OTHER), "candidate 1 with the source cccccccccccc was not compared"),
        (recording(OLD, compiler="13.0.88"), "it was compiled by 13.0.88, not by 13.5.37"),
    ],
)
def test_a_recording_is_not_renewed_without_the_proof_of_every_row(text, message):
    with pytest.raises(NotProved, match=message):
        renewed_recording(text, Proof.of(compared()))


def test_a_comparison_with_a_difference_proves_nothing():
    with pytest.raises(NotProved, match="1 candidates differ, the first is k/t"):
        Proof.of(compared(verdict="different"))


def test_a_recording_of_a_template_that_was_not_compared_stays():
    proof = replace(Proof.of(compared()), templates=frozenset({"k/other"}))
    assert renewed_recording(recording(OLD, OTHER), proof) == recording(OLD, OTHER)


def test_digests_in_results_are_renewed_where_they_are_known():
    text = json.dumps({"source": OLD, "candidate": OTHER, "rows": [{"source_digest": OLD}]})
    assert renewed_text(text, Proof.of(compared())) == (text.replace(OLD, NEW), 2)

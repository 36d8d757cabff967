"""The machine code of a bundle is compared with what NVRTC makes of its source, byte by byte."""

from __future__ import annotations

import struct
from dataclasses import replace

import pytest

from greenfast.app.bundle.machine_code import as_text, compared_code, compiled_code
from greenfast.search.kernels.template_text import Line
from greenfast.search.toolchain import Toolchain

TEXT = 'extern "C" __global__ void twice(float* x) { x[threadIdx.x] *= 2.0f; }\n'
NAME = "kernel.sm_90.cubin"


@pytest.fixture(scope="module")
def image(toolchain) -> bytes:
    return compiled_code(toolchain, TEXT, "sm_90")[NAME]


def with_more_registers(image: bytes) -> bytes:
    """A section's head says how many registers its code has; no section's bytes say so."""
    (headers_at,) = struct.unpack_from("<Q", image, 0x28)
    count, names = struct.unpack_from("<HH", image, 0x3C)
    (names_at,) = struct.unpack_from("<Q", image, headers_at + 64 * names + 0x18)
    for place in range(headers_at, headers_at + 64 * count, 64):
        name_at = names_at + struct.unpack_from("<I", image, place)[0]
        if image[name_at:].startswith(b".text.twice\0"):
            (figures,) = struct.unpack_from("<I", image, place + 0x2C)
            return image[: place + 0x2C] + struct.pack("<I", figures + 1) + image[place + 0x30 :]
    raise AssertionError("the code has no section .text.twice")


def test_the_code_of_its_source_agrees(toolchain, image):
    same, sentence = compared_code({NAME: image}, as_text(TEXT, ()), toolchain)
    assert same is True and "sm_90" in sentence


@pytest.mark.parametrize("beside", [{}, {"kernel.sm_30.cubin": b"of a GPU without a compiler"}])
def test_other_code_disagrees_also_beside_code_that_nobody_can_judge(toolchain, image, beside):
    files = {**beside, NAME: with_more_registers(image)}
    same, sentence = compared_code(files, as_text(TEXT, ()), toolchain)
    assert same is False and "its headers" in sentence


def test_an_assertion_is_compiled_as_its_bundle_shows_it(tmp_path):
    """Its code holds the place of its line, which a template and a bundle name differently."""
    text = TEXT.replace("{ x", "{ assert(x[0] > 0); x")
    first, second = Toolchain(tmp_path / "a", 1), Toolchain(tmp_path / "b", 1)
    try:
        stored = as_text(text, ())
        first.compile(replace(stored, lines=(Line("of_a_template.cu.j2", 7),)), "sm_90")
        made = compiled_code(first, text, "sm_90")
        assert compared_code(made, stored, second)[0] is True
        assert b"kernel.cu\0" in made[NAME]
    finally:
        first.close()
        second.close()

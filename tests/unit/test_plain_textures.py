"""Textures and surfaces of `greenfast check`: what they read and write, and their misuse."""

from __future__ import annotations

import numpy as np
import pytest

from greenfast.search.diagnose.plain import GivenLaunch, PlainOptions, read_plain
from greenfast.search.errors import UsageError
from greenfast.search.targets.emulator.target import EmulatorTarget

TEXT = """
#include <cuda_runtime.h>
__global__ void k(cudaTextureObject_t linear, cudaTextureObject_t border, cudaTextureObject_t bytes,
                  cudaTextureObject_t words, cudaSurfaceObject_t surface, float* out, int bug) {
    const int t = threadIdx.x, x = t % 8, y = t / 8;
    out[t] = tex2D<float>(linear, x + 1.0f, y + 0.75f);
    out[64 + t] = tex2D<float>(border, x - 2.5f, y + 0.5f);
    out[128 + t] = tex2D<float>(bytes, (x + 0.5f) / 8 + 1, (y + 0.5f) / 8 - 2);
    out[192 + t] = tex1Dfetch<int2>(words, t / 2).y;
    uchar4 texel;
    surf2Dread(&texel, surface, x * 4, y);
    if (bug == 1) surf2Dread(&texel, surface, (7 - x) * 4, y);                     // race
    texel.w = t;
    surf2Dwrite(texel, surface, x * 4, bug == 2 ? y + 1 : y);                      // outside
    surf2Dwrite(texel, surface, x * 4, y + 8, cudaBoundaryModeZero);
    if (bug == 3) *(float*)(linear + 64) = 1;                                      // input
}
"""
SURFACE = "surface:uchar4 surface[8, 8]=7"


@pytest.fixture(scope="module")
def target(artifacts, catalogue):
    return EmulatorTarget("h200", artifacts, catalogue.include_dirs, 1, 20.0)


@pytest.fixture(scope="module")
def brought(target, tmp_path_factory):
    file = tmp_path_factory.mktemp("textures") / "k.cu"
    file.write_text(TEXT)

    def read(bug=0, surface=SURFACE, linear="linear:float texture linear[8, 8]=iota"):
        arguments = (
            linear,
            "border:float texture border[8, 8]=iota",
            "bytes:unsigned char texture wrap normalized normalized_read[8, 8]=iota",
            "words:int2 texture[32]=iota",
            surface,
            "out[256]:out",
            f"bug={bug}",
        )
        sizes = (1, 1, 1), (64, 1, 1), (1, 1, 1)
        return read_plain(file, GivenLaunch("k", *sizes, 0, arguments), PlainOptions(), target)

    return lambda *given, **named: read(*given, **named).brought


@pytest.mark.slow
def test_they_read_and_write_as_the_programming_guide_says(target, brought):
    """CUDA C++ Programming Guide, "Texture Fetching"."""
    kernel = brought()
    program = target.load(kernel.source, None)
    (run,) = target.check(program, [kernel.problem])
    assert run.findings == ()
    (execution,) = target.execute(program, [kernel.problem])
    got = execution.outputs["out"].view(np.float32).reshape(4, 8, 8)
    t = np.arange(64).reshape(8, 8)
    y, x = t // 8, t % 8
    # Half-way between two columns, a quarter of the way to the next row; the edge is repeated.
    column, row = np.minimum(x + 0.5, 7), np.minimum(y + 0.25, 7)
    assert np.array_equal(got[0], 8 * row + column)
    assert np.array_equal(got[1], np.where(x >= 3, 8 * y + x - 3, 0))
    assert np.allclose(got[2], t / 255)
    assert np.array_equal(got[3].ravel(), t.ravel() // 2 * 2 + 1)
    surface = execution.outputs["surface"][64:].reshape(64, 4)
    assert (surface[:, :3] == 7).all() and np.array_equal(surface[:, 3], np.arange(64))


@pytest.mark.slow
@pytest.mark.parametrize(
    "bug, remark, kind, words",
    [
        (1, "race", "race", "surface"),
        (2, "outside", "device_fault", "a surface access out of its bounds"),
        (3, "input", "input_changed", "linear"),
    ],
)
def test_their_misuse_is_found_at_its_line(target, brought, bug, remark, kind, words):
    kernel = brought(bug)
    (run,) = target.check(target.load(kernel.source, None), [kernel.problem])
    line = TEXT[: TEXT.index(f"// {remark}\n")].count("\n") + 1
    assert any(
        finding.kind == kind
        and words in finding.sentence
        and line in (finding.where[1], finding.other_where and finding.other_where[1])
        for finding in run.findings
    ), [(finding.sentence, finding.where) for finding in run.findings]


@pytest.mark.parametrize(
    "text, words",
    [
        ("linear:float texture sharp[8, 8]=iota", "'sharp'"),
        ("linear:float3 texture[8, 8]=iota", "3"),
        ("linear:double texture[8, 8]=iota", "'double'"),
        ("linear:float texture[2, 2, 2, 2]=iota", "three sizes"),
    ],
)
def test_a_texture_that_does_not_exist_is_refused(brought, text, words):
    with pytest.raises(UsageError) as refusal:
        brought(linear=text)
    assert "linear" in str(refusal.value) and words in str(refusal.value)

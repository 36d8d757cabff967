"""Probes of the templates for Hopper name the stage in which a fault was planted."""

from __future__ import annotations

import shutil
from dataclasses import dataclass

import pytest

from greenfast.search.diagnose.probes import first_wrong, probe_candidate
from greenfast.search.gates import GateLimits
from greenfast.search.kernels.catalogue import REPOSITORY_TEMPLATES, Catalogue
from greenfast.search.loop.evaluate import EvaluationContext
from greenfast.search.space.candidate import preset_candidate
from greenfast.search.targets import TargetSettings, open_target


@dataclass(frozen=True)
class Planted:
    """One place of a template's files changed, and the first wrong stage."""

    kernel: str
    preset: str  # template:preset
    file: str  # in the kernel's folder
    old: str
    new: str
    stage: str
    workload: str = ""  # by default `small`, or `mission_e4m3` of attention_fp8
    case: str = "more_keys_grouped_heads"


KEYS = "attention", "wgmma:two_blocks"
CODES = "attention_fp8", "wgmma:square"
PLANTED = {
    "gemm: an operand's next step of K": Planted(
        "gemm",
        "wgmma:square",
        "wgmma/pipeline.cu.j2",
        '"row_bytes * k" if right_turned else "2 * k"',
        '"row_bytes * k" if right_turned else "2 * (k ^ 16)"',
        "products",
        case="tile_plus_one",
    ),
    "gemm: the bias of the next column": Planted(
        "gemm",
        "wgmma:square",
        "wgmma/epilogue.cu.j2",
        "(output.bias + column)",
        "(output.bias + (column ^ 2))",
        "finished",
        "small_epilogue",
        "tile_plus_one",
    ),
    "gemm: rows of C swapped in the store's tile": Planted(
        "gemm",
        "wgmma:square",
        "wgmma/epilogue.cu.j2",
        "const int to = warp * 16 + lane % 16, chunk",
        "const int to = warp * 16 + lane % 16 ^ 1, chunk",
        "output",
        case="tile_plus_one",
    ),
    "gemm by mma: parts of a fragment exchanged": Planted(
        "gemm",
        "mma:square",
        "mma/epilogue.cu.j2",
        "make_float2(accumulator[i][j][half * 2], accumulator[i][j][half * 2 + 1])",
        "make_float2(accumulator[i][j][half * 2 + 1], accumulator[i][j][half * 2])",
        "products",
        case="tile_plus_one",
    ),
    "Q one row further": Planted(
        *KEYS, "wgmma/loads.cu.j2", "tile.first_row + 64 * w,", "tile.first_row + 64 * w + 1,", "qk"
    ),
    # Without a causal mask the key too many lies behind the last one, where no probe of `softmax`
    # looks: the first stage that it changes is `state`, by its part of the sum.
    "the mask one key too wide": Planted(
        *KEYS,
        "wgmma/softmax.cu.j2",
        "if (8 * j + c >= seen)",
        "if (8 * j + c > seen)",
        "softmax",
        "small_causal",
    ),
    "the sum of one lane of four": Planted(
        *KEYS,
        "wgmma/softmax.cu.j2",
        "gf::warp_sum<4>(softmax.sum[half])",
        "softmax.sum[half]",
        "state",
    ),
    "V's keys eight further": Planted(
        *KEYS,
        "wgmma/products.cu.j2",
        "v + j * 16 * chunk_bytes / 16",
        "v + (j ^ 1) * 16 * chunk_bytes / 16",
        "pv",
    ),
    "O not divided": Planted(
        *KEYS,
        "wgmma/output.cu.j2",
        "return sum == 0.0f ? 0.0f : 1.0f / sum;",
        "return 1.0f;",
        "single_tile",
    ),
    "O not rescaled": Planted(
        *KEYS,
        "wgmma/softmax.cu.j2",
        "output[4 * j + e] *= keep[e / 2];",
        "output[4 * j + e] *= 1.0f;",
        "output",
    ),
    "fp8: the scores' operand of the next chunk": Planted(
        *CODES, "wgmma/products.cu.j2", "k + d / 16, d > 0", "k + (d ^ 32) / 16, d > 0", "qk"
    ),
    "fp8: the mask one key too wide": Planted(
        *CODES,
        "wgmma/softmax.cu.j2",
        "if (8 * j + c >= seen)",
        "if (8 * j + c > seen)",
        "softmax",
        "mission_causal",
    ),
    "fp8: the sum of one lane of four": Planted(
        *CODES,
        "wgmma/softmax.cu.j2",
        "gf::warp_sum<4>(softmax.sum[half])",
        "softmax.sum[half]",
        "state",
    ),
    "fp8: P and turned V in other orders of keys": Planted(
        *CODES,
        "wgmma/softmax.cu.j2",
        "scores[near], scores[near + 1], scores[far], scores[far + 1]",
        "scores[near], scores[far], scores[near + 1], scores[far + 1]",
        "pv",
    ),
    "fp8: O's scale left out": Planted(
        *CODES, "wgmma/output.cu.j2", "0.0f : v_scale / sum;", "0.0f : 1.0f / sum;", "single_tile"
    ),
}
QUICK = ("gemm: the bias of the next column",)


@pytest.fixture(scope="module")
def emulator(artifacts, catalogue):
    target = open_target(
        "emulator:h200", TargetSettings(artifacts, catalogue.include_dirs, 1, run_deadline_s=60.0)
    )
    target.prepare()
    yield target
    target.close()


@pytest.mark.parametrize(
    "name",
    [pytest.param(n, marks=() if n in QUICK else pytest.mark.slow) for n in PLANTED],
)
def test_the_first_wrong_stage_is_that_of_the_fault(name, tmp_path, emulator, toolchain):
    fault = PLANTED[name]
    for kernel_name in {fault.kernel, "attention"}:  # whose reference attention_fp8 uses
        shutil.copytree(REPOSITORY_TEMPLATES / kernel_name, tmp_path / kernel_name)
    path = tmp_path / fault.kernel / fault.file
    text = path.read_text()
    assert text.count(fault.old) == 1
    path.write_text(text.replace(fault.old, fault.new))
    kernel = Catalogue([REPOSITORY_TEMPLATES, tmp_path]).kernel(fault.kernel)
    default = "mission_e4m3" if fault.kernel == "attention_fp8" else "small"
    compiled = kernel.workload(fault.workload or default).compile_time(kernel)
    template, preset = kernel.preset(fault.preset)
    context = EvaluationContext(
        kernel,
        compiled,
        (),
        emulator,
        toolchain,
        (REPOSITORY_TEMPLATES / "include",),
        GateLimits(),
        0,
    )
    candidate = preset_candidate(template, preset.name, compiled)
    reports = probe_candidate(context, candidate, (fault.case,))
    first = first_wrong(reports)
    assert first is not None and first.probe == fault.stage, [
        (report.probe, report.outcome, report.sentence) for report in reports
    ]

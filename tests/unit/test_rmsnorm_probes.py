"""rmsnorm has probes of its own: a fault in a stage is found in that stage."""

from __future__ import annotations

import shutil

import pytest
from contexts import workload_context
from slow_cases import quick_first

from greenfast.search.diagnose.probes import first_wrong, probe_candidate
from greenfast.search.kernels.catalogue import REPOSITORY_TEMPLATES, Catalogue
from greenfast.search.space.candidate import preset_candidate
from greenfast.search.targets import TargetSettings, open_target

STAGES = ["residual", "sum_of_squares", "row_scale", "output"]
FAULTS = {
    "the residual of the vector after it": (
        "row",
        "plain",
        "residual[i] = gf::load_vector<Vector{{ streamed_in }}>(row.residual + first);",
        (
            "residual[i] = gf::load_vector<Vector{{ streamed_in }}>"
            "(row.residual + (first + 8) % row.length);"
        ),
        "residual",
    ),
    "one warp's sum only": (
        "row",
        "plain",
        "gf::warp_sum<row_warps>(warp_sums[row][lane % row_warps])",
        "warp_sums[row][0]",
        "sum_of_squares",
    ),
    "no eps": ("row", "warps", "sum / row.length + eps", "sum / row.length", "row_scale"),
    "weights of other columns": (
        "row",
        "plain",
        '"gf::load_vector<Vector>(row.weight + first)"',
        '"gf::load_vector<Vector>(row.weight + (first + 8) % row.length)"',
        "output",
    ),
    "a block's sum left out": (
        "split",
        "cluster",
        "for (int rank = 0; rank < split;",
        "for (int rank = 1; rank < split;",
        "sum_of_squares",
    ),
}


@pytest.fixture(scope="module")
def emulator(artifacts, catalogue):
    return open_target(
        "emulator:h200", TargetSettings(artifacts, catalogue.include_dirs, 2, run_deadline_s=20.0)
    )


def probed(catalogue, emulator, toolchain, template, preset, workload="decode"):
    context = workload_context(catalogue, "rmsnorm", workload, emulator, toolchain)
    return probe_candidate(
        context, preset_candidate(context.kernel.template(template), preset, context.compiled)
    )


@pytest.mark.parametrize("name", quick_first(FAULTS, 1))
@pytest.mark.slow
def test_a_planted_fault_is_named_by_its_stage(name, tmp_path, emulator, toolchain):
    template, preset, old, new, stage = FAULTS[name]
    folder = tmp_path / "rmsnorm"
    shutil.copytree(REPOSITORY_TEMPLATES / "rmsnorm", folder)
    text = (folder / f"{template}.cu.j2").read_text()
    assert text.count(old) == 1
    (folder / f"{template}.cu.j2").write_text(text.replace(old, new))
    report = first_wrong(
        probed(Catalogue([REPOSITORY_TEMPLATES, tmp_path]), emulator, toolchain, template, preset)
    )
    assert report is not None and report.probe == stage, report


@pytest.mark.parametrize(
    ("template", "preset", "workload"),
    [
        pytest.param("row", "plain", "decode_bf16", marks=pytest.mark.slow),
        pytest.param("row", "warps", "decode", marks=pytest.mark.slow),
        pytest.param("split", "cluster", "decode", marks=pytest.mark.slow),
        pytest.param("split", "two_kernels", "decode_bf16", marks=pytest.mark.slow),
    ],
)
def test_every_stage_of_the_right_templates_is_right(
    template, preset, workload, catalogue, emulator, toolchain
):
    reports = probed(catalogue, emulator, toolchain, template, preset, workload)
    assert [(report.probe, report.outcome) for report in reports] == [
        (name, "right") for name in STAGES
    ], reports

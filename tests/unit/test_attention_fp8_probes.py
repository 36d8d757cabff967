"""Each stage of attention_fp8 shows what it should, and a planted fault is found in its stage."""

from __future__ import annotations

from dataclasses import replace

import pytest
from slow_cases import quick_first

from greenfast.search.diagnose.probes import first_wrong, probe_candidate
from greenfast.search.gates import GateLimits
from greenfast.search.loop.evaluate import EvaluationContext
from greenfast.search.space.candidate import preset_candidate
from greenfast.search.targets import TargetSettings, open_target

SMALL = {"tile_m": 16, "warps_m": 1, "tile_n": 32}


@pytest.fixture(scope="module")
def probed(artifacts, catalogue, toolchain):
    """probed(workload, old, new): the report of each stage."""
    target = open_target("emulator:h200", TargetSettings(artifacts, catalogue.include_dirs, 2))
    kernel = catalogue.kernel("attention_fp8")

    def probe(workload: str, old: str = "", new: str = "", **changes):
        template = kernel.template("mma")
        assert not old or template.text.count(old) == 1, f"{template.text.count(old)} times {old!r}"
        template = replace(template, text=template.text.replace(old, new) if old else template.text)
        changed = replace(kernel, templates=(template,))
        workload_spec = changed.workload(workload)
        compiled = workload_spec.compile_time(changed)
        context = EvaluationContext(
            changed,
            compiled,
            (workload_spec,),
            target,
            toolchain,
            catalogue.include_dirs,
            GateLimits(),
            0,
        )
        candidate = preset_candidate(template, "e4m3", compiled, {**SMALL, **changes})
        return probe_candidate(context, candidate, ("small_weights", "more_keys_grouped_heads"))

    yield probe
    target.close()


@pytest.mark.parametrize(
    ("workload", "changes"),
    quick_first(
        [("mission_e4m3", {}), ("mission", {"dequantise": "lut", "lazy_rescale": True})],
        0,
    ),
    ids=["e4m3", "sim"],
)
def test_every_stage_of_the_right_template_is_right(workload, changes, probed):
    reports = probed(workload, **changes)
    assert [(report.probe, report.outcome) for report in reports] == [
        (name, "right") for name in ("qk", "softmax", "state", "pv", "single_tile", "output")
    ], reports
    assert all(sum(case.compared for case in report.cases) > 100 for report in reports)


@pytest.mark.parametrize(
    ("stage", "old", "new"),
    quick_first(
        [
            ("qk", "k_scale[batch * H_kv + kv_head]", "k_scale[batch * H_kv]"),
            ("softmax", "p_scale_log2 = {{ p_scale_log2 }};", "p_scale_log2 = 0;"),
            (
                "pv",
                "even[2] = {__byte_perm(v[0], v[1], 0x6420)",
                "even[2] = {__byte_perm(v[0], v[1], 0x3210)",
            ),
            (
                "single_tile",
                "even[0] * factor, odd[0] * factor",
                "odd[0] * factor, even[0] * factor",
            ),
        ],
        0,
    ),
    ids=("scale_of_the_first_head", "p_not_scaled", "v_not_turned", "columns_swapped"),
)
def test_a_planted_fault_is_found_in_its_stage(stage, old, new, probed):
    report = first_wrong(probed("mission_e4m3", old, new))
    assert report is not None and (report.probe, report.outcome) == (stage, "wrong"), report

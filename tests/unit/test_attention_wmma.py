"""Attention on WMMA: the stages of the first prototype, on the emulator."""

from __future__ import annotations

import pytest
from planted_stages import Planted, probed_fault
from slow_cases import quick_first

from greenfast.search.devices.facts import device
from greenfast.search.diagnose.probes import first_wrong
from greenfast.search.gates import GateLimits
from greenfast.search.gates.correctness import differing_outputs
from greenfast.search.gates.promises import promised
from greenfast.search.kernels.workloads import Workload
from greenfast.search.loop.confirmation import prepared
from greenfast.search.loop.evaluate import EvaluationContext, evaluate
from greenfast.search.space.candidate import preset_candidate
from greenfast.search.space.space import Space
from greenfast.search.targets import TargetSettings, open_target
from greenfast.search.verdict import Green

STAGES = ("stage1", "stage2", "stage3a", "stage3b", "stage4", "stage5")


@pytest.fixture(scope="module")
def emulator(artifacts, catalogue):
    return open_target(
        "emulator:h200", TargetSettings(artifacts, catalogue.include_dirs, 2, run_deadline_s=20.0)
    )


@pytest.fixture(scope="module")
def bench_of(catalogue, emulator, toolchain):
    def make(head_size=64, dtype="fp16", mask="none") -> EvaluationContext:
        kernel = catalogue.kernel("attention")
        dims = {"B": 1, "H": 4, "H_kv": 2, "S_q": 72, "S_kv": 72, "D": head_size}
        workload = Workload(
            "w",
            "a small one",
            tuple((dim.name, dims[dim.name]) for dim in kernel.dims),
            (("dtype", dtype), ("mask", mask)),
        )
        return EvaluationContext(
            kernel,
            workload.compile_time(kernel),
            (workload,),
            emulator,
            toolchain,
            catalogue.include_dirs,
            GateLimits(),
            0,
        )

    return make


def candidate(context, preset, **changes):
    return preset_candidate(context.kernel.template("wmma"), preset, context.compiled, changes)


def test_every_design_of_the_seeds_has_its_name(catalogue):
    template = catalogue.kernel("attention").template("wmma")
    names = {preset.name: preset for preset in template.presets}
    assert {*STAGES, "flashcore_a", "flashcore_a64", "fragments"} <= set(names)
    assert all(preset.doc for preset in template.presets)
    assert len({preset.parameters for preset in template.presets}) == len(template.presets)
    assert catalogue.kernel("attention").baseline == "wmma:stage2"


# Each preset with head sizes, types and masks that the album does not combine with it.
ELSEWHERE = [
    ("stage1", 96, "bf16", "none", {}),
    ("stage2", 256, "fp16", "causal_bottom_right", {}),
    ("stage3a", 32, "bf16", "causal_top_left", {}),
    ("stage3b", 64, "fp16", "none", {}),
    ("stage3b", 64, "bf16", "causal_bottom_right", {"warps_n": 1, "tile_n": 64}),
    ("stage3b", 128, "fp16", "causal_top_left", {"warps_n": 1, "k_layout": "transposed"}),
    ("stage4", 32, "fp16", "none", {"pipeline_depth": 4, "swizzle": "xor"}),
    ("stage5", 128, "bf16", "none", {}),
    ("flashcore_a", 64, "fp16", "none", {}),
    ("flashcore_a", 96, "bf16", "causal_top_left", {"swizzle": "xor"}),
    ("flashcore_a64", 32, "bf16", "causal_bottom_right", {"persistent": True}),
    ("fused", 64, "fp16", "causal_bottom_right", {"persistent": True}),
    ("fused", 96, "bf16", "none", {}),
]


@pytest.mark.parametrize(
    ("preset", "head_size", "dtype", "mask", "changes"),
    [
        *(pytest.param(*case, marks=pytest.mark.slow) for case in ELSEWHERE),
    ],
    ids=str,
)
def test_a_preset_is_right_elsewhere(preset, head_size, dtype, mask, changes, bench_of):
    context = bench_of(head_size, dtype, mask)
    verdict = evaluate(candidate(context, preset, **changes), context).verdict
    assert isinstance(verdict, Green), verdict


@pytest.mark.parametrize(
    ("preset", "other", "changes"),
    [
        (
            "stage3b",
            "stage3b",
            {"swizzle": "none", "o_in": "fragments", "q_in_fragments": True, "pipeline_depth": 1},
        ),
        *(
            pytest.param(*case, marks=pytest.mark.slow)
            for case in (
                ("stage2", "stage4", {}),
                ("stage2", "stage3a", {}),
                (
                    "stage2",
                    "stage2",
                    {
                        "swizzle": "xor",
                        "k_layout": "transposed",
                        "persistent": True,
                        "pipeline_depth": 4,
                    },
                ),
                (
                    "stage3b",
                    "stage3b",
                    {"swizzle": "xor", "split_kv_wait": True, "pipeline_depth": 3},
                ),
            )
        ),
    ],
    ids=str,
)
@pytest.mark.slow
def test_what_promises_the_same_results_gives_them_bit_for_bit(preset, other, changes, bench_of):
    context = bench_of(dtype="bf16", mask="causal_bottom_right")
    first, second = candidate(context, preset), candidate(context, other, **changes)
    same = promised(context.kernel.template("wmma"))
    assert {name for name, value in first.parameters if value != second.values()[name]} <= same
    assert differing_outputs(prepared(context, first), prepared(context, second)) == ()


def test_atomic_sums_promise_nothing(bench_of):
    context = bench_of()
    deterministic = context.kernel.template("wmma").deterministic_when
    assert deterministic(candidate(context, "stage2").values())
    assert not deterministic(candidate(context, "flashcore_a").values())


# Bugs of the original fused softmax, real and suspected: the stage, and the place in it.
SUSPECTS = {
    "their table of the accumulator": Planted(
        "minus_infinity();\n                maxima[i][half] =",
        "minus_infinity();\n                maxima[i][e / 4] =",
        "state",
        "m",
    ),
    "a warp's own keys only": Planted(
        "for (int warp = 0; warp < warps_n; ++warp)\n                maxima",
        "for (int warp = warp_n; warp <= warp_n; ++warp)\n                maxima",
        "state",
        "m, l",
    ),
    "the sum of one lane of four": Planted(
        "if (warp_n != 0 || threadIdx.x % gf::accumulator_row_lanes != 0)\n        return;",
        "if (warp_n != 0 || threadIdx.x % gf::accumulator_row_lanes != 0)\n        return;\n"
        "    state.sum[0][0] *= 0.25f;",
        "single_tile",
        "",
    ),
    "P one row down": Planted(
        "p_tile + lane_row(i, half, warp_m) * stride_p + key) =",
        "p_tile + lane_row(i, half, warp_m) % 15 * stride_p + key) =",
        "softmax",
        "",
    ),
    "the output is rescaled by the other row": Planted(
        "factor[i][gf::accumulator_half(e)]", "factor[i][1 - gf::accumulator_half(e)]", "output", ""
    ),
}


@pytest.mark.parametrize("name", quick_first(SUSPECTS, 0))
def test_a_probe_says_where_the_fused_softmax_goes_wrong(name, tmp_path, emulator, toolchain):
    fault = SUSPECTS[name]
    planted = Planted(
        fault.old, fault.new, fault.stage, fault.says, preset="stage3b", template="wmma"
    )
    report = first_wrong(probed_fault(planted, tmp_path, emulator, toolchain))
    assert report is not None and report.probe == fault.stage and fault.says in report.sentence, (
        report
    )


@pytest.mark.parametrize(
    ("on", "head_size", "preset", "changes", "says"),
    [
        ("l4", 256, "flashcore_a64", {}, "bytes of dynamic shared memory; a block may have"),
        (
            "h200",
            64,
            "stage2",
            {"tile_n": 16},
            "2 warps cannot share out 16 keys in fragments of 16",
        ),
        (
            "h200",
            96,
            "flashcore_a64",
            {"warps_n": 4},
            "4 warps cannot share out 96 columns in fragments of 16",
        ),
        (
            "h200",
            256,
            "fragments",
            {"tile_m": 128, "warps_m": 4, "warps_n": 1},
            "the fragments alone take 416 registers a thread",
        ),
    ],
)
def test_what_does_not_fit_is_said_with_its_numbers(on, head_size, preset, changes, says, bench_of):
    context = bench_of(head_size)
    refusal = Space(context.kernel.template("wmma"), context.compiled, device(on)).why_not(
        candidate(context, preset, **changes).parameters
    )
    assert refusal is not None and says in refusal

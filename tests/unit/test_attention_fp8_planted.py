"""attention_fp8 on the emulator: every format is correct, every planted scaling bug rejected."""

from __future__ import annotations

from dataclasses import dataclass, replace

import pytest
from slow_cases import quick_first

from greenfast.search.gates import Conditions, GateLimits, Subject
from greenfast.search.gates.correctness import CorrectnessGate
from greenfast.search.render import RenderedSource, render
from greenfast.search.space.candidate import Candidate, Origin, OriginKind, complete_parameters
from greenfast.search.space.space import resolve
from greenfast.search.targets import TargetSettings, open_target
from greenfast.search.verdict import GateResult, Outcome, Reason

SMALL = {"tile_m": 16, "warps_m": 1, "tile_n": 32, "pipeline_depth": 2}
WRONG = {Reason.WRONG_VALUES, Reason.NOT_FINITE, Reason.UNWRITTEN, Reason.OUT_OF_BOUNDS}


@dataclass(frozen=True)
class Planted:
    """One place of the template changed, and the compile-time values for which it is rendered."""

    name: str
    format: str
    old: str
    new: str
    dtype: str = "fp16"
    mask: str = "none"
    dequantise: str = "arithmetic"


PLANTED = (
    Planted("midpoint_127", "sim", "(1152.0f, 1152.0f)", "(1151.0f, 1151.0f)"),
    Planted(
        "midpoint_127_in_bf16",
        "sim",
        "high | 0x7440)) - 8388736.0f",
        "high | 0x7440)) - 8388735.0f",
        "bf16",
    ),
    Planted(
        "midpoint_127_in_the_table", "sim", "(code - 128.0f)", "(code - 127.0f)", dequantise="lut"
    ),
    Planted(
        "codes_of_a_pair_swapped_in_k_alone",
        "sim",
        "second = dequantise<2, 3>(k",
        "second = dequantise<3, 2>(k",
    ),
    Planted(
        "odd_columns_made_of_even_ones",
        "sim",
        "odd[2] = {dequantise<1, 3>(v[part * 2]",
        "odd[2] = {dequantise<0, 2>(v[part * 2]",
    ),
    Planted(
        "k_scale_of_the_query_head",
        "e4m3",
        "k_scale[batch * H_kv + kv_head]",
        "k_scale[batch * H_kv + head]",
    ),
    Planted("q_scale_of_the_first_head", "e4m3", "q_scale[batch * H + head]", "q_scale[batch * H]"),
    Planted(
        "v_scale_of_the_first_batch", "e4m3", "v_scale[batch * H_kv + kv_head]", "v_scale[kv_head]"
    ),
    Planted(
        "q_scale_forgotten",
        "e5m2",
        "qk_scale = q_scale[batch * H + head] * k_scale",
        "qk_scale = k_scale",
    ),
    Planted("scale_that_may_be_zero", "e4m3", ", 1.17549435e-38f)", ", 0.0f)"),
    Planted("p_not_scaled", "e4m3", "p_scale_log2 = {{ p_scale_log2 }};", "p_scale_log2 = 0;"),
    Planted(
        "p_not_scaled_in_e5m2", "e5m2", "p_scale_log2 = {{ p_scale_log2 }};", "p_scale_log2 = 0;"
    ),
    Planted(
        "p_scaled_beyond_the_range",
        "e4m3",
        "p_scale_log2 = {{ p_scale_log2 }};",
        "p_scale_log2 = 10;",
    ),
    Planted("p_scale_left_in_lse", "e4m3", '" - p_scale_log2" }}) * 0.69', '"" }}) * 0.69'),
    Planted(
        "sum_of_the_rounded_p",
        "e4m3",
        "sum += score; ",
        "sum += gf::to_float(gf::from_float<Number>(score)); ",
    ),
    Planted(
        "v_not_turned",
        "e4m3",
        "even[2] = {__byte_perm(v[0], v[1], 0x6420)",
        "even[2] = {__byte_perm(v[0], v[1], 0x3210)",
    ),
    Planted(
        "columns_stored_in_the_fragments_order",
        "e4m3",
        "even[0] * factor, odd[0] * factor",
        "even[0] * factor, even[1] * factor",
    ),
    Planted(
        "p_and_v_in_different_orders",
        "e4m3",
        "(near[0], near[1], far[0], far[1])",
        "(near[0], far[0], near[1], far[1])",
    ),
    Planted(
        "e5m2_read_as_e4m3",
        "e5m2",
        "using Number = __nv_fp8_{{ format }}",
        "using Number = __nv_fp8_e4m3",
    ),
    Planted(
        "e4m3_read_as_e5m2",
        "e4m3",
        "using Number = __nv_fp8_{{ format }}",
        "using Number = __nv_fp8_e5m2",
    ),
    Planted("mask_one_off", "e4m3", "c >= visible", "c > visible", mask="causal_top_left"),
    Planted("hidden_keys_are_code_0", "sim", "if ((tile + 1) * tile_n > warp_begin)", "if (false)"),
    Planted(
        "one_group_too_few_waited_for",
        "e4m3",
        "{{ pipeline_depth - 2 }}",
        "{{ pipeline_depth - 1 }}",
    ),
)


@pytest.fixture(scope="module")
def judge(artifacts, catalogue):
    """judge(values, old, new): the correctness gate's result after `old` became `new`."""
    target = open_target("emulator:h200", TargetSettings(artifacts, catalogue.include_dirs, 2))
    target.prepare()
    kernel = catalogue.kernel("attention_fp8")

    def judged(
        values: dict[str, str], old: str = "", new: str = "", head_dim: int = 32, **changes
    ) -> GateResult:
        template = kernel.template("mma")
        assert not old or template.text.count(old) == 1, f"{template.text.count(old)} times {old!r}"
        template = replace(template, text=template.text.replace(old, new) if old else template.text)
        compiled = (
            ("D", head_dim),
            *((option.name, values.get(option.name, option.default)) for option in kernel.options),
        )
        parameters = complete_parameters(template, {**SMALL, **changes}, compiled)
        candidate = Candidate(kernel.name, template.name, parameters, Origin(OriginKind.SEEDED))
        point = resolve(template, parameters, compiled, target.device)
        source = render(kernel, template, point, catalogue.include_dirs)
        assert isinstance(source, RenderedSource), source
        conditions = Conditions(kernel, compiled, (), target, GateLimits(), 0)
        return CorrectnessGate().judge(Subject(conditions, candidate, source, None))

    yield judged
    target.close()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("values", "changes"),
    quick_first(
        [
            ({"format": "sim"}, {}),
            ({"format": "sim", "dtype": "bf16"}, {"lazy_rescale": True}),
            (
                {"format": "sim", "mask": "causal_bottom_right"},
                {"dequantise": "lut", "head_dim": 64},
            ),
            ({"format": "e4m3"}, {"swizzle": "pad", "head_dim": 96}),
            ({"format": "e4m3", "mask": "causal_top_left"}, {}),
            ({"format": "e5m2", "dtype": "bf16"}, {"p_scale": "low", "tile_m": 32}),
            ({"format": "e5m2"}, {"pipeline_depth": 1}),
            ({"format": "e4m3", "dtype": "bf16"}, {"product": "f16"}),
            (
                {"format": "e5m2", "mask": "causal_top_left"},
                {"product": "f16", "lazy_rescale": True},
            ),
        ],
        1,
    ),
    ids=lambda changes: "-".join(str(part) for part in changes.values()) or "small",
)
def test_a_right_kernel_passes(judge, values, changes):
    result = judge(values, **changes)
    assert result.outcome is Outcome.PASSED, result.sentence


@pytest.mark.parametrize("planted", quick_first(PLANTED, 1), ids=lambda planted: planted.name)
def test_a_wrong_kernel_is_rejected(judge, planted: Planted):
    values = {"format": planted.format, "dtype": planted.dtype, "mask": planted.mask}
    result = judge(values, planted.old, planted.new, dequantise=planted.dequantise)
    assert result.outcome is Outcome.FAILED and result.reason in WRONG, result.sentence

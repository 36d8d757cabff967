"""Heads of every size that attention's templates offer: rows that fill no swizzle or fragment."""

from __future__ import annotations

import pytest
from slow_cases import quick_first

from greenfast.search.gates import Conditions, GateLimits, Subject
from greenfast.search.gates.correctness import CorrectnessGate
from greenfast.search.gates.safety import SafetyGate
from greenfast.search.kernels.catalogue import REPOSITORY_TEMPLATES, Catalogue
from greenfast.search.render import RenderedSource, render
from greenfast.search.space.candidate import (
    Candidate,
    Origin,
    OriginKind,
    complete_parameters,
)
from greenfast.search.space.space import Space, resolve
from greenfast.search.targets import TargetSettings, open_target
from greenfast.search.verdict import Outcome

CATALOGUE = Catalogue([REPOSITORY_TEMPLATES])
KERNEL = CATALOGUE.kernel("attention")
MMA = {"tile_m": 16, "warps_m": 1, "tile_n": 32, "warps_n": 2}
WMMA = {"tile_m": 32, "warps_m": 1, "warps_n": 2}
ONE = {"consumers": 1, "tile_n": 64, "stages": 2}
# A row of D elements is 2 D bytes: an odd multiple of 32 bytes, of 64 bytes, or of 128 bytes.
CASES = (
    ("mma", 80, "causal_bottom_right", {**MMA, "swizzle": "xor", "q_in": "shared"}),
    ("wgmma", 80, "none", {**ONE, "loader": "self"}),
    ("decode", 48, "none", {"tile_n": 32, "warps_n": 2, "stages": 2, "split_kv": 2}),
    ("mma", 112, "none", {**MMA, "swizzle": "xor", "split_kv": 2}),
    ("mma", 160, "causal_top_left", {**MMA, "swizzle": "xor"}),
    ("wgmma", 48, "causal_top_left", {**ONE, "epilogue": "direct"}),
    ("wgmma", 112, "causal_bottom_right", {**ONE, "consumers": 2, "turns": True}),
    ("wgmma", 144, "none", {**ONE, "split_kv": 3}),
    ("wgmma", 208, "causal_bottom_right", {**ONE, "short_rest": True}),
    ("decode", 176, "causal_bottom_right", {"tile_n": 32, "warps_n": 1, "q_in": "shared"}),
    ("wmma", 80, "causal_bottom_right", {"tile_m": 32, "warps_m": 2, "warps_n": 2}),
    ("wmma", 112, "none", {**WMMA, "softmax": "register", "o_in": "fragments"}),
    ("wmma", 48, "none", {**WMMA, "warps_n": 4, "tile_n": 64, "pv_accumulate": "atomic"}),
    ("scalar", 240, "none", {"row_threads": 8}),
)


@pytest.fixture(scope="module")
def emulator(artifacts):
    target = open_target("emulator:h200", TargetSettings(artifacts, CATALOGUE.include_dirs, 1))
    target.prepare()
    yield target
    target.close()


@pytest.mark.parametrize(("name", "width", "mask", "given"), quick_first(CASES, 1), ids=str)
def test_a_candidate_is_right_and_safe(emulator, name, width, mask, given):
    template = KERNEL.template(name)
    compiled = (("D", width), ("dtype", "bf16"), ("mask", mask))
    parameters = complete_parameters(template, given, compiled)
    assert Space(template, compiled, emulator.device).why_not(parameters) is None
    point = resolve(template, parameters, compiled, emulator.device)
    source = render(KERNEL, template, point, CATALOGUE.include_dirs)
    assert isinstance(source, RenderedSource), source
    candidate = Candidate(KERNEL.name, name, parameters, Origin(OriginKind.SEEDED))
    conditions = Conditions(KERNEL, compiled, (), emulator, GateLimits(), 0)
    for gate in (CorrectnessGate(), SafetyGate()):
        result = gate.judge(Subject(conditions, candidate, source, None))
        assert result.outcome is Outcome.PASSED, result.sentence


def test_every_template_offers_every_size_of_the_kernel():
    (sizes,) = (dim.values for dim in KERNEL.dims if dim.name == "D")
    assert sizes == tuple(range(32, 257, 16))
    for template in KERNEL.templates:
        assert dict(template.supports)["D"] == sizes, template.name

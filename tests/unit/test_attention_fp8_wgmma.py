"""attention_fp8/wgmma: its presets compile without spills or remarks, and are correct."""

from __future__ import annotations

import pytest
from slow_cases import quick_first

from greenfast.search.devices.facts import device
from greenfast.search.gates import Conditions, GateLimits, Subject
from greenfast.search.gates.correctness import CorrectnessGate
from greenfast.search.kernels.catalogue import REPOSITORY_TEMPLATES, Catalogue
from greenfast.search.render import RenderedSource, render
from greenfast.search.space.candidate import Candidate, Origin, OriginKind, complete_parameters
from greenfast.search.space.space import Space, resolve
from greenfast.search.targets import TargetSettings, open_target
from greenfast.search.toolchain import Cubin
from greenfast.search.toolchain.ptxas import parse_notes
from greenfast.search.verdict import Outcome

CATALOGUE = Catalogue([REPOSITORY_TEMPLATES])
KERNEL = CATALOGUE.kernel("attention_fp8")
TEMPLATE = KERNEL.template("wgmma")
PRESETS = {preset.name: dict(preset.parameters) for preset in TEMPLATE.presets}
# Values that a kernel is compiled for, a preset and what differs from it.
CASES = (
    ({"D": 32, "format": "e4m3", "mask": "causal_top_left"}, "three_consumers", {}),
    ({"D": 64, "format": "e5m2", "dtype": "bf16"}, "ping_pong", {}),
    ({"D": 96, "format": "e4m3", "mask": "causal_bottom_right"}, "fa3", {"skip_rescale": True}),
    ({"D": 128, "format": "e4m3"}, "persistent", {"turned_stages": 3, "turned_keys": 32}),
    ({"D": 64, "format": "e4m3", "mask": "causal_top_left"}, "square", {"overlap": False}),
    ({"D": 128, "format": "e4m3"}, "polynomial", {"ordered": True}),
    ({"D": 64, "format": "e4m3"}, "two_blocks", {"query": "registers"}),
)


def rendered(given, preset, changes=()):
    """The candidate and its source for values that a kernel is compiled for."""
    options = {option.name: option.default for option in KERNEL.options}
    compiled = tuple(({"D": 128} | options | given).items())
    parameters = complete_parameters(TEMPLATE, PRESETS[preset] | dict(changes), compiled)
    reason = Space(TEMPLATE, compiled, device("h200")).why_not(parameters)
    assert reason is None, reason
    candidate = Candidate(KERNEL.name, TEMPLATE.name, parameters, Origin(OriginKind.SEEDED))
    point = resolve(TEMPLATE, parameters, compiled, device("h200"))
    source = render(KERNEL, TEMPLATE, point, CATALOGUE.include_dirs)
    assert isinstance(source, RenderedSource), source
    return compiled, candidate, source


@pytest.fixture(scope="module")
def emulator(artifacts):
    target = open_target("emulator:h200", TargetSettings(artifacts, CATALOGUE.include_dirs, 2))
    target.prepare()
    yield target
    target.close()


@pytest.mark.slow
@pytest.mark.parametrize("preset", quick_first(PRESETS, 1))
def test_products_are_neither_serialised_nor_spilled(preset, toolchain):
    for given in ({"format": "e4m3"}, {"format": "e4m3", "mask": "causal_top_left"}):
        cubin = toolchain.compile(rendered(given, preset)[2], "sm_90a")
        assert isinstance(cubin, Cubin), cubin
        assert [entry.spill_bytes for entry in cubin.entries] == [0]
        assert parse_notes(cubin.log) == ()


@pytest.mark.parametrize(("given", "preset", "changes"), quick_first(CASES, 1))
def test_a_right_kernel_passes(given, preset, changes, emulator):
    compiled, candidate, source = rendered(given, preset, changes)
    conditions = Conditions(KERNEL, compiled, (), emulator, GateLimits(), 0)
    result = CorrectnessGate().judge(Subject(conditions, candidate, source, None))
    assert result.outcome is Outcome.PASSED, result.sentence


def test_the_softmax_stands_before_the_wait_only_where_the_parameter_says_so():
    kept = "gf::computed_before(softmax.sum[0] + softmax.sum[1]);\n        gf::wgmma_wait<0>();"
    for ordered in (False, True):
        text = rendered({"format": "e4m3"}, "fa3", {"ordered": ordered})[2].text
        assert (kept in text) is ordered

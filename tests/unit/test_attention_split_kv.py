"""attention/wgmma whose blocks share the keys of a row tile: what is checked, compiled, correct."""

from __future__ import annotations

import pytest
from slow_cases import quick_first

from greenfast.search.devices.facts import device
from greenfast.search.gates import Conditions, GateLimits, Subject
from greenfast.search.gates.correctness import CorrectnessGate
from greenfast.search.kernels.catalogue import REPOSITORY_TEMPLATES, Catalogue
from greenfast.search.oracle.cases import derived_cases
from greenfast.search.render import RenderedSource, render
from greenfast.search.space.candidate import Candidate, Origin, OriginKind, complete_parameters
from greenfast.search.space.space import Space, resolve
from greenfast.search.targets import TargetSettings, open_target
from greenfast.search.toolchain import Cubin
from greenfast.search.toolchain.ptxas import parse_notes
from greenfast.search.verdict import Outcome

CATALOGUE = Catalogue([REPOSITORY_TEMPLATES])
KERNEL = CATALOGUE.kernel("attention")
TEMPLATE = KERNEL.template("wgmma")
MASKS = ("causal_bottom_right", "none", "causal_top_left")
PUSH = {"combine": "cluster_push"}
# An odd number of parts, columns of O that they do not divide, and each way to load.
CASES = (
    ("causal_bottom_right", 64, {"consumers": 2, "tile_n": 64, "split_kv": 3, "turns": True}),
    ("none", 96, {"consumers": 1, "tile_n": 64, "split_kv": 8, "loader": "self"}),
    ("causal_top_left", 128, {"consumers": 2, "tile_n": 80, "split_kv": 6, "overlap": False}),
    ("none", 64, {"consumers": 1, "tile_n": 64, "split_kv": 3, **PUSH}),
    ("causal_top_left", 96, {"consumers": 2, "tile_n": 80, "split_kv": 8, **PUSH}),
)


def candidate_of(mask, width, given):
    compiled = (("D", width), ("dtype", "bf16"), ("mask", mask))
    parameters = complete_parameters(TEMPLATE, given, compiled)
    assert Space(TEMPLATE, compiled, device("h200")).why_not(parameters) is None
    point = resolve(TEMPLATE, parameters, compiled, device("h200"))
    source = render(KERNEL, TEMPLATE, point, CATALOGUE.include_dirs)
    assert isinstance(source, RenderedSource), source
    candidate = Candidate(KERNEL.name, TEMPLATE.name, parameters, Origin(OriginKind.SEEDED))
    return compiled, candidate, source, point


@pytest.mark.parametrize("mask", MASKS)
@pytest.mark.parametrize("splits", [2, 3, 8])
def test_checks_have_fewer_tiles_than_parts_an_odd_number_and_rings_that_turn(mask, splits):
    given = {"consumers": 2, "tile_n": 64, "stages": 2, "split_kv": splits}
    compiled, _, _, point = candidate_of(mask, 64, given)
    tiles = {
        -(-dict(case.dims)["S_kv"] // 64)
        for case in derived_cases(KERNEL, compiled, point.tiles, 0)
        if dict(case.options)["mask"] == mask
    }
    assert min(tiles) < splits and any(count % splits for count in tiles if count > splits)
    # Along the diagonal a check has as many rows as keys: there each part has a tile.
    assert max(tiles) >= splits * (1 if mask == "causal_top_left" else 2 * 2)


def test_only_a_grid_shares_keys_and_then_o_leaves_in_one_way():
    given = {"split_kv": 4, "scheduler": "persistent", "epilogue": "direct"}
    assert dict(complete_parameters(TEMPLATE, given, ()))["split_kv"] == 1
    shared = {"split_kv": 4, "epilogue": "direct"}
    assert dict(complete_parameters(TEMPLATE, shared, ()))["epilogue"] == "tensor"


@pytest.mark.parametrize(("mask", "width", "given"), quick_first(CASES, 1))
def test_a_candidate_compiles_without_spills_in_its_cluster(mask, width, given, toolchain):
    _, _, source, point = candidate_of(mask, width, given)
    assert point.clusters == (("attention_wgmma", (given["split_kv"], 1, 1)),)
    cubin = toolchain.compile(source, "sm_90a")
    assert isinstance(cubin, Cubin), cubin
    assert [entry.spill_bytes for entry in cubin.entries] == [0] and parse_notes(cubin.log) == ()


@pytest.mark.slow
@pytest.mark.parametrize(("mask", "width", "given"), CASES)
def test_a_candidate_is_correct(mask, width, given, artifacts):
    compiled, candidate, source, _ = candidate_of(mask, width, given)
    target = open_target("emulator:h200", TargetSettings(artifacts, CATALOGUE.include_dirs, 2))
    target.prepare()
    try:
        conditions = Conditions(KERNEL, compiled, (), target, GateLimits(), 0)
        result = CorrectnessGate().judge(Subject(conditions, candidate, source, None))
    finally:
        target.close()
    assert result.outcome is Outcome.PASSED, result.sentence

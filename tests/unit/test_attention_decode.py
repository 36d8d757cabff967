"""Template decode: packed rows of any group, run-time splits, and where a search tries it."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from slow_cases import quick_first

from greenfast.search.devices.facts import device
from greenfast.search.gates import Conditions, GateLimits, Subject
from greenfast.search.gates.correctness import CorrectnessGate
from greenfast.search.gates.safety import SafetyGate
from greenfast.search.kernels.catalogue import Catalogue
from greenfast.search.kernels.workloads import Workload
from greenfast.search.loop.plan import SearchRequest, make_plan
from greenfast.search.render import render
from greenfast.search.space.candidate import (
    Candidate,
    Origin,
    OriginKind,
    complete_parameters,
    preset_candidate,
)
from greenfast.search.space.space import Space, resolve
from greenfast.search.targets import TargetSettings, open_target
from greenfast.search.verdict import Outcome

CATALOGUE = Catalogue.from_environment()
ATTENTION = CATALOGUE.kernel("attention")
DECODE = ATTENTION.template("decode")
OPTIONS = (("dtype", "fp16"), ("mask", "causal_bottom_right"))
COMPILED = (("D", 32), *OPTIONS)
SMALL = {"tile_n": 32, "warps_n": 2, "stages": 2, "split_kv": 4}

UNOPENED = SimpleNamespace(device=device("h200"))  # a target for sources that are not run


def workload(**dims: int) -> Workload:
    values = {"B": 1, "H": 2, "S_q": 1, "D": 32, **dims}
    values = {"H_kv": values["H"], "S_kv": values["S_q"], **values}
    return Workload("own", "", tuple((name, values[name]) for name in _dim_names()), OPTIONS)


def _dim_names() -> tuple[str, ...]:
    return tuple(dim.name for dim in ATTENTION.dims)


# Groups of 3 and 5 heads, rows that fill no tile, fewer tiles than splits, rows without a key.
WORKLOADS = (
    workload(B=2, H=6, H_kv=2, S_q=1, S_kv=131),
    workload(H=5, H_kv=1, S_q=7, S_kv=70),
    workload(H=3, H_kv=3, S_q=17, S_kv=5),
)


@pytest.fixture(scope="module")
def emulator(artifacts):
    target = open_target("emulator:h200", TargetSettings(artifacts, CATALOGUE.include_dirs, 1))
    target.prepare()
    return target


def subject(target, parameters, workloads=()):
    candidate = Candidate(
        "attention",
        "decode",
        complete_parameters(DECODE, parameters, COMPILED),
        Origin(OriginKind.SEEDED),
    )
    point = resolve(DECODE, candidate.parameters, COMPILED, target.device)
    source = render(ATTENTION, DECODE, point, CATALOGUE.include_dirs)
    conditions = Conditions(ATTENTION, COMPILED, workloads, target, GateLimits(), 0)
    return Subject(conditions, candidate, source, None)


@pytest.mark.parametrize(
    "parameters",
    quick_first(
        [
            {**SMALL, "combine": "last_block"},
            {**SMALL, "combine": "cluster", "q_in": "shared", "wait": "apart"},
            {**SMALL, "combine": "cluster_push", "stages": 1},
            {**SMALL, "combine": "second_launch", "tile_m": 32, "warps_m": 2},
            {**SMALL, "split_kv": 1, "tile_m": 32, "q_in": "direct", "cache_hint": "fetch_256"},
        ],
        1,
    ),
    ids=str,
)
def test_it_is_right_and_safe(emulator, parameters):
    prepared = subject(emulator, parameters, WORKLOADS)
    for gate in (CorrectnessGate(), SafetyGate()):
        result = gate.judge(prepared)
        assert result.outcome is Outcome.PASSED, result.sentence


def launched(dims: Workload, **parameters: object):
    """The grids that are not empty, and each workspace's bytes."""
    point = subject(UNOPENED, {**SMALL, "split_kv": 32, **parameters}).point
    values = {**dict(point.values), **dict(dims.dims)}
    grids = [tuple(int(size(values)) for size in each.grid) for each in DECODE.launched(values)]
    scratch = {each.name: int(each.bytes(values)) for each in DECODE.scratch(values)}
    return [grid for grid in grids if 0 not in grid], scratch


# Two blocks are to run on each of 132 SMs.
@pytest.mark.parametrize(
    ("splits", "dims"),
    [
        (32, {"H": 8, "H_kv": 2, "S_kv": 64 * 64}),  # as many as the parameter allows
        (5, {"H": 8, "H_kv": 2, "S_kv": 11 * 32}),  # a ring of two tiles each
        (2, {"H": 8, "H_kv": 2, "S_kv": 33}),  # two at least
        (1, {"H": 8, "H_kv": 2, "S_kv": 32}),
        (264 // 24, {"B": 8, "H": 6, "H_kv": 3, "S_kv": 32 * 64}),
        (2, {"B": 8, "H": 64, "H_kv": 16, "S_kv": 32 * 64}),
        (1, {"B": 9, "H": 32, "H_kv": 16, "S_kv": 32 * 64}),  # the grid fills the SMs
        (1, {"H": 2, "H_kv": 1, "S_kv": 0}),
    ],
)
def test_splits_fill_the_device_and_no_more(splits, dims):
    dims = workload(**dims)
    values = dict(dims.dims)
    grids, scratch = launched(dims, combine="second_launch", blocks_per_sm=2)
    # Where one block walked all keys there is nothing to add up, and no launch for it.
    assert grids == [(splits, values["H_kv"], values["B"])] * (2 if splits > 1 else 1)
    assert scratch == {"workspace": 4 * values["B"] * values["H_kv"] * splits * 16 * (32 + 2)}


def test_a_row_tile_holds_the_heads_of_a_group():
    grids, scratch = launched(workload(H=12, H_kv=2, S_q=6, S_kv=32), combine="last_block")
    row_tiles = -(-6 * 6 // 16)
    assert grids == [(row_tiles, 2, 1)] and scratch["tickets"] == 4 * 2 * row_tiles
    grids, scratch = launched(workload(H=12, H_kv=2, S_q=6, S_kv=32), split_kv=4)
    assert grids == [(row_tiles * 4, 2, 1)] and not scratch


def test_presets_leave_no_trace_of_what_they_do_not_use():
    texts = {
        preset.name: subject(
            UNOPENED, dict(preset_candidate(DECODE, preset.name, COMPILED).parameters)
        ).source.text
        for preset in DECODE.presets
    }
    for word, presets in {
        "workspace": {"long_cache", "last_block", "large_heads"},
        "tickets": {"last_block"},
        "attention_decode_combine": {"long_cache", "large_heads"},
        "inbox": {"group_push"},
        "named_barrier": {"one_key_head", "few_rows"},
        "fetching": {"middle_batch", "short_cache"},
        "ring": set(texts),
    }.items():
        assert {name for name, text in texts.items() if word in text} == presets, word


@pytest.mark.parametrize("on", ["a100", "l4"])
@pytest.mark.parametrize("head_dim", [32, 64, 96, 128, 256])
def test_a_preset_that_splits_keys_fits_gpus_without_clusters(on, head_dim):
    compiled = (("D", head_dim), *OPTIONS)
    space = Space(DECODE, compiled, device(on))
    fitting = [
        preset.name
        for preset in DECODE.presets
        if space.why_not(preset_candidate(DECODE, preset.name, compiled).parameters) is None
        and dict(preset.parameters)["split_kv"] > 1
    ]
    assert fitting


@pytest.mark.parametrize(
    ("values", "is_tried"),
    [
        ("B=8,H=32,H_kv=8,S_q=1,S_kv=4096,D=128", True),
        ("B=2,H=10,S_q=64,S_kv=512,D=64", True),
        ("B=2,H=8,H_kv=2,S_q=17,S_kv=256,D=64", False),
        ("B=2,H=8,S_q=256,D=64", False),
    ],
)
def test_a_search_without_names_tries_it_where_rows_are_few(values, is_tried):
    plan = make_plan(SearchRequest("attention", workloads=(values,)), CATALOGUE)
    assert ("decode" in plan.templates) == is_tried
    assert {"mma", "scalar", "wmma"} <= set(plan.templates)
    named = SearchRequest("attention", workloads=(values,), templates=("decode",))
    assert make_plan(named, CATALOGUE).templates == ("decode",)

"""The dispatch set and its rules: smallest, readable, deterministic, and refused when tampered."""

from __future__ import annotations

import copy
import itertools
import json
import math
import random
from dataclasses import replace

import pytest

from greenfast.search.devices.facts import device
from greenfast.search.dispatch.build import GroupTimes, TimedWorkload, dispatch_group
from greenfast.search.dispatch.cover import Measured, best_times, smallest_cover
from greenfast.search.dispatch.read import read_table
from greenfast.search.dispatch.table import (
    LIBRARY,
    DispatchTable,
    PeerTime,
    table_digest,
    table_json,
)
from greenfast.search.dispatch.waves import Waves, waves_of
from greenfast.search.dispatch.within import check_within
from greenfast.search.errors import UsageError
from greenfast.search.kernels.expressions import expression
from greenfast.search.space.candidate import complete_parameters
from greenfast.search.space.space import resolve

SHARE = 0.03
COMPILED = (("D", 64), ("dtype", "bf16"))


def covers(kernels, chosen, share=SHARE):
    best = best_times(kernels)
    return all(
        min(kernels[at].times_us[w] for at in chosen) <= best[w] * (1 + share)
        for w in range(len(best))
    )


def drawn(rng, kernels, workloads):
    return [
        Measured(str(at), tuple(rng.choice((1.0, 1.02, 1.1, 2.0)) for _ in range(workloads)))
        for at in range(kernels)
    ]


@pytest.mark.parametrize("seed", range(30))
def test_the_exact_cover_is_a_smallest_one(seed):
    rng = random.Random(seed)
    kernels = drawn(rng, 7, 6)
    cover = smallest_cover(kernels, [1.0] * 6, SHARE)
    assert cover.method == "exact" and cover.bound == 1.0 and covers(kernels, cover.kernels)
    smaller = itertools.combinations(range(7), len(cover.kernels) - 1)
    assert not any(covers(kernels, chosen) for chosen in smaller if chosen)


def test_of_equally_small_covers_the_weighted_fastest_is_taken():
    kernels = [Measured("a", (1.0, 1.02)), Measured("b", (1.02, 1.0))]
    assert smallest_cover(kernels, [1.0, 9.0], SHARE).kernels == (1,)
    assert smallest_cover(kernels, [9.0, 1.0], SHARE).kernels == (0,)


def test_a_large_instance_is_covered_greedily_within_its_bound(monkeypatch):
    monkeypatch.setattr("greenfast.search.dispatch.cover.LARGEST_SEARCH", 3)
    kernels = drawn(random.Random(5), 20, 12)
    cover = smallest_cover(kernels, [1.0] * 12, SHARE)
    assert cover.method == "greedy" and covers(kernels, cover.kernels)
    assert 1 < cover.bound <= sum(1 / size for size in range(1, 13))


def test_without_a_time_on_some_workload_there_is_nothing_to_pick():
    with pytest.raises(UsageError, match="more trials"):
        smallest_cover([Measured("a", (1.0, math.inf))], [1.0, 1.0], SHARE)


def workload(name, weight=1.0, **sizes):
    return TimedWorkload(name, (*sizes.items(), ("D", 64)), sizes, weight, 2.0)


def group_of(*rows, kernels):
    return GroupTimes(COMPILED, tuple(rows), tuple(kernels))


@pytest.fixture
def times():
    """One kernel for short rows, one for long ones, and one that never wins."""
    rows = [
        workload(f"s{size}b{batch}", weight=float(batch), B=batch, S=size)
        for size in (64, 128, 512, 1024)
        for batch in (1, 4)
    ]
    short = Measured("3", tuple(1.0 if row.sizes["S"] <= 128 else 3.0 for row in rows))
    long = Measured("7", tuple(1.0 if row.sizes["S"] > 128 else 2.0 for row in rows))
    return group_of(*rows, kernels=[short, long, Measured("9", (2.5,) * 8)])


def test_the_rules_are_short_and_hold_between_the_measured_sizes(times):
    group = dispatch_group(times, SHARE)
    # The kernel for short rows loses more on the other side, so its rule ends before the middle.
    assert [str(rule.when[0]) for rule in group.rules[:-1]] == ["S <= 234"]
    assert [rule.use for rule in group.rules] == ["3", "7"]
    assert group.pick({"B": 2, "S": 100}) == "3" and group.pick({"B": 3, "S": 700}) == "7"
    # Outside of what was measured the kernel with the lowest worst ratio is taken.
    assert group.pick({"B": 1, "S": 16}) == "7" == group.pick({"B": 8, "S": 100})
    assert group.region == (("B", 1, 4), ("S", 64, 1024))


def test_the_regret_of_a_workload_that_was_not_seen_is_reported(times):
    group = dispatch_group(times, SHARE)
    assert len(group.regret.rows) == 8 and group.regret.worst >= group.regret.geomean >= 1.0
    ends = {row.workload for row in group.regret.rows if not row.inside}
    assert ends == set()  # every corner has a neighbour of the same size
    alone = group_of(times.workloads[0], kernels=[Measured("3", (1.0,))])
    assert dispatch_group(alone, SHARE).regret is None


@pytest.mark.parametrize("seed", range(20))
def test_the_pick_is_within_the_share_on_every_measured_workload(seed):
    rng = random.Random(seed)
    sizes = rng.sample(range(1, 5000), 9)
    rows = [workload(f"w{at}", B=rng.choice((1, 2, 8)), S=size) for at, size in enumerate(sizes)]
    times = group_of(*rows, kernels=drawn(rng, 12, 9))
    group = dispatch_group(times, SHARE)
    for served in group.workloads:
        assert dict(served.times_us)[served.use] <= served.best_us * (1 + SHARE)
    assert dispatch_group(times, SHARE) == group


def test_a_product_of_dims_is_used_where_no_single_dim_separates():
    rows = [workload("a", B=1, S=8), workload("b", B=8, S=1), workload("c", B=8, S=8)]
    kernels = [Measured("0", (1.0, 1.0, 2.0)), Measured("1", (2.0, 2.0, 1.0))]
    group = dispatch_group(group_of(*rows, kernels=kernels), SHARE)
    assert len(group.rules) == 2 and str(group.rules[0].when[0]).startswith("B * S <= ")


@pytest.fixture
def beside_a_library():
    """A kernel that wins on short rows alone, and one that is never far from the best kernel."""
    rows = [
        replace(workload(f"s{size}", S=size), library_us=us)
        for size, us in ((64, 0.99), (256, 2.0), (1024, 2.0), (4096, 0.5))
    ]
    return group_of(
        *rows,
        kernels=[Measured("3", (1.0, 1.0, 3.0, 3.0)), Measured("7", (1.1, 1.1, 1.0, 1.0))],
    )


def test_a_library_that_is_faster_than_every_kernel_is_picked(beside_a_library):
    group = dispatch_group(beside_a_library, SHARE)
    assert [served.use for served in group.workloads] == ["3", "3", "7", LIBRARY]
    # 1 % behind the library is within the tolerance; of best counts from the library's time.
    assert [served.best_us for served in group.workloads] == [0.99, 1.0, 1.0, 0.5]
    assert group.kernels == ("3", "7") and group.outside == "7"
    # Left out, the ends lie outside of the others' region, where a program calls the library.
    ends = {row.workload: row.use for row in group.regret.rows if not row.inside}
    assert ends == {"s64": LIBRARY, "s4096": LIBRARY}
    value = table_json(
        DispatchTable("attention", 3.0, "measured", (group.renamed({"3": "k0", "7": "k1"}),))
    )
    assert table_json(read_table(json.loads(json.dumps(value)), KERNELS)) == value
    assert value["groups"][0]["rules"][-1] == {"when": [], "use": LIBRARY}


def test_a_library_that_is_not_known_on_every_workload_is_never_picked(beside_a_library):
    first, *others = beside_a_library.workloads
    partly = replace(beside_a_library, workloads=(replace(first, library_us=None), *others))
    group = dispatch_group(partly, SHARE)
    assert [served.use for served in group.workloads] == ["3", "3", "7", "7"]
    assert all(LIBRARY not in dict(served.times_us) for served in group.workloads)


def test_where_the_library_is_always_faster_a_bundle_still_holds_a_kernel(beside_a_library):
    rows = [replace(row, library_us=0.1) for row in beside_a_library.workloads]
    group = dispatch_group(replace(beside_a_library, workloads=tuple(rows)), SHARE)
    assert {served.use for served in group.workloads} == {LIBRARY} and group.kernels == ("7",)


def test_between_two_sizes_a_kernel_is_picked_until_it_needs_another_wave():
    rows = [workload(f"b{size}", B=size) for size in (33, 99)]
    kernels = [Measured("0", (1.0, 2.0)), Measured("1", (1.4, 1.4))]
    times = group_of(*rows, kernels=kernels)
    two_each = Waves(expression("B * 2", "blocks"), 132)  # 66 batches fill the GPU once
    known = dispatch_group(replace(times, waves_of={"0": two_each}.get), SHARE)
    assert [known.pick({"B": size}) for size in (60, 70)] == ["0", "1"]
    assert dispatch_group(times, SHARE).pick({"B": 60}) == "1"


def test_a_rule_counts_blocks_where_no_size_or_product_separates():
    sizes = ((1, 128), (2, 64), (3, 33), (1, 129), (2, 65))
    rows = [workload(f"b{batches}s{rows}", B=batches, S=rows) for batches, rows in sizes]
    kernels = [Measured("k0", (1.0, 1.0, 2.0, 2.0, 2.0)), Measured("k1", (1.5,) * 5)]
    blocks = Waves(expression("ceil_div(S, 64) * B", "blocks"), 2)
    times = replace(group_of(*rows, kernels=kernels), waves_of={"k0": blocks}.get)
    group = dispatch_group(times, SHARE)
    assert [str(rule.when[0]) for rule in group.rules[:-1]] == ["ceil_div(S, 64) * B <= 2"]
    table = table_json(DispatchTable("attention", 3.0, "measured", (group,)))
    assert read_table(table, KERNELS).groups[0].rules == group.rules


def test_a_count_of_blocks_is_the_product_of_the_grid_with_the_points_values(catalogue):
    kernel = catalogue.kernel("attention")
    compiled = (("D", 64), ("dtype", "bf16"), ("mask", "none"))
    template = kernel.template("mma")
    parameters = complete_parameters(template, {"tile_m": 64}, compiled)
    values = resolve(template, parameters, compiled, device("h200")).values
    waves = waves_of(template, values, 132)
    assert waves.blocks.text == "ceil_div(S_q, 64) * H * B"
    even, over = ({"B": batches, "H": 12, "S_q": 64} for batches in (11, 12))
    assert waves.cost(even) == 0 < waves.cost(over)


@pytest.mark.parametrize("weights", [(1e15, 1.0), (1.0, 1e15), (1e-300, 1e-300)])
def test_the_rules_hold_for_a_workload_that_hardly_counts(weights):
    rows = [
        workload(f"s{size}", weight, S=size)
        for size, weight in zip((64, 4096), weights, strict=True)
    ]
    kernels = [Measured("0", (1.0, 9.0)), Measured("1", (9.0, 1.0))]
    group = dispatch_group(group_of(*rows, kernels=kernels), SHARE)
    assert [served.use for served in group.workloads] == ["0", "1"]


@pytest.fixture
def value(times):
    group = dispatch_group(times, SHARE)
    peers = (PeerTime("torch-flash", 0.9, 0.88, 0.92),)
    first, *others = group.workloads
    served = (type(first)(**{**vars(first), "peers": peers}), *others)
    group = type(group)(**{**vars(group), "workloads": served}).renamed({"3": "k0", "7": "k1"})
    table = DispatchTable("attention", 3.0, "measured", (group,))
    return json.loads(json.dumps(table_json(table)))


KERNELS = {"k0": dict(COMPILED), "k1": dict(COMPILED), "k2": {"D": 32, "dtype": "bf16"}}


def test_a_table_is_read_as_it_was_written(value):
    table = read_table(value, KERNELS)
    assert table_json(table) == value
    assert table.group({"D": 64, "dtype": "bf16"}).pick({"B": 4, "S": 64}) == "k0"
    assert table.group({"D": 64, "dtype": "fp16"}) is None


def change(path, new):
    def apply(value):
        *place, last = path
        for key in place:
            value = value[key]
        value[last] = new

    return apply


GROUP = ("groups", 0)
TAMPERED = {
    "another rule": (change((*GROUP, "rules", 0, "use"), "k1"), "the rules pick k1"),
    "another limit": (change((*GROUP, "rules", 0, "when", 0, "at_most"), 100), "the rules pick k1"),
    "a kernel of other values": (change((*GROUP, "outside"), "k2"), "not a kernel of the bundle"),
    "an unknown kernel": (change((*GROUP, "rules", 1, "use"), "k9"), "those are k0, k1"),
    "a wider region": (change((*GROUP, "region", "S"), [1, 9999]), "span 64 to 1024"),
    "a narrow region": (change((*GROUP, "region", "S"), [64, 100]), "lies outside"),
    "no last rule": (change((*GROUP, "rules"), []), "the last rule"),
    "an unknown name": (change((*GROUP, "rules", 0, "when", 0, "value"), "Z"), "unknown name 'Z'"),
    "code": (
        change((*GROUP, "rules", 0, "when", 0, "value"), "__import__('os')"),
        "unknown function",
    ),
    "a time of 0": (change((*GROUP, "workloads", 0, "times_us", "k0"), 0), "too small"),
    "text for a time": (change((*GROUP, "workloads", 0, "best_us"), "fast"), "not a number"),
    "a best that is none": (change((*GROUP, "workloads", 0, "best_us"), 1e9), "above a time"),
    "other dims": (change((*GROUP, "workloads", 0, "dims", "D"), 128), "has D=128"),
    "no groups": (change(("groups",), []), "no groups"),
    "a newer schema": (change(("schema",), 2), "this version reads"),
    "a kind of time": (change(("time_kind",), "guessed"), "not one of measured"),
    "an additional key": (change(("note",), "hello"), "its keys are"),
    "no object": (change((*GROUP, "workloads", 0), 5), "not a JSON object"),
}


@pytest.mark.parametrize("name", TAMPERED)
def test_a_tampered_table_is_refused_even_with_a_new_digest(value, name):
    tamper, part = TAMPERED[name]
    tampered = copy.deepcopy(value)
    tamper(tampered)
    with pytest.raises(UsageError) as refused:
        read_table(tampered, KERNELS)
    assert refused.value.code == "bad_dispatch" and "\n" not in refused.value.message
    tampered["digest"] = table_digest(tampered)
    with pytest.raises(UsageError, match=r"dispatch\.json: ") as refused:
        read_table(tampered, KERNELS)
    assert part in str(refused.value)


def test_a_changed_time_is_refused_by_the_digest(value):
    value["groups"][0]["workloads"][0]["times_us"]["k1"] += 0.001
    with pytest.raises(UsageError, match="digest"):
        read_table(value, KERNELS)


@pytest.mark.parametrize("nonsense", [None, [], "x", {}, {"groups": []}, {"digest": math.nan}])
def test_nonsense_is_refused_with_a_sentence(nonsense):
    with pytest.raises(UsageError):
        read_table(nonsense, KERNELS)


@pytest.mark.parametrize("percent", [-1, 101, math.nan, math.inf])
def test_a_tolerance_beyond_reason_is_refused(percent):
    with pytest.raises(UsageError, match="between 0 and 100 %"):
        check_within(percent)

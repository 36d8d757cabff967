"""Device facts against data sheets, and what the model makes of counted work."""

from __future__ import annotations

import dataclasses

import pytest

from greenfast.search.devices.facts import TENSOR_FORMATS, device, device_names
from greenfast.search.errors import UsageError
from greenfast.search.oracle.problem import LaunchPlan
from greenfast.search.targets.emulator.instruction_mix import CLASSES
from greenfast.search.targets.emulator.model import (
    BlockWork,
    LaunchWork,
    model,
    resource_cycles,
    warp_mma_rate,
)

# Dense TFLOP/s (int8: TOP/s) of NVIDIA's data sheets, at the clock that they state them for.
PEAKS = {
    "a100": (1410, {"fp16": 312, "bf16": 312, "tf32": 156, "e4m3": 0, "e5m2": 0, "int8": 624}),
    "h100": (
        1830,
        {
            "fp16": 989.4,
            "bf16": 989.4,
            "tf32": 494.7,
            "e4m3": 1978.9,
            "e5m2": 1978.9,
            "int8": 1978.9,
        },
    ),
    "h200": (
        1830,
        {
            "fp16": 989.4,
            "bf16": 989.4,
            "tf32": 494.7,
            "e4m3": 1978.9,
            "e5m2": 1978.9,
            "int8": 1978.9,
        },
    ),
    "l4": (
        2040,
        {"fp16": 121, "bf16": 121, "tf32": 60, "e4m3": 242.5, "e5m2": 242.5, "int8": 242.5},
    ),
}


@pytest.mark.parametrize("name", device_names())
def test_tensor_rates_make_the_data_sheets_peaks(name):
    clock_mhz, peaks = PEAKS[name]
    facts = device(name)
    assert set(peaks) == set(TENSOR_FORMATS)
    for form, peak in peaks.items():
        rate = facts.tensor_flop_per_cycle_per_sm(form) * facts.multiprocessors * clock_mhz * 1e-6
        assert rate == pytest.approx(peak, rel=0.01), form


def test_an_unknown_tensor_format_is_refused_with_the_known_ones():
    with pytest.raises(UsageError, match="known: bf16, e4m3"):
        device("h200").tensor_flop_per_cycle_per_sm("fp4")


def test_products_cost_by_their_format():
    assert warp_mma_rate(device("a100"), "f16") == 2 * warp_mma_rate(device("a100"), "tf32") == 2048
    assert warp_mma_rate(device("l4"), "fp8") == 2 * warp_mma_rate(device("l4"), "bf16") == 2048
    # On Hopper mma.sync of fp8 is products of fp16 between conversions.
    assert warp_mma_rate(device("h200"), "fp8") == warp_mma_rate(device("h200"), "f16")


def work(grid=(264, 1, 1), threads=128, smem=0, **changes) -> LaunchWork:
    mix = {**dict.fromkeys(CLASSES, 0.0), **changes.pop("mix", {})}
    block = BlockWork(
        **{
            "warps": threads / 32,
            "mma_flop": (),
            "shared_wavefronts": 0.0,
            "global_sectors": 0.0,
            "barriers": 0.0,
            "mix": mix,
            "float_atomic_turns": 1.0,
            **changes,
        }
    )
    return LaunchWork(LaunchPlan("k", grid, (threads, 1, 1), smem), 32, 0, (block,))


@pytest.mark.parametrize(
    ("resource", "changes"),
    [
        ("tensor cores", {"mma_flop": (("f16", 1e9),)}),
        ("shared memory", {"shared_wavefronts": 1e6, "warps": 1e6}),
        ("shared memory", {"mix": {"shuffle": 1e6}, "warps": 1e6}),
        ("global memory", {"global_sectors": 1e6}),
        ("instruction issue", {"mix": {"control": 1e6}, "warps": 1e6}),
        ("integer", {"mix": {"int": 1e6}, "warps": 1e6}),
        ("special functions", {"mix": {"special": 1e6}, "warps": 1e6}),
        ("latency", {"barriers": 1e5}),
        ("float atomics", {"mix": {"shared float atomic": 1e5}}),
        ("ring", {"refills": 1e3}),
    ],
)
def test_the_resource_that_has_most_to_do_limits_and_the_others_follow(resource, changes):
    prediction = model(device("h200"), [work(**changes)], dram_bytes=1000)
    assert prediction.limited_by == resource
    assert resource not in [name for name, _ in prediction.limits[1:]]
    assert [us for _, us in prediction.limits] == sorted(
        (us for _, us in prediction.limits), reverse=True
    )
    assert prediction.time_us >= prediction.limits[0][1]


def test_a_ring_costs_nothing_beside_what_takes_longer():
    def time_us(refills):
        both = work(barriers=1000.0, refills=refills)
        return model(device("h200"), [both], dram_bytes=0).time_us

    assert time_us(1.0) == time_us(0.0) < time_us(1000.0)
    assert time_us(2000.0) > 1.9 * time_us(1000.0)


def test_more_blocks_than_fit_take_turns():
    launch_work = work(smem=200_000, barriers=100.0)
    three = dataclasses.replace(
        launch_work, launch=dataclasses.replace(launch_work.launch, grid=(3 * 264, 1, 1))
    )
    first, third = (
        dict(model(device("h200"), [launch], 0).limits)["latency"]
        for launch in (launch_work, three)
    )
    assert third == pytest.approx(3 * first)


def test_launches_take_the_sum_of_their_times():
    both = [work(barriers=100.0), work(shared_wavefronts=1e5)]
    alone = [model(device("h200"), [launch], 0).time_us for launch in both]
    assert model(device("h200"), both, 0).time_us == pytest.approx(sum(alone))


def test_bound_by_issue_a_block_takes_a_quarter_of_its_instructions_in_cycles():
    assert (
        resource_cycles(device("h200"), work(mix={"fp32": 400.0}).blocks[0])["instruction issue"]
        == 100
    )


def test_reaching_the_memory_of_another_block_costs_by_the_clusters_size():
    alone = work(grid=(264, 1, 1), mix={"generic": 100.0})
    pair, four = (
        dataclasses.replace(alone, launch=dataclasses.replace(alone.launch, cluster=(size, 1, 1)))
        for size in (2, 4)
    )
    costs = [
        dict(model(device("h200"), [launch], 0).limits)["cluster memory"]
        for launch in (alone, pair, four)
    ]
    assert costs[0] == 0 and costs[2] == pytest.approx(2 * costs[1])
    # two blocks an SM, 100 accesses each, 20 cycles for each of two blocks
    assert costs[1] == pytest.approx(2 * 100 * 20 * 2 / 1980)


def test_warps_wait_side_by_side_for_their_float_atomics_and_blocks_that_do_not_fit_in_turns():
    def cost(**changes) -> float:
        return dict(model(device("h200"), [work(**changes)], 0).limits)["float atomics"]

    # 400 by the four warps of a block, 120 cycles each and turn of the lanes
    assert cost(mix={"shared float atomic": 400.0}) == pytest.approx(100 * 120 / 1980)
    assert cost(mix={"shared float atomic": 400.0}, float_atomic_turns=8.0) == pytest.approx(
        100 * 8 * 120 / 1980
    )
    assert cost(mix={"shared float atomic": 800.0}, threads=256) == cost(
        mix={"shared float atomic": 400.0}
    )
    assert cost(mix={"shared float atomic": 400.0}, smem=200_000) == pytest.approx(
        2 * 100 * 120 / 1980
    )
    assert cost(mix={"shared": 400.0}) == 0


def test_float_atomics_by_generic_addresses_reach_shared_memory_in_clusters_only():
    alone = work(mix={"generic float atomic": 400.0})
    pair = dataclasses.replace(alone, launch=dataclasses.replace(alone.launch, cluster=(2, 1, 1)))
    costs = [dict(model(device("h200"), [launch], 0).limits) for launch in (alone, pair)]
    assert costs[0]["float atomics"] == 0 and costs[1]["float atomics"] == pytest.approx(
        100 * 600 / 1980
    )
    assert costs[1]["cluster memory"] == 0, "charged once"

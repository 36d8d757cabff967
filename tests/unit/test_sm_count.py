"""`sm_count` in a template's expressions is the number of SMs of the device."""

from __future__ import annotations

from dataclasses import replace

import pytest

from greenfast.app.history import measured_device
from greenfast.search.devices.facts import device
from greenfast.search.errors import SpecError
from greenfast.search.oracle.cases import workload_case
from greenfast.search.oracle.problem import launches
from greenfast.search.space.candidate import preset_candidate
from greenfast.search.space.space import Space, resolve


@pytest.mark.parametrize(
    ("preset", "changes", "on", "grid", "blocks"),
    [
        ("wmma:fused", {"persistent": True}, "h200", (33, 1, 4), 132),
        ("wmma:fused", {"persistent": True}, "a100", (27, 1, 4), 108),
        ("wmma:fused", {}, "a100", (64, 16, 4), 1),
        ("mma:persistent", {}, "h200", (2, 16, 4), 1),
        ("mma:persistent", {}, "a100", (1, 16, 4), 1),
    ],
)
def test_a_persistent_grid_has_the_blocks_of_the_device(
    catalogue, preset, changes, on, grid, blocks
):
    kernel = catalogue.kernel("attention")
    template, named = kernel.preset(preset)
    workload = kernel.workload("d128_4096_causal_bf16")
    compiled = workload.compile_time(kernel)
    parameters = preset_candidate(template, named.name, compiled, changes).parameters
    point = resolve(template, parameters, compiled, device(on))
    values = {**workload_case(workload, 0).values(kernel), **point.values}
    assert launches(template, values)[0].grid == grid
    assert point.tiles["blocks"] == blocks


@pytest.mark.parametrize("on", ["h200", "a100"])
def test_a_constraint_may_use_it(broken_kernel, on):
    """128 threads are at most the 132 SMs of an H200, and more than the 108 of an A100."""
    album = broken_kernel("right.toml", "threads * per_thread <= 512", "threads <= sm_count")
    space = Space(album.kernel("axpy").template("right"), (), device(on))
    points = list(space.points)
    assert points == list(space.each_point())
    largest = 128 if on == "h200" else 64
    assert {dict(point)["threads"] for point in points} == {
        threads for threads in (32, 64, 128) if threads <= largest
    }
    refused = (("threads", 2 * largest), ("per_thread", 1))
    assert space.why_not(points[0]) is None and space.why_not(refused) is not None


@pytest.mark.parametrize(
    ("file", "old", "new"),
    [
        ("kernel.toml", "[dims]\n", '[dims]\nsm_count = { time = "run", default = 1 }\n'),
        ("kernel.toml", "[options]\n", '[options]\nsm_count = { values = ["a"], default = "a" }\n'),
        ("kernel.toml", "[constants]\n", '[constants]\nsm_count = "132"\n'),
        ("right.toml", "[parameters.per_thread]", "[parameters.sm_count]"),
        ("right.toml", "[tiles]\n", '[locals]\nsm_count = "132"\n\n[tiles]\n'),
        ("right.toml", "[tiles]\n", '[tiles]\nsm_count = "132"\n'),
    ],
)
def test_the_name_is_reserved(broken_kernel, file, old, new):
    with pytest.raises(SpecError, match="'sm_count' is reserved") as refused:
        broken_kernel(file, old, new).kernel("axpy")
    assert f"axpy/{file}" in refused.value.message


def test_a_parameters_when_cannot_use_it(broken_kernel):
    with pytest.raises(SpecError, match="unknown name 'sm_count'"):
        broken_kernel("right.toml", 'doc = "threads a block"', 'when = "sm_count > 100"').kernel(
            "axpy"
        )


@pytest.mark.parametrize(
    ("target", "environment", "name", "multiprocessors"),
    [
        ("emulator:a100", {}, "a100", 108),
        ("cuda:0", {"device": "l4"}, "l4", device("l4").multiprocessors),
        ("cuda:0", {"device": "nvidia-h100-pcie", "multiprocessors": "114"}, "h200", 114),
        ("cuda:0", None, "h200", 132),
    ],
)
def test_an_earlier_trial_has_the_sms_of_its_device(target, environment, name, multiprocessors):
    assert measured_device(target, environment) == replace(
        device(name), multiprocessors=multiprocessors
    )

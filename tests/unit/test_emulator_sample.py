"""Which blocks stand for a launch, and what the model makes of blocks that are not alike."""

from __future__ import annotations

import math

import pytest
from contexts import workload_context
from slow_cases import quick_first

from greenfast.db.convert import verdict_json, verdict_of
from greenfast.db.figures import figures
from greenfast.search.devices.facts import device
from greenfast.search.loop.evaluate import evaluate
from greenfast.search.loop.feedback import told_of
from greenfast.search.loop.plan import SearchRequest, make_plan
from greenfast.search.oracle.cases import workload_case
from greenfast.search.oracle.problem import LaunchPlan, lay_out
from greenfast.search.oracle.reference import case_data
from greenfast.search.render import render
from greenfast.search.space.candidate import preset_candidate
from greenfast.search.space.space import resolve
from greenfast.search.targets import TargetSettings, open_target
from greenfast.search.targets.bound import tensor_peak
from greenfast.search.targets.emulator.instruction_mix import CLASSES
from greenfast.search.targets.emulator.model import BlockWork, LaunchWork
from greenfast.search.targets.emulator.sample import SAMPLED_BLOCKS, sampled_clusters
from greenfast.search.targets.emulator.work import block_weights, sampled_blocks
from greenfast.search.verdict import Green, Outcome, Trial, gate_result, performance_of

ALONE = (1, 1, 1)
GRIDS = [
    (8, 32, 1),
    (1, 64, 2),
    (512, 1, 1),
    (3, 1, 1),
    (3, 32, 1),
    (5, 7, 1),
    (2, 3, 3),
    (17, 1, 1),
    (4, 8, 2),
    (2**31 - 1, 65535, 65535),
]


def coordinates(number: int, grid: tuple[int, int, int]) -> tuple[int, int, int]:
    return number % grid[0], number // grid[0] % grid[1], number // grid[0] // grid[1]


@pytest.mark.parametrize("grid", GRIDS)
def test_a_sample_meets_both_ends_of_every_axis_and_stands_for_all_blocks(grid):
    sample = sampled_clusters(grid, ALONE, SAMPLED_BLOCKS)
    points = [coordinates(cluster.number, grid) for cluster in sample]
    assert 1 <= len(set(points)) == len(sample) <= SAMPLED_BLOCKS
    assert math.fsum(cluster.weight for cluster in sample) == pytest.approx(math.prod(grid))
    assert all(cluster.weight > 0 for cluster in sample)
    for axis, size in enumerate(grid):
        met = {point[axis] for point in points}
        assert {0, size - 1} <= met and all(0 <= coordinate < size for coordinate in met)
        assert len(met) >= min(size, SAMPLED_BLOCKS // 2)


@pytest.mark.parametrize("grid", GRIDS)
@pytest.mark.parametrize("axis", range(3))
def test_a_cost_that_rises_evenly_along_an_axis_has_its_exact_sum(grid, axis):
    sample = sampled_clusters(grid, ALONE, SAMPLED_BLOCKS)
    total = math.fsum(
        cluster.weight * coordinates(cluster.number, grid)[axis] for cluster in sample
    )
    # short axes are evened out one by one, which leaves something where several are short
    assert total == pytest.approx(math.prod(grid) * (grid[axis] - 1) / 2, rel=0.05)


@pytest.mark.parametrize(
    ("grid", "cluster"), [((16, 8, 2), (2, 1, 1)), ((64, 4, 1), (8, 1, 1)), ((8, 8, 8), (2, 2, 2))]
)
def test_whole_clusters_are_sampled(grid, cluster):
    launch = LaunchPlan("k", grid, (32, 1, 1), 0, cluster=cluster)
    blocks = sampled_blocks(launch, SAMPLED_BLOCKS)
    weights = block_weights(launch, SAMPLED_BLOCKS)
    assert len(set(blocks)) == len(blocks) == len(weights) and sum(weights) == pytest.approx(
        math.prod(grid)
    )
    assert {0, math.prod(grid) - 1} <= set(blocks)
    of_cluster: dict[tuple[int, ...], int] = {}
    for block in blocks:
        place = tuple(
            at // size for at, size in zip(coordinates(block, grid), cluster, strict=True)
        )
        of_cluster[place] = of_cluster.get(place, 0) + 1
    assert set(of_cluster.values()) == {math.prod(cluster)}


def test_the_heaviest_block_ends_last_and_blocks_alike_take_their_turns():
    def block(barriers: float, weight: float) -> BlockWork:
        return BlockWork(4, (), 0.0, 0.0, barriers, dict.fromkeys(CLASSES, 0.0), 1.0, weight)

    launch = LaunchPlan("k", (10, 1, 1), (128, 1, 1), 0)
    unequal = LaunchWork(launch, 32, 0, (block(10.0, 8), block(60.0, 2)))
    assert unequal.in_turn(1, lambda block: block.barriers) == 60
    assert unequal.in_turn(3, lambda block: block.barriers) == 2 * 20 + 60
    alike = LaunchWork(launch, 32, 0, (block(10.0, 5), block(10.0, 5)))
    assert alike.in_turn(7, lambda block: block.barriers) == 70


@pytest.fixture(scope="module")
def modelled_us(catalogue, toolchain, artifacts):
    """(time, its bound) of a template's preset on a workload."""
    kernel = catalogue.kernel("attention")
    target = open_target("emulator:h200", TargetSettings(artifacts, catalogue.include_dirs, 2))

    def measure(template_name: str, preset: str, workload: str) -> tuple[float, float]:
        template, shape = kernel.template(template_name), kernel.workload(workload)
        compiled, case = shape.compile_time(kernel), workload_case(shape, 0)
        candidate = preset_candidate(template, preset, compiled)
        point = resolve(template, candidate.parameters, compiled, device("h200"))
        source = render(kernel, template, point, catalogue.include_dirs)
        problem = lay_out(
            kernel, template, point, case, case_data(kernel, case), optional_outputs=False
        )
        cubin = toolchain.compile(source, "sm_90")
        (timing,) = target.measure(target.load(source, cubin), cubin, [problem])
        return timing.time_median_us, timing.bound_us

    yield measure
    target.close()


@pytest.mark.parametrize(
    ("template", "preset"), quick_first([("scalar", "vec"), ("wmma", "stage2")], 1)
)
@pytest.mark.slow
def test_causal_tiles_along_blockidx_x_take_about_half_of_all_tiles(modelled_us, template, preset):
    """Counting blockIdx.x = 0 alone, which sees one tile of keys, gave causal under a quarter."""
    causal_us, causal_bound_us = modelled_us(template, preset, "mission_512_causal")
    none_us, none_bound_us = modelled_us(template, preset, "mission_512")
    assert 0 < causal_bound_us < causal_us and 0 < none_bound_us < none_us
    assert 0.5 < causal_us / none_us < 1.05


def test_a_modelled_time_below_the_physical_bound_is_implausible_and_orders_nothing(
    broken_kernel, artifacts, toolchain
):
    """It claims more work than an H200 does in that time: 2e6 flop an element."""
    catalogue = broken_kernel("kernel.toml", 'flop = "2 * N"', 'flop = "2000000 * N"')
    target = open_target("emulator:h200", TargetSettings(artifacts, catalogue.include_dirs, 2))
    context = workload_context(catalogue, "axpy", "line", target, toolchain)
    candidate = preset_candidate(context.kernel.template("right"), "plain", context.compiled)
    verdict = evaluate(candidate, context).verdict
    target.close()
    assert isinstance(verdict, Green), "the candidate is right and safe"
    result = gate_result(verdict, "performance")
    assert result.outcome is Outcome.UNAVAILABLE
    assert result.sentence.startswith("implausible, so not ranked: the modelled time of line, ")
    # 4096 * 2e6 flop at 132 SMs, 4096 flop a cycle and 1980 MHz
    assert (
        "is below the 7.65 us that its compulsory work takes at the peaks of NVIDIA H200"
        in result.sentence
    )
    assert "a fault of the model, not of the candidate" in result.sentence
    assert performance_of(verdict) is None
    (timing,) = result.evidence.timings
    assert 0 < timing.time_median_us < timing.bound_us, "the page shows where the model is wrong"
    assert timing.limits and timing.mix and timing.lines
    assert result.evidence.ratio_to_baseline is None
    trial = Trial(3, candidate, verdict, "digest", 1.0)
    plan = make_plan(
        SearchRequest("axpy", workloads=("line",), target="emulator:h200", trials=4), catalogue
    )
    assert told_of(trial, plan) is None, "a strategy hears no objective"
    shown = figures(trial, (), "right:plain")
    assert shown.time_median_us is None and shown.sentence == result.sentence
    assert shown.time_kind is None and shown.time_band is None and shown.ratio_to_baseline is None
    assert verdict_of(*verdict_json(verdict)) == verdict


def test_bytes_have_peaks_of_their_own_so_that_the_bound_is_one(catalogue):
    """Inputs of one byte allow products at twice the rate of fp16 on an H200."""
    device_facts = device("h200")
    peaks = {}
    for name in ("attention", "attention_fp8"):
        kernel = catalogue.kernel(name)
        template, shape = kernel.templates[0], kernel.workload("mission")
        compiled, case = shape.compile_time(kernel), workload_case(shape, 0)
        point = resolve(
            template,
            preset_candidate(template, template.presets[0].name, compiled).parameters,
            compiled,
            device("h200"),
        )
        peaks[name] = tensor_peak(
            device_facts, lay_out(kernel, template, point, case, case_data(kernel, case))
        )
    assert peaks == {"attention": 4096, "attention_fp8": 8192}

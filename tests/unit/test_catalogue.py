"""Kernels and templates are read strictly: a mistake is a sentence with the file and the fix."""

from __future__ import annotations

import itertools
from dataclasses import replace

import pytest

from greenfast.search.devices.facts import device, device_names
from greenfast.search.errors import SpecError, UsageError
from greenfast.search.kernels.catalogue import Catalogue
from greenfast.search.loop.plan import SearchRequest, make_plan
from greenfast.search.oracle.cases import derived_cases
from greenfast.search.space import columns, lattice
from greenfast.search.space.candidate import complete_parameters
from greenfast.search.space.points import Points
from greenfast.search.space.space import Space, device_refusal


@pytest.mark.parametrize(
    ("file", "old", "new", "message"),
    [
        ("kernel.toml", "[work]", "[work", "not valid TOML"),
        ("kernel.toml", 'title = "y', 'titel = "y', "'title' is missing"),
        ("kernel.toml", 'title = "y', 'extra = 1\ntitle = "y', "unknown key 'extra'"),
        ("kernel.toml", 'name = "axpy"', 'name = "other"', "in a folder called 'axpy'"),
        ("kernel.toml", 'flop = "2 * N"', 'flop = "2 * M"', "unknown name 'M'"),
        ("kernel.toml", "[dims]", '[dims.E]\ntime = "run"\ndefault = "N"\n[dims]', "uses N, which"),
        ("kernel.toml", "[dims]", '[dims.E]\ntime = "run"\ndefault = "Z"\n[dims]', "name 'Z'"),
        (
            "kernel.toml",
            'baseline = "right:plain"',
            'baseline = "right:fancy"',
            "unknown preset 'fancy'",
        ),
        ("kernel.toml", 'kind = "output"', 'kind = "outptu"', "it may be input, output, scalar"),
        ("kernel.toml", "seeds = 1", 'seeds = "one"', "seeds must be int"),
        ("right.toml", 'kernel = "axpy"', 'kernel = "axpi"', "name and kernel must be"),
        ("right.toml", "default = 128", "default = 100", "the default 100 is not among the values"),
        ("right.toml", 'expr = "threads', 'expr = "thread', "unknown name 'thread'"),
        (
            "right.toml",
            'doc = "threads a block"\nnumerics = "same"',
            'numerics = "equal"',
            "it may be same, own",
        ),
        ("right.toml", "default = 128", "default = 128\ngroup = 2", "group must be str"),
        (
            "right.toml",
            "default = 128",
            'default = 128\ngroup = "Tile shape"',
            "group: the name 'Tile shape'; names are small letters, digits and _",
        ),
        (
            "right.toml",
            "parameters = {}",
            "parameters = { threads = 33 }",
            "threads = 33 is not among the parameter's values",
        ),
        ("right.toml", 'grid = ["ceil_div', 'grid = ["ceil', "unknown function"),
        ("right.toml", ', "1", "1"]\nblock', ', "1"]\nblock', "grid needs three expressions"),
        (
            "right.toml",
            "smem_dynamic_bytes = 0",
            'smem_dynamic_bytes = 0\ncluster = "2"',
            "cluster must be list",
        ),
        (
            "right.toml",
            "smem_dynamic_bytes = 0",
            'smem_dynamic_bytes = 0\ncluster = ["2"]',
            "cluster needs three expressions",
        ),
        (
            "right.toml",
            "smem_dynamic_bytes = 0",
            'smem_dynamic_bytes = 0\ncluster = ["N", "1", "1"]',
            "unknown name 'N'",
        ),
        (
            "right.toml",
            "smem_dynamic_bytes = 0",
            'smem_dynamic_bytes = 0\nclusters = ["2", "1", "1"]',
            "unknown key 'clusters'",
        ),
        ("reference.py", "def reference", "def referense", "has no function reference"),
    ],
)
def test_a_mistake_in_a_kernels_files_is_named(broken_kernel, file, old, new, message):
    from greenfast.search.oracle.cases import workload_case
    from greenfast.search.oracle.reference import case_data

    def first_answer():
        kernel = broken_kernel(file, old, new).kernel("axpy")
        return case_data(kernel, workload_case(kernel.workloads[0], 0))

    with pytest.raises(SpecError, match=message) as refused:
        first_answer()
    assert f"axpy/{file}" in refused.value.message and "\n" not in refused.value.message


def test_one_broken_kernel_does_not_hide_the_others(broken_kernel):
    broken = broken_kernel("kernel.toml", "[work]", "[work")
    from greenfast.search.kernels.catalogue import REPOSITORY_TEMPLATES

    both = Catalogue([REPOSITORY_TEMPLATES, *broken._roots])
    here = {path.parent.name for path in REPOSITORY_TEMPLATES.glob("*/kernel.toml")}
    assert {
        kernel.name if hasattr(kernel, "name") else kernel.code for kernel in both.kernels()
    } == {
        *here,
        "bad_toml",
    }
    assert "attention" in here


def test_unknown_names_come_with_the_known_ones(catalogue):
    kernel = catalogue.kernel("attention")
    for call, code, known in [
        (lambda: catalogue.kernel("atention"), "unknown_kernel", "did you mean 'attention'"),
        (lambda: kernel.template("vmma"), "unknown_template", "known: decode, mma, scalar, wgmma"),
        (lambda: catalogue.kernel("ATTENTION"), "unknown_kernel", "did you mean 'attention'"),
        (lambda: kernel.workload("mision"), "unknown_workload", "did you mean 'mission'"),
        (lambda: kernel.template("wmma").preset("flashcore"), "unknown_preset", "flashcore_a64"),
        (lambda: kernel.template("wmma").parameter("tile_k"), "unknown_parameter", "tile_m"),
        (lambda: device("h300"), "unknown_device", "known: a100, h100, h200, l4"),
    ]:
        with pytest.raises(UsageError) as refused:
            call()
        assert refused.value.code == code and known in str(refused.value)


@pytest.mark.parametrize(
    ("change", "code"),
    [
        ({"kernel": "nothing"}, "unknown_kernel"),
        ({"workloads": ("tiny",)}, "unknown_workload"),
        ({"templates": ("cutlass",)}, "unknown_template"),
        ({"target": "emulator:b300"}, "unknown_target"),
        ({"target": "gpu"}, "unknown_target"),
        ({"target": "cuda:x"}, "unknown_target"),
        ({"strategy": "luck"}, "unknown_strategy"),
        ({"trials": 0}, "bad_budget"),
        ({"seconds": 0.0}, "bad_budget"),
        ({"seconds": float("nan")}, "bad_budget"),
        ({"baseline": "wmma"}, "bad_preset"),
        ({"baseline": "wmma:none"}, "unknown_preset"),
        ({"min_gain": 1.5}, "bad_min_gain"),
        ({"gates": {"speed": {}}}, "unknown_gate"),
        ({"gates": {"ptxas": {"max_regs": 1}}}, "unknown_setting"),
        ({"gates": {"ptxas": {"max_registers": -1}}}, "bad_limit"),
        ({"name": "a\x1b[31m"}, "bad_name"),
        ({"workloads": ("mission", "mission_bf16")}, "mixed_workloads"),
        ({"workloads": ("mission", "mission")}, "repeated_workload"),
        ({"templates": ("wmma", "wmma")}, "repeated_template"),
    ],
)
def test_a_request_that_cannot_run_is_refused_with_a_stable_code(catalogue, change, code):
    with pytest.raises(UsageError) as refused:
        make_plan(SearchRequest(**{"kernel": "attention", **change}), catalogue)
    assert refused.value.code == code
    assert "\n" not in str(refused.value)


def test_a_plan_is_complete_and_repeats_for_the_same_request(catalogue):
    request = SearchRequest("attention", seed=7)
    plan = make_plan(request, catalogue)
    # Only the sizes that an author cannot know differ between two searches.
    secret = plan.sizes_secret
    assert plan == replace(make_plan(request, catalogue), sizes_secret=secret)
    assert (plan.workloads, plan.templates, plan.trials, plan.baseline) == (
        ("small",),
        ("mma", "scalar", "wgmma", "wmma"),
        40,
        "wmma:stage2",
    )


def test_constraints_that_nothing_satisfies_are_said_at_submit(broken_kernel):
    nothing = broken_kernel(
        "right.toml", "threads * per_thread <= 512", "threads * per_thread <= 8"
    )
    with pytest.raises(UsageError, match="128 threads with 1 elements") as refused:
        make_plan(SearchRequest("axpy", templates=("right",)), nothing)
    assert refused.value.code == "empty_space"


@pytest.mark.slow
def test_every_point_of_every_template_holds_its_own_rules(catalogue):
    kernel = catalogue.kernel("attention")
    compiled = kernel.workload("mission").compile_time(kernel)
    for name in device_names():
        for template in kernel.templates:
            space = Space(template, compiled, device(name))
            encoded = space.points.encoded
            if device_refusal(template, device(name)):
                assert not len(encoded)
                continue
            assert (
                len(encoded) > 100 and (encoded[1:] != encoded[:-1]).any(axis=1).all()
            )  # sorted, so none twice
            for point in space.points[:: max(1, len(space.points) // 200)]:
                assert space.why_not(point) is None
                assert complete_parameters(template, dict(point), compiled) == point


def test_the_walk_finds_just_the_points_that_trying_everything_finds(catalogue):
    kernel = catalogue.kernel("attention")
    template, compiled = kernel.template("scalar"), kernel.workload("mission").compile_time(kernel)
    space, names = (
        Space(template, compiled, device("l4")),
        [parameter.name for parameter in template.parameters],
    )
    everything = {
        complete_parameters(template, dict(zip(names, values, strict=True)), compiled)
        for values in itertools.product(*(parameter.values for parameter in template.parameters))
    }
    assert (
        set(space.points)
        == {point for point in everything if space.why_not(point) is None}
        != everything
    )
    assert [space.points.position(point) for point in space.points[:50]] == list(range(50))


@pytest.mark.parametrize("name", ["scalar", "wmma"])
def test_all_points_at_once_are_those_of_the_walk_in_its_order(catalogue, monkeypatch, name):
    kernel = catalogue.kernel("attention")
    whole = kernel.template(name)
    few = replace(
        whole,
        parameters=tuple(
            replace(
                parameter, values=tuple(dict.fromkeys((*parameter.values[:2], parameter.default)))
            )
            for parameter in whole.parameters
        ),
    )
    space = Space(few, kernel.workload("mission").compile_time(kernel), device("h200"))
    walked = tuple(space.each_point())
    assert tuple(space.points) == walked and len(walked) > 200
    monkeypatch.setattr(columns, "LARGEST_TABLE", 16)  # keys that no table holds are sorted
    assert tuple(Space(few, space.compiled, device("h200")).points) == walked


def test_a_space_too_large_to_walk_is_refused_by_its_templates_name(catalogue, monkeypatch):
    kernel = catalogue.kernel("attention")
    monkeypatch.setattr(lattice, "LARGEST_WALK", 1000)
    space = Space(
        kernel.template("mma"), kernel.workload("mission").compile_time(kernel), device("h200")
    )
    with pytest.raises(
        SpecError, match=r"template mma of kernel attention is too large: .* 1,000 steps"
    ) as refused:
        _ = space.points
    assert refused.value.code == "space_too_large"


def test_a_space_too_large_to_try_all_is_refused_at_submit(broken_kernel):
    values = ", ".join(map(str, range(1, 2801)))
    broken_kernel("right.toml", "values = [1, 2, 4]", f"values = [{values}]")
    broken_kernel("right.toml", "values = [32, 64, 128, 256]", f"values = [{values}]")
    huge = broken_kernel("right.toml", "threads * per_thread <= 512", "threads * per_thread > 0")
    with pytest.raises(SpecError) as refused:
        make_plan(SearchRequest("axpy", templates=("right",), strategy="exhaustive"), huge)
    assert (
        refused.value.code == "space_too_large"
        and refused.value.mend
        and "\n" not in refused.value.message
    )
    assert (
        "template right of kernel axpy" in refused.value.message
        and "7,000,000 steps" in refused.value.message
    )


def test_a_parameter_may_have_more_values_than_a_byte_tells_apart(broken_kernel):
    values = ", ".join(map(str, range(1, 301)))
    kernel = broken_kernel("right.toml", "values = [1, 2, 4]", f"values = [{values}]").kernel(
        "axpy"
    )
    space = Space(
        kernel.template("right"), kernel.workloads[0].compile_time(kernel), device("h200")
    )
    walked = tuple(space.each_point())
    assert tuple(space.points) == walked == tuple(Points(space.template.parameters, walked))
    assert len(walked) == sum(min(512 // threads, 300) for threads in (32, 64, 128, 256))
    assert [space.points.position(point) for point in walked] == list(range(len(walked)))


def test_a_point_outside_says_the_computed_bytes(catalogue):
    kernel = catalogue.kernel("attention")
    compiled = kernel.workload("mission").compile_time(kernel)
    space = Space(kernel.template("wmma"), compiled, device("l4"))
    large = complete_parameters(
        space.template, {"tile_m": 128, "tile_n": 128, "warps_m": 8, "warps_n": 1}, compiled
    )
    assert "bytes of dynamic shared memory; a block may have 101376 on l4" in (
        space.why_not(large) or ""
    )


def test_a_check_that_is_newer_than_a_template_takes_1_for_what_that_does_not_name(catalogue):
    kernel = catalogue.kernel("attention")
    compiled = kernel.workload("mission").compile_time(kernel)
    older = replace(
        kernel,
        templates=tuple(
            replace(
                template,
                tiles=tuple(tile for tile in template.tiles if tile[0] not in ("parts", "blocks")),
            )
            for template in kernel.templates
        ),
    )
    tiles = {"tile_q": 32, "tile_kv": 64, "depth": 2}
    known = {
        case.name
        for case in derived_cases(kernel, compiled, {**tiles, "parts": 4, "blocks": 132}, 0)
    }
    assert known - {case.name for case in derived_cases(older, compiled, tiles, 0)} == {
        "shared_keys",
        "rows_after_rows",
    }

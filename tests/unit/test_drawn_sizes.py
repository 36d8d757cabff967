"""Cases of sizes that an author cannot know."""

from __future__ import annotations

import pytest
from slow_cases import quick_first

from greenfast.db import convert
from greenfast.search.devices.facts import device
from greenfast.search.diagnose.album import entries
from greenfast.search.loop.plan import SearchRequest, make_plan
from greenfast.search.oracle.cases import derived_cases
from greenfast.search.oracle.drawn import DRAWN_CASES, DRAWN_SHARE, LEAST_FLOP, drawn_cases
from greenfast.search.oracle.own_multiples import multiple_cases, tile_numbers
from greenfast.search.oracle.reference import case_data, kernel_module
from greenfast.search.space.candidate import preset_candidate
from greenfast.search.space.space import resolve

SECRETS = range(40)
# The album's tile needs K and N of 8: only its checks say so.
KERNELS = ("attention", "attention_fp8", "rmsnorm", "axpy", "tile", "reduce", "histogram")


def _derived(kernel):
    template, preset = kernel.preset(kernel.baseline)
    compiled = kernel.workloads[0].compile_time(kernel)
    candidate = preset_candidate(template, preset.name, compiled)
    point = resolve(template, candidate.parameters, compiled, device("h200"))
    return compiled, derived_cases(kernel, compiled, point.tiles, 0)


def _flop(kernel, case):
    return kernel.work_flop(case.values(kernel))


@pytest.mark.parametrize("name", quick_first(KERNELS, 3))
def test_drawn_sizes_are_new_and_cheap_and_such_that_the_reference_takes_them(album, name):
    kernel = album.kernel(name)
    compiled, derived = _derived(kernel)
    known = {case.dims for case in derived} | {workload.dims for workload in kernel.workloads}
    total_flop = sum(_flop(kernel, case) for case in derived)
    for secret in SECRETS:
        cases = drawn_cases(kernel, compiled, derived, secret, 0)
        assert len(cases) == DRAWN_CASES
        assert not known & {case.dims for case in cases}
        assert len({case.dims for case in cases}) == DRAWN_CASES
        drawn_flop = [_flop(kernel, case) for case in cases]
        assert min(drawn_flop) > 0
        # Short dims count as whole tiles, so the whole share is seldom used.
        assert sum(drawn_flop) <= 2 * DRAWN_CASES * max(DRAWN_SHARE * total_flop, LEAST_FLOP)
    kernel_module(kernel).reference(
        dict(cases[0].dims),
        dict(cases[0].options),
        kernel_module(kernel).make_inputs(
            dict(cases[0].dims), dict(cases[0].options), cases[0].inputs, cases[0].seed, {}
        ),
    )


def test_the_same_secret_draws_the_same_and_another_draws_others(album):
    kernel = album.kernel("attention")
    compiled, derived = _derived(kernel)
    drawn = [drawn_cases(kernel, compiled, derived, secret, 0) for secret in SECRETS]
    assert drawn[7] == drawn_cases(kernel, compiled, derived, 7, 0)
    assert len({tuple(case.dims for case in cases) for cases in drawn}) == len(drawn)


def test_a_dim_stays_a_multiple_of_the_dim_that_divides_it(album):
    kernel = album.kernel("attention")
    compiled, derived = _derived(kernel)
    heads = set()
    for secret in SECRETS:
        for case in drawn_cases(kernel, compiled, derived, secret, 0):
            dims = dict(case.dims)
            heads.add((dims["H"], dims["H_kv"]))
    assert all(queries % keys == 0 for queries, keys in heads)
    assert len(heads) >= 6 and any(queries > keys > 1 for queries, keys in heads)


def test_sizes_keep_the_common_divisor_of_the_sizes_that_are_checked(album):
    kernel = album.kernel("tile")
    compiled, derived = _derived(kernel)
    rows = set()
    for secret in SECRETS:
        for case in drawn_cases(kernel, compiled, derived, secret, 0):
            dims = dict(case.dims)
            assert dims["K"] % 8 == 0 and dims["N"] % 8 == 0
            rows.add(dims["M"])
    assert any(size % 2 for size in rows)


def test_some_sizes_are_longer_than_any_check(album):
    kernel = album.kernel("axpy")
    compiled, derived = _derived(kernel)
    longest = max(dict(case.dims)["N"] for case in derived)
    for secret in SECRETS:
        last = drawn_cases(kernel, compiled, derived, secret, 0)[-1]
        assert longest < dict(last.dims)["N"] <= 4096


def test_two_searches_draw_different_sizes_and_a_stored_one_draws_the_same_again(album):
    request = SearchRequest("axpy", seed=3)
    first, second = make_plan(request, album), make_plan(request, album)
    assert first.sizes_secret != second.sizes_secret
    assert convert.plan_of(convert.plan_json(first)).sizes_secret == first.sizes_secret


def test_a_plan_of_an_earlier_version_draws_nothing(album):
    text = convert.plan_json(make_plan(SearchRequest("axpy"), album))
    before, _, rest = text.partition('"sizes_secret":')
    old = before.rstrip(", ") + rest.lstrip(" 0123456789")
    assert convert.plan_of(old).sizes_secret is None


def test_the_twin_that_is_correct_on_the_known_sizes_knows_all_of_them(album):
    """Its album entry fails for the drawn sizes and for nothing else."""
    kernel = album.kernel("axpy")
    _, derived = _derived(kernel)
    sizes = {dict(case.dims)["N"] for case in derived}
    sizes |= {dict(workload.dims)["N"] for workload in kernel.workloads}
    text = kernel.template("broken").text
    assert all(f"N == {size}" in text for size in sizes)
    assert any(entry.name == "known_sizes_only" and entry.stage for entry in entries())


DIMS = 'N = { time = "run", doc = "elements" }'
HALO = f'{DIMS}\nP = {{ time = "run", default = "N + 2" }}'


@pytest.mark.parametrize("requires", [True, False])
def test_a_dim_that_follows_from_others_does_so_in_what_is_drawn(broken_kernel, requires):
    """A halo of one on each side: `requires` states it, or the reference fails on other sizes."""
    if requires:
        rule = '[[requires]]\nthat = "P == N + 2"\nbecause = "the halo is one"\n\n[work]'
        broken_kernel("kernel.toml", "[work]", rule)
    else:
        unpacked = 'if dims["P"] != dims["N"] + 2:\n        raise IndexError\n    '
        broken_kernel("reference.py", "storage = STORAGE", unpacked + "storage = STORAGE")
    kernel = broken_kernel("kernel.toml", DIMS, HALO).kernel("axpy")
    compiled, derived = _derived(kernel)
    for secret in range(8):
        cases = drawn_cases(kernel, compiled, derived, secret, 0)
        sizes = [dict(case.dims) for case in cases]
        assert len(sizes) == DRAWN_CASES and all(each["P"] == each["N"] + 2 for each in sizes)


def test_a_dim_with_another_as_its_default_is_drawn_apart_from_it(broken_kernel):
    kernel = broken_kernel("kernel.toml", DIMS, HALO.replace("N + 2", "N")).kernel("axpy")
    compiled, derived = _derived(kernel)
    sizes = [
        dict(case.dims)
        for secret in range(8)
        for case in drawn_cases(kernel, compiled, derived, secret, 0)
    ]
    assert any(each["P"] != each["N"] for each in sizes)


def test_whole_steps_follow_from_the_odd_factors_of_a_block_and_of_tiles_in_the_text():
    text = "const int step = 96 * 8; // of 7777\n/* 56 */ x & 0x1f; y * 1.088f; i < 31; tile = 160;"
    assert tile_numbers(text) == [96, 160]


@pytest.mark.parametrize("name", KERNELS)
def test_some_case_has_whole_steps_of_every_dim_that_has_room_for_them(album, name):
    kernel = album.kernel(name)
    compiled, derived = _derived(kernel)
    assert multiple_cases(kernel, compiled, derived, [64, 1024]) == ()
    cases = multiple_cases(kernel, compiled, derived, [96])
    assert cases and not {case.dims for case in cases} & {case.dims for case in derived}
    for case in cases:
        assert dict(case.dims)[case.name.removeprefix("whole_steps_of_")] % 24 == 0
        assert case_data(kernel, case).outputs


def test_a_step_of_three_times_256_is_met(album):
    kernel = album.kernel("rmsnorm")
    compiled, derived = _derived(kernel)
    *_, case = multiple_cases(kernel, compiled, derived, [96])
    assert dict(case.dims)["N"] % (3 * 256) == 0

"""gemm/wgmma with `short_last`: sums whose length ends within a step of 64 elements."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest
from changed_subjects import changed_subject
from slow_cases import quick_first

from greenfast.search.digest import digest
from greenfast.search.gates.correctness import CorrectnessGate
from greenfast.search.gates.safety import SafetyGate
from greenfast.search.kernels.expressions import expression
from greenfast.search.verdict import Outcome

# Less than one step, whole ones, and each number of runs of 16 in the last.
LENGTHS = ("8", "64", "72", "88", "168", "184", "192")
FORMS = {
    "tokens_64": ("no", {"stages": 2, "split_k": 2}),
    "turns_128": ("yes", {"stages": 3}),
    "tall_192": ("no", {"stages": 2}),
}


def at_every_length(kernel):
    like = next(check for check in kernel.checks if "K" in dict(check.dims))
    checks = []
    for k in LENGTHS:
        dims = dict(like.dims) | {"M": expression("72", "test"), "N": expression("136", "test")}
        dims["K"] = expression(k, "test")
        checks.append(replace(like, name=f"length_{k}", dims=tuple(dims.items())))
    return replace(kernel, checks=tuple(checks))


@pytest.mark.parametrize("preset", quick_first(FORMS, 1))
def test_every_length_is_right(catalogue, emulator, preset):
    turned, parameters = FORMS[preset]
    options = {"turned_a": int(turned == "yes"), "turned_b": int(turned == "yes")}
    compiled = (("dtype", "bf16"), ("activation", "none"), ("bias", "no"), ("residual", "no"))
    made = changed_subject(
        catalogue,
        emulator,
        "gemm",
        "wgmma",
        preset,
        {"short_last": True, **parameters},
        compiled=(*compiled, *options.items()),
    )
    conditions = replace(made.conditions, kernel=at_every_length(made.kernel))
    for gate in (CorrectnessGate(), SafetyGate()):
        judged = gate.judge(replace(made, conditions=conditions))
        assert judged.outcome is Outcome.PASSED, judged


@pytest.mark.slow
def test_a_slot_released_before_the_short_step_has_read_it_is_a_race(catalogue, emulator):
    """Only blocks that go on to another tile fill the slot again."""
    right = changed_subject(
        catalogue,
        emulator,
        "gemm",
        "wgmma",
        "tall_192",
        {"short_last": True, "stages": 3, "tile_n": 64, "consumers": 1},
    )
    wait, release = "gf::wgmma_wait<1>();", "release(*shared.barriers, position, before);"
    before, _, short = right.source.unit.partition("if (last_elements) {")
    place = re.compile(rf"{re.escape(wait)}\s+{re.escape(release)}")
    unit = f"{before}if (last_elements) {{{place.sub(f'{release} {wait}', short, count=1)}"
    assert unit != right.source.unit
    wrong = replace(right, source=replace(right.source, unit=unit, digest=digest(unit)))
    judged = SafetyGate().judge(wrong)
    assert judged.outcome is Outcome.FAILED and "matrix product" in judged.sentence

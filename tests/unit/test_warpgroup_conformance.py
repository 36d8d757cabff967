"""The products that are compared with a GPU are right on the emulator, and cover every shape."""

from __future__ import annotations

import itertools
import re

import pytest
from emulator_harness import prepared

from bench.correctness.conformance import all_cases, cases
from bench.correctness.conformance.warpgroups import COLUMNS, SWIZZLES, TYPES, warpgroup_products
from bench.correctness.gpu_conformance import emulated, unexpected_outputs

CASES = {case.name: case for case in warpgroup_products()}
QUICK = (
    "wgmma __nv_bfloat16 with A and B turned",
    "wgmma __nv_fp8_e5m2 from registers with all swizzles",
    "wgmma groups of two warpgroups",
)
CALL = re.compile(r"product<(\d+), \d+, (\d+), (\d+), (\d), (\d), (\d), \d>")


@pytest.fixture(scope="module")
def emulator(artifacts):
    return prepared(artifacts)


def products(element: str) -> set[tuple[int, ...]]:
    """N, both swizzles, which of A and B is turned, and whether A lies in registers."""
    source_of = f"using Element = {element};"
    return {
        tuple(map(int, call))
        for case in CASES.values()
        if source_of in case.source
        for call in CALL.findall(case.source)
    }


@pytest.mark.parametrize("element", TYPES)
def test_each_type_has_every_n_from_both_sources_and_every_swizzle(element):
    made = products(element)
    for n, registers in itertools.product(COLUMNS, (0, 1)):
        assert (n, 128, 128, 0, 0, registers) in made
    turned = [(0, 0)] if TYPES[element].itemsize == 1 else itertools.product((0, 1), repeat=2)
    for a, b in turned:
        for pair in itertools.product(SWIZZLES, repeat=2):
            assert (24, *pair, a, b, 0) in made
        if not a:
            assert {each[2] for each in made if each[3:] == (0, b, 1)} == set(SWIZZLES)


def test_the_products_are_among_all_cases():
    assert {case.name for case in all_cases()} == {case.name for case in cases()} | set(CASES)


@pytest.mark.parametrize("flavour", ["plain", pytest.param("checked", marks=pytest.mark.slow)])
@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=() if n in QUICK else pytest.mark.slow) for n in CASES]
)
def test_a_product_is_exact_on_the_emulator(emulator, name, flavour):
    case = CASES[name]
    assert set(case.expected) == set(case.outputs)
    assert unexpected_outputs(case, emulated(emulator, case, flavour=flavour)) == []

"""The products that are compared with a GPU are right on the emulator, and cover every shape."""

from __future__ import annotations

import itertools
import re

import numpy as np
import pytest
from emulator_harness import prepared

from bench.correctness.conformance import all_cases, cases
from bench.correctness.conformance.warpgroups import COLUMNS, TYPES, expected, warpgroup_products
from bench.correctness.gpu_conformance import emulated

CASES = {case.name: case for case in warpgroup_products()}
QUICK = (
    "wgmma __nv_bfloat16 with A and B turned",
    "wgmma __nv_fp8_e5m2 with a swizzle of 64 bytes",
)


@pytest.fixture(scope="module")
def emulator(artifacts):
    return prepared(artifacts)


def test_every_n_is_there_from_both_sources_in_both_widths_and_every_swizzle():
    shapes = {
        (element, int(n), "from registers" in name)
        for name, case in CASES.items()
        for element, n in re.findall(r"GF_WGMMA_SHAPE\((\w+), (\d+)\)", case.source)
    }
    for width, registers in itertools.product((2, 1), (False, True)):
        of_width = {name for name, dtype in TYPES.items() if dtype.itemsize == width}
        assert {n for element, n, r in shapes if element in of_width and r == registers} == set(
            COLUMNS
        )
    for element in TYPES:
        for swizzle in (0, 32, 64):
            assert f"wgmma {element} with a swizzle of {swizzle} bytes" in CASES
    assert sum("turned" in name for name in CASES) == 8
    assert {case.name for case in all_cases()} == {case.name for case in cases()} | set(CASES)


@pytest.mark.parametrize("flavour", ["plain", pytest.param("checked", marks=pytest.mark.slow)])
@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=() if n in QUICK else pytest.mark.slow) for n in CASES]
)
def test_a_product_is_exact_on_the_emulator(emulator, name, flavour):
    case = CASES[name]
    outputs = emulated(emulator, case, flavour=flavour)
    for output, right in expected(case).items():
        assert np.array_equal(outputs[output], right), output

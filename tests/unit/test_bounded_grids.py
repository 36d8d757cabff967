"""A grid of a fixed number of blocks gets a case in which a block has several tiles."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

import pytest

from greenfast.search.devices.facts import device
from greenfast.search.gates.bounded_grids import walked_cases
from greenfast.search.kernels.expressions import expression
from greenfast.search.oracle.cases import derived_cases
from greenfast.search.oracle.reference import case_data
from greenfast.search.space.candidate import preset_candidate
from greenfast.search.space.space import resolve


@pytest.mark.parametrize(
    ("grid", "at_least"),
    [
        ("M", 0),
        ("ceil_div(M, 4)", 0),
        ("264", 8 * 264),
        ("min(M, 264)", 8 * 264),
        ("min(ceil_div(M, 4), 100)", 8 * 100),
        ("5000", 0),  # more than any workload has rows
    ],
)
def test_a_bounded_grid_walks_in_one_more_case(catalogue, grid, at_least):
    kernel = catalogue.kernel("rmsnorm")
    template, preset = kernel.preset(kernel.baseline)
    compiled = kernel.workloads[0].compile_time(kernel)
    parameters = preset_candidate(template, preset.name, compiled).parameters
    point = resolve(template, parameters, compiled, device("h200"))
    derived = derived_cases(kernel, compiled, point.tiles, 0)
    (launch,) = template.launches
    sizes = (expression(grid, "grid"), *launch.grid[1:])
    template = replace(template, launches=(replace(launch, grid=sizes),))
    subject = SimpleNamespace(kernel=kernel, compiled=compiled, template=template, point=point)
    cases = walked_cases(subject, derived)
    assert bool(cases) == bool(at_least)
    for case in cases:
        assert dict(case.dims)["M"] >= at_least and dict(case.dims)["N"] > 1
        assert case_data(kernel, case).outputs

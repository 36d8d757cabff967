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
    ("grid", "shares"),
    [
        ("M", ()),
        ("ceil_div(M, 4)", ()),
        ("ceil_div(M, 128)", ()),
        ("264", (8 * 264, 31 * 264)),  # the second: as many rows as a workload has
        ("min(M, 264)", (8 * 264, 31 * 264)),
        ("min(ceil_div(M, 4), 100)", (8 * 100, 64 * 100)),
        ("min(M, 2)", (8 * 2, 256 * 2)),
        ("5000", ()),  # more than any workload has rows
    ],
)
def test_a_bounded_grid_walks_in_more_cases(catalogue, grid, shares):
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
    assert len(cases) == len(shares)
    for case, rows in zip(cases, shares, strict=True):
        assert dict(case.dims)["M"] >= rows
        assert case_data(kernel, case).outputs

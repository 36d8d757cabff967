"""A grid of a fixed number of blocks gets a case in which a block has several tiles."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

import pytest

from greenfast.search.devices.facts import device
from greenfast.search.gates.bounded_grids import walked_cases
from greenfast.search.kernels.expressions import expression
from greenfast.search.kernels.submitted_name import NAME_DIGITS, PREFIX
from greenfast.search.oracle.cases import derived_cases
from greenfast.search.oracle.reference import case_data
from greenfast.search.space.candidate import preset_candidate
from greenfast.search.space.space import resolve


@pytest.mark.parametrize(
    ("grid", "tile_rows", "at_least"),
    [
        ("M", 1, 0),
        ("ceil_div(M, 4)", 4, 0),
        ("264", 1, 8 * 264),
        ("min(M, 264)", 1, 8 * 264),
        ("min(ceil_div(M, 4), 100)", 4, 8 * 100),
        ("132", 16, 2 * 16 * 132 - 15),  # two tiles for each block
        ("264", 256, 8 * 264),  # two tiles are more than any workload has rows
        ("5000", 1, 0),  # and so are eight rows
    ],
)
def test_a_bounded_grid_walks_in_one_more_case(catalogue, grid, tile_rows, at_least):
    subject, derived = _subject(catalogue, grid, tile_rows)
    cases = walked_cases(subject, derived)
    assert bool(cases) == bool(at_least)
    for case in cases:
        assert dict(case.dims)["M"] >= at_least and dict(case.dims)["N"] > 1
        assert case_data(subject.kernel, case).outputs


def test_a_submitted_source_is_not_trusted_with_its_tiles(catalogue):
    """It claims one row. Sixteen rows are the largest tile of which some block has two."""
    subject, derived = _subject(catalogue, "132", 1, f"{PREFIX}{NAME_DIGITS * '0'}")
    rows = [dict(case.dims)["M"] for case in walked_cases(subject, derived)]
    assert len(rows) == 2 and rows[0] >= 8 * 132 and rows[1] > 31 * 132


def _subject(catalogue, grid, tile_rows, name="row"):
    kernel = catalogue.kernel("rmsnorm")
    template, preset = kernel.preset(kernel.baseline)
    compiled = kernel.workloads[0].compile_time(kernel)
    parameters = preset_candidate(template, preset.name, compiled).parameters
    point = resolve(template, parameters, compiled, device("h200"))
    (launch,) = template.launches
    sizes = (expression(grid, "grid"), *launch.grid[1:])
    template = replace(template, name=name, launches=(replace(launch, grid=sizes),))
    point = replace(point, tiles={**point.tiles, "tile_rows": tile_rows})
    derived = derived_cases(kernel, compiled, point.tiles, 0)
    subject = SimpleNamespace(kernel=kernel, compiled=compiled, template=template, point=point)
    return subject, derived

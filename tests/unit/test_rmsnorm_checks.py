"""Checks of a kernel with other tile names than attention's, sized by its templates' tiles."""

from __future__ import annotations

import shutil

import pytest

from greenfast.search.devices.facts import device
from greenfast.search.errors import SpecError
from greenfast.search.kernels.catalogue import REPOSITORY_TEMPLATES, Catalogue
from greenfast.search.oracle.cases import derived_cases
from greenfast.search.oracle.problem import lay_out
from greenfast.search.oracle.reference import case_data
from greenfast.search.space.space import resolve
from greenfast.search.targets.cuda.large_reference import small_case


@pytest.fixture(scope="module")
def kernel(catalogue):
    return catalogue.kernel("rmsnorm")


def cases_of(kernel, preset):
    template, spec = kernel.preset(preset)
    compiled = kernel.workloads[0].compile_time(kernel)
    point = resolve(template, spec.parameters, compiled, device("h200"))
    return (
        template,
        point,
        {case.name: case for case in derived_cases(kernel, compiled, point.tiles, 0)},
    )


@pytest.mark.parametrize(
    ("preset", "rows", "columns", "kept"),
    [
        ("row:plain", 1, 2048, 8192),
        ("row:warps", 4, 256, 1024),
        ("row:twice", 1, 2048, 2048),
        ("split:cluster", 1, 4096, 8192),
        ("split:two_kernels", 1, 4096, 4096),
    ],
)
def test_lengths_sit_on_the_edges_of_a_candidates_own_tiles(kernel, preset, rows, columns, kept):
    _, _, cases = cases_of(kernel, preset)
    sizes = {name: (dict(case.dims)["M"], dict(case.dims)["N"]) for name, case in cases.items()}
    assert sizes["tile_exact"] == (rows, columns) and sizes["tile_plus_vector"] == (
        rows + 1,
        columns + 8,
    )
    assert sizes["tile_plus_one"] == (rows + 1, columns + 1) and sizes["kept_exact"] == (1, kept)
    assert sizes["more_than_is_kept"] == (2, kept + columns + 8) and sizes["one_element"] == (1, 1)


def test_padded_rows_begin_with_a_vector_and_no_two_tensors_share_a_stride(kernel):
    template, point, cases = cases_of(kernel, "row:plain")
    for name, aligned in (("tile_minus_one", True), ("tile_plus_one", False)):
        laid_out = lay_out(kernel, template, point, cases[name], case_data(kernel, cases[name]))
        strides = [tensor.strides[0] for tensor in laid_out.tensors if len(tensor.shape) == 2]
        assert dict(cases[name].dims)["N"] % 8
        assert all((stride % 8 == 0) is aligned for stride in strides)
        assert not aligned or len(set(strides)) == len(strides)


def test_a_tile_that_no_template_declares_is_refused_with_those_that_are(tmp_path):
    folder = tmp_path / "rmsnorm"
    shutil.copytree(REPOSITORY_TEMPLATES / "rmsnorm", folder)
    text = (folder / "kernel.toml").read_text()
    (folder / "kernel.toml").write_text(text.replace('N = "tile_columns"', 'N = "tile_q"'))
    with pytest.raises(SpecError, match="tile_q") as refused:
        Catalogue([tmp_path]).kernel("rmsnorm")
    assert {"tile_rows", "tile_columns", "kept_columns"} <= set(
        str(refused.value.mend).replace("known: ", "").split(", ")
    )


def test_the_small_case_that_a_gpus_reference_is_tried_on_is_the_kernels_own(kernel):
    small = small_case(
        kernel, next(iter(cases_of(kernel, "row:plain")[2].values())), device("h200")
    )
    assert small.name == "more_than_is_kept" and set(dict(small.tiles)) == {
        "tile_rows",
        "tile_columns",
        "kept_columns",
    }

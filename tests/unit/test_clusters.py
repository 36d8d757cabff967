"""Thread block clusters in templates: read, checked against grid and device, and launched."""

from __future__ import annotations

import shutil

import pytest

from greenfast.search.devices.clusters import declared_clusters, device_lacks, misdeclared, misfit
from greenfast.search.devices.facts import device
from greenfast.search.diagnose.album import FOLDER
from greenfast.search.diagnose.brought import read_brought
from greenfast.search.errors import SpecError
from greenfast.search.kernels.catalogue import Catalogue
from greenfast.search.oracle.cases import workload_case
from greenfast.search.oracle.problem import launches
from greenfast.search.space.candidate import complete_parameters
from greenfast.search.space.space import Space, resolve


@pytest.fixture
def changed(tmp_path):
    """The album's cluster kernel with one change of right.toml, and a function for its launches."""

    def change(old: str, new: str):
        folder = tmp_path / "templates" / "cluster"
        shutil.copytree(FOLDER / "cluster", folder)
        path = folder / "right.toml"
        assert old in path.read_text()
        path.write_text(path.read_text().replace(old, new))
        return Catalogue([tmp_path / "templates"]).kernel("cluster")

    return change


def _launches(kernel, **given):
    template = kernel.template("right")
    point = resolve(template, complete_parameters(template, given, ()), (), device("h200"))
    return launches(
        template, {**workload_case(kernel.workload("rows"), 0).values(kernel), **point.values}
    )


def test_a_templates_cluster_reaches_the_launch(album):
    (launch,) = _launches(album.kernel("cluster"), blocks=8)
    assert (launch.grid, launch.cluster) == ((8, 3, 1), (8, 1, 1))
    assert all(
        launch.cluster == (1, 1, 1)
        for launch in launches(
            album.kernel("axpy").template("right"), {"N": 100, "threads": 128, "per_thread": 1}
        )
    )


def test_a_grid_that_is_no_multiple_of_its_cluster_is_refused_with_both(changed):
    kernel = changed('grid = ["blocks"', 'grid = ["blocks + 1"')
    with pytest.raises(
        SpecError, match="5 x 3 x 1 blocks is not a multiple of its cluster of 4 x 1 x 1"
    ) as no:
        _launches(kernel)
    assert no.value.code == "bad_cluster"


@pytest.mark.parametrize(
    ("cluster", "grid", "reason"),
    [
        ((2, 1, 1), (4, 3, 1), ""),
        ((1, 3, 1), (4, 3, 1), ""),
        ((2, 3, 1), (4, 4, 1), "not a multiple"),
        ((0, 1, 1), (4, 1, 1), "from 1"),
        ((-2, 1, 1), (4, 1, 1), "from 1"),
        ((1, 1, 2), (4, 4, 1), "not a multiple"),
    ],
)
def test_a_cluster_divides_its_grid(cluster, grid, reason):
    assert reason in misfit(cluster, grid) and bool(reason) == bool(misfit(cluster, grid))


@pytest.mark.parametrize(
    ("cluster", "which", "reason"),
    [
        ((8, 1, 1), "h200", ""),
        ((2, 2, 2), "h100", ""),
        ((4, 4, 1), "h200", "at most 8 run on every device"),
        ((1, 1, 1), "l4", ""),
        ((2, 1, 1), "l4", "clusters need sm_90"),
        ((2, 1, 1), "a100", "a100 is sm_80"),
    ],
)
def test_devices_say_what_clusters_they_lack(cluster, which, reason):
    assert reason in device_lacks(cluster, device(which)) and bool(reason) == bool(
        device_lacks(cluster, device(which))
    )


def test_points_with_clusters_are_outside_the_space_of_a_device_without(changed):
    kernel = changed("minimum_sm = 90", "minimum_sm = 80")
    template = kernel.template("right")
    point = complete_parameters(template, {}, ())
    assert Space(template, (), device("h200")).why_not(point) is None
    assert "clusters need sm_90" in Space(template, (), device("a100")).why_not(point)
    assert "at most 8 run on every device" in Space(
        changed_to_sixteen(template), (), device("h200")
    ).why_not(point)


def changed_to_sixteen(template):
    from dataclasses import replace

    from greenfast.search.kernels.expressions import expression

    (launch,) = template.launches
    sixteen = tuple(expression(size, "right.toml") for size in ("4", "4", "1"))
    return replace(template, launches=(replace(launch, cluster=sixteen),))


TEXT = """extern "C" __global__ void __cluster_dims__(2, 1, 1) __launch_bounds__(64)
pair(float* x) { if (x) x[0] = 1; }
extern "C" __global__ void alone(float* x) { x[1] = 2; }
extern "C" __global__ void __cluster_dims__(4)
wide(float* x) { alone(x); }
"""


def test_a_text_declares_the_clusters_of_its_own_entries_only():
    assert declared_clusters(TEXT, ("pair", "alone", "wide")) == (
        ("pair", (2, 1, 1)),
        ("wide", (4, 1, 1)),
    )
    assert misdeclared(TEXT, [("pair", (2, 1, 1)), ("alone", (1, 1, 1))]) == ""
    assert "alone declares no cluster" in misdeclared(TEXT, [("alone", (2, 1, 1))])
    assert "wide declares clusters of 4 x 1 x 1" in misdeclared(TEXT, [("wide", (1, 1, 1))])


@pytest.mark.parametrize("sizes", [",", " ", "1 2", "1,,2", "9" * 5000, "1,2,3,4"])
def test_a_declaration_without_sizes_is_none(sizes):
    """Each of them was a fault of ours, also in a comment, which no compiler refuses."""
    assert declared_clusters(f"// __cluster_dims__({sizes}) pair(\n", ("pair",)) == ()


def test_many_declarations_are_read_in_one_pass():
    """Half a megabyte of them kept a worker for minutes; its own reader runs without a deadline."""
    assert declared_clusters("__cluster_dims__(1) " * 25_000, ("pair",)) == ()


LAUNCH = """
[[buffers]]
name = "x"
role = "output"
dtype = "float32"
elements = 4
[[launches]]
entry = "pair"
grid = 4
block = 32
arguments = ["x"]
"""


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("", ""),
        ("cluster = 2", ""),
        ("cluster = [2, 1]", ""),
        ("cluster = 4", "its text declares 2 x 1 x 1"),
        ("cluster = 3", "not a multiple"),
        ("cluster = 0", "above 0, not 0"),
        ("cluster = [2, 2, 2, 2]", "one to three"),
        ('cluster = "2"', "must be int or list"),
        ("clusters = 2", "unknown key 'clusters'"),
    ],
)
def test_a_launch_file_says_its_cluster_or_leaves_it_to_the_text(tmp_path, line, message):
    (tmp_path / "k.cu").write_text(TEXT)
    (tmp_path / "launch.toml").write_text(LAUNCH + line + "\n")
    if message:
        with pytest.raises(SpecError, match=message):
            read_brought(tmp_path / "k.cu", tmp_path / "launch.toml", (), 0)
    else:
        brought = read_brought(tmp_path / "k.cu", tmp_path / "launch.toml", (), 0)
        assert brought.problem.launches[0].cluster == (2, 1, 1)


def test_a_launch_file_asks_for_eight_blocks_at_most(tmp_path):
    (tmp_path / "k.cu").write_text(
        TEXT.replace("pair", "other") + TEXT.splitlines()[1].replace("alone", "pair")
    )
    (tmp_path / "launch.toml").write_text(
        LAUNCH.replace("grid = 4", "grid = 16") + "cluster = 16\n"
    )
    with pytest.raises(SpecError, match="8 are the most"):
        read_brought(tmp_path / "k.cu", tmp_path / "launch.toml", (), 0)

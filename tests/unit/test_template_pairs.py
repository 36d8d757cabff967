"""Points rendered with the templates of two folders: which texts are equal and which differ."""

from __future__ import annotations

import shutil

import pytest

from bench.correctness.same_sources import difference
from bench.correctness.template_pairs import (
    catalogue_of,
    changed_templates,
    preset_points,
    random_points,
    rendered_pair,
    templates_of,
)
from greenfast.search.devices.facts import device
from greenfast.search.kernels.catalogue import REPOSITORY_TEMPLATES

GPU = device("h200")


@pytest.fixture
def edited(tmp_path):
    """A copy of the shipped templates, and a function that replaces a text in one of its files."""
    copy = tmp_path / "kernel_templates"
    shutil.copytree(REPOSITORY_TEMPLATES, copy)

    def edit(file: str, old: str, new: str) -> None:
        path = copy / file
        assert old in path.read_text()
        path.write_text(path.read_text().replace(old, new))

    return tmp_path, edit


def test_jinja_that_renders_to_the_same_text_changes_the_template_and_no_text(edited):
    folder, edit = edited
    edit("rmsnorm/row.cu.j2", '{% set kept_h = "kept', '{# a comment #}\n{% set kept_h = "kept')
    before, after = REPOSITORY_TEMPLATES, templates_of(folder)
    assert changed_templates(before, after) == ("rmsnorm/row",)
    old, new = catalogue_of(before), catalogue_of(after)
    kernel = old.kernel("rmsnorm")
    points = list(random_points(kernel, kernel.template("row"), GPU, seed=1, count=20))
    assert len({point.digest for point in points}) == 20 and any(point.probe for point in points)
    assert all(rendered_pair(old, new, point).is_same_text for point in points)


def test_a_text_that_differs_in_one_branch_only_is_found_there_and_nowhere_else(edited):
    folder, edit = edited
    edit("rmsnorm/row.cu.j2", "        *row.probe = sum;", "        *row.probe = sum + 0.0f;")
    old, new = catalogue_of(REPOSITORY_TEMPLATES), catalogue_of(templates_of(folder))
    kernel = old.kernel("rmsnorm")
    pairs = [
        rendered_pair(old, new, point)
        for point in list(preset_points(kernel, kernel.template("row"), GPU))[:30]
    ]
    differing = {pair.point.probe for pair in pairs if not pair.is_same_text}
    assert differing == {"sum_of_squares"}
    shown = difference(next(pair for pair in pairs if not pair.is_same_text))
    assert "+        *row.probe = sum + 0.0f;" in shown

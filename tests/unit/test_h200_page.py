"""docs/h200.md and its plots are as bench/pages/h200_page.py makes them from the results."""

from __future__ import annotations

import xml.etree.ElementTree as ElementTree

import pytest

from bench.pages.h200_page import SECTIONS, pages
from bench.pages.sections import DOCS
from bench.pages.svg import Axis, Series, linear_axis, log_axis, plot


@pytest.fixture(scope="module")
def files():
    return pages()


def test_the_page_and_its_plots_are_what_the_results_make_of_them(files):
    stale = [
        path.name
        for path, content in files.items()
        if not path.is_file() or path.read_text() != content
    ]
    assert not stale, f"{', '.join(stale)}: run `python -m bench.pages.h200_page --save`"


def test_no_plot_is_left_that_nothing_makes(files):
    assert set(DOCS.glob("h200_*.svg")) <= files.keys()


def test_every_section_has_its_place_and_every_plot_is_shown(files):
    text = files[DOCS / "h200.md"]
    assert text.count("bench/pages/h200_page.py) -->") == len(SECTIONS)
    for path in files:
        assert path.suffix != ".svg" or f"]({path.name})" in text


def test_axes_hold_all_values():
    for values in ([3.0, 90.0], [1.0, 1.0], [0.07, 2000.0]):
        axis = log_axis("us", values)
        assert axis.low <= min(values) and max(values) <= axis.high and axis.low < axis.high
        assert all(0 <= axis.share(value) <= 1 for value in (*values, *axis.ticks))
    axis = linear_axis("ratio", 0.0, 1.13, 0.25)
    assert (axis.low, axis.high, len(axis.ticks)) == (0.0, 1.25, 6)


def test_a_plot_is_xml_with_every_point_and_escaped_names():
    x = Axis("a < b", 0.0, 1.0, (0.0, 1.0), names=("<one>", "two"))
    text = plot(
        "T & t",
        x,
        linear_axis("y", 0, 2, 1),
        [Series("s&s", ((0.0, 1.0), (1.0, 2.0)), ((0.5, 1.5), (1.0, 2.0)))],
        guides=((1.0, 0.0),),
    )
    root = ElementTree.fromstring(text)
    circles = list(root.iter("{http://www.w3.org/2000/svg}circle"))
    assert len(circles) == 3 and "a &lt; b" in text

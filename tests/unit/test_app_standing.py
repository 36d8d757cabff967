"""What is said of the best of modelled times, and of ratios inside their band."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from greenfast.app.cli.output import microseconds, ratio_in_band
from greenfast.app.dashboard.page_search import overtaken
from greenfast.app.views.progress import band_sentence


def test_the_best_of_modelled_times_is_said_to_be_no_more_than_the_lowest():
    best = SimpleNamespace(time_kind="modelled", time_band=2.0)
    assert "6 other correct candidates lie" in band_sentence(
        best, 6
    ) and "cannot be distinguished" in band_sentence(best, 6)
    assert "1 other correct candidate lies" in band_sentence(best, 1)
    assert "no other correct candidate" in band_sentence(best, 0)
    assert band_sentence(SimpleNamespace(time_kind="measured", time_band=1.01), 0) == ""


def test_a_confirmed_best_that_was_not_the_fastest_of_its_search_says_why_it_is_the_best():
    def point(time_us):
        return SimpleNamespace(time_median_us=time_us)

    best = SimpleNamespace(time_kind="measured", time_median_us=8.0)
    assert overtaken(best, [point(9.0), point(8.0)]) == ""
    assert overtaken(best, [point(7.9), point(8.0)]).startswith(
        "1 other candidate looked faster in the search"
    )
    assert overtaken(SimpleNamespace(time_kind="modelled", time_median_us=8.0), [point(7.9)]) == ""


def test_a_measured_time_says_how_it_found_the_caches():
    assert microseconds(3.2, "measured", "hot") == "3.20 us (measured, hot)"
    assert microseconds(3.2, "modelled", None) == "3.20 us (modelled)" and microseconds(None) == "-"


@pytest.mark.parametrize(
    ("ratio", "kind", "told_apart"),
    [
        (0.74, "modelled", False),
        (0.49, "modelled", True),
        (1.9, "modelled", False),
        (2.1, "modelled", True),
        (0.74, "replayed", False),
        (0.999, "measured", True),
    ],
)
def test_a_ratio_inside_the_band_says_so(ratio, kind, told_apart):
    assert ("a tie" not in ratio_in_band(ratio, kind, 2.0)) == told_apart
    assert ratio_in_band(ratio, kind, 2.0).startswith(f"{ratio:.3f}")

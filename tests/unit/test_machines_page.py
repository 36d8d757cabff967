"""docs/several-machines.md says what the results say."""

from __future__ import annotations

from bench.pages.machines_page import PAGE, costs, pages


def test_the_page_is_up_to_date():
    written = {path: path.read_text() for path in pages()}
    assert PAGE in written and written == pages(), (
        "run `python -m bench.pages.machines_page --save`"
    )


def test_every_cost_is_of_a_result():
    assert {cost.source for cost in costs()} >= {"h200/two_gpus", "nvrtc", "bookkeeping", "store"}
    assert all(0 < cost.seconds < 10 for cost in costs())

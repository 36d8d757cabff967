"""docs/runtime.md says what the results say."""

from bench.pages.runtime_page import DOCS, PAGE, pages, rows


def test_the_page_is_what_the_results_make_of_it():
    assert pages()[PAGE] == PAGE.read_text(), "run `python -m bench.pages.runtime_page --save`"


def test_the_tuning_on_the_page_is_the_recorded_one():
    (row,) = rows("h200/tuning")
    assert "\n".join(row["lines"]) in (DOCS / "tuning.md").read_text()

"""docs/tuning.md says what the results say."""

from bench.pages.tuning_page import PAGE, pages


def test_the_page_is_what_the_results_make_of_it():
    assert PAGE.read_text() == pages()[PAGE], "run `python -m bench.pages.tuning_page --save`"

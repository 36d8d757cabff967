"""docs/runtime.md says what the results say."""

from bench.pages.runtime_page import PAGE, pages


def test_the_page_is_what_the_results_make_of_it():
    assert pages()[PAGE] == PAGE.read_text(), "run `python -m bench.pages.runtime_page --save`"

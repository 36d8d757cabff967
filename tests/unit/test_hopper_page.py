"""docs/hopper.md says what the results say."""

from bench.pages.hopper_page import PAGE, pages


def test_the_page_is_what_the_results_make_of_it():
    text = pages()[PAGE]
    assert "no peer was timed" not in text
    assert PAGE.read_text() == text, "run `python -m bench.pages.hopper_page --save`"

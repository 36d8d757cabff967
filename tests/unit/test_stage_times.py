"""The seconds of a trial's stages: how they are counted, and how they are written."""

from __future__ import annotations

import pytest

from greenfast.app.views.stage_times import STAGE_TIMES, stage_time, stage_words
from greenfast.search.loop.stage_clock import StageClock, Wait
from greenfast.search.verdict import Stage


def test_a_clock_counts_every_second_for_one_stage_and_adds_attempts_up():
    moments = iter([0.0, 1.0, 3.0, 6.0, 10.0, 15.0, 21.0])
    clock = StageClock(render_s=0.5, now=lambda: next(moments))
    clock.enter(Stage.COMPILE)  # 1 s of render before
    clock.enter(Wait.WAITING)  # 2 s of compile
    clock.enter(Stage.RENDER)  # 3 s of waiting, then a second attempt
    clock.enter(Stage.COMPILE)  # 4 s of render
    clock.enter(Stage.SAFETY)  # 5 s of compile
    stages = clock.stop()
    assert stages == (("render", 5.5), ("compile", 7.0), ("safety", 6.0), ("waiting", 3.0))
    assert sum(seconds for _, seconds in stages) == 0.5 + 21.0


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (0.0, "0 ms"),
        (0.0123, "12 ms"),
        (0.9994, "999 ms"),
        (0.9996, "1 s"),
        (1.2345, "1.23 s"),
        (64.14, "64.1 s"),
        (99.96, "100 s"),
        (1234.5, "1234 s"),
    ],
)
def test_a_stage_has_three_digits_at_most_until_its_seconds_need_more(seconds, words):
    assert stage_time(seconds) == words


def test_stages_too_short_to_show_are_left_out_of_the_words():
    assert stage_words({"render": 0.0001, "compile": 0.25, "safety": 2.0}) == (
        "compile 250 ms, safety 2 s"
    )
    assert stage_words(None) == stage_words({}) == ""
    assert " ".join(STAGE_TIMES) == ("render compile ptxas correctness performance safety waiting")

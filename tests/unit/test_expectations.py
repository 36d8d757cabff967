"""What was expected stands beside what came out, with the kind of time and no invention."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from greenfast.app.views.expectations import expectation_of


def plan(hypothesis="", expected_gain=None, cost=""):
    return SimpleNamespace(hypothesis=hypothesis, expected_gain=expected_gain, cost=cost)


def best(ratio, kind="measured"):
    return SimpleNamespace(ratio_to_baseline=ratio, time_kind=kind)


def test_nothing_was_expected_and_nothing_is_said():
    assert expectation_of(plan(), best(0.5)) is None


@pytest.mark.parametrize(
    ("expected", "came_out", "sentence"),
    [
        (
            plan("a ring", 0.05, "2 days"),
            best(0.9),
            (
                "Hypothesis: a ring. 5.0% was expected, and the "
                "measured gain is 10.0%. Expected cost: 2 days."
            ),
        ),
        (
            plan(expected_gain=0.0),
            best(1.25, "modelled"),
            "0.0% was expected, and the modelled gain is -25.0%.",
        ),
        (plan("a ring"), None, "Hypothesis: a ring. No gain is known."),
        (plan(cost="an hour"), best(None), "No gain is known. Expected cost: an hour."),
    ],
)
def test_the_sentence_holds_both(expected, came_out, sentence):
    assert expectation_of(expected, came_out).sentence == sentence

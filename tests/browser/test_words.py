"""How values are written on pages."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from greenfast.app.dashboard import words


@pytest.mark.parametrize(
    "value, text",
    [
        (None, words.NOTHING),
        (0.0123, "0.0123 µs"),
        (7.3149, "7.31 µs"),
        (134.4, "134 µs"),
        (12_345.6, "12,346 µs"),
        (2.5e6, "2,500 ms"),
    ],
)
def test_times_have_three_digits(value, text):
    assert words.time_us(value) == text


@pytest.mark.parametrize(
    "value, text", [(0.0, "0 %"), (1e-7, "< 0.1 %"), (0.031, "3.1 %"), (1.0, "100 %")]
)
def test_a_few_wrong_elements_are_never_0_percent(value, text):
    assert words.share(value) == text


@pytest.mark.parametrize(
    "value, text", [(0.89, "0.89"), (0.949, "0.949"), (1.0004, "1.000"), (3.456, "3.46")]
)
def test_ratios_near_1_have_more_digits(value, text):
    assert words.ratio(value) == text


@pytest.mark.parametrize(
    "value, text",
    [
        (1.9, "1.9 s"),
        (59.4, "59 s"),
        (192, "3 min 12 s"),
        (120, "2 min"),
        (7500, "2 h 5 min"),
        (200_000, "2 d 7 h"),
    ],
)
def test_lengths_of_time_use_two_units(value, text):
    assert words.seconds(value) == text


def test_ages_are_coarse():
    now = datetime(2030, 1, 1, tzinfo=UTC)
    shown = [
        words.ago((now - timedelta(seconds=age_s)).isoformat(), now)
        for age_s in (1, 42, 200, 4000, 10**7)
    ]
    assert shown == ["just now", "42 s ago", "3 min ago", "1 h 6 min ago", "2029-09-07"]
